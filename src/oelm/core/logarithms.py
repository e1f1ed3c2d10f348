"""What is compared by its logarithm, and back: a perplexity is e to a loss in nats, a ratio e to a difference."""

from __future__ import annotations

import math


def exponential(logarithm: float) -> float:
    """Never clamped; infinite where a float has no room for it."""
    try:
        return math.exp(logarithm)
    except OverflowError:
        return math.inf


def percent_change(logarithm: float) -> float:
    """A difference of logarithms as a change in per cent."""
    try:
        return 100 * math.expm1(logarithm)
    except OverflowError:
        return math.inf


def nats(percent: float) -> float:
    """A change in per cent as a difference of logarithms."""
    return math.log1p(percent / 100)
