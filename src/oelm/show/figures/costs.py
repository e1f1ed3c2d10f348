"""What a result costs: time against the baseline, what the target took, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oelm.analysis.findings import Reached
from oelm.show import numbers
from oelm.show.figures.canvas import Canvas, counted, lettered, rows_of, without_row_marks
from oelm.show.figures.curves import TIME_UNITS

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


def speed(canvas: Canvas) -> Figure | None:
    """Ratios from the bench only."""
    ratios = [(arm, summary.ratio) for arm, summary in canvas.findings.arms.items() if summary.ratio is not None]
    if not ratios:
        return None
    figure, (axis,) = canvas.panels(1, height=0.8 + 0.33 * len(ratios))
    for row, (arm, ratio) in enumerate(ratios):
        look = canvas.look(arm)
        axis.plot([ratio.low, ratio.high], [row, row], color=look.colour, lw=1.8, solid_capstyle="butt")
        axis.plot([ratio.middle], [row], color=look.colour, marker=look.marker, ms=6, ls="none")
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
    most = max(each.flops for each in reached.values() if each)
    flop_size, flop_unit = next(each for each in FLOP_UNITS if most >= each[0] or each[0] == 1.0)
    quantities = (
        ("seconds", unit, canvas.word(time_code)),
        ("tokens", 1.0, canvas.word("axis.tokens")),
        ("flops", flop_size, canvas.word("axis.flops", unit=flop_unit)),
    )
    for axis, (name, size, label) in zip(axes, quantities, strict=True):
        _bars(canvas, axis, {arm: getattr(each, name) / size if each else None for arm, each in reached.items()})
        _seeds_that_reached(canvas, axis, reached)
        axis.set_xlabel(label)
        counted(axis.xaxis)
    rows_of(axes[0], [canvas.label(arm, width=24) for arm in reached])
    without_row_marks(axes[1:])
    lettered(axes)
    return figure


def _seeds_that_reached(canvas: Canvas, axis: Axes, reached: dict[str, Reached | None]) -> None:
    """Where it is not all of them, in the bar: it stands for the quick ones only."""
    planned = len(canvas.findings.study.seeds)
    for row, each in enumerate(reached.values()):
        if each is not None and each.seeds < planned:
            some = canvas.word("figure.reached_by", seeds=each.seeds, planned=planned)
            axis.text(0, row, " " + some, va="center", fontsize=7, color="white", style="normal")


def _bars(canvas: Canvas, axis: Axes, values: dict[str, float | None]) -> None:
    for row, (arm, value) in enumerate(values.items()):
        if value is None:
            axis.text(0, row, " " + canvas.word("figure.not_reached"), va="center", fontsize=7, style="normal")
        else:
            axis.barh(row, value, height=0.6, color=canvas.look(arm).colour, alpha=0.85)
    axis.grid(visible=False, axis="y")


def memory(canvas: Canvas) -> Figure | None:
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
    _memory_legend(canvas, figure)
    return figure


def _memory_legend(canvas: Canvas, figure: Figure) -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=canvas.word(code))
        for _, code, colour, hatch in MEMORY_PARTS
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
