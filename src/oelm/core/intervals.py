"""The t interval of a mean, at 95 %: the one definition for benches and for the analysis.

`oelm bench` works without scipy, so the quantiles of a bench come from a table. Those of the analysis, which needs
scipy for its p-values anyway, are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean

LEVEL = 0.05  # what a two-sided interval leaves out

Quantile = Callable[[int], float]  # two-sided, at 95 %, by the degrees of freedom

# By the number of values, rounded up; between two entries the wider one is taken.
T_95 = {2: 12.71, 3: 4.303, 4: 3.183, 5: 2.777, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.307, 10: 2.263, 11: 2.229, 12: 2.201,
        13: 2.179, 14: 2.161, 15: 2.145, 17: 2.120, 20: 2.094, 25: 2.064, 30: 2.046, 40: 2.023, 60: 2.002}  # fmt: skip


def tabled_quantile(degrees: int) -> float:
    return max((size, value) for size, value in T_95.items() if size <= degrees + 1)[1]


def mean_and_half_width(values: Sequence[float], quantile: Quantile = tabled_quantile) -> tuple[float, float]:
    """The mean with the half-width of its interval; unbounded for a single value."""
    if len(values) < 2:
        return fmean(values), math.inf
    return fmean(values), quantile(len(values) - 1) * standard_deviation(values) / math.sqrt(len(values))


def standard_deviation(values: Sequence[float]) -> float:
    """Of at least two values, as a sample."""
    mean = fmean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
