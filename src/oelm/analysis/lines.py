"""A straight line through the means of several sizes, and what it says: slope, prediction, sideways distance.

A size counts once, however many seeds it has: whatever is wrong with one size (a rate that fits it badly) shifts all of
its seeds alike, so only the spread of the sizes about the line tells how far the line can be trusted. With n sizes that
spread has n - 2 degrees of freedom. Seeds are the same at every size; what a seed does at all of them moves the line up
or down, and not its slope.

Sizes whose rates were carried over are wrong together: their rates lie on a line through those of the tuned sizes, and
the further away they are, the worse. So they count no degree of freedom, and k tuned sizes count k - 3, at least one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from scipy import special

from oelm.core.intervals import LEVEL
from oelm.study.claims.kinds import Bounds
from oelm.study.sizes import LEAST_FOR_A_LINE


@dataclass(frozen=True)
class Line:
    """By least squares, through at least three points that differ in x."""

    xs: tuple[float, ...]
    ys: tuple[float, ...]
    carried: int = 0  # how many of these places are sizes whose rates were carried over

    @property
    def degrees(self) -> int:
        return max(1, len(self.xs) - self.carried - 3) if self.carried else len(self.xs) - 2

    @cached_property
    def middle(self) -> float:
        return fmean(self.xs)

    @cached_property
    def width(self) -> float:
        """The sum of the squared distances from the middle."""
        return math.fsum((x - self.middle) ** 2 for x in self.xs)

    @cached_property
    def slope(self) -> float:
        return math.fsum((x - self.middle) * y for x, y in zip(self.xs, self.ys, strict=True)) / self.width

    def at(self, x: float) -> float:
        return fmean(self.ys) + self.slope * (x - self.middle)

    @cached_property
    def residuals(self) -> tuple[float, ...]:
        return tuple(y - self.at(x) for x, y in zip(self.xs, self.ys, strict=True))

    @cached_property
    def deviation(self) -> float:
        """Of a size about the line."""
        return math.sqrt(math.fsum(each**2 for each in self.residuals) / self.degrees)

    @property
    def slope_error(self) -> float:
        return self.deviation / math.sqrt(self.width)

    def leverage(self, x: float, other: float) -> float:
        """What the line's values at two places have in common, in squared deviations of a size."""
        return 1 / len(self.xs) + (x - self.middle) * (other - self.middle) / self.width

    def quantile(self, probability: float) -> float:
        return float(special.stdtrit(self.degrees, probability))

    def slope_bounds(self, left_out: float) -> tuple[float, float]:
        """With this probability left out on each side."""
        half = self.quantile(1 - left_out) * self.slope_error
        return self.slope - half, self.slope + half

    def slope_p(self, bounds: Bounds) -> float:
        """Of the null hypothesis that the slope lies beyond one of the bounds."""
        return max(self._p(-distance) for distance in bounds.distances(self.slope))

    def slope_p_beyond(self, bounds: Bounds) -> float:
        """Of the null hypothesis that the slope lies within the bounds."""
        return min(self._p(distance) for distance in bounds.distances(self.slope))

    def _p(self, beyond: float) -> float:
        return float(special.stdtr(self.degrees, beyond / self.slope_error))

    def interval(self, x: float) -> tuple[float, float]:
        """Of the height of the line."""
        half = self.quantile(1 - LEVEL / 2) * self.deviation * math.sqrt(self.leverage(x, x))
        return self.at(x) - half, self.at(x) + half

    def prediction(self, x: float) -> tuple[float, float]:
        """Between what a further size lies with a probability of 95 %, if the line goes on."""
        half = self.quantile(1 - LEVEL / 2) * self.deviation * math.sqrt(1 + self.leverage(x, x))
        return self.at(x) - half, self.at(x) + half


def line_through(xs: Sequence[float], ys: Sequence[float], *, carried: int = 0) -> Line | None:
    """None through fewer than three places: through two of them there is always a line."""
    return Line(tuple(xs), tuple(ys), carried) if len(set(xs)) >= LEAST_FOR_A_LINE else None


def sideways(line: Line, reference: Line, x: float) -> tuple[float, float | None, float | None]:
    """How far to the right of x a line is where the reference is at x, with its 95 % interval.

    Fieller's: the distances at which the two heights may be equal. Both lines are through the same places; what their
    points have in common is estimated from the residuals. Without ends where the line may be level, because then no
    distance would be enough.
    """
    assert line.xs == reference.xs
    distance = (reference.at(x) - line.at(x)) / line.slope if line.slope else math.inf
    own, other, common = (
        math.fsum(a * b for a, b in zip(one.residuals, two.residuals, strict=True)) / line.degrees
        for one, two in ((line, line), (reference, reference), (line, reference))
    )
    squared = line.quantile(1 - LEVEL / 2) ** 2
    start = line.leverage(x, x)
    lean = (x - line.middle) / line.width
    # (gap + slope d)^2 <= t^2 variance(d), of the heights at x + d and at x: a quadratic in the distance d.
    gap = line.at(x) - reference.at(x)
    second = line.slope**2 - squared * own / line.width
    first = gap * line.slope - squared * lean * (own - common)
    constant = gap**2 - squared * start * (own + other - 2 * common)
    if second <= 0 or first**2 < second * constant:
        return distance, None, None
    root = math.sqrt(first**2 - second * constant)
    return distance, (-first - root) / second, (-first + root) / second
