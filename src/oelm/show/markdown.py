"""An article as Markdown that GitHub and any CommonMark reader show alike; whatever looks like markup is escaped."""

from __future__ import annotations

import re

from oelm.machine.visible import visible
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
)

_SPECIAL = re.compile(r"[\\`*\[\]<>|$~&#{}!]")
_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")  # within a word it is only an underscore
# A list, a numbered list, or a line that would underline a heading: the mark is the last character matched.
_BEGINNING = re.compile(r"^(?:[-+](?=\s|$)|[-=](?=[-=\s]*$)|\d+[.)](?=\s|$))")


def escaped(text: str) -> str:
    """One line of text that no reader takes for markup."""
    line = " ".join(visible(text).split())
    line = _UNDERSCORE.sub(r"\\_", _SPECIAL.sub(lambda match: "\\" + match.group(), line))
    return _BEGINNING.sub(lambda match: f"{match.group()[:-1]}\\{match.group()[-1]}", line)


def markdown(article: Article, *, figure_paths: dict[str, str]) -> str:
    article = readable(article)
    parts = [f"*{escaped(article.kicker)}*", f"# {escaped(article.title)}", f"**{escaped(article.subtitle)}**"]
    parts += [_block(block, figure_paths) for block in article.blocks]
    return "\n\n".join(parts) + "\n"


def _block(block: Block, figure_paths: dict[str, str]) -> str:
    match block:
        case Heading():
            return f"{'#' * block.level} {escaped(block.text)}"
        case Paragraph():
            return escaped(block.text) if block.tone == "plain" else f"> {escaped(block.text)}"
        case Bullets():
            lines = [f"**{escaped(block.title)}**", ""] if block.title else []
            lines += [f"- {escaped(item)}" for item in block.items]
            return "\n".join(lines if block.tone == "plain" else [f"> {line}".rstrip() for line in lines])
        case Table():
            return f"{table(block)}\n\n*{escaped(block.caption)}*"
        case Picture():
            return f"![{escaped(block.caption)}]({figure_paths[block.name]})\n\n*{escaped(block.caption)}*"
        case VerdictBox():
            return _verdict(block)
        case Facts():
            return "\n".join(f"- {escaped(name)}: {escaped(value)}" for name, value in block.pairs)
        case Code():  # a fence longer than any inside
            longest = max((len(run) for run in re.findall(r"`+", block.text)), default=0)
            fence = "`" * max(3, longest + 1)
            return f"{fence}\n{block.text}\n{fence}"


def table(block: Table) -> str:
    header, *rows = ([escaped(cell) for cell in row] for row in (block.header, *block.rows))
    rule = ["---:" if side == "right" else "---" for side in block.align]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *rows))


def _verdict(box: VerdictBox) -> str:
    lines = [
        f"**{escaped(box.name)}: {escaped(box.outcome_word)}**",
        f"{escaped(box.claim)} *{escaped(box.scope)}*",
        escaped(box.sentence),
        *(f"**{escaped(each)}**" for each in box.reservations),
        "\n> ".join(f"- {escaped(name)}: {escaped(value)}" for name, value in box.numbers),
        *(escaped(remark) for remark in box.remarks),
    ]
    return "\n>\n".join(f"> {line}" for line in lines if line)
