"""What a result costs: parameters, time against the baseline, what the target took, memory."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from oelm.core.options import ADDITIONS
from oelm.show import numbers
from oelm.show.figures.canvas import (
    LEGEND_LINE,
    Canvas,
    counted,
    legend_below,
    lettered,
    logarithmic,
    rows_of,
    without_row_marks,
)  # fmt: skip
from oelm.show.figures.comparisons import mean_interval, point
from oelm.show.figures.curves import TIME_UNITS
from oelm.show.words import WORDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "token_embedding": "#999999", "position_embedding": "#CFCFCF", "type_embedding": "#E8E8E8", "query": "#E69F00",
    "key": "#56B4E9", "value": "#009E73", "output": "#F0E442", "up": "#0072B2",
    "down": "#D55E00", "norm": "#CC79A7", "head": "#4B2E83", "output_layer": "#5F6B6D",
} | {role: option.colour for role, option in ADDITIONS.items()}  # fmt: skip
UNKNOWN = "#000000"  # a role that this version has no colour for is shown all the same
MILLION = 1e6
MOST_COLUMNS = 5  # of the legend
if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MIB = 2**20
FLOP_UNITS = ((1e18, "EFLOP"), (1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1.0, "FLOP"))
MEMORY_PARTS = (
    ("weight_bytes", "legend.weights", "#0072B2", None),
    ("gradient_bytes", "legend.gradients", "#E69F00", "//////"),
    ("optimizer_bytes", "legend.optimizer", "#BBBBBB", "----"),
)
HATCHES = {"trainable": None, "frozen": "//////", "implied": "...."}  # what is counted, and how it is shown


def parameter_distribution(canvas: Canvas) -> Figure | None:
    arms = [arm for arm in canvas.arms if canvas.findings.arms[arm].parts]
    if not arms:
        return None
    figure, axes = canvas.panels(2, height=1.6 + 0.27 * len(arms), width_ratios=[1, 1.15])
    _by_role(canvas, axes[0], arms)
    _by_layer(canvas, axes[1], arms)
    lettered(axes)
    _role_legend(canvas, figure)
    return figure


def _by_role(canvas: Canvas, axis: Axes, arms: list[str]) -> None:
    for row, arm in enumerate(arms):
        left = 0.0
        for role in _roles(canvas):
            colour = COLOURS.get(role, UNKNOWN)
            parts = [part for part in canvas.findings.arms[arm].parts if part["role"] == role]
            for key, hatch in HATCHES.items():
                width = sum(part[key] for part in parts) / MILLION
                if width:
                    face = "white" if key == "implied" else colour
                    axis.barh(row, width, left=left, color=face, hatch=hatch, edgecolor="#333333", lw=0.4, height=0.7)
                left += width
    axis.set_xlabel(canvas.word("axis.parameters"))
    rows_of(axis, [canvas.label(arm, width=22) for arm in arms])


def _by_layer(canvas: Canvas, axis: Axes, arms: list[str]) -> None:
    """Trainable parameters of every layer as numbers, on the frozen share as shade."""
    columns = _layer_columns(canvas, arms)
    cells = [[_cell(canvas, arm, layers) for layers in columns.values()] for arm in arms]
    shares = [[frozen / total if total else 0.0 for total, frozen in row] for row in cells]
    axis.imshow(shares, cmap="Greys", vmin=0, vmax=1, aspect="auto")
    size = 7 if len(columns) <= 8 else 5.5
    for row, line in enumerate(cells):
        for column, (total, frozen) in enumerate(line):
            shade = shares[row][column]
            axis.text(
                column, row, numbers.short(total - frozen), ha="center", va="center", fontsize=size,
                color="white" if shade > 0.5 else "black",
            )  # fmt: skip
    axis.set_xticks(range(len(columns)), list(columns))
    axis.set_yticks([])
    axis.set_xlabel(canvas.word("axis.layer"))
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)


def _layer_columns(canvas: Canvas, arms: list[str]) -> dict[str, list[int | None]]:
    """Embeddings, then the layers from 1 on; many layers share columns."""
    layers = sorted({part["layer"] for arm in arms for part in canvas.findings.arms[arm].parts} - {None})
    together = -(-len(layers) // 12) if layers else 1
    columns: dict[str, list[int | None]] = {canvas.word("axis.embeddings"): [None]}
    for first in range(0, len(layers), together):
        group = layers[first : first + together]
        name = f"{group[0] + 1}" if len(group) == 1 else f"{group[0] + 1}–{group[-1] + 1}"
        columns[name] = list(group)
    return columns


def _cell(canvas: Canvas, arm: str, layers: list[int | None]) -> tuple[int, int]:
    parts = [part for part in canvas.findings.arms[arm].parts if part["layer"] in layers]
    return sum(part["total"] for part in parts), sum(part["frozen"] for part in parts)


def _roles(canvas: Canvas) -> list[str]:
    """Those of any arm: in the order of the colours, then what has none."""
    used = {part["role"] for summary in canvas.findings.arms.values() for part in summary.parts}
    return [*(role for role in COLOURS if role in used), *sorted(used - COLOURS.keys())]


def _name(canvas: Canvas, role: str) -> str:
    return canvas.word(f"role.{role}") if f"role.{role}" in WORDS else role.replace("_", " ")


def _role_legend(canvas: Canvas, figure: Figure) -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=COLOURS.get(role, UNKNOWN), edgecolor="#333333", lw=0.4, label=_name(canvas, role))
        for role in _roles(canvas)
    ]
    has_implied = any(summary.implied for summary in canvas.findings.arms.values())
    for key in ("frozen", "implied") if has_implied else ("frozen",):
        label = canvas.word(f"legend.{key}")
        handles.append(Patch(facecolor="white", edgecolor="#333333", hatch=HATCHES[key], lw=0.4, label=label))
    columns = legend_below(figure, handles, columns=MOST_COLUMNS)
    more_lines = -(-len(handles) // columns) - -(-len(handles) // MOST_COLUMNS)
    figure.set_figheight(figure.get_figheight() + LEGEND_LINE * more_lines)


def by_parameters(canvas: Canvas) -> Figure | None:
    measure, arms = canvas.measure, [arm for arm in canvas.arms if canvas.findings.arms[arm].quality.values]
    if not arms:
        return None
    intervals = {arm: mean_interval(measure, canvas.findings.arms[arm].quality.values) for arm in arms}
    figure, (axis,) = canvas.panels(1, height=3.0)
    places = side_by_side({arm: canvas.findings.arms[arm].trainable for arm in arms})
    for arm in arms:
        look = canvas.look(arm)
        middle, below, above = intervals[arm]
        axis.errorbar(
            [places[arm] / MILLION], [middle], yerr=[[middle - below], [above - middle]], color=look.colour,
            marker=look.marker, ms=6, capsize=2.5, ls="none", lw=1,
        )  # fmt: skip
    axis.margins(x=0.12)
    axis.set_xlabel(canvas.word("axis.trainable"))
    axis.set_ylabel(canvas.word("axis.value"))
    canvas.arm_legend(figure, arms, with_lines=False)
    if measure.scale.is_logarithmic:
        ends = [end for interval in intervals.values() for end in interval]
        axis.set_yscale("log")
        logarithmic(axis.yaxis, min(ends), max(ends))
    return figure


def side_by_side(counts: dict[str, int]) -> dict[str, float]:
    """Where arms stand on an axis of counts: at theirs, those of one count beside each other, none past another."""
    together = {count: [arm for arm in counts if counts[arm] == count] for count in sorted(set(counts.values()))}
    gaps = [high - low for low, high in itertools.pairwise(together)]
    most = max(len(arms) for arms in together.values())
    step = min([0.004 * max(together), *(gap / most for gap in gaps)])
    return {
        arm: count + step * (place - (len(arms) - 1) / 2)
        for count, arms in together.items()
        for place, arm in enumerate(arms)
    }


# ---- Time, the target, memory ---------------------------------------------------------------------------------------


def speed(canvas: Canvas) -> Figure | None:
    """Ratios from the bench only."""
    ratios = [(arm, summary.ratio) for arm, summary in canvas.findings.arms.items() if summary.ratio is not None]
    if not ratios:
        return None
    figure, (axis,) = canvas.panels(1, height=0.8 + 0.33 * len(ratios))
    for row, (arm, ratio) in enumerate(ratios):
        look = canvas.look(arm)
        point(axis, ratio.middle, ratio.low, ratio.high, row, colour=look.colour, marker=look.marker, width=1.8)
        axis.annotate(
            numbers.ratio(ratio.middle), (ratio.middle, row), xytext=(0, 5), textcoords="offset points", ha="center",
            fontsize=7.5,
        )  # fmt: skip
    axis.axvline(1, color="black", lw=0.8)
    rows_of(axis, [canvas.label(arm) for arm, _ in ratios])
    axis.set_ylim(len(ratios) - 0.4, -0.75)
    axis.margins(x=0.12)
    axis.set_xlabel(canvas.word("axis.ratio", baseline=canvas.label(canvas.findings.study.baseline)))
    return figure


def target(canvas: Canvas) -> Figure | None:
    reached = {arm: summary.reached for arm, summary in canvas.findings.arms.items()}
    if canvas.findings.target_perplexity is None or not any(reached.values()):
        return None
    figure, axes = canvas.panels(3, height=0.95 + 0.27 * len(reached), sharey=True)
    longest = max(each.seconds for each in reached.values() if each)
    unit, time_code = next((size, code) for least, size, code in TIME_UNITS if longest >= least)
    most, planned = max(each.flops for each in reached.values() if each), len(canvas.findings.study.seeds)
    flop_size, flop_unit = next(each for each in FLOP_UNITS if most >= each[0] or each[0] == 1.0)
    quantities = (
        ("seconds", unit, canvas.word(time_code)),
        ("tokens", 1.0, canvas.word("axis.tokens")),
        ("flops", flop_size, canvas.word("axis.flops", unit=flop_unit)),
    )
    for axis, (name, size, label) in zip(axes, quantities, strict=True):
        _bars(canvas, axis, {arm: getattr(each, name) / size if each else None for arm, each in reached.items()})
        for row, each in enumerate(reached.values()):
            if each is not None and each.seeds < planned:  # in the bar: it stands for the quick ones only
                some = canvas.word("figure.reached_by", seeds=each.seeds, planned=planned)
                axis.text(0, row, " " + some, va="center", fontsize=7, color="white", style="normal")
        axis.set_xlabel(label)
        counted(axis.xaxis)
    rows_of(axes[0], [canvas.label(arm, width=24) for arm in reached])
    without_row_marks(axes[1:])
    lettered(axes)
    return figure


def _bars(canvas: Canvas, axis: Axes, values: dict[str, float | None]) -> None:
    for row, (arm, value) in enumerate(values.items()):
        if value is None:
            axis.text(0, row, " " + canvas.word("figure.not_reached"), va="center", fontsize=7, style="normal")
        else:
            axis.barh(row, value, height=0.6, color=canvas.look(arm).colour, alpha=0.85)
    axis.grid(visible=False, axis="y")


def memory(canvas: Canvas) -> Figure | None:
    from matplotlib.patches import Patch

    arms = canvas.arms
    if not arms:
        return None
    peaks = {arm: canvas.findings.arms[arm].peak_memory_bytes for arm in arms}
    measured = any(peaks.values())
    figure, axes = canvas.panels(2 if measured else 1, height=1.15 + 0.26 * len(arms), sharey=True)
    for row, arm in enumerate(arms):
        left = 0.0
        for name, _, colour, hatch in MEMORY_PARTS:
            width = getattr(canvas.findings.arms[arm], name) / MIB
            axes[0].barh(row, width, left=left, height=0.6, color=colour, hatch=hatch, edgecolor="white", lw=0.3)
            left += width
    axes[0].set_xlabel(canvas.word("axis.memory"))
    if measured:
        _bars(canvas, axes[1], {arm: (peak or 0) / MIB for arm, peak in peaks.items()})
        axes[1].set_xlabel(canvas.word("axis.peak_memory"))
        lettered(axes)
    rows_of(axes[0], [canvas.label(arm, width=26) for arm in arms])
    without_row_marks(axes[1:])
    handles = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=canvas.word(code))
        for _, code, colour, hatch in MEMORY_PARTS
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure
