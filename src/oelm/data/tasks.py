"""Tasks on sentences and pairs of them: where each split comes from, what the labels are, who is held out.

Every choice is a pure function of the texts. What is held out of train or halved goes by the hash of the first text,
so that the pairs of one premise stay together; a training subset is the first N in the order of the hash of the whole
example, so that a smaller subset lies within a larger one, whatever the seed. Subsets are not balanced.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import json
import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from oelm.data.corpora import content_hash, is_empty
from oelm.data.example_files import LINES, TABLES, Example, read_examples
from oelm.data.readers import first_line
from oelm.data.tokens import SPLITS
from oelm.errors import UserError
from oelm.files import sha256_of

ENTAILMENT = ("entailment", "neutral", "contradiction")
SENTIMENT = ("negative", "positive")
OTHER_NAMES = {"contradictory": "contradiction"}  # as XNLI's translated training files write it
LANGUAGES = ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh")
UNLABELLED = "-"  # where MNLI's annotators did not agree
# Where nothing but train is there to tune on: so much of it, at most so many different texts.
TUNE_SHARE, TUNE_TEXTS = 0.05, 4_000
MOST_LABELS = 1_000


@dataclass(frozen=True)
class Task:
    name: str
    pairs: bool
    labels: tuple[str, ...] | None  # in this order; None: those of the training examples
    val_is_halved: bool = False  # its first half is tune


TASKS = {
    "xnli": Task("xnli", pairs=True, labels=ENTAILMENT),
    "mnli": Task("mnli", pairs=True, labels=ENTAILMENT, val_is_halved=True),
    "sst2": Task("sst2", pairs=False, labels=SENTIMENT),
}
OWN_TASKS = {"pairs": Task("pairs", pairs=True, labels=None), "sentences": Task("sentences", pairs=False, labels=None)}


@dataclass(frozen=True)
class Part:
    """The examples of one file or of one split of the hub; `place` names it in errors."""

    place: str
    identity: str  # differs when the examples may differ
    read: Callable[[], Iterator[Example]]
    source_bytes: int | None


@dataclass(frozen=True)
class Source:
    task: Task
    language: str | None
    parts: dict[str, Part]  # train, val, and where the source has them tune, test

    @property
    def identity(self) -> str:
        listing = [[name, part.identity] for name, part in sorted(self.parts.items())]
        return f"{len(listing)} parts {hashlib.sha256(json.dumps(listing).encode()).hexdigest()[:16]}"

    @property
    def split_rule(self) -> str:
        if "tune" in self.parts:
            return "given by the source"
        if self.task.val_is_halved:
            return "tune is half of the source's validation, chosen by the hash of the first text"
        return f"tune is held out of train by the hash of the first text, {TUNE_SHARE:.0%}, at most {TUNE_TEXTS} texts"


# --- where the parts are --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HubSource:
    path: str
    configuration: str | None
    split: str


MULTI_NLI = "nyu-mll/multi_nli"
HUB = {
    "xnli": {
        "train": HubSource(MULTI_NLI, None, "train"),
        "tune": HubSource(MULTI_NLI, None, "validation_matched"),
        "val": HubSource("facebook/xnli", "LANGUAGE", "validation"),
        "test": HubSource("facebook/xnli", "LANGUAGE", "test"),
    },
    "mnli": {
        "train": HubSource(MULTI_NLI, None, "train"),
        "val": HubSource(MULTI_NLI, None, "validation_matched"),
    },
    "sst2": {
        "train": HubSource("nyu-mll/glue", "sst2", "train"),
        "val": HubSource("nyu-mll/glue", "sst2", "validation"),
    },
}
# Part -> (folder below --source, if it is there; what the file's name without its ending is).
LOCAL = {
    "xnli": {
        "train": ("mnli", r"(.*[._-])?train([._-].*)?"),
        "tune": ("mnli", r"(.*[._-])?dev[._-]?matched"),
        "val": ("xnli", r"(xnli[._-])?dev([._-]LANGUAGE)?"),
        "test": ("xnli", r"(xnli[._-])?test([._-]LANGUAGE)?"),
    },
    "mnli": {
        "train": ("mnli", r"(.*[._-])?train([._-].*)?"),
        "val": ("mnli", r"(.*[._-])?dev[._-]?matched"),
    },
    "sst2": {"train": ("sst2", r"train"), "val": ("sst2", r"dev|val|validation")},
}
OPTIONAL = ("tune", "test")
OWN = {"train": r"train", "tune": r"tune", "val": r"val|valid|validation|dev", "test": r"test"}


def open_task(
    name: str,
    *,
    task: str | None = None,
    source_path: Path | None = None,
    language: str | None = None,
    train_file: Path | None = None,
) -> Source:
    """A named task from the hub, or from local files below `source_path`; or a folder of one's own with `task`."""
    if task is not None:
        return own_source(name, task, source_path=source_path, language=language, train_file=train_file)
    if name not in TASKS:
        near = difflib.get_close_matches(name, TASKS, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise UserError(f"{name}: {meant}known are {', '.join(TASKS)}; for a folder of your own add --task pairs")
    language = checked_language(name, language)
    if source_path is None:
        parts = {part: hub_part(name, hub, language) for part, hub in HUB[name].items()}
    else:
        parts = local_parts(name, source_path, language=language, train_given=train_file is not None)
    if train_file is not None:
        parts = {**parts, "train": file_part(existing_file(train_file), TASKS[name], language)}
    return Source(TASKS[name], language, parts)


def checked_language(name: str, language: str | None) -> str:
    known = LANGUAGES if name == "xnli" else ("en",)
    if language not in (None, *known):
        raise UserError(f"language {language!r}: {name} has {', '.join(known)}")
    return language or "en"


def own_source(
    folder: str, task: str, *, source_path: Path | None, language: str | None, train_file: Path | None
) -> Source:
    if task not in OWN_TASKS:
        raise UserError(f"task {task!r}: known are {', '.join(OWN_TASKS)}")
    if source_path is not None or train_file is not None:
        raise UserError(f"{folder}: a folder of your own holds all its files and takes neither --source nor --train")
    if folder in TASKS and not Path(folder).is_dir():
        raise UserError(f"{folder}: a known task, which takes no --task")
    root, spec = existing_folder(Path(folder)), OWN_TASKS[task]
    files = {part: only_file(files_named(root, pattern, deep=False), root, part) for part, pattern in OWN.items()}
    for part in ("train", "val"):
        if files[part] is None:
            endings = " or ".join(f"{part}{ending}" for ending in (TABLES[0], *LINES))
            raise UserError(f"{root}: no {part} split; it must hold {endings}")
    return Source(spec, language, {part: file_part(file, spec, None) for part, file in files.items() if file})


def local_parts(name: str, root: Path, *, language: str, train_given: bool) -> dict[str, Part]:
    existing_folder(root)
    parts = {}
    for part, (folder, pattern) in LOCAL[name].items():
        if part == "train" and train_given:
            continue
        below = root / folder if (root / folder).is_dir() else root
        file = only_file(files_named(below, pattern.replace("LANGUAGE", language)), below, part)
        if file is not None:
            parts[part] = file_part(file, TASKS[name], language if folder == "xnli" else None)
        elif part not in OPTIONAL:
            raise UserError(missing_part(name, part, below, language))
    return parts


def missing_part(name: str, part: str, below: Path, language: str) -> str:
    if part == "train":
        also = " (its English training set is MNLI's)" if name == "xnli" else ""
        return f"{below}: no training file of {name}{also}; put train.tsv there, or name it with --train FILE"
    example = f"dev-{language}.tsv" if name == "xnli" else "dev_matched.tsv" if name == "mnli" else "dev.tsv"
    return f"{below}: no validation file of {name}; put {example} there"


def files_named(folder: Path, pattern: str, *, deep: bool = True) -> list[Path]:
    """Files whose name without its ending fits; of the same name in several formats the most exact."""
    found: dict[Path, Path] = {}
    for ending in (*LINES, *TABLES):
        for file in sorted(folder.rglob(f"*{ending}") if deep else folder.glob(f"*{ending}")):
            if file.is_file() and re.fullmatch(pattern, file.stem.lower()):
                found.setdefault(file.with_suffix(""), file)
    return sorted(found.values())


def only_file(files: list[Path], folder: Path, part: str) -> Path | None:
    if len(files) < 2:
        return files[0] if files else None
    names = ", ".join(str(file.relative_to(folder)) for file in files[:4])
    hint = "name one with --train FILE" if part == "train" else "leave one there"
    raise UserError(f"{folder}: several files could be {part} ({names}); {hint}")


def existing_folder(path: Path) -> Path:
    if not path.is_dir():
        raise UserError(f"{path}: {'is a file, not a folder' if path.exists() else 'no such folder'}")
    return path


def existing_file(path: Path) -> Path:
    if not path.is_file():
        raise UserError(f"{path}: no such file; --train takes a .tsv or .jsonl file")
    return path


def file_part(file: Path, task: Task, language: str | None) -> Part:
    read = partial(read_examples, file, pairs=task.pairs, language=language)
    return Part(str(file), f"{language} {sha256_of(file)}", read, file.stat().st_size)


def hub_part(name: str, hub: HubSource, language: str) -> Part:
    if importlib.util.find_spec("datasets") is None:
        raise UserError(
            f"{name}: downloading it needs the datasets library: pip install 'oelm[hub]'; "
            "or give a local copy with --source FOLDER"
        )
    configuration = language if hub.configuration == "LANGUAGE" else hub.configuration
    where = "/".join(filter(None, ("hub", hub.path, configuration, hub.split)))
    return Part(where, where, partial(read_hub, name, hub.path, configuration, hub.split), None)


def read_hub(name: str, path: str, configuration: str | None, split: str) -> Iterator[Example]:
    fields = ("premise", "hypothesis") if TASKS[name].pairs else ("sentence",)
    try:
        from datasets import load_dataset

        rows = load_dataset(path, configuration, split=split)
        names = getattr(rows.features["label"], "names", None)
        for number, row in enumerate(rows, start=1):
            label, texts = row["label"], tuple(row[name] for name in fields)
            named = names[label] if names and isinstance(label, int) and label >= 0 else str(label)
            yield Example(texts, named, number, sum(map(len, texts)))
    except Exception as error:  # the library and its many transports raise errors of no common class
        raise UserError(
            f"{name}: cannot be read from the Hugging Face hub ({first_line(error)}); "
            "check the network, or give a local copy with --source FOLDER"
        ) from error


# --- which example belongs to which split ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Survey:
    """What a first reading of a part finds; one entry an example."""

    place: str
    written_labels: list[str]
    lines: np.ndarray
    keys: np.ndarray  # hashes of the whole examples
    first_keys: np.ndarray  # of their first texts
    empty: np.ndarray  # whether a text is blank

    def __len__(self) -> int:
        return len(self.lines)


@dataclass(frozen=True, eq=False)
class Division:
    """Which examples of a part go into which split, by their place in SPLITS; -1: into none."""

    labels: np.ndarray
    splits: np.ndarray
    unlabelled: int
    empty: int


def surveyed(part: Part) -> Survey:
    known: dict[str, str] = {}  # a label is kept once, not once an example
    labels: list[str] = []
    lines, keys, first_keys, empty = array("q"), array("Q"), array("Q"), array("b")
    for example in part.read():
        labels.append(known.setdefault(example.label, example.label))
        lines.append(example.line)
        keys.append(content_hash("\t".join(example.texts)))
        first_keys.append(content_hash(example.texts[0]))
        empty.append(any(map(is_empty, example.texts)))
    if not labels:
        raise UserError(f"{part.place}: no examples there")
    numbers = (np.frombuffer(column, dtype=column.typecode) for column in (lines, keys, first_keys))
    return Survey(part.place, labels, *numbers, empty=np.frombuffer(empty, bool))


def label_names(task: Task, train: Survey) -> tuple[str, ...]:
    """The task's, or else those of the training examples: numbers by value, known names as known, others by name."""
    if task.labels is not None:
        return task.labels
    found = set(train.written_labels) - {UNLABELLED}
    if not 2 <= len(found) <= MOST_LABELS:
        raise UserError(f"{train.place}: {len(found)} different labels; a task has 2 to {MOST_LABELS}")
    if all(re.fullmatch(r"-?[0-9]+", label) for label in found):
        return tuple(sorted(found, key=int))
    for known in (ENTAILMENT, SENTIMENT):
        if found <= set(known):
            return tuple(label for label in known if label in found)
    return tuple(sorted(found))


def label_numbers(task: Task, survey: Survey, names: tuple[str, ...]) -> np.ndarray:
    """Each example's place among the names; -1 for one without a label."""
    numbers = {name: number for number, name in enumerate(names)} | {UNLABELLED: -1}
    if task.labels is not None:  # the published files write numbers too, and -1 for none
        numbers |= {str(number): number for number in range(-1, len(names))}
        numbers |= {other: numbers[name] for other, name in OTHER_NAMES.items() if name in numbers}
    unknown = set(survey.written_labels) - set(numbers)
    if unknown:
        at = next(place for place, label in enumerate(survey.written_labels) if label in unknown)
        where, label = f"{survey.place}, line {survey.lines[at]}", survey.written_labels[at]
        raise UserError(f"{where}: label {label!r:.60} is none of {', '.join(names)}")
    return np.fromiter((numbers[label] for label in survey.written_labels), np.int16, len(survey))


def divided(
    source: Source, surveys: dict[str, Survey], names: tuple[str, ...], *, train_examples: int | None = None
) -> dict[str, Division]:
    """For each part of the source, which of its examples go where."""
    divisions = {}
    for part, survey in surveys.items():
        labels = label_numbers(source.task, survey, names)
        usable = (labels >= 0) & ~survey.empty
        splits = np.where(usable, SPLITS.index(part), -1).astype(np.int8)
        if "tune" not in source.parts and part == ("val" if source.task.val_is_halved else "train"):
            splits[usable & (survey.first_keys < tune_bound(source, survey, usable))] = SPLITS.index("tune")
        if part == "train" and train_examples is not None:
            splits[left_out(survey, splits == SPLITS.index("train"), train_examples)] = -1
        divisions[part] = Division(
            labels, splits, unlabelled=int((labels < 0).sum()), empty=int((survey.empty & (labels >= 0)).sum())
        )
    return divisions


def tune_bound(source: Source, survey: Survey, usable: np.ndarray) -> int:
    """First texts whose hash lies below go to tune."""
    hashes = np.unique(survey.first_keys[usable])
    share = 0.5 if source.task.val_is_halved else min(TUNE_SHARE, TUNE_TEXTS / max(1, len(hashes)))
    count = max(1, round(share * len(hashes)))
    if len(hashes) <= count:
        raise UserError(f"{survey.place}: {len(hashes)} different texts are too few to tune on some; add a tune file")
    return int(hashes[count])


def left_out(survey: Survey, train: np.ndarray, wanted: int) -> np.ndarray:
    """Places of the training examples beyond the first `wanted` in the order of their hashes."""
    places = np.flatnonzero(train)
    if not 1 <= wanted <= len(places):
        raise UserError(f"train-examples {wanted}: {survey.place} has 1 to {len(places)} to choose from")
    return places[np.argsort(survey.keys[places], kind="stable")[wanted:]]
