"""Tasks on sentences and pairs of them: what their labels are, and where each part is, on the hub or in local files.

Which example of a part goes into which split is said in prepare_sentences.py.

Files are tab-separated tables with a header line, CSV with or without one, and JSON lines. Tables have no quoting: a
quotation mark is text, as in the published files of MNLI, XNLI and SST-2. A text that holds tabs or line breaks needs
CSV or JSON lines. CSV without a header has the class first and the text after it, as AG News, DBpedia and Yelp are
published.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from oelm.data.corpora import need_datasets, reading_hub
from oelm.data.encodings import text_lines
from oelm.data.readers import parsed_line, refuse_half_characters
from oelm.machine.errors import UserError
from oelm.storage.files import sha256_of

TABLES, LINES, CSV = (".tsv", ".txt"), (".jsonl",), (".csv",)
ENDINGS = (*LINES, *TABLES, *CSV)
# The names a column may have, the first one found counts.
FIRST_OF_PAIR, SECOND_OF_PAIR = ("premise", "sentence1"), ("hypothesis", "hypo", "sentence2")
ONE_SENTENCE, LABEL, LANGUAGE = ("sentence", "text"), ("gold_label", "label", "class", "class index"), "language"
WHOLE_NUMBER = re.compile(r"-?[0-9]+")
TITLED = ("title", "description")  # together one sentence, where there is no column for it


class Example(NamedTuple):
    texts: tuple[str, ...]  # one or two
    label: str  # a name or a number, as written
    line: int  # where it stands
    source_bytes: int


class FileRow(NamedTuple):
    line: int
    source_bytes: int
    values: list[Any]  # of the needed columns, the label last
    language: Any  # None where the file does not say


Columns = tuple[tuple[str, ...], ...]  # each needed column, as the names it may have


def read_examples(
    file: Path, *, pairs: bool, language: str | None = None, encoding: str | None = None
) -> Iterator[Example]:
    """Every example of a file; of a file with a column `language`, those in this language."""
    wanted = (FIRST_OF_PAIR, SECOND_OF_PAIR, LABEL) if pairs else (ONE_SENTENCE, LABEL)
    ending = file.suffix.lower()
    rows = json_rows if ending in LINES else csv_rows if ending in CSV else table_rows
    for row in rows(file, wanted, encoding):
        if language is not None and row.language not in (None, language):
            continue
        *texts, label = row.values
        for text in texts:
            if not isinstance(text, str):
                raise UserError(f"{file}, line {row.line}: {text!r:.40} is not text")
            refuse_half_characters(file, text, row.line)
        if isinstance(label, bool) or not isinstance(label, str | int):
            said = f"the label is neither a name nor a whole number but {label!r:.40}"
            raise UserError(f"{file}, line {row.line}: {said}")
        yield Example(tuple(texts), str(label).strip(), row.line, row.source_bytes)


def chosen(file: Path, line: int, names: Iterable[str], aliases: tuple[str, ...]) -> str:
    for alias in aliases:
        if alias in names:
            return alias
    there = ", ".join(map(repr, names)) or "none"
    raise UserError(f"{file}, line {line}: no column named {' or '.join(aliases)}; the columns are {there:.200}")


def filled_lines(file: Path, encoding: str | None) -> Iterator[tuple[int, int, str]]:
    """Number, bytes and text of each line that is not blank, without its end."""
    for number, size, line in text_lines(file, encoding):
        text = line.rstrip("\r\n")
        if text.strip(" "):
            yield number, size, text


def table_rows(file: Path, wanted: Columns, encoding: str | None = None) -> Iterator[FileRow]:
    lines = filled_lines(file, encoding)
    _, _, header = next(lines, (0, 0, ""))
    if not header:
        raise UserError(f"{file}: empty; its first line must name the columns, separated by tabs")
    header_of = Header(file, 1, header.split("\t"), wanted)
    for number, size, text in lines:
        fields = text.split("\t")
        header_of.check(
            number, fields, "fields are separated by single tabs; a text that contains a tab needs JSON lines"
        )
        yield FileRow(number, size, header_of.values(fields), header_of.language(fields))


class Header:
    """Where the needed columns of a table are; a sentence may be a title and a description."""

    def __init__(self, file: Path, line: int, names: list[str], wanted: Columns) -> None:
        self.file, self.names = file, [name.strip().lower() for name in names]
        twice = [name for name in self.names if self.names.count(name) > 1]
        if twice:
            raise UserError(f"{file}, line {line}: the column {twice[0]!r} is named twice")
        self.places = [self._places(line, aliases) for aliases in wanted]

    def _places(self, line: int, aliases: tuple[str, ...]) -> list[int]:
        titled = aliases is ONE_SENTENCE and not set(aliases) & set(self.names) and set(TITLED) <= set(self.names)
        names = TITLED if titled else (chosen(self.file, line, self.names, aliases),)
        return [self.names.index(name) for name in names]

    def check(self, line: int, fields: list[str], advice: str) -> None:
        if not max(map(max, self.places)) < len(fields) <= len(self.names):
            raise UserError(
                f"{self.file}, line {line}: {len(fields)} fields, but the header names {len(self.names)}; {advice}"
            )

    def values(self, fields: list[str]) -> list[str]:
        return [joined([fields[place] for place in places]) for places in self.places]

    def language(self, fields: list[str]) -> str | None:
        return fields[self.names.index(LANGUAGE)] if LANGUAGE in self.names else None


def joined(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else " ".join(text.strip() for text in texts if text.strip())


def csv_rows(file: Path, wanted: Columns, encoding: str | None = None) -> Iterator[FileRow]:
    records = csv_records(file, encoding)
    line, size, fields = next(records, (0, 0, []))
    if not fields:
        raise UserError(f"{file}: empty; its first line must name the columns, or contain a class and its text")
    if WHOLE_NUMBER.fullmatch(fields[0].strip()):
        yield from rows_without_header(file, wanted, chain([(line, size, fields)], records))
        return
    header = Header(file, line, fields, wanted)
    for line, size, fields in records:
        header.check(line, fields, "a text with a comma must be in quotation marks")
        yield FileRow(line, size, header.values(fields), header.language(fields))


def rows_without_header(
    file: Path, wanted: Columns, records: Iterator[tuple[int, int, list[str]]]
) -> Iterator[FileRow]:
    """The class as a whole number, then the text: of a pair its two, else all that follows together."""
    texts, count = len(wanted) - 1, 0
    for line, size, fields in records:
        count = count or len(fields)
        if len(fields) != count or count < 2 or (texts > 1 and count != 1 + texts):
            needed = (
                f"the class and {texts} texts" if texts > 1 else "the class and its text, the same number in every line"
            )
            raise UserError(f"{file}, line {line}: {len(fields)} fields; without a header a line contains {needed}")
        label, *given = fields
        if not WHOLE_NUMBER.fullmatch(label.strip()):
            raise UserError(
                f"{file}, line {line}: the class is {label!r:.40}, not a whole number as in the first line; "
                "classes with names need a header line"
            )
        yield FileRow(line, size, [*(given if texts > 1 else [joined(given)]), label], None)


def csv_records(file: Path, encoding: str | None) -> Iterator[tuple[int, int, list[str]]]:
    """First line, bytes and fields of each record. In quotation marks a field may hold commas, line breaks and,
    doubled, such marks."""
    size = 0

    def counted() -> Iterator[str]:
        nonlocal size
        for _, length, text in text_lines(file, encoding):
            size += length
            yield text

    reader = csv.reader(counted(), strict=True)
    while True:
        line, size = reader.line_num + 1, 0
        try:
            fields = next(reader, None)
        except csv.Error as error:
            raise UserError(
                f"{file}, line {line}: not CSV ({error}); a quotation mark inside a quoted text is written twice"
            ) from error
        if fields is None:
            return
        if any(field.strip() for field in fields):
            yield line, size, fields


def json_rows(file: Path, wanted: Columns, encoding: str | None = None) -> Iterator[FileRow]:
    for number, size, text in filled_lines(file, encoding):
        row = parsed_line(file, text, number)
        if not isinstance(row, dict):
            raise UserError(f"{file}, line {number}: not an object with texts and a label")
        yield FileRow(number, size, [row[chosen(file, number, row, aliases)] for aliases in wanted], row.get(LANGUAGE))


# ---- The tasks -----------------------------------------------------------------------------------------------------

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
