"""The tables of a report as LaTeX, for a paper: booktabs, every text escaped, one file for each language.

A file is read with \\input and needs the packages that its first lines name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from oelm.machine.visible import visible
from oelm.show.article import Align, Article, Table
from oelm.show.fonts import has_chinese
from oelm.show.tables import places

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
_ENCODED = re.compile("[«»ÐðÞþ]")  # those of them that it lacks in its first font encoding
_COLUMNS: dict[Align, str] = {"left": "l", "right": "r"}
_LONGEST_LINE = 60  # places of a text in a table; a longer one is broken into lines
_LONGEST_NAME = 12  # places of the name of a column in one line
_SHARES = (0.5, 0.36, 0.28)  # of the text's width, for one column of such texts, for each of two, of three or more


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
    elif _ENCODED.search(body):
        yield r"With pdflatex: \usepackage[T1]{fontenc} in the preamble too."


def comment(lines: Iterable[str]) -> str:
    return "\n".join(f"% {' '.join(visible(line).split())}" for line in lines)


def label(text: str) -> str:
    """Of a cross-reference: a name whose other characters than ASCII are written as their numbers, so that no two
    studies share one."""
    return re.sub(r"[^A-Za-z0-9_.+-]", lambda found: f":{ord(found.group()):x}:", text)


def _table(block: Table, name: str) -> str:
    """Made narrower where it is wider than the text."""
    broken = {
        number
        for number, side in enumerate(block.align)
        if side == "left" and max(places(row[number]) for row in (block.header, *block.rows)) > _LONGEST_LINE
    }
    share = _SHARES[min(len(broken), len(_SHARES)) - 1]
    columns = "".join(
        rf"p{{{share}\linewidth}}" if number in broken else _COLUMNS[side] for number, side in enumerate(block.align)
    )
    named = enumerate(zip(block.header, block.align, strict=True))
    header = [escaped(name) if number in broken else _in_two_lines(name, side) for number, (name, side) in named]
    return "\n".join(
        [
            r"\begin{table}[htbp]",
            r"\centering",
            r"\setlength{\abovecaptionskip}{0pt}\setlength{\belowcaptionskip}{6pt}",
            rf"\caption{{{escaped(block.caption)}}}",
            rf"\label{{{name}}}",
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            " & ".join(header) + r" \tabularnewline",
            r"\midrule",
            *(_row(row, broken) for row in block.rows),
            r"\bottomrule",
            r"\end{tabular}}",
            r"\end{table}",
        ]
    )


def _in_two_lines(name: str, side: Align) -> str:
    """A long name of a column, often wider than all below it: broken at the space next to its middle, if it has one."""
    spaces = [place for place, letter in enumerate(name) if letter == " "]
    if places(name) <= _LONGEST_NAME or not spaces:
        return escaped(name)
    middle = min(spaces, key=lambda place: abs(place - len(name) / 2))
    first, second = escaped(name[:middle]), escaped(name[middle + 1 :])
    return rf"\shortstack[{_COLUMNS[side]}]{{{first}\\{second}}}"


def _row(cells: list[str], broken: set[int]) -> str:
    texts = enumerate(map(escaped, cells))
    lines = (rf"\raggedright {text}" if number in broken else text for number, text in texts)
    return " & ".join(lines) + r" \tabularnewline"  # within \raggedright, two backslashes mean something else
