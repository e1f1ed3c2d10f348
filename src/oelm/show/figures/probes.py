"""Accuracy of a probe over its difficulties, beside the two levels of its floor; and when each run solves it."""

from __future__ import annotations

from statistics import fmean, median
from typing import TYPE_CHECKING

from oelm.analysis.findings import SolvedSeeds
from oelm.show.figures.canvas import GREY, Canvas, counted, rows_of
from oelm.show.words import in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SPREAD = 0.5  # of a row: its runs lie below each other, by seed, so that equal steps do not hide each other


def by_difficulty(canvas: Canvas) -> Figure | None:
    """Where an arm breaks: nothing to see where there is one difficulty."""
    probe = canvas.findings.study.probe
    found = {arm: canvas.findings.arms[arm].probe for arm in canvas.arms}
    values = {arm: list(each.by_difficulty.values()) for arm, each in found.items() if each and each.by_difficulty}
    if probe is None or len(probe.difficulties) < 2 or not values:
        return None
    figure, (axis,) = canvas.panels(1, height=3.0)
    names = [str(difficulty) for difficulty in probe.difficulties]
    places = list(range(len(names)))
    for arm, seeds in values.items():
        look = canvas.look(arm)
        columns = [[100 * seed[name] for seed in seeds] for name in names]
        axis.fill_between(places, [*map(min, columns)], [*map(max, columns)], color=look.colour, alpha=0.15, lw=0)
        axis.plot(places, [*map(fmean, columns)], color=look.colour, ls=look.line, marker=look.marker)
    floor = canvas.findings.arms[canvas.findings.study.baseline].floor
    assert floor is not None  # that of a probe is known without a run
    chances = [100 * floor.little_at[name] for name in names if name in floor.little_at]
    if chances:
        axis.plot(places, chances, color=GREY, ls="--", lw=0.9)
        axis.annotate(canvas.word("probe.in_context"), (places[0], chances[0]), (2, 3), textcoords="offset points")
    axis.axhline(100 * floor.learnt_nothing, color=GREY, ls=":", lw=0.9)
    last = (places[-1], 100 * floor.learnt_nothing)
    axis.annotate(canvas.word("probe.blind"), last, (-2, 3), textcoords="offset points", ha="right")
    axis.set_xticks(places, names)
    axis.set_ylim(-2, 102)
    axis.set_xlabel(in_words(probe.task.dial_words, canvas.language))
    axis.set_ylabel(canvas.word("axis.value"))
    canvas.arm_legend(figure, list(values))
    return figure


def steps_to_solve(canvas: Canvas) -> Figure | None:
    """A row for each arm, a mark for each run, by the first accuracy that the study calls solved; the runs that do not
    solve it are to the right of the last step."""
    found = {arm: canvas.findings.arms[arm] for arm in canvas.arms}
    solving = {arm: each.probe.solving[0] for arm, each in found.items() if each.probe and each.probe.solving}
    curves = [each.quality.curve for each in found.values() if each.quality.curve is not None]
    if not curves or not any(each.runs for each in solving.values()):
        return None
    last = max(curve.steps[-1] for curve in curves)
    figure, (axis,) = canvas.panels(1, height=0.85 + 0.36 * len(solving))
    for row, (arm, seeds) in enumerate(solving.items()):
        _row_of_runs(canvas, axis, arm, seeds, row=row, beyond=1.05 * last)
    rows_of(axis, [canvas.label(arm) for arm in solving])
    axis.axvline(last, color=GREY, ls=":", lw=0.9)
    axis.set_xlim(0, 1.1 * last)
    axis.set_xlabel(canvas.word("axis.steps_to_solve"))
    counted(axis.xaxis)
    top = (1.05 * last, axis.get_ylim()[1])
    axis.annotate(canvas.word("solving.never"), top, (0, 2), textcoords="offset points", ha="center", fontsize=7.5)
    return figure


def _row_of_runs(canvas: Canvas, axis: Axes, arm: str, seeds: SolvedSeeds, *, row: int, beyond: float) -> None:
    look, count = canvas.look(arm), max(1, len(seeds.solved) - 1)
    for place, each in enumerate(seeds.solved.values()):
        height = row + SPREAD * (place / count - 0.5)
        at, fill = (beyond, "none") if each is None else (each.by, look.colour)
        axis.plot([at], [height], marker=look.marker, ms=2.8, mec=look.colour, mfc=fill, mew=0.7, ls="none")
    if seeds.steps:
        middle = median(seeds.steps)
        axis.plot([middle, middle], [row - 0.36, row + 0.36], color=look.colour, lw=1.6, solid_capstyle="butt")
