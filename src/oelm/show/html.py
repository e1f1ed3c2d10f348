"""An article as one HTML file: no script, no request to anywhere; figures and missing Chinese letters lie inside."""

from __future__ import annotations

import base64
from html import escape
from importlib.resources import files

from oelm.show.article import (
    Article,
    Block,
    Bullets,
    Code,
    Facts,
    Heading,
    Paragraph,
    Picture,
    Table,
    VerdictBox,
    readable,
    visible_text,
)
from oelm.show.fonts import CHINESE_RANGES, ChineseFont, has_chinese, subset_of
from oelm.show.words import say

# Whatever a text might contain, the page may neither run nor load anything.
POLICY = "default-src 'none'; img-src data:; font-src data:; style-src 'unsafe-inline'"


def html(article: Article, *, figures: dict[str, bytes], font: ChineseFont | None) -> str:
    """`figures` are SVG files by name. The font is for readers whose system has no Chinese one."""
    article = readable(article)
    style = files("oelm.show").joinpath("style.css").read_text(encoding="utf-8")
    language = {"en": "en", "zh": "zh-Hans"}[article.language]
    body = "\n".join(_block(block, index, figures) for index, block in enumerate(article.blocks))
    return f"""<!DOCTYPE html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">
<title>{escape(article.title)}</title>
<style>
{_font_face(article, font)}{style}</style>
</head>
<body>
<header>
<p class="kicker">{escape(article.kicker)}</p>
<h1>{escape(article.title)}</h1>
<p class="question">{escape(article.subtitle)}</p>
</header>
{_contents(article)}
<main>
{body}
</main>
</body>
</html>
"""


def _font_face(article: Article, font: ChineseFont | None) -> str:
    """The first of the families in style.css, for Chinese characters alone: the page looks the same everywhere."""
    text = visible_text(article) + say(article.language, "contents")
    if font is None or not has_chinese(text):
        return ""
    data = base64.b64encode(subset_of(font, text)).decode()
    return (
        f'@font-face {{ font-family: "Enclosed Chinese"; src: url("data:font/ttf;base64,{data}"); '
        f"font-display: block; unicode-range: {CHINESE_RANGES}; }}\n"
    )


def _contents(article: Article) -> str:
    items = [
        f'<li><a href="#s{index}">{escape(block.text)}</a></li>'
        for index, block in enumerate(article.blocks)
        if isinstance(block, Heading)
    ]
    title = escape(say(article.language, "contents"))
    return f'<nav aria-label="{title}"><details><summary>{title}</summary><ol>{"".join(items)}</ol></details></nav>'


def _block(block: Block, index: int, figures: dict[str, bytes]) -> str:
    match block:
        case Heading():
            return f'<h{block.level} id="s{index}">{escape(block.text)}</h{block.level}>'
        case Paragraph():
            return f'<p class="{block.tone}">{escape(block.text)}</p>'
        case Bullets():
            title = f"<p><strong>{escape(block.title)}</strong></p>" if block.title else ""
            items = "".join(f"<li>{escape(item)}</li>" for item in block.items)
            return f'<div class="{block.tone}">{title}<ul>{items}</ul></div>'
        case Table():
            return _table(block)
        case Picture():
            data = base64.b64encode(figures[block.name]).decode()
            caption = escape(block.caption)
            return (
                f'<figure class="picture"><img alt="{caption}" src="data:image/svg+xml;base64,{data}">'
                f"<figcaption>{caption}</figcaption></figure>"
            )
        case VerdictBox():
            return _verdict(block)
        case Facts():
            return f"<dl>{_pairs(block.pairs)}</dl>"
        case Code():
            return f"<pre>{escape(block.text)}</pre>"


def _table(block: Table) -> str:
    def row(cells: list[str], tag: str) -> str:
        shown = ""
        for cell, side in zip(cells, block.align, strict=True):
            text = escape(cell).replace(" [", "<br>[") if side == "right" else escape(cell)  # below its number
            shown += f'<{tag} class="{side}">{text}</{tag}>'
        return f"<tr>{shown}</tr>"

    rows = "\n".join(row(cells, "td") for cells in block.rows)
    caption = f"<figcaption>{escape(block.caption)}</figcaption>"
    table = f"<table><thead>{row(block.header, 'th')}</thead><tbody>\n{rows}\n</tbody></table>"
    return f'<figure class="table">{caption}<div class="scroll">{table}</div></figure>'


def _verdict(box: VerdictBox) -> str:
    reservations = "".join(f'<p class="reservation">{escape(each)}</p>' for each in box.reservations)
    remarks = "".join(f"<p>{escape(remark)}</p>" for remark in box.remarks)
    return f"""<section class="verdict {escape(box.outcome)}">
<p class="head"><span class="name">{escape(box.name)}</span><span class="outcome">{escape(box.outcome_word)}</span></p>
<p class="claim">{escape(box.claim)} <span class="scope">{escape(box.scope)}</span></p>
<p>{escape(box.sentence)}</p>
{reservations}
<dl>{_pairs(box.numbers)}</dl>
{remarks}
</section>"""


def _pairs(pairs: list[tuple[str, str]]) -> str:
    return "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs)
