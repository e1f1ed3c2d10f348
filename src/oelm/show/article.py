"""A report as data: one content for Markdown, HTML and PDF.

Every string here is plain text. What would be markup in some format is for that format to escape; what would act on a
terminal or break a file is made `visible` for all of them alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from oelm.machine.visible import visible
from oelm.study.declaration import Language

Tone = Literal["plain", "note", "warning"]
Align = Literal["left", "right"]


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Bullets:
    items: list[str]
    tone: Tone = "plain"
    title: str = ""


@dataclass(frozen=True)
class Table:
    caption: str
    header: list[str]
    rows: list[list[str]]
    align: Sequence[Align]


def words_then_numbers(columns: int, *, words: int = 1) -> list[Align]:
    """How most tables are aligned."""
    return ["left" if column < words else "right" for column in range(columns)]


@dataclass(frozen=True)
class Picture:
    """A figure by the name of its files."""

    name: str
    caption: str


@dataclass(frozen=True)
class VerdictBox:
    name: str
    claim: str
    scope: str  # what the claim was tried on, beside it in one line
    outcome: str  # the code, which decides the colour
    outcome_word: str
    sentence: str
    numbers: list[tuple[str, str]]
    reservations: list[str] = field(default_factory=list)  # what limits it, right beside it
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Facts:
    """Names with their values."""

    pairs: list[tuple[str, str]]


@dataclass(frozen=True)
class Code:
    text: str


Block = Heading | Paragraph | Bullets | Table | Picture | VerdictBox | Facts | Code


@dataclass(frozen=True)
class Article:
    language: Language
    title: str
    subtitle: str
    kicker: str  # the line above the title
    blocks: list[Block]


def numbered(article: Article) -> Article:
    """Tables and figures numbered in the order of reading."""
    tables = pictures = 0
    blocks: list[Block] = []
    names = {"en": ("Table", "Figure"), "zh": ("表", "图")}[article.language]
    for block in article.blocks:
        if isinstance(block, Table):
            tables += 1
            block = dataclasses.replace(block, caption=f"{names[0]} {tables}. {block.caption}")
        elif isinstance(block, Picture):
            pictures += 1
            block = dataclasses.replace(block, caption=f"{names[1]} {pictures}. {block.caption}")
        blocks.append(block)
    return dataclasses.replace(article, blocks=blocks)


def readable(article: Article) -> Article:
    """The same article with every character visible."""
    shown: Article = _readable(article)
    return shown


def _readable(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_readable(item) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {each.name: _readable(getattr(value, each.name)) for each in dataclasses.fields(value)}
        return dataclasses.replace(value, **parts)
    return value


def visible_text(article: Article) -> str:
    """Everything a reader sees, for the question which characters a font must have."""

    def strings(value: object) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, (list, tuple)):
            for item in value:
                yield from strings(item)
        elif dataclasses.is_dataclass(value):
            for each in dataclasses.fields(value):
                yield from strings(getattr(value, each.name))

    return "\n".join(strings(article))
