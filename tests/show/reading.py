"""Reading articles back, as a reader's program would."""

from __future__ import annotations

import html.parser
import io
import re

import pytest


class Page(html.parser.HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)

    def handle_data(self, text):
        self.texts.append(text)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def pdf_text(content: bytes) -> str:
    pypdf = pytest.importorskip("pypdf", reason="pip install pypdf")
    return "\n".join(page.extract_text() for page in pypdf.PdfReader(io.BytesIO(content)).pages)


def without_spaces(text: str) -> str:
    """Lines break anywhere in a PDF."""
    return re.sub(r"[\s\u200b]", "", text)
