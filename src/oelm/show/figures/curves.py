"""What happens during training: quality, loss and learning rate against steps, tokens or examples, and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from oelm.analysis.findings import ArmSummary, Curve
from oelm.show import quality
from oelm.show.figures.canvas import GREY, Canvas, counted, floor_levels, lettered, logarithmic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS = 8  # on each line: enough to tell the lines apart in grey
TIME_UNITS = ((7200.0, 3600.0, "axis.hours"), (120.0, 60.0, "axis.minutes"), (0.0, 1.0, "axis.seconds"))


LARGEST_LOGARITHM = 100.0  # beyond it a curve is cut off, for want of room on the axis


def validation(canvas: Canvas) -> Figure | None:
    """Of what is compared. By its ratio it falls by orders of magnitude, so that the last half is shown apart, too."""
    curves = _curves(canvas, lambda summary: summary.quality.curve, lambda curve: _as_drawn(canvas, curve))
    if not canvas.measure.scale.is_logarithmic:
        return _three_ways(canvas, curves, canvas.word("axis.value"))
    if not curves:
        return None
    figure, axes = canvas.panels(2, rows=2, height=5.4)
    _against(canvas, axes[0], curves, "steps")
    _against(canvas, axes[1], {arm: _second_half(curve) for arm, curve in curves.items()}, "steps")
    _against(canvas, axes[2], curves, _read(canvas))
    _against(canvas, axes[3], curves, "seconds")
    lettered(axes)
    for axis, code in zip(axes, ("panel.whole", "panel.late"), strict=False):
        axis.set_title(canvas.word(code), loc="center")
    for axis in axes:
        low, high = axis.get_ylim()
        for level in floor_levels(canvas):
            if low <= level <= high:
                axis.axhline(level, color=GREY, ls=":", lw=0.9)
        axis.set_yscale("log")
        logarithmic(axis.yaxis, *axis.get_ylim())
    for axis in (axes[0], axes[2]):
        axis.set_ylabel(canvas.word("axis.value"))
    canvas.arm_legend(figure, list(curves))
    return figure


def validation_loss(canvas: Canvas) -> Figure | None:
    curves = _curves(canvas, lambda summary: summary.validation_curve)
    return _three_ways(canvas, curves, canvas.word("axis.validation_loss"))


def training_loss(canvas: Canvas) -> Figure | None:
    curves = _curves(canvas, lambda summary: summary.training_curve)
    return _three_ways(canvas, curves, canvas.word("axis.train_loss"))


def _three_ways(canvas: Canvas, curves: dict[str, Curve], label: str) -> Figure | None:
    """Against steps, what was read, and time."""
    if not curves:
        return None
    figure, axes = canvas.panels(3, height=2.9, sharey=True)
    for axis, against in zip(axes, ("steps", _read(canvas), "seconds"), strict=True):
        _against(canvas, axis, curves, against)
    lettered(axes)
    axes[0].set_ylabel(label)
    canvas.arm_legend(figure, list(curves))
    return figure


def learning_rate(canvas: Canvas) -> Figure | None:
    arms = [arm for arm in canvas.arms if canvas.findings.arms[arm].learning_rate_curve]
    if not arms:
        return None
    figure, (axis,) = canvas.panels(1, height=2.6)
    for order, arm in enumerate(arms):
        steps, rates = zip(*canvas.findings.arms[arm].learning_rate_curve, strict=True)
        look = canvas.look(arm)
        # Arms with one rate lie on each other: shifted marks show that all are there.
        axis.plot(
            steps, rates, color=look.colour, ls=look.line, marker=look.marker,
            markevery=_marks(len(steps), order, len(arms)),
        )  # fmt: skip
    axis.set_xlabel(canvas.word("axis.steps"))
    axis.set_ylabel(canvas.word("axis.learning_rate"))
    axis.set_ylim(bottom=0)
    counted(axis.xaxis)
    canvas.arm_legend(figure, arms)
    return figure


def _curves(
    canvas: Canvas,
    of: Callable[[ArmSummary], Curve | None],
    change: Callable[[Curve], Curve] = lambda curve: curve,
) -> dict[str, Curve]:
    found = {arm: of(canvas.findings.arms[arm]) for arm in canvas.arms}
    return {arm: change(curve) for arm, curve in found.items() if curve is not None and curve.steps}


def _against(canvas: Canvas, axis: Axes, curves: dict[str, Curve], quantity: str) -> None:
    """One panel: the mean of every arm with the band of its seeds."""
    unit, code = 1.0, f"axis.{quantity}"
    if quantity == "seconds":
        longest = max(curve.seconds[-1] for curve in curves.values())
        unit, code = next((size, code) for least, size, code in TIME_UNITS if longest >= least)
    for order, (arm, curve) in enumerate(curves.items()):
        places = [value / unit for value in _places(canvas, arm, curve, quantity)]
        drawn_line(canvas, axis, arm, curve, places, order=order, lines=len(curves))
    axis.set_xlabel(canvas.word(code))
    counted(axis.xaxis)


def drawn_line(
    canvas: Canvas, axis: Axes, arm: str, curve: Curve, places: Sequence[float], *, order: int, lines: int
) -> None:
    """The mean of an arm with the band of its seeds; `order` of so many lines shifts its marks."""
    look = canvas.look(arm)
    axis.fill_between(places, curve.low, curve.high, color=look.colour, alpha=0.18, lw=0)
    axis.plot(
        places, curve.mean, color=look.colour, ls=look.line, marker=look.marker, ms=3.5,
        markevery=_marks(len(places), order, lines),
    )  # fmt: skip


def _places(canvas: Canvas, arm: str, curve: Curve, quantity: str) -> list[float]:
    if quantity == "examples":
        return [step * canvas.findings.arms[arm].batch_size for step in curve.steps]
    places: list[float] = getattr(curve, quantity)
    return places


def _marks(points: int, order: int, lines: int) -> tuple[int, int] | int:
    every = max(1, points // MARKS)
    return (order * every // lines, every)


def _read(canvas: Canvas) -> str:
    """What a run reads is counted in."""
    return "examples" if canvas.findings.study.fine_tunes else "tokens"


def _as_drawn(canvas: Canvas, curve: Curve) -> Curve:
    measure = canvas.measure
    most = LARGEST_LOGARITHM if measure.scale.is_logarithmic else 1.0
    mean, low, high = (
        [quality.drawn(measure, min(value, most)) for value in values] for values in (curve.mean, curve.low, curve.high)
    )
    return replace(curve, mean=mean, low=low, high=high)


def _second_half(curve: Curve) -> Curve:
    first = next((index for index, step in enumerate(curve.steps) if 2 * step >= curve.steps[-1]), 0)
    return Curve(**{name: column[first:] for name, column in vars(curve).items()})
