"""Files to labelled examples: tab-separated tables with a header line, and JSON lines.

Tables have no quoting: a quotation mark is text, as in the published files of MNLI, XNLI and SST-2. A text that holds
tabs or line breaks needs JSON lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from oelm.data.readers import refuse_half_characters
from oelm.errors import UserError

TABLES, LINES = (".tsv", ".txt"), (".jsonl",)
# The names a column may have, the first one found counts.
FIRST_OF_PAIR, SECOND_OF_PAIR = ("premise", "sentence1"), ("hypothesis", "hypo", "sentence2")
ONE_SENTENCE, LABEL, LANGUAGE = ("sentence", "text"), ("gold_label", "label"), "language"


class Example(NamedTuple):
    texts: tuple[str, ...]  # one or two
    label: str  # a name or a number, as written
    line: int  # where it stands
    source_bytes: int


class Row(NamedTuple):
    line: int
    source_bytes: int
    values: list[Any]  # of the needed columns, the label last
    language: Any  # None where the file does not say


Columns = tuple[tuple[str, ...], ...]  # each needed column, as the names it may have


def read_examples(file: Path, *, pairs: bool, language: str | None = None) -> Iterator[Example]:
    """Every example of a file; of a file with a column `language`, those in this language."""
    wanted = (FIRST_OF_PAIR, SECOND_OF_PAIR, LABEL) if pairs else (ONE_SENTENCE, LABEL)
    rows = json_rows if file.suffix.lower() in LINES else table_rows
    for row in rows(file, wanted):
        if language is not None and row.language not in (None, language):
            continue
        *texts, label = row.values
        yield Example(
            texts=tuple(text_value(file, row.line, text) for text in texts),
            label=label_value(file, row.line, label),
            line=row.line,
            source_bytes=row.source_bytes,
        )


def chosen(file: Path, line: int, names: Iterable[str], aliases: tuple[str, ...]) -> str:
    for alias in aliases:
        if alias in names:
            return alias
    there = ", ".join(map(repr, names)) or "none"
    raise UserError(f"{file}, line {line}: no column named {' or '.join(aliases)}; there are {there:.200}")


def text_value(file: Path, line: int, value: Any) -> str:
    if not isinstance(value, str):
        raise UserError(f"{file}, line {line}: {value!r:.40} is not a text")
    refuse_half_characters(file, value, line)
    return value


def label_value(file: Path, line: int, value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise UserError(f"{file}, line {line}: the label is neither a name nor a whole number but {value!r:.40}")


def decoded_lines(file: Path) -> Iterator[tuple[int, int, str]]:
    """Number, bytes and text of each line that is not blank."""
    with open(file, "rb") as stream:
        for number, raw in enumerate(stream, start=1):
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{file}, line {number}: not UTF-8 at byte {error.start + 1} of the line; convert the file to UTF-8"
                ) from error
            if text.strip(" "):
                yield number, len(raw), text


def table_rows(file: Path, wanted: Columns) -> Iterator[Row]:
    lines = decoded_lines(file)
    _, _, header = next(lines, (0, 0, ""))
    if not header:
        raise UserError(f"{file}: empty; its first line must name the columns, separated by tabs")
    names = [name.strip().lower() for name in header.split("\t")]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UserError(f"{file}, line 1: the column {twice[0]!r} is named twice")
    places = [names.index(chosen(file, 1, names, aliases)) for aliases in wanted]
    language = names.index(LANGUAGE) if LANGUAGE in names else None
    for number, size, text in lines:
        fields = text.split("\t")
        if not max(places) < len(fields) <= len(names):
            raise UserError(
                f"{file}, line {number}: {len(fields)} fields, but the header names {len(names)}; "
                "fields are separated by single tabs, and a text with a tab inside needs JSON lines"
            )
        values = [fields[place] for place in places]
        yield Row(number, size, values, None if language is None else fields[language])


def json_rows(file: Path, wanted: Columns) -> Iterator[Row]:
    for number, size, text in decoded_lines(file):
        try:
            row = json.loads(text)
        except ValueError as error:
            raise UserError(f"{file}, line {number}: not JSON ({error}); each line must be one object") from error
        if not isinstance(row, dict):
            raise UserError(f"{file}, line {number}: not an object with texts and a label")
        yield Row(number, size, [row[chosen(file, number, row, aliases)] for aliases in wanted], row.get(LANGUAGE))
