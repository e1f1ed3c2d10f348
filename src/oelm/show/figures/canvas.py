"""How every figure looks, and how it becomes PNG, SVG and PDF: the same bytes for the same findings.

matplotlib is imported inside functions: a report without figures, and `--help`, never wait for it.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from oelm.analysis.findings import Findings
from oelm.core.measures import Measure
from oelm.machine.visible import visible
from oelm.show import quality
from oelm.show.fonts import ChineseFont, has_chinese
from oelm.show.words import say_of
from oelm.study.declaration import Language, Study, in_language
from oelm.study.scaled import families_of, family_of, label_at_any_size, size_elsewhere

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 7.0  # inches: the text width of the PDF
PNG_DPI = 300
LEGEND_LINE = 0.16  # inches

# Okabe and Ito's colours; the baseline alone is black. Line style and marker differ too, so that grey print suffices.
COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D00")
LINES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (3, 1)), (0, (1, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LONGEST_LABEL = 48
GREY = "#767676"
SHADE = "#DDE8F0"

_SETTINGS: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titley": 1.0,  # fixed: finding a free place costs as much as the drawing
    "axes.labelsize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "hatch.linewidth": 0.6,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.fonttype": "path",  # no font is needed where it is shown
    "svg.hashsalt": "oelm",
    "pdf.fonttype": 42,  # TrueType, embedded: publishers refuse Type 3
    "text.parse_math": False,  # a name with dollar signs is a name
    "axes.formatter.use_mathtext": False,
}


@dataclass(frozen=True)
class Look:
    """How one arm is drawn, in every figure alike."""

    colour: str
    line: Any
    marker: str


def look_of(study: Study, arm: str) -> Look:
    """Of an arm, at any of its sizes."""
    baseline = family_of(study, study.baseline)
    order = [baseline, *(each for each in families_of(study) if each != baseline)]
    return look_at(order.index(family_of(study, arm)))


def look_at(place: int) -> Look:
    """Of the baseline, whose place is 0, or of another arm."""
    if place == 0:
        return Look(COLOURS[0], LINES[0], MARKERS[0])
    turn, number = divmod(place - 1, len(COLOURS) - 1)  # with more arms than colours, the marks shift against them
    number += 1
    return Look(COLOURS[number], LINES[(number + turn) % 8], MARKERS[(number + 3 * turn) % 8])


@dataclass(frozen=True)
class Canvas:
    """What every figure of one report shares: the findings, the language, and the look of each arm."""

    findings: Findings
    language: Language
    font: ChineseFont | None

    def word(self, code: str, **facts: object) -> str:
        return say_of(self.findings.study, self.language, code, **facts)

    @property
    def measure(self) -> Measure:
        return self.findings.study.measure

    def label(self, arm: str, *, width: int = 30) -> str:
        """The arm's own label; its key where the label is too long, or could only be drawn as boxes."""
        study = self.findings.study
        text = visible(in_language(label_at_any_size(study, arm) or arm, self.language))
        number = families_of(study).index(family_of(study, arm)) + 1
        candidates = (text, arm, f"arm {number}")
        fitting = [each for each in candidates if self.can_draw(each) and len(each) <= LONGEST_LABEL]
        size = size_elsewhere(study, arm)
        return wrapped(f"{fitting[0]} ({size})" if size else fitting[0], width)

    def can_draw(self, text: str) -> bool:
        return self.font is not None or not has_chinese(text)

    def look(self, arm: str) -> Look:
        return look_of(self.findings.study, arm)

    @property
    def arms(self) -> list[str]:
        return list(self.findings.arms)

    def panels(self, columns: int, *, height: float, rows: int = 1, **settings: Any) -> tuple[Figure, list[Axes]]:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(WIDTH, height), dpi=PNG_DPI, layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, **settings)
        return figure, list(axes.flat)

    def arm_legend(self, figure: Figure, arms: list[str], *, with_lines: bool = True) -> None:
        """Below the axes, where it hides nothing."""
        from matplotlib.lines import Line2D

        longest = max(len(self.label(arm, width=1000)) for arm in arms)
        columns, width = (3, 32) if longest <= 32 else (2, 50)
        handles = []
        for arm in arms:
            look = self.look(arm)
            line = look.line if with_lines else "none"
            label = self.label(arm, width=width)
            handles.append(Line2D([], [], color=look.colour, ls=line, marker=look.marker, label=label))
        columns = legend_below(figure, handles, columns=min(columns, len(arms)), handlelength=3.2)
        lines = sum(str(handle.get_label()).count("\n") for handle in handles) + -(-len(arms) // columns)
        figure.set_figheight(figure.get_figheight() + LEGEND_LINE * max(0, lines - 2))


def floor_levels(canvas: Canvas) -> list[float]:
    """As drawn: what is reached without having learnt anything, and with having learnt little. Drawn where they lie
    among the values, so that these keep their room; the caption says them in any case."""
    floor = canvas.findings.arms[canvas.findings.study.baseline].floor
    levels = (floor.learnt_nothing, floor.learnt_little) if floor else ()
    return [quality.drawn(canvas.measure, level) for level in levels if level is not None]


def legend_below(figure: Figure, handles: list[Any], *, columns: int, **settings: Any) -> int:
    """In as many columns as the figure is wide enough for, at most so many; how many they are."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(figure).get_renderer()
    while True:
        legend = figure.legend(handles=handles, loc="outside lower center", ncols=columns, **settings)
        if columns == 1 or legend.get_window_extent(renderer).width <= figure.bbox.width:
            return columns
        legend.remove()
        columns -= 1


def wrapped(text: str, width: int) -> str:
    """On several lines where it is long, broken after a space or underscore; Chinese characters count twice."""
    if has_chinese(text):
        width //= 2
    lines = [""]
    for piece in re.findall(r"[^ _]*[ _]|[^ _]+", " ".join(text.split())):
        if lines[-1] and len(lines[-1] + piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(part for line in lines for part in textwrap.wrap(line, width))


def lettered(axes: list[Axes]) -> None:
    for letter, axis in zip("abcdefgh", axes, strict=False):
        axis.set_title(f"({letter})", loc="left", fontweight="bold")


def rows_of(axis: Axes, labels: list[str]) -> None:
    """Categories from top to bottom on the vertical axis."""
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(len(labels) - 0.4, -0.6)
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0)


def without_row_marks(axes: list[Axes]) -> None:
    """For panels to the right that share the rows of the first."""
    for axis in axes:
        axis.tick_params(axis="y", length=0)
        axis.grid(visible=False, axis="y")


def logarithmic(axis: Any, low: float, high: float) -> None:
    """A logarithmic axis whose labels are plain numbers, also when it spans less than a decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    ratio = high / low if low > 0 else 1.0
    if ratio > 8:
        axis.set_major_locator(LogLocator(subs=(1.0,) if ratio > 3e3 else (1.0, 2.0, 5.0), numticks=12))
    else:
        axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(NullLocator())


def plain_number(value: float) -> str:
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e4, "K")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'K' else size):.4g}{unit}"
    return f"{value:.4g}"


