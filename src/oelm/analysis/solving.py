"""Pairs of runs by whether and when they solve a probe: which side is ahead in each, and what these signs say.

Seeds are what is paired. Where they have several draws, runs are compared draw by draw, as many as both arms have, so
that neither arm has more chances than the other: the signs of equal arms are then those of a fair coin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from oelm.analysis.findings import SignTest, SolvingPairs
from oelm.analysis.statistics import sign_p_beyond, sign_p_within
from oelm.claims.kinds import Bounds
from oelm.claims.solving import Solved

Side = Literal["ahead", "behind", "tied", "neither"]
Draws = Sequence[Solved | None]  # of one seed


def solving_pairs(treatment: Mapping[int, Draws], control: Mapping[int, Draws], *, by_steps: bool) -> SolvingPairs:
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


def _side(treatment: Draws, control: Draws, *, by_steps: bool) -> Side:
    """Of a seed: ahead is who is ahead in more draws."""
    pairs = zip(treatment, control, strict=False)  # an arm without draws of its own has only the first
    sides = [_side_of_runs(one, other, by_steps=by_steps) for one, other in pairs]
    lead = sides.count("ahead") - sides.count("behind")
    if lead:
        return "ahead" if lead > 0 else "behind"
    return "neither" if set(sides) == {"neither"} else "tied"


def _side_of_runs(treatment: Solved | None, control: Solved | None, *, by_steps: bool) -> Side:
    """Ahead is the only one that solves it; by steps also the one that certainly solves it sooner."""
    if treatment is None:
        return "neither" if control is None else "behind"
    if control is None or (by_steps and treatment.is_before(control)):
        return "ahead"
    return "behind" if by_steps and control.is_before(treatment) else "tied"
