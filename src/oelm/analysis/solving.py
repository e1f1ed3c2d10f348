"""Pairs of runs by whether and when they solve a probe: which side is ahead in each, and what these signs say.

Seeds are what is paired: the signs of equal arms are those of a fair coin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from oelm.analysis.findings import SignTest, SolvingPairs
from oelm.analysis.statistics import sign_p_beyond, sign_p_within
from oelm.core.solving import Solved
from oelm.study.claims.kinds import Bounds

Side = Literal["ahead", "behind", "tied", "neither"]
OfSeeds = Mapping[int, Solved | None]


def solving_pairs(treatment: OfSeeds, control: OfSeeds, *, by_steps: bool) -> SolvingPairs:
    """Of the seeds that both have."""
    seeds: dict[Side, list[int]] = {"ahead": [], "behind": [], "tied": [], "neither": []}
    for seed in sorted(treatment.keys() & control.keys()):
        seeds[_side(treatment[seed], control[seed], by_steps=by_steps)].append(seed)
    return SolvingPairs(**seeds)


def sign_test(pairs: SolvingPairs, bounds: Bounds) -> SignTest:
    """Pairs that are tied, or in which neither solves it, are counted and left out."""
    ahead, informative = len(pairs.ahead), pairs.informative
    p, opposite = sign_p_within(ahead, informative, bounds), sign_p_beyond(ahead, informative, bounds)
    return SignTest(pairs.ahead, pairs.behind, pairs.tied, pairs.neither, p=p, p_opposite=opposite)


def _side(treatment: Solved | None, control: Solved | None, *, by_steps: bool) -> Side:
    """Ahead is the only one that solves it; by steps also the one that certainly solves it sooner."""
    if treatment is None:
        return "neither" if control is None else "behind"
    if control is None or (by_steps and treatment.is_before(control)):
        return "ahead"
    return "behind" if by_steps and control.is_before(treatment) else "tied"
