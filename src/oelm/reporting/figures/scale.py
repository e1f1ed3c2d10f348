"""Effect against scale: what an arm lacks at every size, and loss against compute; a row of panels for every dial."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oelm.analysis.findings import Law, SizePoint, Trend
from oelm.reporting.figures.canvas import Canvas, lettered, logarithmic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DODGE = 0.012  # by which the marks of arms stand beside each other, as a share of their place


def scale(canvas: Canvas) -> Figure | None:
    found = canvas.findings.scale
    if found is None or not any(point.difference.differences for trend in found.trends for point in trend.points):
        return None
    dials = list(dict.fromkeys(str(trend.dial) for trend in found.trends))
    figure, axes = canvas.panels(2, rows=len(dials), height=2.9 * len(dials))
    for row, dial in enumerate(dials):
        _differences(canvas, axes[2 * row], [trend for trend in found.trends if trend.dial == dial])
        _losses(canvas, axes[2 * row + 1], [law for law in found.laws if law.dial == dial])
    lettered(axes)
    families = dict.fromkeys([law.arm for law in found.laws] + [trend.treatment for trend in found.trends])
    canvas.arm_legend(figure, list(families))
    return figure


# ---- Differences ---------------------------------------------------------------------------------------------------


def _differences(canvas: Canvas, axis: Axes, trends: list[Trend]) -> None:
    draw = canvas.measure.drawn_difference
    places: list[float] = []
    for number, trend in enumerate(trends):
        look, per = canvas.look(trend.treatment), trend.per
        aside = 1 + DODGE * (number - (len(trends) - 1) / 2)
        for point in trend.points:
            if point.difference.mean is not None:
                places.append(point.counts[per])
                _mark(canvas, axis, point, point.counts[per] * aside, look.colour, look.marker)
        slope = trend.slopes.get(per)
        if slope is not None:
            counts = [height.count for height in slope.line]
            lows, highs = ([draw(getattr(height, end)) for height in slope.line] for end in ("low", "high"))
            axis.plot(counts, [draw(height.middle) for height in slope.line], color=look.colour, ls=look.line)
            axis.fill_between(counts, lows, highs, color=look.colour, alpha=0.10, lw=0)
    axis.axhline(0, color="black", lw=0.8)
    _limits(canvas, axis, trends)
    axis.set_xscale("log")
    logarithmic(axis.xaxis, min(places), max(places))
    axis.set_xlabel(canvas.word(f"axis.per.{trends[0].per}"))
    axis.set_ylabel(canvas.word("axis.difference" if canvas.measure.scale.is_logarithmic else "axis.shown_difference"))


def _mark(canvas: Canvas, axis: Axes, point: SizePoint, place: float, colour: str, marker: str) -> None:
    """Open where pairs are missing."""
    draw, difference = canvas.measure.drawn_difference, point.difference
    if difference.low is not None and difference.high is not None:
        axis.plot([place, place], [draw(difference.low), draw(difference.high)], color=colour, lw=1.1)
    middle = draw(difference.mean or 0.0)
    axis.plot(
        [place], [middle], color=colour, marker=marker, mfc=colour if point.is_whole else "white", ms=5, ls="none"
    )


def _limits(canvas: Canvas, axis: Axes, trends: list[Trend]) -> None:
    """By the marks: a band that counts three sizes may be as wide as it likes."""
    draw = canvas.measure.drawn_difference
    heights = [0.0]
    for trend in trends:
        for point in trend.points:
            ends = (point.difference.mean, point.difference.low, point.difference.high)
            heights += [draw(end) for end in ends if end is not None]
    room = 0.12 * (max(heights) - min(heights)) or 1e-3
    axis.set_ylim(min(heights) - room, max(heights) + room)


# ---- Losses --------------------------------------------------------------------------------------------------------


def _losses(canvas: Canvas, axis: Axes, laws: list[Law]) -> None:
    for law in laws:
        look = canvas.look(law.arm)
        axis.plot(law.flops, law.losses, color=look.colour, marker=look.marker, ls="none")
        axis.plot(
            [each.count for each in law.line], [each.middle for each in law.line], color=look.colour, ls=look.line
        )
    if not laws:
        axis.set_axis_off()
        return
    axis.set_xscale("log")
    axis.set_yscale("log")
    flops, losses = [each for law in laws for each in law.flops], [each for law in laws for each in law.losses]
    logarithmic(axis.xaxis, min(flops), max(flops))
    logarithmic(axis.yaxis, min(losses), max(losses))
    axis.set_xlabel(canvas.word("axis.per.flops"))
    axis.set_ylabel(canvas.word("axis.validation_loss"))
