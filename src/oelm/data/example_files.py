"""Files to labelled examples: tab-separated tables with a header line, CSV with or without one, and JSON lines.

Tab-separated tables have no quoting: a quotation mark is text, as in the published files of MNLI, XNLI and SST-2. A
text that holds tabs or line breaks needs CSV or JSON lines. CSV without a header has the class first and the text after
it, as AG News, DBpedia and Yelp are published.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from oelm.data.encodings import text_lines
from oelm.data.readers import parsed_line, refuse_half_characters
from oelm.machine.errors import UserError

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
