"""Tasks on sentences and pairs of them: what their labels are, and where each part is, on the hub or in local files.

Which example of a part goes into which split is said in division.py.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from oelm.data.corpora import need_datasets, reading_hub
from oelm.data.example_files import ENDINGS, Example, read_examples
from oelm.machine.errors import UserError
from oelm.storage.files import sha256_of

ENTAILMENT = ("entailment", "neutral", "contradiction")
SENTIMENT = ("negative", "positive")
LANGUAGES = ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh")
# Where nothing but train is there to tune on: so much of it, at most so many different texts.
TUNE_SHARE, TUNE_TEXTS = 0.05, 4_000


@dataclass(frozen=True)
class Task:
    name: str
    pairs: bool
    labels: tuple[str, ...] | None  # in this order; None: those of the training examples
    val_is_halved: bool = False  # half of it is tune


TASKS = {
    "xnli": Task("xnli", pairs=True, labels=ENTAILMENT),
    "mnli": Task("mnli", pairs=True, labels=ENTAILMENT, val_is_halved=True),
    "sst2": Task("sst2", pairs=False, labels=SENTIMENT),
}
OWN_TASKS = {"pairs": Task("pairs", pairs=True, labels=None), "sentences": Task("sentences", pairs=False, labels=None)}


@dataclass(frozen=True)
class SourcePart:
    """The examples of one file or of one split of the hub; `place` names it in errors."""

    place: str
    identity: str  # differs when the examples may differ
    read: Callable[[], Iterator[Example]]
    source_bytes: int | None


@dataclass(frozen=True)
class Source:
    task: Task
    language: str | None
    parts: dict[str, SourcePart]  # train, and where the source has them tune, val, test

    @property
    def identity(self) -> str:
        listing = [[name, part.identity] for name, part in sorted(self.parts.items())]
        return f"{len(listing)} parts {hashlib.sha256(json.dumps(listing).encode()).hexdigest()[:16]}"

    @property
    def split_rule(self) -> str:
        if "val" not in self.parts:
            held_out = "val is" if "tune" in self.parts else "tune and val are"
            share = f"{TUNE_SHARE:.0%} for each, at most {TUNE_TEXTS} texts"
            return f"{held_out} held out of train by the hash of the first text, {share}"
        if "tune" in self.parts:
            return "given by the source"
        if self.task.val_is_halved:
            return "tune is half of the source's validation, chosen by the hash of the first text"
        return f"tune is held out of train by the hash of the first text, {TUNE_SHARE:.0%}, at most {TUNE_TEXTS} texts"


# --- where the parts are --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HubSplit:
    path: str
    configuration: str | None
    split: str


MULTI_NLI = "nyu-mll/multi_nli"
HUB = {
    "xnli": {
        "train": HubSplit(MULTI_NLI, None, "train"),
        "tune": HubSplit(MULTI_NLI, None, "validation_matched"),
        "val": HubSplit("facebook/xnli", "LANGUAGE", "validation"),
        "test": HubSplit("facebook/xnli", "LANGUAGE", "test"),
    },
    "mnli": {
        "train": HubSplit(MULTI_NLI, None, "train"),
        "val": HubSplit(MULTI_NLI, None, "validation_matched"),
    },
    "sst2": {
        "train": HubSplit("nyu-mll/glue", "sst2", "train"),
        "val": HubSplit("nyu-mll/glue", "sst2", "validation"),
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
    encoding: str | None = None,
) -> Source:
    """A named task from the hub, or from local files below `source_path`; or a folder of one's own with `task`."""
    if task is not None:
        return own_source(
            name, task, source_path=source_path, language=language, train_file=train_file, encoding=encoding
        )
    if name not in TASKS:
        near = difflib.get_close_matches(name, TASKS, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise UserError(f"{name}: {meant}known tasks: {', '.join(TASKS)}; for a folder of your own add --task pairs")
    known = LANGUAGES if name == "xnli" else ("en",)
    if language not in (None, *known):
        raise UserError(f"language {language!r}: {name} has {', '.join(known)}")
    language = language or "en"
    if encoding is not None and source_path is None and train_file is None:
        raise UserError(f"--encoding {encoding}: is for files of your own; {name} on the hub is UTF-8")
    if source_path is None:
        parts = {part: hub_part(name, hub, language) for part, hub in HUB[name].items()}
    else:
        given = train_file is not None
        parts = local_parts(name, source_path, language=language, train_given=given, encoding=encoding)
    if train_file is not None:
        if not train_file.is_file():
            raise UserError(f"{train_file}: no such file; --train takes a .tsv, .csv or .jsonl file")
        parts = {**parts, "train": file_part(train_file, TASKS[name], language, encoding)}
    return Source(TASKS[name], language, parts)


def own_source(
    folder: str,
    task: str,
    *,
    source_path: Path | None,
    language: str | None,
    train_file: Path | None,
    encoding: str | None,
) -> Source:
    """The files of a folder. Where there is a test file and none for validation, as in AG News, val comes of train."""
    if task not in OWN_TASKS:
        raise UserError(f"task {task!r}: known tasks: {', '.join(OWN_TASKS)}")
    if source_path is not None or train_file is not None:
        raise UserError(
            f"{folder}: is a folder of your own with all its files, so it takes neither --source nor --train"
        )
    if folder in TASKS and not Path(folder).is_dir():
        raise UserError(f"{folder}: a known task, which takes no --task")
    root, spec = existing_folder(Path(folder)), OWN_TASKS[task]
    files = {part: only_file(files_named(root, pattern, deep=False), root, part) for part, pattern in OWN.items()}
    for part in ("train", "val"):
        if files[part] is None and (part == "train" or files["test"] is None):
            endings = " or ".join(f"{part}{ending}" for ending in (".tsv", ".jsonl", ".csv"))
            raise UserError(f"{root}: no {part} split; it must contain {endings}")
    return Source(spec, language, {part: file_part(file, spec, None, encoding) for part, file in files.items() if file})


def local_parts(
    name: str, root: Path, *, language: str, train_given: bool, encoding: str | None = None
) -> dict[str, SourcePart]:
    existing_folder(root)
    parts = {}
    for part, (folder, pattern) in LOCAL[name].items():
        if part == "train" and train_given:
            continue
        below = root / folder if (root / folder).is_dir() else root
        file = only_file(files_named(below, pattern.replace("LANGUAGE", language)), below, part)
        if file is not None:
            parts[part] = file_part(file, TASKS[name], language if folder == "xnli" else None, encoding)
        elif part == "train":
            also = " (its English training set is MNLI's)" if name == "xnli" else ""
            advice = "put train.tsv there, or give it with --train FILE"
            raise UserError(f"{below}: no training file of {name}{also}; {advice}")
        elif part not in OPTIONAL:
            example = {"xnli": f"dev-{language}.tsv", "mnli": "dev_matched.tsv"}.get(name, "dev.tsv")
            raise UserError(f"{below}: no validation file of {name}; put {example} there")
    return parts


def files_named(folder: Path, pattern: str, *, deep: bool = True) -> list[Path]:
    """Files whose name without its ending fits; of the same name in several formats the most exact."""
    found: dict[Path, Path] = {}
    for ending in ENDINGS:
        for file in sorted(folder.rglob(f"*{ending}") if deep else folder.glob(f"*{ending}")):
            if file.is_file() and re.fullmatch(pattern, file.stem.lower()):
                found.setdefault(file.with_suffix(""), file)
    return sorted(found.values())


def only_file(files: list[Path], folder: Path, part: str) -> Path | None:
    if len(files) < 2:
        return files[0] if files else None
    names = ", ".join(str(file.relative_to(folder)) for file in files[:4])
    hint = "choose one with --train FILE" if part == "train" else "keep only one"
    raise UserError(f"{folder}: several files could be {part} ({names}); {hint}")


def existing_folder(path: Path) -> Path:
    if not path.is_dir():
        raise UserError(f"{path}: {'is a file, not a folder' if path.exists() else 'no such folder'}")
    return path


def file_part(file: Path, task: Task, language: str | None, encoding: str | None = None) -> SourcePart:
    if not file.stat().st_size:
        raise UserError(f"{file}: empty")
    read = partial(read_examples, file, pairs=task.pairs, language=language, encoding=encoding)
    identity = " ".join(filter(None, (language, sha256_of(file))))
    return SourcePart(str(file), identity, read, file.stat().st_size)


def hub_part(name: str, hub: HubSplit, language: str) -> SourcePart:
    need_datasets(name, "--source FOLDER")
    configuration = language if hub.configuration == "LANGUAGE" else hub.configuration
    where = "/".join(filter(None, ("hub", hub.path, configuration, hub.split)))
    return SourcePart(where, where, partial(read_hub, name, hub.path, configuration, hub.split), None)


def read_hub(name: str, path: str, configuration: str | None, split: str) -> Iterator[Example]:
    fields = ("premise", "hypothesis") if TASKS[name].pairs else ("sentence",)
    with reading_hub(name, "--source FOLDER"):
        from datasets import load_dataset

        rows = load_dataset(path, configuration, split=split)
        names = getattr(rows.features["label"], "names", None)
        for number, row in enumerate(rows, start=1):
            label, texts = row["label"], tuple(row[field] for field in fields)
            named = names[label] if names and isinstance(label, int) and label >= 0 else str(label)
            yield Example(texts, named, number, sum(map(len, texts)))
