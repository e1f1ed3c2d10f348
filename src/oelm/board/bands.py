"""Curves of arms: at each step the mean over the seeds that have come so far, the smallest and the largest.

A seed is the mean of its draws. A point says over how many seeds it is, so that a page can show where some are missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from oelm.board.follow import KIND_OF, Follower, Series

BandPoint = list[float]  # step, tokens, seconds, mean, smallest, largest, number of seeds


@dataclass(frozen=True)
class Member:
    """A run of an arm."""

    seed: object
    follower: Follower
    has_ended: bool

    def series(self, name: str) -> Series:
        return self.follower.series[KIND_OF[name]]


def stride_of(members: Iterable[Member], name: str) -> int:
    """Steps that all of them keep are multiples of it."""
    return max((member.series(name).stride for member in members), default=1)


def steps_of(members: list[Member], name: str) -> list[int]:
    """Those at which the arm is drawn. The last step of a run that has not ended is one of its own."""
    stride = stride_of(members, name)
    found: set[int] = set()
    for member in members:
        series = member.series(name)
        found.update(step for step in series.steps if step % stride == 0)
        if member.has_ended and series.steps:
            found.add(series.steps[-1])
    return sorted(found)


def points_at(members: list[Member], name: str, steps: Iterable[int]) -> list[BandPoint]:
    """Steps where no seed has a value are left out."""
    by_seed: dict[object, list[Series]] = {}
    for member in members:
        by_seed.setdefault(member.seed, []).append(member.series(name))
    found = []
    for step in steps:
        of_seeds = [[at for each in draws if (at := each.at(step, name))] for draws in by_seed.values()]
        means = [[fmean(column) for column in zip(*draws, strict=True)] for draws in of_seeds if draws]
        if means:
            tokens, seconds, values = zip(*means, strict=True)
            place = [step, fmean(tokens), fmean(seconds)]
            found.append([*place, fmean(values), min(values), max(values), len(values)])
    return found


def begun(members: list[Member], name: str) -> int:
    """How many seeds have a value at all."""
    return len({member.seed for member in members if member.series(name).steps})
