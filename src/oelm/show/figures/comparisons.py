"""Arms against each other: final quality, tuning, paired differences with their margins, the ablation."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from oelm.analysis.findings import PairedDifference, Verdict
from oelm.analysis.statistics import paired_difference
from oelm.core.measures import Measure
from oelm.machine.visible import visible
from oelm.show import numbers, quality
from oelm.show.figures.canvas import (
    GREY,
    SHADE,
    Canvas,
    counted,
    floor_levels,
    lettered,
    logarithmic,
    rows_of,
    wrapped,
)  # fmt: skip
from oelm.show.words import in_words
from oelm.study.claims.kinds import KINDS
from oelm.study.halving import Round
from oelm.study.scaled import family_of
from oelm.study.tuning import Choice, Grid

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE_PERCENT = 200.0  # of perplexity, above which ticks are no longer equally spaced
SPREAD = 0.5  # of a row: runs of a probe lie below each other, so that equal steps do not hide each other
LEAST_BETWEEN_TICKS = 0.09  # of the width


def mean_interval(measure: Measure, values: dict[int, float]) -> tuple[float, float, float]:
    """The mean with its 95 % interval, as drawn; the three are equal for a single run."""
    found = paired_difference(values, dict.fromkeys(values, 0.0))
    mean = fmean(found.differences)
    low = mean if found.low is None else found.low
    high = mean if found.high is None else found.high
    return quality.drawn(measure, mean), quality.drawn(measure, low), quality.drawn(measure, high)


def final(canvas: Canvas) -> Figure | None:
    """A row for each arm: its seeds, and their mean."""
    measure, by_arm = canvas.measure, {arm: canvas.findings.arms[arm].quality.values for arm in canvas.arms}
    arms = [arm for arm, values in by_arm.items() if values]
    if not arms:
        return None
    figure, (axis,) = canvas.panels(1, height=0.75 + 0.38 * len(arms))
    for row, arm in enumerate(arms):
        look, values = canvas.look(arm), by_arm[arm]
        axis.plot(
            [quality.drawn(measure, value) for value in values.values()], [row + 0.22] * len(values), ls="none",
            marker=look.marker, ms=3, mfc="none", mec=look.colour, mew=0.7,
        )  # fmt: skip
        middle, low, high = mean_interval(measure, values)
        point(axis, middle, low, high, row - 0.08, colour=look.colour, marker=look.marker)
        axis.annotate(
            quality.drawn_label(measure, middle), (middle, row - 0.08), xytext=(0, 5), textcoords="offset points",
            ha="center", fontsize=7.5,
        )  # fmt: skip
    rows_of(axis, [canvas.label(arm) for arm in arms])
    axis.set_ylim(len(arms) - 0.4, -0.75)
    axis.margins(x=0.08)
    smallest, largest = axis.get_xlim()
    if smallest > 0 and largest / smallest > 8:
        axis.set_xscale("log")
        logarithmic(axis.xaxis, smallest, largest)
    for level in floor_levels(canvas):
        if smallest <= level <= largest:
            axis.axvline(level, color=GREY, ls=":", lw=0.9)
    axis.set_xlabel(canvas.word("axis.value"))
    return figure


def point(
    axis: Axes, middle: float, low: float, high: float, row: float, *, colour: str, marker: str, width: float = 1.6
) -> None:
    """On an interval."""
    axis.plot([low, high], [row, row], color=colour, lw=width, solid_capstyle="butt")
    axis.plot([middle], [row], color=colour, marker=marker, ms=6, ls="none")


# ---- Tuning --------------------------------------------------------------------------------------------------------


def tuning(canvas: Canvas) -> Figure | None:
    choices = {arm: each for arm, each in canvas.findings.plan.choices.items() if arm in canvas.arms}
    keys = list(_grid(canvas))
    if not choices or not keys:
        return None
    columns = min(2, len(keys))
    figure, axes = canvas.panels(columns, rows=-(-len(keys) // columns), height=2.9 * -(-len(keys) // columns))
    for axis, key in zip(axes, keys, strict=False):
        _tuning_panel(canvas, axis, key, choices)
    for axis in axes[len(keys) :]:
        axis.remove()
    if len(keys) > 1:
        lettered(axes[: len(keys)])
    canvas.arm_legend(figure, list(choices))
    return figure


def _grid(canvas: Canvas) -> Grid:
    """That of the arms at the main size."""
    return canvas.findings.plan.grids.get(canvas.findings.study.baseline, {})


def _tuning_panel(canvas: Canvas, axis: Axes, key: str, choices: dict[str, Choice]) -> None:
    diverged = []
    for arm, choice in choices.items():
        look = canvas.look(arm)
        best = best_by_value(choice, key)
        finite = {value: loss for value, loss in best.items() if math.isfinite(loss)}
        diverged += [(value, look.colour) for value, loss in best.items() if not math.isfinite(loss)]
        axis.plot(list(finite), list(finite.values()), color=look.colour, ls=look.line, marker=look.marker)
        for done in canvas.findings.plan.rounds:
            if done.arm == arm:
                shorter = {value: loss for value, loss in best_by_value(done, key).items() if math.isfinite(loss)}
                axis.plot(list(shorter), list(shorter.values()), color=look.colour, ls=look.line, lw=0.6, alpha=0.6)
        if (curve := choice.curve) is not None:
            at_rates = [curve.lower * (curve.upper / curve.lower) ** (part / 40) for part in range(41)]
            axis.plot(at_rates, [curve.loss_at(each) for each in at_rates], color=look.colour, ls=":", lw=1.1)
        if choice.loss is not None and math.isfinite(choice.loss):
            at = [choice.values[key]], [choice.loss]
            axis.plot(*at, marker="o", ms=10, mfc="none", mec=look.colour, mew=1.1, ls="none")
    values = _grid(canvas)[key]
    if min(values) > 0:
        axis.set_xscale("log")
        _grid_ticks(axis, values)
    for value, colour in diverged:
        axis.plot([value], [0.97], marker="x", color=colour, transform=axis.get_xaxis_transform(), ls="none")
    axis.set_xlabel(canvas.word("axis.learning_rate") if key == "training.learning_rate" else key)
    axis.set_ylabel(canvas.word("axis.tuning_loss"))


def best_by_value(tried: Choice | Round, key: str) -> dict[float, float]:
    """The lowest loss at each value of one key, over all values of the others."""
    found: dict[float, float] = {}
    for values, loss in tried.losses.items():
        value = dict(values)[key]
        found[value] = min(loss, found.get(value, math.inf))
    return dict(sorted(found.items()))


def _grid_ticks(axis: Axes, values: list[float]) -> None:
    from matplotlib.ticker import NullFormatter, NullLocator

    axis.set_xticks(values, [numbers.learning_rate(value) for value in values], rotation=30 if len(values) > 5 else 0)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_minor_formatter(NullFormatter())


# ---- Paired differences --------------------------------------------------------------------------------------------


def differences(canvas: Canvas) -> Figure | None:
    """A forest: each hypothesis with its margin, then each arm against the baseline."""
    of_claims = ((each, each.difference) for each in canvas.findings.verdicts)
    tested = [(each, _shown(canvas, found)) for each, found in of_claims if found and found.differences]
    against = ((arm, each.quality.difference) for arm, each in canvas.findings.arms.items())
    described = [(arm, _shown(canvas, each)) for arm, each in against if each and each.differences]
    if not tested and not described:
        return None
    figure, (axis,) = canvas.panels(1, height=1.2 + 0.34 * (len(tested) + len(described)))
    labels = []
    for row, (verdict, difference) in enumerate(tested):
        _shade_claim(axis, verdict, row)
        _difference_row(axis, difference, row, colour="#000000", marker="o")
        labels.append(_pair_label(canvas, verdict))
    baseline = canvas.label(canvas.findings.study.baseline)
    for row, (arm, difference) in enumerate(described, start=len(tested)):
        look = canvas.look(arm)
        _difference_row(axis, difference, row, colour=look.colour, marker=look.marker)
        labels.append(canvas.label(arm) + " − " + baseline)
    if tested and described:
        axis.axhline(len(tested) - 0.5, color=GREY, lw=0.5)
    axis.axvline(0, color="black", lw=0.8)
    rows_of(axis, labels)
    drawn = [difference for _, difference in (*tested, *described)]
    axis.set_xlim(*_extent(drawn, [verdict for verdict, _ in tested]))
    if canvas.measure.scale.is_logarithmic:
        _in_nats_and_percent(canvas, axis)
    else:
        axis.set_xlabel(canvas.word("axis.shown_difference"))
    _difference_legend(canvas, figure, with_margin=bool(tested))
    return figure


def _shown(canvas: Canvas, difference: PairedDifference) -> PairedDifference:
    """On the axis: logarithms as they are, points of a share as a reader is shown them."""
    draw = canvas.measure.drawn_difference
    low, high = quality.ends(canvas.measure, difference.low, difference.high, show=draw)
    differences = [draw(value) for value in difference.differences]
    mean = None if difference.mean is None else draw(difference.mean)
    return replace(difference, differences=differences, mean=mean, low=low, high=high)


def _pair_label(canvas: Canvas, verdict: Verdict) -> str:
    hypothesis = verdict.hypothesis
    sides = [hypothesis.treatment, hypothesis.control]
    if hypothesis.against is not None:
        sides = [family_of(canvas.findings.study, arm) for arm in sides]
    pair = " − ".join(map(canvas.label, sides))
    if hypothesis.against is not None:
        pair = f"({pair}): {hypothesis.size} − {hypothesis.against}"
    name = visible(hypothesis.name) if canvas.can_draw(hypothesis.name) else ""
    return wrapped(f"{name}: {pair}" if name else pair, 46)


def _edges(verdict: Verdict) -> tuple[float | None, float | None]:
    """Between which differences, as shown, the claim holds; None: no bound on that side."""
    measure = verdict.hypothesis.quality
    bounds = KINDS[verdict.hypothesis.kind].bounds(verdict.margin or 0.0)
    return quality.ends(measure, bounds.lower, bounds.upper, show=measure.drawn_difference)


def _shade_claim(axis: Axes, verdict: Verdict, row: int) -> None:
    """The region where the claim holds, and its edge."""
    low, high = _edges(verdict)
    far = 1e3  # beyond any difference; the limits are set from the data
    start, end = (-far if low is None else low), (far if high is None else high)
    axis.fill_betweenx([row - 0.42, row + 0.42], start, end, color=SHADE, lw=0, zorder=0.5)
    for edge in (low, high):
        if edge is not None:
            axis.plot([edge, edge], [row - 0.42, row + 0.42], color="#0072B2", ls="--", lw=1.1)


def _difference_row(axis: Axes, difference: PairedDifference, row: int, *, colour: str, marker: str) -> None:
    axis.plot(
        difference.differences, [row + 0.24] * len(difference.differences), ls="none", marker=marker, ms=2.6,
        mfc="none", mec=colour, mew=0.6,
    )  # fmt: skip
    middle = difference.mean if difference.mean is not None else fmean(difference.differences)
    low = difference.low if difference.low is not None else middle
    high = difference.high if difference.high is not None else middle
    point(axis, middle, low, high, row - 0.04, colour=colour, marker=marker)


def _extent(differences: list[PairedDifference], tested: list[Verdict]) -> tuple[float, float]:
    """What must be seen: every seed, every interval, every margin, and zero."""
    values = [0.0, *(value for each in differences for value in each.differences)]
    values += [value for each in differences for value in (each.low, each.high) if value is not None]
    for verdict in tested:
        if verdict.margin:
            values += [edge for edge in _edges(verdict) if edge is not None]
    room = 0.06 * ((max(values) - min(values)) or 1.0)
    return min(values) - room, max(values) + room


def _in_nats_and_percent(canvas: Canvas, axis: Axes) -> None:
    """The same axis twice: nats below, per cent of perplexity above."""
    axis.set_xlabel(canvas.word("axis.difference"))
    upper = axis.secondary_xaxis("top", functions=(to_percent, to_nats))
    upper.set_xlabel(canvas.word("axis.shown_difference"))
    low, high = axis.get_xlim()
    if to_percent(high) > WIDE_PERCENT:  # where equal steps in per cent would crowd at the right
        upper.set_xticks(_spread_out(low, high))


def _spread_out(low: float, high: float) -> list[float]:
    """Round percentages whose places, in nats, are not too close to each other."""
    found: list[float] = []
    for percent in (-90, -75, -50, -25, 0, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 100_000, 1_000_000):
        place = float(to_nats(percent))
        room = place - float(to_nats(found[-1])) if found else high - low
        if low <= place <= high and room >= LEAST_BETWEEN_TICKS * (high - low):
            found.append(percent)
    return found


def to_percent(nats: Any) -> Any:  # one number, or an array of them
    import numpy

    return 100 * numpy.expm1(numpy.clip(nats, -50, 50))


def to_nats(percent: Any) -> Any:
    import numpy

    return numpy.log1p(numpy.clip(percent, -99.999, None) / 100)


def _difference_legend(canvas: Canvas, figure: Figure, *, with_margin: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Artist] = [
        Line2D([], [], color="black", marker="o", ms=6, lw=1.6, label=canvas.word("legend.mean")),
        Line2D([], [], mec="black", mfc="none", marker="o", ms=3, ls="none", label=canvas.word("legend.seed")),
    ]
    if with_margin:
        handles += [
            Line2D([], [], color="#0072B2", ls="--", lw=1.1, label=canvas.word("legend.margin")),
            Patch(color=SHADE, label=canvas.word("legend.passes")),
        ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)


# ---- The ablation --------------------------------------------------------------------------------------------------


def decomposition(canvas: Canvas) -> Figure | None:
    of_steps = ((step, step.difference.mean) for step in canvas.findings.decomposition)
    steps = [(step, mean) for step, mean in of_steps if mean is not None]
    if not steps:
        return None
    figure, (axis,) = canvas.panels(1, height=0.7 + 0.34 * len(steps))
    for row, (step, mean) in enumerate(steps):
        middle = canvas.measure.shown_difference(mean)
        low, high = quality.ends(canvas.measure, step.difference.low, step.difference.high)
        better = mean < 0
        axis.barh(row, middle, height=0.55, color="#56B4E9" if better else "#E69F00", edgecolor="#333333", lw=0.5)
        if low is not None and high is not None:
            axis.plot([low, high], [row, row], color="black", lw=1.2)
        end = high if middle >= 0 else low
        away = middle if end is None else end
        axis.annotate(
            quality.difference(canvas.measure, mean), (away, row),
            xytext=(4 if middle >= 0 else -4, 0), textcoords="offset points",
            va="center", ha="left" if middle >= 0 else "right", fontsize=7.5,
        )  # fmt: skip
    rows_of(axis, [f"{canvas.label(step.control)} → {canvas.label(step.treatment)}" for step, _ in steps])
    axis.axvline(0, color="black", lw=0.8)
    axis.margins(x=0.18)
    axis.set_xlabel(canvas.word("axis.shown_difference"))
    return figure


# ---- Probes: accuracy over the difficulties, beside the two levels of the floor; when each run solves it ------------


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
        look, count = canvas.look(arm), max(1, len(seeds.solved) - 1)
        for place, each in enumerate(seeds.solved.values()):
            height = row + SPREAD * (place / count - 0.5)
            at, fill = (1.05 * last, "none") if each is None else (each.by, look.colour)
            axis.plot([at], [height], marker=look.marker, ms=2.8, mec=look.colour, mfc=fill, mew=0.7, ls="none")
        if seeds.steps:
            middle = median(seeds.steps)
            axis.plot([middle, middle], [row - 0.36, row + 0.36], color=look.colour, lw=1.6, solid_capstyle="butt")
    rows_of(axis, [canvas.label(arm) for arm in solving])
    axis.axvline(last, color=GREY, ls=":", lw=0.9)
    axis.set_xlim(0, 1.1 * last)
    axis.set_xlabel(canvas.word("axis.steps_to_solve"))
    counted(axis.xaxis)
    top = (1.05 * last, axis.get_ylim()[1])
    axis.annotate(canvas.word("solving.never"), top, (0, 2), textcoords="offset points", ha="center", fontsize=7.5)
    return figure
