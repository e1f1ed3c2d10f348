"""The optimum between the values of a grid: a quadratic in the logarithm of the value, with the seeds as blocks.

It goes through the best value and its neighbours. How far its loss may lie above the best one is said by
analysis/rate_allowance.py, which looks at more values and does not take the loss for a quadratic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean

LEAST_SEEDS = 3
REACH = 2  # values to each side of the best that an allowance goes by
DIGITS = 3

# Why there is no curve.
EDGE, DIVERGED, FLAT, OUTSIDE = "edge", "diverged", "flat", "outside"
REASONS = (EDGE, DIVERGED, FLAT, OUTSIDE)


@dataclass(frozen=True)
class Curve:
    """loss = level + slope u + curvature u^2, where u = ln(value / best)."""

    lower: float  # the neighbours of the best value tried
    best: float
    upper: float
    level: float
    slope: float
    curvature: float

    @property
    def optimum(self) -> float:
        """To three digits, and not beyond the neighbours."""
        ends = [math.log(neighbour / self.best) for neighbour in (self.lower, self.upper)]
        value = self.best * math.exp(min(max(-self.slope / (2 * self.curvature), ends[0]), ends[1]))
        return min(max(float(f"{value:.{DIGITS}g}"), self.lower), self.upper)

    def loss_at(self, value: float) -> float:
        distance = math.log(value / self.best)
        return self.level + self.slope * distance + self.curvature * distance**2


def fitted(losses: dict[float, list[float]], best: float) -> Curve | str:
    """The curve around the best value, or why there is none. Losses by seed, in one order; infinite: diverged."""
    values = sorted(losses)
    at = values.index(best)
    if at in (0, len(values) - 1):
        return EDGE
    around = values[at - 1 : at + 2]
    by_seed = [each for each in zip(*(losses[value] for value in around), strict=True) if all(map(math.isfinite, each))]
    if len(by_seed) < LEAST_SEEDS:
        return DIVERGED
    places = [math.log(value / best) for value in around]
    means = [fmean(each) for each in zip(*by_seed, strict=True)]
    # Of the quadratic through the three means: the slope at the best, and the curvature.
    lower, upper, width = places[0], places[2], places[2] - places[0]
    curvatures = [1 / (-lower * width), 1 / (lower * upper), 1 / (upper * width)]
    slopes = [-upper * curvatures[0], -(lower + upper) * curvatures[1], -lower * curvatures[2]]
    slope, curvature = (
        math.fsum(weight * mean for weight, mean in zip(each, means, strict=True)) for each in (slopes, curvatures)
    )
    if curvature <= 0:
        return FLAT
    if not places[0] <= -slope / (2 * curvature) <= places[2]:
        return OUTSIDE
    return Curve(around[0], best, around[2], means[1], slope, curvature)