def counted(axis: Any) -> None:
    """Tick labels such as 20K and 1.5M."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))


@contextlib.contextmanager
def drawing_settings(language: Language = "en", font: ChineseFont | None = None) -> Iterator[None]:
    """matplotlib's settings for the block; nothing of it stays."""
    import matplotlib
    from matplotlib import font_manager

    families = ["DejaVu Sans"]
    if font is not None:
        if str(font.path) not in {entry.fname for entry in font_manager.fontManager.ttflist}:
            font_manager.fontManager.addfont(str(font.path))
        families.insert(0 if language == "zh" else 1, font.family)
    logger = logging.getLogger("matplotlib.font_manager")
    level = logger.level
    logger.setLevel(logging.ERROR)  # one face in one weight: said once in the report's font line, not at every label
    try:
        settings: dict[Any, Any] = _SETTINGS | {"font.family": families}
        with matplotlib.rc_context(settings):
            yield
    finally:
        logger.setLevel(level)


@dataclass(frozen=True)
class Rendered:
    png: bytes
    svg: bytes
    pdf: bytes | None = None

    def files(self) -> dict[str, bytes]:
        """By the ending of the file."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {ending: content for ending, content in found.items() if content is not None}


def rendered(figure: Figure, *, with_pdf: bool = False) -> Rendered:
    """All files, without dates or versions in them. The layout, which costs more than the drawing, is made once.

    A PDF takes longer than the other two together: it contains the letters that it needs of each font.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_pdf import FigureCanvasPdf
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from PIL import Image

    png, svg, pdf = io.BytesIO(), io.BytesIO(), io.BytesIO()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    image = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba()).convert("RGB")
    image.save(png, format="png", dpi=(PNG_DPI, PNG_DPI), compress_level=4)
    figure.set_layout_engine("none")
    FigureCanvasSVG(figure).print_svg(svg, metadata={"Date": None, "Creator": None})
    if with_pdf:
        FigureCanvasPdf(figure).print_pdf(pdf, metadata={"CreationDate": None, "Creator": None, "Producer": None})
    return Rendered(png.getvalue(), svg.getvalue(), pdf.getvalue() or None)
