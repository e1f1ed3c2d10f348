"""The tables of a report as LaTeX, for a paper: booktabs, every text escaped, one file for each language.

A file is read with \\input and needs the packages that its first lines name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from oelm.reporting.article import Align, Article, Table
from oelm.reporting.fonts import has_chinese
from oelm.visible import visible

# Characters that mean something to LaTeX, or that a font of pdflatex has under a command only. Brackets and stars act
# after the end of a row; two dashes, quotes or commas in a row would become one sign.
_COMMANDS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\ensuremath{<}",
    ">": r"\ensuremath{>}",
    "|": r"\ensuremath{|}",
    "`": r"\textasciigrave{}",
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    "−": r"\ensuremath{-}",
    "±": r"\ensuremath{\pm}",
    "×": r"\ensuremath{\times}",
    "∞": r"\ensuremath{\infty}",
    "≤": r"\ensuremath{\le}",
    "≥": r"\ensuremath{\ge}",
    "≈": r"\ensuremath{\approx}",
    "→": r"\ensuremath{\to}",
    "·": r"\ensuremath{\cdot}",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "“": r"\textquotedblleft{}",
    "”": r"\textquotedblright{}",
    "‘": r"\textquoteleft{}",
    "’": r"\textquoteright{}",
}
# The first of two signs that a font would join.
_JOINED = r"[-',](?=[-',])"
_SPECIAL = re.compile("|".join([*map(re.escape, _COMMANDS), _JOINED]))
_EVERY_ENGINE = re.compile(r"[\x00-\xff]*")  # letters that pdflatex has as they are
_COLUMNS: dict[Align, str] = {"left": "l", "right": "r"}


def escaped(text: str) -> str:
    """One line that LaTeX sets as it stands."""
    line = " ".join(visible(text).split())
    return _SPECIAL.sub(lambda found: _COMMANDS.get(found.group(), found.group() + "{}"), line)


def tables(article: Article, *, study: str) -> str:
    """All tables of an article that is not numbered: LaTeX numbers them."""
    found = [block for block in article.blocks if isinstance(block, Table)]
    body = "\n\n".join(_table(block, f"tab:{label(study)}-{number}") for number, block in enumerate(found, start=1))
    return f"{comment(_opening(study, body))}\n\n{body}\n"


def _opening(study: str, body: str) -> Iterable[str]:
    yield f"Tables of the study {study}, written by `oelm report`; it overwrites this file."
    yield r"In the preamble: \usepackage{booktabs,graphicx}"
    if has_chinese(body):
        yield r"With Chinese text: compile with xelatex, \usepackage{ctex} in the preamble."
    elif not _EVERY_ENGINE.fullmatch(body):
        yield "With characters that pdflatex does not know: compile with xelatex and a font that has them."


def comment(lines: Iterable[str]) -> str:
    return "\n".join(f"% {' '.join(visible(line).split())}" for line in lines)


def label(text: str) -> str:
    """Of a cross-reference: a name whose other characters than ASCII are written as their numbers, so that no two
    studies share one."""
    return re.sub(r"[^A-Za-z0-9_.+-]", lambda found: f":{ord(found.group()):x}:", text)


def _table(block: Table, name: str) -> str:
    """Made narrower where it is wider than the text."""
    columns = "".join(_COLUMNS[side] for side in block.align)
    strong = set(block.strong_rows)
    rows = [_row(row, strong=number in strong) for number, row in enumerate(block.rows)]
    return "\n".join(
        [
            r"\begin{table}[htbp]",
            r"\centering",
            rf"\caption{{{escaped(block.caption)}}}",
            rf"\label{{{name}}}",
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            _row(block.header),
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}}",
            r"\end{table}",
        ]
    )


def _row(cells: list[str], *, strong: bool = False) -> str:
    texts = map(escaped, cells)
    return " & ".join(rf"\textbf{{{text}}}" if strong else text for text in texts) + r" \\"
