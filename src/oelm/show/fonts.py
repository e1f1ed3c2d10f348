"""The one Chinese font of figures and PDF: from an installed font package, else from the system, else none.

A font counts only if it has a glyph for every Chinese character of our own texts.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oelm.machine.installation import install_command
from oelm.show.words import characters

HOW_TO_GET_ONE = (
    "no Chinese font: figures keep English labels and the Chinese report has no PDF; "
    f"{install_command('fonts')} (or your system's Noto Sans CJK) and run the same command again"
)

# Package -> file in it, found without importing: importing such a package may change matplotlib's settings.
_PACKAGES = {
    "zhplot": "fonts/NotoSansSC-Regular.ttf",
    "mplfonts": "fonts/NotoSansCJKsc-Regular.otf",
}
# By file name, best first. Collections (.ttc) hold several faces; `_face_of` picks the one for simplified Chinese.
_FILES = (
    r"NotoSansSC-Regular\.(ttf|otf)",
    r"NotoSansCJK(sc)?-Regular\.(ttc|otf)",
    r"SourceHanSans(SC|CN|HWSC)?-Regular\.(ttc|otf)",
    r"wqy-microhei\.ttc",
    r"wqy-zenhei\.ttc",
    r"DroidSansFallbackFull\.ttf",
    r"(PingFang|Hiragino Sans GB|STHeiti Light)\.ttc",
    r"(msyh|simsun)\.ttc|simhei\.ttf",
)
CHINESE_RANGES = "U+2E80-9FFF, U+F900-FAFF, U+FF00-FFEF"  # as CSS writes them
_CHINESE = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]")


@dataclass(frozen=True)
class ChineseFont:
    family: str
    path: Path
    face: int = 0


def has_chinese(text: str) -> bool:
    return bool(_CHINESE.search(text))


@functools.cache
def chinese_font() -> ChineseFont | None:
    return next((font for path in _candidates() if (font := _read(path)) is not None), None)


def subset_of(font: ChineseFont, text: str) -> bytes:
    """A font file with the Chinese characters of a text alone: small enough to lie inside a page."""
    from fontTools.subset import Options, Subsetter
    from fontTools.ttLib import TTFont

    options = Options(hinting=False, layout_features=[], name_IDs=[1, 2, 13, 14], notdef_outline=True)
    with TTFont(font.path, fontNumber=font.face, lazy=True, recalcTimestamp=False) as whole:
        subsetter = Subsetter(options)
        subsetter.populate(text="".join(sorted({character for character in text if has_chinese(character)})))
        subsetter.subset(whole)
        stream = io.BytesIO()
        whole.save(stream)
    return stream.getvalue()


def packaged_files() -> Iterator[Path]:
    """Of installed font packages, whatever they contain."""
    for package, inside in _PACKAGES.items():
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            yield Path(folder) / inside


def _candidates() -> Iterator[Path]:
    yield from packaged_files()
    from matplotlib.font_manager import findSystemFonts

    found = [Path(name) for name in findSystemFonts()]
    for pattern in _FILES:
        yield from sorted(path for path in found if re.fullmatch(pattern, path.name))


def _read(path: Path) -> ChineseFont | None:
    from fontTools.ttLib import TTCollection, TTFont, TTLibError

    try:
        if path.suffix == ".ttc":
            with TTCollection(path, lazy=True) as collection:
                face = _face_of([_family(font) for font in collection.fonts])
                chosen = collection.fonts[face]
                return ChineseFont(_family(chosen), path, face) if _usable(chosen) else None
        with TTFont(path, lazy=True) as font:
            return ChineseFont(_family(font), path) if _usable(font) else None
    except (OSError, TTLibError):
        return None


def _face_of(families: list[str]) -> int:
    """The face with simplified forms; matplotlib before 3.11 can only draw the first one."""
    from matplotlib.ft2font import FT2Font

    if "face_index" not in (FT2Font.__init__.__doc__ or ""):
        return 0
    return next((index for index, family in enumerate(families) if re.search(r"\b(SC|CN|GB)$", family)), 0)


def _family(font: Any) -> str:  # a fontTools.ttLib.TTFont
    return str(font["name"].getDebugName(16) or font["name"].getDebugName(1))


@functools.cache
def _needed() -> frozenset[int]:
    return frozenset(ord(character) for character in characters("zh") if has_chinese(character))


def _usable(font: Any) -> bool:
    """Outlines (a bitmap font has none) and the characters themselves; a variable font has no fixed weight."""
    has_outlines = "glyf" in font or "CFF " in font
    return has_outlines and "fvar" not in font and _needed() <= set(font.getBestCmap())
