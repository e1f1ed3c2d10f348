"""Curves of arms: at each step the mean over the seeds that have come so far, the smallest and the largest.

A point says over how many seeds it is, so that a page can show where some are missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from statistics import fmean

from oelm.board.follow import Place, Series

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


def points_at(members: list[Member], name: str, steps: Collection[int]) -> list[BandPoint]:
    """Steps where no seed has a value are left out."""
    at_steps: dict[int, list[Place]] = {step: [] for step in steps}
    for member in members:
        for step, values in member.series.among(at_steps, name):
            at_steps[step].append(values)
    return [_band(step, found) for step, found in sorted(at_steps.items()) if found]


def begun(members: list[Member]) -> int:
    """How many seeds have recorded anything."""
    return sum(bool(member.series.steps) for member in members)


def _band(step: int, seeds: list[Place]) -> BandPoint:
    tokens, seconds, values = zip(*seeds, strict=True)
    return [step, fmean(tokens), fmean(seconds), fmean(values), min(values), max(values), len(values)]
