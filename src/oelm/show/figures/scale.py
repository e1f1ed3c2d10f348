"""Effect against scale: what an arm lacks at every size, and loss against compute; a row of panels for every dial."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oelm.analysis.findings import Forecast, Law, Predicted, SizePoint, Slope, Trend
from oelm.show import quality
from oelm.show.figures.canvas import Canvas, Look, lettered, logarithmic
from oelm.show.figures.comparisons import to_nats, to_percent
from oelm.study.declaration import Per

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LABELLED = 4  # lines whose slopes are written beside them
EXTRAPOLATED = (0, (2, 2))
DODGE = 0.012  # by which the marks of arms stand beside each other, as a share of their place


def scale(canvas: Canvas) -> Figure | None:
    """Of the arms that are run at two or more sizes, as far as their pairs are finished."""
    found = canvas.findings.scale
    begun = [] if found is None else [trend for trend in found.trends if len(trend.points) > 1 and any(_pairs(trend))]
    if found is None or not begun:
        return None
    laws = [law for law in found.laws if len(law.flops) > 1]
    dials = list(dict.fromkeys(str(trend.dial) for trend in begun))
    figure, axes = canvas.panels(2, rows=len(dials), height=2.9 * len(dials))
    for row, dial in enumerate(dials):
        own = [trend for trend in begun if trend.dial == dial]
        names = {point.size for trend in own for point in trend.points}
        forecasts = [
            each
            for each in found.forecasts
            if each.left_out and each.left_out.size in names and each.predicted
            if quality.is_telling(canvas.measure, each.predicted)
        ]
        _differences(canvas, axes[2 * row], own, forecasts)
        _losses(canvas, axes[2 * row + 1], [law for law in laws if law.dial == dial])
    lettered(axes)
    families = dict.fromkeys([law.arm for law in laws] + [trend.treatment for trend in begun])
    canvas.arm_legend(figure, list(families), with_lines=False)
    return figure


def _pairs(trend: Trend) -> list[float]:
    return [each for point in trend.points for each in point.difference.differences]


# ---- Differences ---------------------------------------------------------------------------------------------------


def _differences(canvas: Canvas, axis: Axes, trends: list[Trend], forecasts: list[Forecast]) -> None:
    places: list[float] = []
    for number, trend in enumerate(trends):
        look, per = canvas.look(trend.treatment), trend.per
        aside = 1 + DODGE * (number - (len(trends) - 1) / 2)
        for point in trend.points:
            if point.difference.mean is not None:
                places.append(point.counts[per])
                _mark(canvas, axis, point, point.counts[per] * aside, look)
        slope = trend.slopes.get(per)
        if slope is not None:
            _line(canvas, axis, slope, look)
            own = [each.predicted for each in forecasts if each.treatment == trend.treatment and each.predicted]
            places += [each.counts[per] for each in own]
            for predicted in own:
                _extrapolated(canvas, axis, slope, predicted, per, look)
    if len(trends) <= MOST_LABELLED:
        _slope_labels(canvas, axis, trends, right=0.91 if forecasts else 0.97)
    axis.axhline(0, color="black", lw=0.8)
    _limits(canvas, axis, trends, forecasts)
    axis.set_xscale("log")
    logarithmic(axis.xaxis, min(places), max(places))
    axis.set_xlabel(canvas.word(f"axis.per.{trends[0].per}"))
    if canvas.measure.scale.is_logarithmic:
        axis.set_ylabel(canvas.word("axis.difference"))
        second = axis.secondary_yaxis("right", functions=(to_percent, to_nats))
        second.set_ylabel(canvas.word("axis.shown_difference"))
        second.spines["right"].set_visible(True)
    else:
        axis.set_ylabel(canvas.word("axis.shown_difference"))


def _line(canvas: Canvas, axis: Axes, slope: Slope, look: Look) -> None:
    draw, counts = canvas.measure.drawn_difference, [height.count for height in slope.line]
    lows, highs = ([draw(getattr(height, end)) for height in slope.line] for end in ("low", "high"))
    middles = [draw(height.middle) for height in slope.line]
    axis.plot(counts, middles, color=look.colour)
    axis.fill_between(counts, lows, highs, color=look.colour, alpha=0.12, lw=0)


def _slope_labels(canvas: Canvas, axis: Axes, trends: list[Trend], *, right: float) -> None:
    """In the upper corner that the lines leave free, and beside the interval of a forecast, which is at the edge."""
    slopes = {trend.treatment: slope for trend in trends if (slope := trend.slopes.get(trend.per))}
    drawn = {arm: canvas.measure.drawn_difference(each.slope) for arm, each in slopes.items()}
    place, side = (0.03, "left") if sum(drawn.values()) > 0 else (right, "right")
    for row, (arm, slope) in enumerate(slopes.items()):
        change = quality.difference_with_unit(canvas.measure, slope.slope, canvas.language)
        text, colour = canvas.word("scale.per_doubling", change=change), canvas.look(arm).colour
        axis.text(
            place, 0.96 - 0.075 * row, text, color=colour, transform=axis.transAxes, ha=side, va="top", fontsize=7.5
        )


def _extrapolated(canvas: Canvas, axis: Axes, slope: Slope, predicted: Predicted, per: Per, look: Look) -> None:
    """Dashed, from the last size on; an open mark with the prediction interval."""
    draw, last, place = canvas.measure.drawn_difference, slope.line[-1], predicted.counts[per]
    axis.plot([last.count, place], [draw(last.middle), draw(predicted.middle)], color=look.colour, ls=EXTRAPOLATED)
    axis.plot([place, place], [draw(predicted.low), draw(predicted.high)], color=look.colour, ls=EXTRAPOLATED, lw=1.1)
    axis.plot([place], [draw(predicted.middle)], color=look.colour, marker=look.marker, mfc="white", ms=6, ls="none")


def _mark(canvas: Canvas, axis: Axes, point: SizePoint, place: float, look: Look) -> None:
    """Open where pairs are missing."""
    draw, difference = canvas.measure.drawn_difference, point.difference
    if difference.low is not None and difference.high is not None:
        axis.plot([place, place], [draw(difference.low), draw(difference.high)], color=look.colour, lw=1.1)
    face = look.colour if point.is_whole else "white"
    axis.plot([place], [draw(difference.mean or 0.0)], color=look.colour, marker=look.marker, mfc=face, ms=5, ls="none")


def _limits(canvas: Canvas, axis: Axes, trends: list[Trend], forecasts: list[Forecast]) -> None:
    """By the marks: a band that counts three sizes may be as wide as it likes."""
    draw = canvas.measure.drawn_difference
    ends: list[float | None] = [0.0]
    for trend in trends:
        for point in trend.points:
            ends += [point.difference.mean, point.difference.low, point.difference.high]
    for each in forecasts:
        ends += [each.predicted.low, each.predicted.high] if each.predicted else []
    heights = [draw(end) for end in ends if end is not None]
    room = 0.12 * (max(heights) - min(heights)) or 1e-3
    axis.set_ylim(min(heights) - room, max(heights) + room)


# ---- Losses --------------------------------------------------------------------------------------------------------


def _losses(canvas: Canvas, axis: Axes, laws: list[Law]) -> None:
    for law in laws:
        look = canvas.look(law.arm)
        axis.plot(law.flops, law.losses, color=look.colour, marker=look.marker, ls="none")
        axis.plot([each.count for each in law.line], [each.middle for each in law.line], color=look.colour)
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
