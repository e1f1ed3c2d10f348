"""What looks decide in many studies at once, from their paired differences: for plans and simulations.

The same decisions as those of looks.py and hypotheses.py, which know one study and its runs; a test holds them equal.
Claims here are tested by the paired t.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from oelm.analysis.distributions import special
from oelm.analysis.spending import WITHOUT_LOOKS, Always, AnyLevels, t_levels
from oelm.analysis.statistics import POWER, standing_apart
from oelm.core.intervals import LEVEL
from oelm.study.claims.kinds import Bounds

SUPPORTED, UNDECIDED, REFUTED = 1, 0, -1
PATHS = 20_000
_SEED = 20261


@dataclass(frozen=True)
class Claim:
    bounds: Bounds
    confirmatory: bool = True
    least_apart: float = 0.0  # a pair no further from the rest does not stand apart


@dataclass(frozen=True)
class Outcomes:
    """By study and claim."""

    verdicts: np.ndarray  # SUPPORTED, UNDECIDED or REFUTED
    seeds: np.ndarray  # of the look that settled it, or of the last one


LevelsOfLooks = Callable[[tuple[int, ...]], Sequence[AnyLevels]]


def levels_of(looks: tuple[int, ...]) -> Sequence[AnyLevels]:
    """One look is none."""
    return t_levels(looks) if len(looks) > 1 else (WITHOUT_LOOKS,)


def decided(
    differences: np.ndarray,
    claims: Sequence[Claim],
    looks: tuple[int, ...],
    *,
    levels: LevelsOfLooks = levels_of,
) -> Outcomes:
    """Of differences by study, claim and seed."""
    shape = differences.shape[:2]
    verdicts, seeds = np.zeros(shape, dtype=int), np.full(shape, looks[-1])
    is_open, smallest = np.ones(shape, dtype=bool), np.ones(shape)
    confirmatory = np.array([claim.confirmatory for claim in claims])
    for pairs, level in zip(looks, levels(looks), strict=True):
        tests = [_Tests(differences[:, number, :pairs], claim) for number, claim in enumerate(claims)]
        has_p = ~np.stack([test.has_apart for test in tests], axis=1)
        p = _sequential(level, np.stack([test.p_within for test in tests], axis=1))
        smallest = np.where(is_open & has_p, np.minimum(smallest, p), smallest)
        known = np.where(has_p | ~is_open, smallest, 1.0)
        is_within = np.stack([test.is_within for test in tests], axis=1)
        is_shown = is_open & is_within & (_adjusted(known, confirmatory) <= LEVEL) & has_p
        is_excluded = np.stack([test.p_beyond for test in tests], axis=1) <= level.at(LEVEL)
        is_refuted = is_open & is_excluded & ~is_shown & has_p
        verdicts[is_shown], verdicts[is_refuted] = SUPPORTED, REFUTED
        settled = is_shown | is_refuted
        seeds[settled] = pairs
        is_open &= ~settled
    return Outcomes(verdicts, seeds)


class _Tests:
    """The t tests of one claim in many studies."""

    def __init__(self, differences: np.ndarray, claim: Claim) -> None:
        pairs, bounds = differences.shape[1], claim.bounds
        self.has_apart = standing_apart(differences, claim.least_apart).any(axis=1)
        mean, deviation = differences.mean(axis=1), differences.std(axis=1, ddof=1)
        # How far the mean is beyond each bound, in standard deviations.
        upper = [] if bounds.upper is None else [(mean - bounds.upper) / deviation]
        lower = [] if bounds.lower is None else [(bounds.lower - mean) / deviation]
        beyond = np.stack([*upper, *lower])
        self.is_within = (beyond < 0).all(axis=0)
        self.p_within = special.stdtr(pairs - 1, math.sqrt(pairs) * beyond).max(axis=0)
        self.p_beyond = special.stdtr(pairs - 1, math.sqrt(pairs) * -beyond).min(axis=0)


def _sequential(levels: AnyLevels, p: np.ndarray) -> np.ndarray:
    """As `Levels.sequential_p`, of many p-values."""
    if isinstance(levels, Always):
        return p
    nominal, rates = np.array(levels.nominal), np.array(levels.error_rates)
    scores = -special.ndtri(np.clip(p, nominal[0], nominal[-1]))
    found = special.ndtr(-np.interp(scores, -special.ndtri(nominal)[::-1], -special.ndtri(rates)[::-1]))
    return np.where(p > nominal[-1], 1.0, found)


def _adjusted(p: np.ndarray, confirmatory: np.ndarray) -> np.ndarray:
    """By Holm, within each study, over the claims that are of the family."""
    adjusted, family = p.copy(), p[:, confirmatory]
    order = np.argsort(family, axis=1, kind="stable")
    stepped = np.take_along_axis(family, order, axis=1) * np.arange(family.shape[1], 0, -1)
    stepped = np.minimum(1.0, np.maximum.accumulate(stepped, axis=1))
    np.put_along_axis(family, order, stepped, axis=1)
    adjusted[:, confirmatory] = family
    return adjusted


# ---- Power ---------------------------------------------------------------------------------------------------------


def power_by_looks(distances: Sequence[float], looks: tuple[int, ...], *, level: float) -> float:
    """How often a mean that is so far within each of its bounds, in standard deviations, is shown at one of the looks.
    Drawn with fixed seeds."""
    shown = np.zeros(PATHS, dtype=bool)
    for mean, half in _bounds_of_means(looks, level):
        sides = (mean, -mean)[: len(distances)]
        shown |= np.logical_and.reduce([side + half < each for side, each in zip(sides, distances, strict=True)])
    return float(shown.mean())


def distance_seen_by_looks(looks: tuple[int, ...], *, bounds: int, level: float) -> float:
    """As `statistics.distance_seen`: what all but a fifth of the samples need at the look that shows it with least."""
    needed = [(mean if bounds == 1 else np.abs(mean)) + half for mean, half in _bounds_of_means(looks, level)]
    return float(np.quantile(np.minimum.reduce(needed), POWER))


@lru_cache(maxsize=32)
def _bounds_of_means(looks: tuple[int, ...], level: float) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """At each look, the means of standard normal samples, and by how much their one-sided bounds are beyond them."""
    drawn = np.random.default_rng(_SEED).standard_normal((PATHS, looks[-1]))
    found = []
    for pairs, levels in zip(looks, levels_of(looks), strict=True):
        prefix = drawn[:, :pairs]
        critical = -special.stdtrit(pairs - 1, levels.at(level)) / math.sqrt(pairs)
        found.append((prefix.mean(axis=1), critical * prefix.std(axis=1, ddof=1)))
    return tuple(found)
