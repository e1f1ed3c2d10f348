"""Curves of arms: at each step the mean over the seeds that have come so far, the smallest and the largest.

A seed is the mean of its draws. A point says over how many seeds it is, so that a page can show where some are missing.
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

    seed: object
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
    by_seed: dict[object, list[Series]] = {}
    for member in members:
        by_seed.setdefault(member.seed, []).append(member.series)
    at_steps: dict[int, list[Place]] = {step: [] for step in steps}
    for draws in by_seed.values():
        for step, values in _mean_of(draws, name, at_steps):
            at_steps[step].append(values)
    return [_band(step, found) for step, found in sorted(at_steps.items()) if found]


def begun(members: list[Member]) -> int:
    """How many seeds have recorded anything."""
    return len({member.seed for member in members if member.series.steps})


def _mean_of(draws: list[Series], name: str, steps: Collection[int]) -> Iterable[tuple[int, Place]]:
    if len(draws) == 1:
        return draws[0].among(steps, name)
    found: dict[int, list[Place]] = {}
    for draw in draws:
        for step, place in draw.among(steps, name):
            found.setdefault(step, []).append(place)
    return ((step, _mean(places)) for step, places in found.items())


def _mean(places: list[Place]) -> Place:
    tokens, seconds, values = zip(*places, strict=True)
    return fmean(tokens), fmean(seconds), fmean(values)


def _band(step: int, seeds: list[Place]) -> BandPoint:
    tokens, seconds, values = zip(*seeds, strict=True)
    return [step, fmean(tokens), fmean(seconds), fmean(values), min(values), max(values), len(values)]
