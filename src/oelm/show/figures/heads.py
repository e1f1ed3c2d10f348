"""What attention heads look at: when heads of a kind form in each arm, and a heat map of layers by heads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from oelm.models.heads.kinds import KINDS, Table
from oelm.show.figures.canvas import PNG_DPI, WIDTH, Canvas, counted, drawing_settings, lettered, rendered
from oelm.show.figures.curves import drawn_line
from oelm.show.words import say
from oelm.storage.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# From white to a dark blue, even in lightness, so that grey print suffices.
SHADES = ("#FFFFFF", "#C6DBEC", "#7FB2D6", "#3A83B8", "#0B5A94", "#06304F")
EDGE = "#D0D0D0"
LARGEST_WITH_NUMBERS = 8  # heads or layers: beyond it no number fits into a cell
CELL = 0.17  # inches, at most
FORMING = ("previous", "induction")  # an induction head in one layer needs a previous-token head below it


def forming(canvas: Canvas) -> Figure | None:
    """The strongest head of a kind against steps, in every arm."""
    found = {arm: canvas.findings.arms[arm].heads for arm in canvas.arms}
    curves = {arm: heads.strongest for arm, heads in found.items() if heads is not None}
    if not curves:
        return None
    figure, axes = canvas.panels(len(FORMING), height=2.9, sharey=True)
    for axis, kind in zip(axes, FORMING, strict=True):
        for order, (arm, by_kind) in enumerate(curves.items()):
            drawn_line(canvas, axis, arm, by_kind[kind], by_kind[kind].steps, order=order, lines=len(curves))
        axis.set_xlabel(canvas.word("axis.steps"))
        axis.set_ylim(-0.02, 1.02)
        counted(axis.xaxis)
    lettered(axes)
    for axis, kind in zip(axes, FORMING, strict=True):
        axis.set_title(canvas.word(f"head.{kind}"), loc="center")
    axes[0].set_ylabel(canvas.word("axis.strongest_head"))
    canvas.arm_legend(figure, list(curves))
    return figure


def last_scores(canvas: Canvas) -> Figure | None:
    """A row of heat maps for every arm: means over its seeds at the last step, of heads sorted by their score."""
    found = {arm: canvas.findings.arms[arm].heads for arm in canvas.arms}
    rows = [(canvas.label(arm, width=18), heads.last) for arm, heads in found.items() if heads is not None]
    return _heat_maps(rows, canvas.word, across="axis.ranked_head", first=1) if rows else None


def heat_map_files(file: Path, scores: dict[str, Table]) -> list[Path]:
    """Of one model, as PNG and as SVG, under the name of `file`."""
    with drawing_settings():
        drawn = rendered(_heat_maps([("", scores)], lambda code: say("en", code), across="axis.head"))
    written = {file.with_suffix(".png"): drawn.png, file.with_suffix(".svg"): drawn.svg}
    for path, content in written.items():
        write_bytes(path, content)
    return list(written)


def _heat_maps(
    rows: list[tuple[str, dict[str, Table]]], word: Callable[[str], str], *, across: str, first: int = 0
) -> Figure:
    """A row for every model, a column for every kind; all with one scale from 0 to 1. The number of the first head is
    `first`."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    layers = max(len(scores[kind]) for _, scores in rows for kind in KINDS)
    height = len(rows) * (0.2 + min(2.4, max(0.8, CELL * layers))) + 0.7
    figure = Figure(figsize=(WIDTH, height), dpi=PNG_DPI, layout="constrained")
    axes = figure.subplots(len(rows), len(KINDS), squeeze=False, sharex=True, sharey="row")
    shades = LinearSegmentedColormap.from_list("attention", SHADES)
    for row, (label, scores) in enumerate(rows):
        for column, kind in enumerate(KINDS):
            axis = axes[row, column]
            widest = max(map(len, scores[kind]))
            cells = [heads + [float("nan")] * (widest - len(heads)) for heads in scores[kind]]
            image = axis.imshow(cells, cmap=shades, vmin=0, vmax=1, aspect="auto")
            _as_cells(axis, scores[kind], first=first)
            if row == 0:
                axis.set_title(word(f"head.{kind}"))
        axes[row, 0].set_ylabel(label, rotation=0, ha="right", va="center")
    figure.supylabel(word("axis.layer"), fontsize="medium")
    figure.supxlabel(word(across), fontsize="medium")
    bar = figure.colorbar(image, ax=axes, location="right", aspect=30, pad=0.015, label=word("axis.share_of_attention"))
    bar.outline.set_visible(False)
    return figure


def _as_cells(axis: Axes, table: Table, *, first: int) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.grid(visible=False)
    axis.spines[:].set_visible(True)
    axis.spines[:].set_color(EDGE)
    axis.tick_params(length=0)
    axis.set_xticks([head + 0.5 for head in range(max(map(len, table)) - 1)], minor=True)
    axis.set_yticks([layer + 0.5 for layer in range(len(table) - 1)], minor=True)
    axis.grid(visible=True, which="minor", color=EDGE, linewidth=0.4)
    axis.set_axisbelow(False)
    axis.tick_params(which="minor", length=0)
    axis.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda head, _: f"{head + first:.0f}"))
    axis.yaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    if max(len(table), *(len(heads) for heads in table)) > LARGEST_WITH_NUMBERS:
        return
    for layer, heads in enumerate(table):
        for head, score in enumerate(heads):
            colour = "white" if score > 0.55 else "#333333"
            axis.text(head, layer, f"{score:.2f}".lstrip("0"), ha="center", va="center", fontsize=5.5, color=colour)
