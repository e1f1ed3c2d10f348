"""Documents of a corpus, one at a time and sorted into splits: embedded stories, hub data sets, local files.

Reading holds one document in memory, never a file. Where the source has no validation part, tune and val are held
out by the hash of each document's text, so exact copies never lie on both sides; where it has one, its first half
is tune and its second half val.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from oelm.data.stories import stories as written_stories
from oelm.errors import UserError

MARK = b"<|endoftext|>"
BLOCK_BYTES = 1 << 20
LONGEST_DOCUMENT_BYTES = 1 << 20
# A text file without marks is read in passages, so that something can be held out of a single book.
PASSAGE_BYTES = 1 << 14
TEXT, LINES, PARQUET = (".txt", ".text", ".md", ".tokens", ".raw"), (".jsonl", ".json"), (".parquet",)
PART_NAMES = {"train": "train", "tune": "tune", "valid": "valid", "validation": "valid", "val": "valid", "test": "test"}

# Each held-out split aims at 4 MiB of text: 5 % of a small source, never less than 0.05 %.
HELD_OUT_BYTES, SMALLEST_SHARE, LARGEST_SHARE = 4 << 20, 0.0005, 0.05
# Up to this size the documents are ranked by hash first, which makes the share exact and never leaves a split empty.
RANKED_BYTES = 4 << 20
STORY_BYTES = 560


class Document(NamedTuple):
    text: str
    source_bytes: int  # what reading it used up of the source, for progress


@dataclass(frozen=True)
class Part:
    """A part of a source as the source divides it; `source_bytes` is None where nobody knows."""

    read: Callable[[], Iterator[Document]]
    source_bytes: int | None


@dataclass(frozen=True)
class Corpus:
    name: str
    description: str  # where the text comes from, for people
    identity: str  # differs when the text may differ
    parts: dict[str, Part]  # train, and where the source has them tune, valid, test
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
class HubSource:
    path: str
    configuration: str | None
    splits: dict[str, str]  # our part -> the hub's split


HUB = {
    "tinystories": HubSource("roneneldan/TinyStories", None, {"train": "train", "valid": "validation"}),
    "wikitext103": HubSource(
        "Salesforce/wikitext", "wikitext-103-raw-v1", {"train": "train", "valid": "validation", "test": "test"}
    ),
    "openwebtext": HubSource("Skylion007/openwebtext", None, {"train": "train"}),
}
NAMES = ("stories", *HUB)


def open_corpus(source: str, *, source_path: Path | None = None, stories: int = 20_000, seed: int = 0) -> Corpus:
    """A named corpus, from a local copy if `source_path` is given; or any text file or folder."""
    if source == "stories" and source_path is None:
        return embedded_stories(stories, seed)
    if source in NAMES:
        return hub_corpus(source) if source_path is None else local_corpus(source, source_path)
    if source_path is not None:
        raise UserError(f"{source}: not a corpus name, so it takes no --source; known are {', '.join(NAMES)}")
    if not Path(source).exists():
        near = difflib.get_close_matches(source, NAMES, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise UserError(f"{source}: {meant}known are {', '.join(NAMES)}, or the path of a text file or folder")
    return local_corpus("text", Path(source))


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
    hashes = np.unique(np.fromiter((content_hash(text) for text, _ in train.read() if not is_empty(text)), np.uint64))
    count = max(1, round(share * len(hashes)))
    wanted = 2 * count if both else count
    if len(hashes) <= wanted:
        raise UserError(
            f"{corpus.description}: only {len(hashes)} different documents: too few to hold out tune and val; "
            "give more text, or a folder with train, tune and val files"
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
        raise UserError(f"stories: {count} is not a number of stories; give at least 1")

    def read() -> Iterator[Document]:
        return (Document(text, STORY_BYTES) for text in written_stories(seed, count))

    described = f"{count} embedded stories, seed {seed}"
    return Corpus("stories", described, described, {"train": Part(read, count * STORY_BYTES)})


def hub_corpus(name: str) -> Corpus:
    if importlib.util.find_spec("datasets") is None:
        raise UserError(
            f"{name}: downloading it needs the datasets library: pip install 'oelm[hub]'; "
            "or give a local copy with --source PATH"
        )
    hub = HUB[name]
    parts = {part: Part(partial(read_hub, name, split), None) for part, split in hub.splits.items()}
    where = "/".join(filter(None, ("hub", hub.path, hub.configuration)))
    return Corpus(name, where, where, parts)


def read_hub(name: str, split: str) -> Iterator[Document]:
    hub = HUB[name]
    try:
        from datasets import load_dataset

        rows = load_dataset(hub.path, hub.configuration, split=split, streaming=True)
        texts = (row["text"] for row in rows)
        if name == "wikitext103":
            lines = (text.encode() if text.endswith("\n") else f"{text}\n".encode() for text in texts)
            texts = (article.decode() for _, article in wiki_articles(lines))
        for text in texts:
            yield Document(text, len(text))
    except Exception as error:  # the library and its many transports raise errors of no common class
        raise UserError(
            f"{name}: cannot be read from the Hugging Face hub ({first_line(error)}); "
            "check the network, or give a local copy with --source PATH"
        ) from error


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


# --- local files ------------------------------------------------------------------------------------------------


def local_corpus(name: str, path: Path) -> Corpus:
    if not path.exists():
        raise UserError(f"{path}: no such file or folder; --source takes a text, jsonl or parquet file, or a folder")
    root = path if path.is_dir() else path.parent
    sorted_files, ignored = files_by_part(path)
    parts = {
        part: Part(partial(read_files, files, name=name), sum(source_size(file) for file in files))
        for part, files in sorted_files.items()
    }
    listing = [
        [part, str(file.relative_to(root)), file.stat().st_size]
        for part, files in sorted_files.items()
        for file in files
    ]
    identity = hashlib.sha256(json.dumps(listing).encode()).hexdigest()
    names = tuple(str(file.relative_to(root)) for file in ignored)
    return Corpus(name, str(path), f"{len(listing)} local files {identity[:16]}", parts, names)


def files_by_part(path: Path) -> tuple[dict[str, list[Path]], list[Path]]:
    """Files sorted into parts by a word of their path, and what is left over; without a train file all are train."""
    if path.is_file():
        return {"train": [path]}, []
    known = TEXT + LINES + PARQUET
    everything = sorted(file for file in path.rglob("*") if file.is_file() and not is_hidden(file, path))
    files = [file for file in everything if file.suffix.lower() in known]
    if not files:
        raise UserError(f"{path}: no files to read there; known endings are {' '.join(known)}")
    parts: dict[str, list[Path]] = {}
    for file in files:
        parts.setdefault(part_named(file.relative_to(path)) or "other", []).append(file)
    if "train" not in parts:
        parts = {"train": files}
    parts.pop("other", None)
    used = {file for members in parts.values() for file in members}
    return parts, [file for file in everything if file not in used]


def part_named(relative: Path) -> str | None:
    for word in reversed(re.split(r"[^a-z]+", str(relative).lower())):
        if word in PART_NAMES:
            return PART_NAMES[word]
    return None


def is_hidden(file: Path, root: Path) -> bool:
    return any(name.startswith(".") for name in file.relative_to(root).parts)


def source_size(file: Path) -> int:
    if file.suffix.lower() in PARQUET:
        return parquet_text_bytes(file)
    return file.stat().st_size


def read_files(files: Iterable[Path], *, name: str) -> Iterator[Document]:
    for file in files:
        ending = file.suffix.lower()
        if ending in LINES:
            yield from read_json_lines(file)
        elif ending in PARQUET:
            yield from read_parquet(file)
        else:
            yield from read_text(file, name=name)


def read_text(file: Path, *, name: str) -> Iterator[Document]:
    """Documents between end-of-text marks; in a file without marks by the corpus's own rule, or as passages."""
    pieces, cut = (blocks, between_marks) if has_mark(file) else CUTS_WITHOUT_MARKS.get(name, (blocks, passages))
    end = 0
    for offset, raw in cut(pieces(file)):
        yield Document(decoded(file, raw, offset).strip("\r\n"), offset + len(raw) - end)
        end = offset + len(raw)


