"""Ratios of paired step times with their spread, to show while measuring and to know when to stop. No torch."""

from __future__ import annotations

import math
from statistics import mean, stdev

# Two-sided 95 % quantiles of Student's t by the number of pairs; between two entries the wider one is taken.
T_95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26, 12: 2.20, 15: 2.14, 20: 2.09,
        30: 2.05, 40: 2.02, 60: 2.00}  # fmt: skip


def paired(numerator: list[float], denominator: list[float]) -> list[float]:
    return [a / b for a, b in zip(numerator, denominator, strict=True)]


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Geometric mean of paired ratios with its 95 % t interval; unbounded for a single one."""
    logs = [math.log(ratio) for ratio in ratios]
    count, middle = len(logs), mean(logs)
    if count < 2:
        return math.exp(middle), 0.0, math.inf
    t = max((size, value) for size, value in T_95.items() if size <= count)[1]
    half = t * stdev(logs) / math.sqrt(count)
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def half_width(ratios: list[float]) -> float:
    _, low, high = interval(ratios)
    return (high - low) / 2
