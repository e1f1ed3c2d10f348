"""An article as PDF. Typst reads the article as JSON beside a fixed template, so no text can become markup."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

from oelm.show.article import Article, readable
from oelm.show.fonts import ChineseFont

LATIN = "Libertinus Serif"  # typst carries it


def pdf(article: Article, *, figures: dict[str, bytes], font: ChineseFont | None) -> bytes:
    """`figures` are SVG files by name. The same article gives the same bytes: no date is written."""
    import typst

    article = readable(article)
    with tempfile.TemporaryDirectory(prefix="oelm-report-") as name:
        folder = Path(name)
        (folder / "fonts").mkdir()
        if font is not None:
            shutil.copyfile(font.path, folder / "fonts" / font.path.name)
        for figure, svg in figures.items():
            (folder / f"{figure}.svg").write_bytes(svg)
        (folder / "article.json").write_text(json.dumps(_tree(article, font), ensure_ascii=False), encoding="utf-8")
        template = files("oelm.show").joinpath("template.typ").read_bytes()
        (folder / "main.typ").write_bytes(template)
        return typst.compile(
            folder / "main.typ", root=folder, font_paths=[folder / "fonts"], ignore_system_fonts=True, format="pdf"
        )


def _tree(article: Article, font: ChineseFont | None) -> dict[str, Any]:
    """The article with the kind of each block, and what the template needs to set it."""
    blocks = [{"kind": type(block).__name__} | dataclasses.asdict(block) for block in article.blocks]
    families = [LATIN] if font is None else [LATIN, font.family]
    if article.language == "zh":
        families.reverse()  # Latin letters then come from the Chinese font too, and match it
    return {
        "language": article.language,
        "title": article.title,
        "subtitle": article.subtitle,
        "kicker": article.kicker,
        "fonts": families,
        "blocks": blocks,
    }
