"""Files to documents: text (cut at marks, or by what the corpus looks like), JSON lines, tables, parquet.

Reading holds one document in memory, never a file.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from oelm.data.encodings import advice, blocks, text_lines
from oelm.machine.errors import UserError, first_line
from oelm.machine.installation import install_command

MARK = b"<|endoftext|>"
LONGEST_DOCUMENT_BYTES = 1 << 20
# A text file without marks is read in passages, so that something can be held out of a single book.
PASSAGE_BYTES = 1 << 14
TEXT, LINES, PARQUET = (".txt", ".text", ".md", ".tokens", ".raw"), (".jsonl", ".json"), (".parquet",)
TABLES = {".csv": ",", ".tsv": "\t"}


class Document(NamedTuple):
    text: str
    source_bytes: int  # what reading it used up of the source, for progress
    crlf: int = 0  # line ends of Windows that were read as LF


Cut = Callable[[Iterable[bytes]], Iterator[tuple[int, bytes]]]  # pieces of a text -> offset and bytes of each document


@dataclass(frozen=True)
class Reading:
    """How the files of a corpus are read."""

    column: str = "text"  # of its rows, in JSON lines, tables, parquet and on the hub
    cut: Cut | None = None  # of the lines of a text without marks; None: passages


PLAIN = Reading()


def source_size(file: Path, reading: Reading = PLAIN) -> int:
    """In bytes; of parquet, those of the text column, uncompressed."""
    if file.suffix.lower() not in PARQUET:
        return file.stat().st_size
    opened = opened_parquet(file, reading.column)
    place = opened.schema_arrow.names.index(reading.column)
    groups = (opened.metadata.row_group(group) for group in range(opened.metadata.num_row_groups))
    return sum(group.column(place).total_uncompressed_size for group in groups)


def read_files(files: Iterable[Path], *, reading: Reading = PLAIN, encoding: str | None = None) -> Iterator[Document]:
    for file in files:
        ending = file.suffix.lower()
        if ending in LINES:
            yield from read_json_lines(file, reading.column, encoding)
        elif ending in PARQUET:
            yield from read_parquet(file, reading.column)
        elif ending in TABLES:
            yield from read_table(file, reading.column, encoding)
        else:
            yield from read_text(file, cut=reading.cut, encoding=encoding)


def read_text(file: Path, *, cut: Cut | None = None, encoding: str | None = None) -> Iterator[Document]:
    """Documents between end-of-text marks; in a file without marks by the corpus's own cut, or as passages. Line ends
    of Windows become LF."""
    pieces: Callable[[Path, str | None], Iterator[bytes]] = blocks
    if has_mark(file, encoding):
        cut = between_marks
    elif cut is None:
        cut = passages
    else:
        pieces = lines
    end = 0
    for offset, raw in cut(pieces(file, encoding)):
        text = decoded(file, raw, offset)
        yield Document(text.replace("\r\n", "\n").strip("\r\n"), offset + len(raw) - end, crlf=text.count("\r\n"))
        end = offset + len(raw)


def lines(file: Path, encoding: str | None = None) -> Iterator[bytes]:
    """With their ends; one that is longer than a document comes in parts."""
    rest = b""
    for block in blocks(file, encoding):
        *whole, rest = (rest + block).split(b"\n")
        yield from (line + b"\n" for line in whole)
        while len(rest) > LONGEST_DOCUMENT_BYTES:
            yield rest[:LONGEST_DOCUMENT_BYTES]
            rest = rest[LONGEST_DOCUMENT_BYTES:]
    if rest:
        yield rest


def has_mark(file: Path, encoding: str | None = None) -> bool:
    seam = b""  # a mark may lie across two blocks
    for block in blocks(file, encoding):
        window = seam + block
        if MARK in window:
            return True
        seam = window[1 - len(MARK) :]
    return False


def decoded(file: Path, raw: bytes, offset: int) -> str:
    try:
        return raw.decode("utf-8-sig" if offset == 0 else "utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not UTF-8 at byte {offset + error.start}; {advice(file, raw)}") from error


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
    if rest.strip() or b"\r\n" in rest:  # a blank end is no document, but its line ends are counted
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
    if rest.strip() or b"\r\n" in rest:  # a blank end is no document, but its line ends are counted
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


def read_json_lines(file: Path, column: str, encoding: str | None = None) -> Iterator[Document]:
    for number, size, line in text_lines(file, encoding):
        if not line.strip():
            continue
        value, where = parsed_line(file, line, number), f"{file}, line {number}"
        if not isinstance(value, dict) or not isinstance(value.get(column, 0), str | None):
            raise UserError(f'{where}: needs an object with a string "{column}", as in {{"{column}": "..."}}')
        text = value[column] or ""
        refuse_half_characters(file, text, number)
        yield Document(text, size)


def parsed_line(file: Path, line: str, number: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file}, line {number}: not JSON ({error}); each line must be one object") from error


def refuse_half_characters(file: Path, text: str, number: int) -> None:
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise UserError(f"{file}, line {number}: the text contains half a surrogate pair, which is not a character")


def read_table(file: Path, column: str, encoding: str | None = None) -> Iterator[Document]:
    """Comma- or tab-separated rows below the names of their columns; a quoted text may have several lines."""
    csv.field_size_limit(LONGEST_DOCUMENT_BYTES)
    used = number = 0

    def texts() -> Iterator[str]:
        nonlocal used, number
        for number, size, line in text_lines(file, encoding):  # noqa: B007 (the last one, for errors)
            used += size
            yield line

    rows = csv.reader(texts(), delimiter=TABLES[file.suffix.lower()], strict=True)
    try:
        names = next(rows, [])
        if names.count(column) != 1:
            there = "no column" if column not in names else "more than one column"
            raise UserError(
                f"{file}: has {there} {column!r}; its columns are {', '.join(names):.200}; choose: --column"
            )
        place = names.index(column)
        for row in rows:
            if row and len(row) != len(names):
                raise UserError(f"{file}, line {number}: {len(row)} fields, but the first line names {len(names)}")
            text = row[place] if row else ""
            yield Document(text.replace("\r\n", "\n"), used, crlf=text.count("\r\n"))
            used = 0
    except csv.Error as error:
        raise UserError(f"{file}, line {number}: {error}") from error


def read_parquet(file: Path, column: str) -> Iterator[Document]:
    for batch in opened_parquet(file, column).iter_batches(batch_size=256, columns=[column]):
        for text in batch.column(0).to_pylist():
            yield Document(text or "", len(text or ""))


def opened_parquet(file: Path, column: str) -> Any:  # a pyarrow.parquet.ParquetFile
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UserError(f"{file}: reading parquet needs pyarrow: {install_command('parquet')}") from error
    try:
        opened = parquet.ParquetFile(file)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise UserError(f"{file}: not readable as parquet ({first_line(error)})") from error
    schema = opened.schema_arrow
    if column not in schema.names or str(schema.field(column).type) not in ("string", "large_string"):
        raise UserError(f'{file}: has no string column "{column}"; its columns are {", ".join(schema.names)}')
    return opened