def blocks(file: Path) -> Iterator[bytes]:
    with open(file, "rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            yield block


def lines(file: Path) -> Iterator[bytes]:
    with open(file, "rb") as stream:
        while line := stream.readline(LONGEST_DOCUMENT_BYTES):
            yield line


def has_mark(file: Path) -> bool:
    seam = b""  # a mark may lie across two blocks
    for block in blocks(file):
        window = seam + block
        if MARK in window:
            return True
        seam = window[1 - len(MARK) :]
    return False


def decoded(file: Path, raw: bytes, offset: int) -> str:
    try:
        return raw.decode("utf-8-sig" if offset == 0 else "utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not UTF-8 at byte {offset + error.start}; convert the file to UTF-8") from error


def between_marks(pieces: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    offset, rest = 0, b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(MARK)
        for raw in whole:
            yield offset, raw
            offset += len(raw) + len(MARK)
        while len(rest) > LONGEST_DOCUMENT_BYTES:
            at = cutting_point(rest[:LONGEST_DOCUMENT_BYTES])
            yield offset, rest[:at]
            offset, rest = offset + at, rest[at:]
    if rest.strip():
        yield offset, rest


def passages(pieces: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    offset, rest = 0, b""
    for piece in pieces:
        rest += piece
        start = 0
        while len(rest) - start > PASSAGE_BYTES:
            at = start + cutting_point(rest[start : start + PASSAGE_BYTES])
            yield offset + start, rest[start:at]
            start = at
        offset, rest = offset + start, rest[start:]
    if rest.strip():
        yield offset, rest


def cutting_point(window: bytes) -> int:
    """Where to end a document that goes on: after a blank line, a line, a word, or at least a character."""
    for separator in (b"\n\n", b"\r\n\r\n", b"\n", b" "):
        at = window.rfind(separator, len(window) // 2)
        if at >= 0:
            return at + len(separator)
    for at in range(len(window) - 1, len(window) - 5, -1):
        if window[at] & 0xC0 != 0x80:
            return at
    return len(window)


def opened_stories(pieces: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """TinyStories whose marks were lost: blank lines lie between stories, but between paragraphs as well.

    So a story ends at a blank line only where the next paragraph opens a story or the last one closed one. Two stories
    may stay together; none is cut in two.
    """
    offset, story = 0, b""
    after_blank = closed = False
    for line in pieces:
        blank = not line.strip()
        if (not blank and after_blank and (closed or STORY_OPENING.match(line))) or len(story) > LONGEST_DOCUMENT_BYTES:
            yield offset, story
            offset, story = offset + len(story), b""
        story += line
        closed = closed if blank else bool(STORY_CLOSING.match(line))
        after_blank = blank
    if story.strip():
        yield offset, story


def wiki_articles(pieces: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """One article a title: ` = Title = ` between blank lines (tables contain lines that only look like one)."""
    offset, article, before = 0, b"", b""
    for line, after in pairwise(chain(pieces, [b""])):
        is_title = WIKI_TITLE.fullmatch(line) and not before.strip() and not after.strip()
        if is_title or len(article) > LONGEST_DOCUMENT_BYTES:
            if article.strip():
                yield offset, article.rstrip()
            offset, article = offset + len(article), b""
        article += line
        before = line
    if article.strip():
        yield offset, article.rstrip()


STORY_OPENING = re.compile(
    rb"Once upon a time|Once,? there (was|were|lived)|There once|There was once|Once a |Long ago|A long time ago"
)
STORY_CLOSING = re.compile(rb"The end\b|The moral of th", re.IGNORECASE)
WIKI_TITLE = re.compile(rb"\s*= [^=](.*[^=])? =\s*")
CUTS_WITHOUT_MARKS = {"tinystories": (lines, opened_stories), "wikitext103": (lines, wiki_articles)}


def read_json_lines(file: Path) -> Iterator[Document]:
    offset = 0
    with open(file, "rb") as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                yield Document(text_field(file, decoded(file, line, offset), number), len(line))
            offset += len(line)


def text_field(file: Path, line: str, number: int) -> str:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise UserError(f"{file}, line {number}: not JSON ({error}); each line must be one object") from error
    if not isinstance(value, dict) or not isinstance(value.get("text", 0), str | None):
        raise UserError(f'{file}, line {number}: needs an object with a string "text", as in {{"text": "..."}}')
    text = value["text"] or ""
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise UserError(f"{file}, line {number}: the text holds half a surrogate pair, which is no character")
    return text


def read_parquet(file: Path) -> Iterator[Document]:
    for batch in opened_parquet(file).iter_batches(batch_size=256, columns=["text"]):
        for text in batch.column(0).to_pylist():
            yield Document(text or "", len(text or ""))


def parquet_text_bytes(file: Path) -> int:
    """Of the text column, uncompressed."""
    opened = opened_parquet(file)
    column = opened.schema_arrow.names.index("text")
    groups = (opened.metadata.row_group(group) for group in range(opened.metadata.num_row_groups))
    return sum(group.column(column).total_uncompressed_size for group in groups)


def opened_parquet(file: Path):
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UserError(f"{file}: reading parquet needs pyarrow: pip install 'oelm[parquet]'") from error
    try:
        opened = parquet.ParquetFile(file)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise UserError(f"{file}: not readable as parquet ({first_line(error)})") from error
    schema = opened.schema_arrow
    if "text" not in schema.names or str(schema.field("text").type) not in ("string", "large_string"):
        raise UserError(f'{file}: has no string column "text"; its columns are {", ".join(schema.names)}')
    return opened
