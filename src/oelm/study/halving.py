"""Successive halving: which values of a round are worth the next, longer budget. Pure arithmetic over losses.

A round is made of whole short schedules, because the ranks in the middle of a long one mislead. Values are compared
seed by seed, and what a single seed says drops nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean

from oelm.study.tuning import Point


@dataclass(frozen=True)
class Round:
    """What one round said of one arm's points."""

    arm: str
    number: int  # from 1
    steps: int  # of its runs
    losses: dict[Point, float]  # mean over the tuning seeds; infinite where one diverged
    behind: dict[Point, float]  # the best by so much, without the seed that says so most; infinite: two seeds diverged
    margin: float
    made: str | None = None  # when it was stored; None: it is what the runs say now

    @property
    def kept(self) -> tuple[Point, ...]:
        return tuple(point for point, behind in self.behind.items() if behind <= self.margin)

    @property
    def dropped(self) -> tuple[Point, ...]:
        return tuple(point for point in self.behind if point not in self.kept)


def judged(arm: str, number: int, *, steps: int, losses: dict[Point, list[float]], margin: float) -> Round:
    """A round whose runs have all ended; losses by seed, in one order, infinite where a run diverged.

    Only a point of which every seed finished can drop others: one that diverges now and then is no measure of them.
    Where there is none, divergence alone drops a point, and never by one seed.
    """
    rivals = [own for own in losses.values() if not _diverged(own)]
    fewest = min(map(_diverged, losses.values()))

    def behind(own: list[float]) -> float:
        if rivals:
            return max(_behind(own, rival) for rival in rivals)
        return math.inf if _diverged(own) > fewest + 1 else 0.0

    means = {point: fmean(own) for point, own in losses.items()}
    return Round(arm, number, steps, means, {point: behind(own) for point, own in losses.items()}, margin)


def _diverged(own: list[float]) -> int:
    return sum(map(math.isinf, own))


def _behind(own: list[float], rival: list[float]) -> float:
    """The mean paired difference without the largest: a seed that diverged, or went astray, is the one left out."""
    differences = sorted(one - other for one, other in zip(own, rival, strict=True))
    return fmean(differences[:-1])
