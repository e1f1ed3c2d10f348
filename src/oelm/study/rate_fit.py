"""The optimum between the values of a grid: a quadratic in the logarithm of the value, with the seeds as blocks.

It goes through the best value and its neighbours. There are two intervals, both cut off at the neighbours: further away
the grid has said that it is worse. Fieller's, which is exact for a ratio of two normal estimates, takes the loss for a
quadratic; the other one only for convex, and is right where the loss has a kink.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean

from oelm.intervals import tabled_quantile

LEAST_SEEDS = 3
DIGITS = 3
HALVINGS = 40  # of an interval that contains a bound

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
    low: float  # the interval of the optimum, 95 %, if the loss is quadratic
    high: float
    convex_low: float | None = None  # if it is only convex; None: stored before there was this interval
    convex_high: float | None = None

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
    to_slope, to_curvature = _weights(places[0], places[2])
    slope, curvature = _weighted(to_slope, means), _weighted(to_curvature, means)
    if curvature <= 0:
        return FLAT
    middle = -slope / (2 * curvature)
    if not places[0] <= middle <= places[2]:
        return OUTSIDE
    variance, degrees = _spread(by_seed, means)
    least = tabled_quantile(degrees) ** 2 * variance / len(by_seed)
    ends = _fieller(slope, curvature, to_slope, to_curvature, least)
    low, high = (best * math.exp(min(max(end, places[0]), places[2])) for end in ends)
    convex = [
        best * math.exp(_nearest(math.log(beside[0] / best), [losses[value] for value in (best, *beside)], beside))
        for beside in (values[at - 1 :: -1][:2], values[at + 1 :][:2])
    ]
    return Curve(around[0], best, around[2], means[1], slope, curvature, low, high, *convex)


def _nearest(neighbour: float, losses: list[list[float]], beside: list[float]) -> float:
    """How far towards the neighbour the minimum of a convex loss may lie, as a logarithm from the best.

    From the neighbour towards the best a convex loss falls at most as fast as it does from the value beyond: where this
    line is above the loss of the best, no minimum is. The seeds say how sure that is; without a value beyond that
    finished, or where it is no worse than the neighbour, the neighbour is the end.
    """
    by_seed = [each for each in zip(*losses, strict=True) if all(map(math.isfinite, each))]
    if len(losses) < 3 or len(by_seed) < LEAST_SEEDS:
        return neighbour
    best, near, far = means = [fmean(each) for each in zip(*by_seed, strict=True)]
    variance, degrees = _spread(by_seed, means)
    error = tabled_quantile(degrees) * math.sqrt(variance / len(by_seed))
    if far <= near:
        return neighbour

    def is_excluded(share: float) -> bool:
        """So far from the neighbour, as a share of its distance to the value beyond."""
        weights = math.hypot(1, 1 + share, share)
        return near - best - share * (far - near) > error * weights

    beyond = abs(math.log(beside[1] / beside[0]))
    low, high = 0.0, abs(neighbour) / beyond
    if is_excluded(high):
        return 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_excluded(middle) else (low, middle)
    return math.copysign(abs(neighbour) - low * beyond, neighbour)


def _weights(lower: float, upper: float) -> tuple[list[float], list[float]]:
    """How the three means make the slope at the best, and the curvature, of the quadratic through them."""
    width = upper - lower
    curvature = [1 / (-lower * width), 1 / (lower * upper), 1 / (upper * width)]
    slope = [-upper * curvature[0], -(lower + upper) * curvature[1], -lower * curvature[2]]
    return slope, curvature


def _weighted(weights: list[float], means: list[float]) -> float:
    return math.fsum(weight * mean for weight, mean in zip(weights, means, strict=True))


def _spread(by_seed: list[tuple[float, ...]], means: list[float]) -> tuple[float, int]:
    """The variance that neither the values nor the seeds explain, and its degrees of freedom."""
    whole = fmean(means)
    left = [loss - fmean(losses) - mean + whole for losses in by_seed for loss, mean in zip(losses, means, strict=True)]
    degrees = (len(means) - 1) * (len(by_seed) - 1)
    return math.fsum(each**2 for each in left) / degrees, degrees


def _fieller(
    slope: float, curvature: float, to_slope: list[float], to_curvature: list[float], least: float
) -> tuple[float, float]:
    """Where the derivative, slope + 2 curvature u, may be zero; unbounded where the curvature itself may be."""

    def products(one: list[float], other: list[float]) -> float:
        return math.fsum(a * b for a, b in zip(one, other, strict=True))

    square = 4 * (curvature**2 - least * products(to_curvature, to_curvature))
    linear = 4 * (slope * curvature - least * products(to_slope, to_curvature))
    constant = slope**2 - least * products(to_slope, to_slope)
    if square <= 0:
        return -math.inf, math.inf
    half = math.sqrt(max(0.0, linear**2 - 4 * square * constant))  # negative by rounding only: the minimum is inside
    return (-linear - half) / (2 * square), (-linear + half) / (2 * square)
