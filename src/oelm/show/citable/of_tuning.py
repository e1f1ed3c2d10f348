"""Numbers of tuning, by arm: what each value of the grid gave, what a round dropped, and the fitted optimum."""

from __future__ import annotations

from collections.abc import Iterator

from oelm.analysis.findings import Findings
from oelm.show import numbers
from oelm.show.citable.rows import Row
from oelm.show.macro_names import spelled_out
from oelm.show.rates import grid_value
from oelm.study.halving import Round
from oelm.study.rate_fit import Curve
from oelm.study.tuning import Choice


def rows(findings: Findings) -> Iterator[tuple[str, Row]]:
    for done in findings.plan.rounds:
        for row in _round(done):
            yield done.arm, row
    for arm, choice in findings.plan.choices.items():
        for row in _choice(choice):
            yield arm, row


def _round(done: Round) -> Iterator[Row]:
    at, what = f"AtRound{spelled_out(str(done.number))}", f"in round {done.number} of halving"
    yield f"tuningSteps{at}", numbers.whole(done.steps), f"steps of a tuning run {what}"
    yield f"keptValues{at}", str(len(done.kept)), f"values of the grid that went on {what}"
    for point, behind in done.behind.items():
        gap = numbers.nats(behind)
        if "∞" not in gap:
            shown = f"loss of {grid_value(point)} above the best {what}, in nats, without the seed that says so most"
            yield f"gap{at}Value{spelled_out(grid_value(point))}", gap, shown


def _choice(choice: Choice) -> Iterator[Row]:
    for point, loss in choice.losses.items():
        at = f"AtValue{spelled_out(grid_value(point))}"
        yield (
            f"tuningLoss{at}",
            numbers.loss(loss),
            f"validation loss of tuning with {grid_value(point)}, mean over seeds",
        )
        if point in choice.solving:
            solved, steps = choice.solving[point]
            share = numbers.plain_percent(100 * solved)
            yield f"tuningSolved{at}", share, f"tuning seeds that solve the probe with {grid_value(point)}"
            yield f"tuningSteps{at}", numbers.whole(steps), f"steps to it with {grid_value(point)}"
    yield "tuningLoss", numbers.loss(choice.loss), "validation loss of tuning, of the chosen value"
    if choice.curve is not None:
        yield from _curve(choice.curve)


def _curve(curve: Curve) -> Iterator[Row]:
    yield "bestTriedRate", numbers.learning_rate(curve.best), "best value of the grid"
    yield "optimalRate", numbers.learning_rate(curve.optimum), "fitted optimum of the learning rate"
