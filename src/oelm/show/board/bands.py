"""Curves of arms: at each step the mean over the seeds that have come so far, the smallest and the largest.

A point says over how many seeds it is, so that a page can show where some are missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from oelm.show.board.follow import PLACE, Series

BandPoint = list[float]  # step, tokens, seconds, mean, smallest, largest, number of seeds


@dataclass(frozen=True)
class Member:
    """A run of an arm, with what it recorded of the kind that is drawn."""

    series: Series
    has_ended: bool


def stride_of(members: Iterable[Member]) -> int:
    """Steps that all of them keep are multiples of it."""
    return max((member.series.stride for member in members), default=1)


def steps_of(members: list[Member]) -> list[int]:
    """Those at which the arm is drawn. The last step of a run that has not ended is one of its own."""
    stride = stride_of(members)
    found: set[int] = set()
    for member in members:
        series = member.series
        found.update(series.steps if series.stride == stride else filter(lambda step: step % stride == 0, series.steps))
        if series.is_extra:
            found.discard(series.steps[-1])
    last = (member.series.steps[-1] for member in members if member.has_ended and member.series.steps)
    return sorted({*found, *last})


def points_at(members: list[Member], name: str, steps: list[int]) -> list[BandPoint]:
    """Steps, which rise, where no seed has a value are left out."""
    import numpy as np

    at_steps = np.array(steps, dtype=np.int64)
    sums, count = np.zeros((len(PLACE) + 1, len(steps))), np.zeros(len(steps), dtype=np.int64)
    low, high = np.full(len(steps), np.inf), np.full(len(steps), -np.inf)
    for member in members:
        own, *columns = (np.array(column) for column in member.series.columns_of(name))
        has_value = np.isfinite(columns[-1])
        _, at, own_at = np.intersect1d(at_steps, own[has_value], assume_unique=True, return_indices=True)
        values = np.array(columns)[:, has_value][:, own_at]
        sums[:, at] += values
        count[at] += 1
        low[at], high[at] = np.minimum(low[at], values[-1]), np.maximum(high[at], values[-1])
    kept = count > 0
    means = sums[:, kept] / count[kept]
    columns = [at_steps[kept], *means, low[kept], high[kept], count[kept]]
    return [list(point) for point in zip(*(column.tolist() for column in columns), strict=True)]


def begun(members: list[Member]) -> int:
    """How many seeds have recorded anything."""
    return sum(bool(member.series.steps) for member in members)
