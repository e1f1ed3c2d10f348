"""What the grid says of each arm, and where it grows. Pure arithmetic over losses, or over which seeds solve a probe
and when; what was chosen once is kept by decisions.py, which values get a longer budget is said by halving.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import NamedTuple

from oelm.study.declaration import Tuning
from oelm.study.rate_fit import Curve, fitted

Point = tuple[tuple[str, float], ...]  # grid keys and values
Grid = dict[str, list[float]]


@dataclass(frozen=True)
class Tried:
    """What one tuning run came to."""

    loss: float  # infinite: it diverged
    solved: bool = False
    steps: int = 0  # to solve its probe; all that it has, if it did not


class Solving(NamedTuple):
    """How the tuning seeds of a point solve a probe."""

    solved: float  # the share of them that do
    steps: float  # mean; one that does not counts with all its steps


@dataclass(frozen=True)
class Carried:
    """Where values come from that were not tuned: a power law of a dial."""

    dial: str
    sources: dict[str, dict[str, float]]  # arm at a tuned size -> its values
    exponents: dict[str, float]  # by key


@dataclass(frozen=True)
class Choice:
    """What tuning says about one arm."""

    arm: str
    losses: dict[Point, float]  # mean over the tuning seeds; infinite where one diverged
    best: Point | None  # what final runs use; None: every point diverged
    edges: tuple[str, ...] = ()  # keys whose best value is still the smallest or largest tried
    made: str | None = None  # when it was stored; None: it is what the runs say now
    final_runs_then: int = 0  # that had started when it was stored, by its own account or by their clocks
    solving: dict[Point, Solving] = field(default_factory=dict)  # where points are ranked by it
    curve: Curve | None = None  # whose minimum `best` is
    not_fitted: str | None = None  # why there is no curve, where the study asks for one
    carried: Carried | None = None  # from other sizes; then there are no losses

    @property
    def values(self) -> dict[str, float]:
        return dict(self.best or ())

    @property
    def best_tried(self) -> Point | None:
        """The best of the points: what final runs use, unless a curve says what lies between the points."""
        return self.best if self.best is None or self.curve is None else ((self.best[0][0], self.curve.best),)

    @property
    def loss(self) -> float | None:
        """Where `best` is: the mean of the tuning seeds, or what the curve says; None also where it was not tried."""
        if self.best is None or self.carried is not None:
            return None
        return self.losses[self.best] if self.curve is None else self.curve.loss_at(self.best[0][1])


def chosen(arm: str, tried: dict[Point, list[Tried]], grid: Grid, tuning: Tuning) -> Choice:
    """The point with the lowest mean loss over the tuning seeds; of equal ones the smallest.

    By solving: first the most seeds that solve the probe, then the fewest steps to it, then the loss. A seed that
    diverged did not solve it, and a point has to have no such seed only where no seed solves anything.

    Fitted: the minimum of the curve around that point, where there is one.
    """
    by_solving = tuning.criterion is not None
    losses = {point: fmean(run.loss for run in runs) for point, runs in tried.items()}
    solving = {
        point: Solving(fmean(run.solved for run in runs), fmean(run.steps for run in runs))
        for point, runs in tried.items()
        if by_solving
    }

    def rank(point: Point) -> tuple[float, float, float, Point]:
        solved, steps = solving.get(point, (0.0, 0.0))
        return -solved, steps, losses[point], point

    best = min(losses, key=rank)
    if math.isinf(losses[best]) and not rank(best)[0]:
        return Choice(arm, losses, None, solving=solving)
    edges = tuple(key for key, value in best if value in (min(grid[key]), max(grid[key])))
    choice = Choice(arm, losses, best, edges, solving=solving)
    if tuning.choose != "fitted":
        return choice
    ((key, lowest),) = best
    curve = fitted({point[0][1]: [run.loss for run in runs] for point, runs in tried.items()}, lowest)
    if isinstance(curve, str):
        return replace(choice, not_fitted=curve)
    return replace(choice, best=((key, curve.optimum),), curve=curve)


def points_of(grid: Grid) -> list[Point]:
    return [tuple(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def neighbours(point: Point, grid: Grid) -> list[Point]:
    """The next points of a grid of one key."""
    ((key, value),) = point
    values = grid[key]
    at = values.index(value)
    return [((key, each),) for each in (*values[max(0, at - 1) : at], *values[at + 1 : at + 2])]


def extended(tuning: Tuning, grid: Grid, wanted: Iterable[Point]) -> Grid:
    """The grid with one more point at each end beyond which a wanted point has too few, as long as the study allows."""
    larger, wanted = {}, list(wanted)
    for key, points in grid.items():
        best = {value for point in wanted for at, value in point if at == key}
        added_below = sum(point < min(tuning.grid[key]) for point in points)
        added_above = sum(point > max(tuning.grid[key]) for point in points)
        larger[key] = list(points)
        if best & {*points[: tuning.beyond]} and added_below < tuning.extend and points[0] > 0:
            larger[key].insert(0, _beyond(points[0], points[1]))
        if best & {*points[-tuning.beyond :]} and added_above < tuning.extend and points[-2] > 0:
            larger[key].append(_beyond(points[-1], points[-2]))
    return larger


def joined(grids: Iterable[Grid]) -> Grid:
    """Every point of any of them."""
    found: dict[str, set[float]] = {}
    for grid in grids:
        for key, points in grid.items():
            found.setdefault(key, set()).update(points)
    return {key: sorted(points) for key, points in found.items()}


def largest(tuning: Tuning) -> Grid:
    """Every point that the grid can come to have."""
    grid = {key: list(points) for key, points in tuning.grid.items()}
    for key, points in grid.items():
        for _ in range(tuning.extend):
            if points[0] > 0:
                points.insert(0, _beyond(points[0], points[1]))
            if points[-2] > 0:
                points.append(_beyond(points[-1], points[-2]))
        grid[key] = points
    return grid


def _beyond(edge: float, neighbour: float) -> float:
    """The next point of a geometric grid, to a few digits; a whole number stays whole."""
    value = float(f"{edge * edge / neighbour:.4g}")
    whole = float(edge).is_integer() and float(neighbour).is_integer() and value >= 1
    return float(round(value)) if whole else value


def point_text(point: Point | dict[str, float]) -> str:
    return " ".join(f"{key.rpartition('.')[2]}={value:g}" for key, value in dict(point).items())
