"""Documents of a corpus, one at a time and sorted into splits: embedded stories, hub data sets, local files.

Reading holds one document in memory, never a file. Where the source has no validation part, tune and val are held
out by the hash of each document's text, so exact copies never lie on both sides; where it has one, its first half
is tune and its second half val.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import importlib.util
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from oelm.data.readers import (
    LINES,
    PARQUET,
    PLAIN,
    TABLES,
    TEXT,
    Document,
    Reading,
    opened_stories,
    read_files,
    source_size,
    wiki_articles,
)
from oelm.data.stories import stories as written_stories
from oelm.machine.errors import UserError, first_line
from oelm.machine.installation import install_command

PART_NAMES = {"train": "train", "tune": "tune", "valid": "valid", "validation": "valid", "val": "valid", "test": "test"}

# Each held-out split aims at 4 MiB of text: 5 % of a small source, never less than 0.05 %.
HELD_OUT_BYTES, SMALLEST_SHARE, LARGEST_SHARE = 4 << 20, 0.0005, 0.05
# Up to this size the documents are ranked by hash first, which makes the share exact and never leaves a split empty.
RANKED_BYTES = 4 << 20
STORY_BYTES = 560


@dataclass(frozen=True)
class CorpusPart:
    """A part of a source as the source divides it; `source_bytes` is None where nobody knows."""

    read: Callable[[], Iterator[Document]]
    source_bytes: int | None


@dataclass(frozen=True)
class Corpus:
    name: str
    description: str  # where the text comes from, for people
    identity: str  # differs when the text may differ
    parts: dict[str, CorpusPart]  # train, and where the source has them tune, valid, test
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True)
class HoldOut:
    """Which documents leave train: those whose content hash lies below the two bounds."""

    val_below: int
    tune_below: int

    def split_of(self, text: str) -> str:
        if not self.tune_below:
            return "train"
        number = content_hash(text)
        if number < self.val_below:
            return "val"
        return "tune" if number < self.tune_below else "train"


@dataclass(frozen=True)
class HubCorpus:
    """A corpus with a name: where it lies on the hub, and how it is read, from there or from a local copy."""

    path: str
    configuration: str | None
    splits: dict[str, str]  # our part -> the hub's split
    reading: Reading = PLAIN
    rows_are_lines: bool = False  # on the hub too, of texts that reading.cut cuts; otherwise a row is a document
    documentation: tuple[str, str] | None = None  # of a cut of its own: source and document, cells of docs/data.md

    def __post_init__(self) -> None:
        unknown = self.splits.keys() - set(PART_NAMES.values())
        if unknown or "train" not in self.splits:
            known = ", ".join(dict.fromkeys(PART_NAMES.values()))
            raise ValueError(
                f"{self.path}: splits has {', '.join(self.splits)}; known are {known}, and train is needed"
            )
        if (self.reading.cut is None) != (self.documentation is None) or (self.rows_are_lines and not self.reading.cut):
            raise ValueError(
                f"{self.path}: a cut of its own needs its documentation, and rows that are lines need a cut"
            )


HUB = {
    "tinystories": HubCorpus(
        "roneneldan/TinyStories",
        None,
        {"train": "train", "valid": "validation"},
        Reading(cut=opened_stories),
        documentation=(
            "`tinystories` without marks",
            'a story: it begins after a blank line with "Once upon a time" and the like, or after "The end"',
        ),
    ),
    "wikitext103": HubCorpus(
        "Salesforce/wikitext",
        "wikitext-103-raw-v1",
        {"train": "train", "valid": "validation", "test": "test"},
        Reading(cut=wiki_articles),
        rows_are_lines=True,
        documentation=("`wikitext103`", "an article, from its title line ` = Title = `"),
    ),
    "openwebtext": HubCorpus("Skylion007/openwebtext", None, {"train": "train"}),
}
NAMES = ("stories", *HUB)


def open_corpus(
    source: str,
    *,
    source_path: Path | None = None,
    stories: int = 20_000,
    seed: int = 0,
    encoding: str | None = None,
    column: str | None = None,
) -> Corpus:
    """A named corpus, from a local copy if `source_path` is given; or any text file or folder."""
    if column is not None and source in NAMES:
        raise UserError(f"--column {column}: is for files of your own; the columns of {source} are known")
    if encoding is not None and source in NAMES and source_path is None:
        raise UserError(f"--encoding {encoding}: is for files of your own; {source} is UTF-8")
    if source == "stories":
        if source_path is not None:
            raise UserError("stories: is generated by oelm and takes no --source; give the path instead of the name")
        return embedded_stories(stories, seed)
    if not source:
        raise UserError(f"the source is empty; known corpora: {', '.join(NAMES)}, or the path of a text file or folder")
    if source in NAMES:
        return hub_corpus(source) if source_path is None else local_corpus(source, source_path, encoding)
    if source_path is not None:
        raise UserError(
            f"{source}: not the name of a corpus, so it takes no --source; known corpora: {', '.join(NAMES)}"
        )
    if not Path(source).exists():
        near = difflib.get_close_matches(source, NAMES, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise UserError(f"{source}: no such file, folder or corpus; {meant}known corpora: {', '.join(NAMES)}")
    return local_corpus("text", Path(source), encoding, column)


def split_documents(corpus: Corpus, hold_out: HoldOut) -> Iterator[tuple[str, Document]]:
    """Every document with the split it belongs to; empty ones too, so that they can be counted."""
    parts = corpus.parts
    for document in parts["train"].read():
        yield hold_out.split_of(document.text), document
    if "tune" in parts:
        yield from (("tune", document) for document in parts["tune"].read())
    if "valid" in parts:
        yield from (("val", document) for document in parts["valid"].read()) if "tune" in parts else halves(corpus)
    if "test" in parts:
        yield from (("test", document) for document in parts["test"].read())


def split_rule(corpus: Corpus) -> str:
    """How the splits came about, in words."""
    if "valid" in corpus.parts:
        return "given by the source" if "tune" in corpus.parts else "tune is the first half of the source's validation"
    share = held_out_share(corpus.parts["train"].source_bytes)
    return f"held out of train by the hash of each document's text, {share:.2%} for each held-out split"


def halves(corpus: Corpus) -> Iterator[tuple[str, Document]]:
    read = corpus.parts["valid"].read
    filled = sum(not is_empty(document.text) for document in read())
    if filled < 2:
        raise UserError(f"{corpus.description}: validation has {filled} documents; tune and val need at least one each")
    seen = 0
    for document in read():
        yield "tune" if seen < filled // 2 else "val", document
        seen += not is_empty(document.text)


def held_out(corpus: Corpus) -> HoldOut:
    """The bounds that give each split the source lacks its share of train; reads a small source once."""
    if "valid" in corpus.parts:
        return HoldOut(0, 0)
    train, both = corpus.parts["train"], "tune" not in corpus.parts
    share = held_out_share(train.source_bytes)
    if train.source_bytes is None or train.source_bytes > RANKED_BYTES:
        bound = int(share * 2**64)
        return HoldOut(bound, 2 * bound if both else bound)
    hashes = np.unique(
        np.fromiter((content_hash(each.text) for each in train.read() if not is_empty(each.text)), np.uint64)
    )
    count = max(1, round(share * len(hashes)))
    wanted = 2 * count if both else count
    if not len(hashes):
        raise UserError(f"{corpus.description}: contains no text")
    if len(hashes) <= wanted:
        raise UserError(
            f"{corpus.description}: only {len(hashes)} different document{'s' * (len(hashes) > 1)}: too few to hold "
            "out tune and val; give more text, or a folder with train, tune and val files"
        )
    return HoldOut(int(hashes[count]), int(hashes[wanted]))


def held_out_share(source_bytes: int | None) -> float:
    if not source_bytes:
        return SMALLEST_SHARE
    return min(LARGEST_SHARE, max(SMALLEST_SHARE, HELD_OUT_BYTES / source_bytes))


def content_hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def is_empty(text: str) -> bool:
    return not text or text.isspace()


# --- embedded and hub -------------------------------------------------------------------------------------------


def embedded_stories(count: int, seed: int) -> Corpus:
    if count < 1:
        raise UserError(f"stories: {count} stories cannot be written; give at least 1")

    def read() -> Iterator[Document]:
        return (Document(text, STORY_BYTES) for text in written_stories(seed, count))

    described = f"{count} embedded stories, seed {seed}"
    return Corpus("stories", described, described, {"train": CorpusPart(read, count * STORY_BYTES)})


def hub_corpus(name: str) -> Corpus:
    need_datasets(name, "--source PATH")
    hub = HUB[name]
    parts = {part: CorpusPart(partial(read_hub, name, split), None) for part, split in hub.splits.items()}
    where = "/".join(filter(None, ("hub", hub.path, hub.configuration)))
    return Corpus(name, where, where, parts)


def need_datasets(name: str, option: str) -> None:
    if importlib.util.find_spec("datasets") is None:
        raise UserError(
            f"{name}: downloading it needs the datasets library: {install_command('hub')}; "
            f"or give a local copy with {option}"
        )


@contextlib.contextmanager
def reading_hub(name: str, option: str) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # the library and its many transports raise errors of no common class
        raise UserError(
            f"{name}: cannot be read from the Hugging Face hub ({first_line(error)}); "
            f"check the network, or give a local copy with {option}"
        ) from error


def read_hub(name: str, split: str) -> Iterator[Document]:
    hub = HUB[name]
    with reading_hub(name, "--source PATH"):
        from datasets import load_dataset

        rows = load_dataset(hub.path, hub.configuration, split=split, streaming=True)
        texts = (text_of(name, row) for row in rows)
        if hub.rows_are_lines and hub.reading.cut:
            lines = (text.encode() if text.endswith("\n") else f"{text}\n".encode() for text in texts)
            texts = (document.decode() for _, document in hub.reading.cut(lines))
        for text in texts:
            yield Document(text, len(text))


def text_of(name: str, row: dict[str, Any]) -> str:
    column = HUB[name].reading.column
    text = row.get(column)
    if not isinstance(text, str):
        raise UserError(f'{name}: the hub\'s rows have no text "{column}"; their columns are {", ".join(row)}')
    return text


# --- local files ------------------------------------------------------------------------------------------------


def local_corpus(name: str, path: Path, encoding: str | None = None, column: str | None = None) -> Corpus:
    if not path.exists():
        raise UserError(
            f"{path}: no such file or folder; --source takes a text, jsonl, csv or parquet file, or a folder"
        )
    root = path if path.is_dir() else path.parent
    sorted_files, ignored = files_by_part(path)
    for part, files in sorted_files.items():  # an empty file among others gives no documents, and that is all
        if not any(file.stat().st_size for file in files):
            raise UserError(f"{files[0]}: empty" if len(files) == 1 else f"{path}: every file of {part} is empty")
    reading = HUB[name].reading if name in HUB else PLAIN
    if column is not None:
        without = [file for files in sorted_files.values() for file in files if not has_columns(file)]
        if without:
            raise UserError(f"--column {column}: {without[0]} has no columns")
        reading = replace(reading, column=column)
    parts = {
        part: CorpusPart(
            partial(read_files, files, reading=reading, encoding=encoding),
            sum(source_size(file, reading) for file in files),
        )
        for part, files in sorted_files.items()
    }
    listing = [
        [part, str(file.relative_to(root)), file.stat().st_size, file.stat().st_mtime_ns]
        for part, files in sorted_files.items()
        for file in files
    ]
    identity = hashlib.sha256(json.dumps(listing).encode()).hexdigest()
    names = tuple(str(file.relative_to(root)) for file in ignored)
    return Corpus(name, str(path), f"{len(listing)} local files {identity[:16]}", parts, names)


def has_columns(file: Path) -> bool:
    return file.suffix.lower() in (*LINES, *TABLES, *PARQUET)


def files_by_part(path: Path) -> tuple[dict[str, list[Path]], list[Path]]:
    """Files sorted into parts by a word of their path, and what is left over; without a train file those without a
    part's name are train."""
    if path.is_file():
        return {"train": [path]}, []
    known = (*TEXT, *LINES, *TABLES, *PARQUET)
    try:
        everything = sorted(
            file
            for file in path.rglob("*")
            if file.is_file() and not any(name.startswith(".") for name in file.relative_to(path).parts)
        )
    except OSError as error:
        raise UserError(f"{error.filename or path}: cannot be read ({error.strerror})") from error
    files = [file for file in everything if file.suffix.lower() in known]
    if not files:
        raise UserError(f"{path}: no files to read there; known endings: {' '.join(known)}")
    parts: dict[str, list[Path]] = {}
    for file in files:
        words = reversed(re.split(r"[^a-z]+", str(file.relative_to(path)).lower()))
        parts.setdefault(next((PART_NAMES[word] for word in words if word in PART_NAMES), "other"), []).append(file)
    other = parts.pop("other", [])
    if "train" not in parts:
        if not other:
            raise UserError(f"{path}: has files for {', '.join(sorted(parts))} but none to train on")
        parts = {"train": other, **parts}
    used = {file for members in parts.values() for file in members}
    return parts, [file for file in everything if file not in used]
