"""Ratios of paired times with their spread, for benchmarks whose contenders have no twin. No torch."""

from __future__ import annotations

import math

from oelm.study.bench import ratio_of_logarithms


def paired(numerator: list[float], denominator: list[float]) -> list[float]:
    return [a / b for a, b in zip(numerator, denominator, strict=True)]


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Geometric mean of paired ratios with its 95 % t interval; unbounded for a single one."""
    found = ratio_of_logarithms([math.log(ratio) for ratio in ratios])
    return found.middle, found.low, found.high
