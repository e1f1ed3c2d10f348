"""The tests behind the verdicts: paired t with a margin, Holm, exact sign-flips, exact signs, the pairs they need.

Every null hypothesis is "the mean difference lies on the wrong side of a bound", or "the share of the pairs in which
the treatment is ahead does". Fewer than three pairs, or pairs without any spread, give no p-value by the t test; what
pairs without spread say exactly has a section of its own.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from oelm.analysis.distributions import special
from oelm.analysis.findings import PairedDifference, SignTest, SolvingPairs
from oelm.core import intervals
from oelm.core.intervals import LEVEL
from oelm.core.solving import Solved
from oelm.study.claims.kinds import LEAST_PAIRS, Bounds

POWER = 0.8
MOST_SEEDS = 1000
MOST_SIGN_FLIPS = 40  # pairs; 2^20 sums on each side of the meeting
NO_SPREAD = 1e-9  # nats, or a share of a whole: below it differences are equal but for rounding


# ---- Paired differences --------------------------------------------------------------------------------------------


def paired_difference(
    treatment: dict[int, float], control: dict[int, float], *, level: float | None = LEVEL
) -> PairedDifference:
    """Over the seeds both have, in the order of the seeds. `level`: what its interval leaves out; None: no interval."""
    seeds = sorted(treatment.keys() & control.keys())
    differences = [treatment[seed] - control[seed] for seed in seeds]
    mean = fmean(differences) if seeds else None
    deviation = standard_deviation(differences)
    low = high = None
    if mean is not None and deviation and level is not None:
        _, half = intervals.mean_and_half_width(differences, lambda degrees: _quantile(degrees, 1 - level / 2))
        low, high = mean - half, mean + half
    return PairedDifference(seeds, differences, mean, deviation, low, high)


def upper_end(values: Sequence[float]) -> float:
    """Of the 95 % interval of their mean; of one value, the value."""
    if len(values) < 2:
        return values[0]
    mean, half = intervals.mean_and_half_width(values, lambda degrees: _quantile(degrees, 1 - LEVEL / 2))
    return mean + half


def standard_deviation(values: Sequence[float]) -> float | None:
    """None below two values; exactly zero where they differ by rounding only."""
    if len(values) < 2:
        return None
    deviation = intervals.standard_deviation(values)
    return deviation if deviation > NO_SPREAD else 0.0


def _quantile(degrees: int, probability: float) -> float:
    return float(special.stdtrit(degrees, probability))


def can_be_tested(differences: Sequence[float]) -> bool:
    return len(differences) >= LEAST_PAIRS and bool(standard_deviation(differences))


def one_sided_bounds(differences: Sequence[float], level: float) -> tuple[float, float]:
    """The lower and the upper bound of the mean, each beyond it with this probability."""
    assert can_be_tested(differences)
    half = _quantile(len(differences) - 1, 1 - level) * _standard_error(differences)
    return fmean(differences) - half, fmean(differences) + half


def p_within(differences: Sequence[float], bounds: Bounds) -> float:
    """Of the null hypothesis that the mean lies beyond one of the bounds: with two of them, both tests must reject."""
    return max(_p(differences, -distance) for distance in bounds.distances(fmean(differences)))


def p_beyond(differences: Sequence[float], bounds: Bounds) -> float:
    """Of the null hypothesis that the mean lies within the bounds."""
    return min(_p(differences, distance) for distance in bounds.distances(fmean(differences)))


def _p(differences: Sequence[float], beyond: float) -> float:
    """Of a mean that is beyond its bound by so much."""
    assert can_be_tested(differences)
    return float(special.stdtr(len(differences) - 1, beyond / _standard_error(differences)))


def _standard_error(differences: Sequence[float]) -> float:
    return intervals.standard_deviation(differences) / math.sqrt(len(differences))


# ---- Pairs that stand apart ----------------------------------------------------------------------------------------

# How often the furthest of some normal values is further from the others. Where several may be taken out, up to 2.4 %
# of normal rows have some that stand apart; at most 1.2 % where `least` is two standard deviations, 0.5 % at three.
APART_LEVEL = 0.01


def standing_apart(differences: np.ndarray, least: float) -> np.ndarray:
    """Of each row of differences, which ones lie far outside the rest of their row, and by more than `least`.

    Time after time the value that is furthest from the mean is taken out, as long as more than half are left, and held
    against the mean and the spread of those that are left, by the t distribution of one further normal value. All that
    were taken out by the last time that this is too far stand apart: two of them do not hide each other. With n values,
    a distance in standard deviations of all of them never exceeds (n - 1) / sqrt(n), so the spread is that of the
    others.
    """
    rows, pairs = np.arange(len(differences)), differences.shape[1]
    most = (pairs - 1) // 2
    rest, apart = np.ones(differences.shape, dtype=bool), np.zeros(differences.shape, dtype=bool)
    for left in range(pairs - 1, pairs - 1 - most, -1):
        from_mean = np.abs(differences - differences.mean(axis=1, where=rest, keepdims=True))
        furthest = np.where(rest, from_mean, -1.0).argmax(axis=1)
        rest[rows, furthest] = False
        distance = np.abs(differences[rows, furthest] - differences.mean(axis=1, where=rest))
        spread = np.maximum(differences.std(axis=1, ddof=1, where=rest), NO_SPREAD) * math.sqrt(1 + 1 / left)
        p = 2 * (left + 1) * special.stdtr(left - 1, -distance / spread)
        is_far = (p <= APART_LEVEL) & (distance > least)
        apart[is_far] = ~rest[is_far]
    return apart


# ---- Several hypotheses --------------------------------------------------------------------------------------------


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values in the order given: rejecting those at or below a level keeps the family's error there."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


# ---- Sign flips ----------------------------------------------------------------------------------------------------


def sign_flip_p_below(differences: Sequence[float], bound: float) -> float | None:
    """Exact, over all 2^n sign patterns of the differences from the bound; None beyond 40 pairs.

    Counted by meeting in the middle: the sums of one half against the sorted sums of the other.
    """
    if not can_be_tested(differences) or len(differences) > MOST_SIGN_FLIPS:
        return None
    shifted = np.asarray(differences) - bound
    half = len(shifted) // 2
    left, right = _signed_sums(shifted[:half]), np.sort(_signed_sums(shifted[half:]))
    rounding = 1e-9 * float(np.abs(shifted).sum())  # a tie is a tie although its sum was rounded
    at_most = float(shifted.sum()) + rounding
    patterns = int(np.searchsorted(right, at_most - left, side="right").sum())
    possible: int = 2 ** len(shifted)
    return patterns / possible


def sign_flip_p_within(differences: Sequence[float], bounds: Bounds) -> float | None:
    mirrored = [-difference for difference in differences]
    below = None if bounds.upper is None else sign_flip_p_below(differences, bounds.upper)
    above = None if bounds.lower is None else sign_flip_p_below(mirrored, -bounds.lower)
    return max((p for p in (below, above) if p is not None), default=None)


def _signed_sums(values: np.ndarray) -> np.ndarray:
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    return sums


# ---- Pairs without spread ------------------------------------------------------------------------------------------


def same_p_within(differences: Sequence[float], bounds: Bounds) -> float:
    """The sign-flip test of pairs that all differ by the same amount: within a bound, one pattern in 2^n is as extreme.

    On a bound every pattern is.
    """
    return max(_one_in(len(differences), distance) for distance in bounds.distances(fmean(differences)))


def same_p_beyond(differences: Sequence[float], bounds: Bounds) -> float:
    """Of the null hypothesis that they lie within the bounds."""
    return min(_one_in(len(differences), -distance) for distance in bounds.distances(fmean(differences)))


def _one_in(pairs: int, distance: float) -> float:
    return 0.5**pairs if distance > NO_SPREAD else 1.0


def pairs_of_one_sign(level: float) -> int:
    """As few as can reach a level by an exact test of their signs."""
    return math.ceil(-math.log2(level))


# ---- Signs ---------------------------------------------------------------------------------------------------------

LEAST_INFORMATIVE = pairs_of_one_sign(LEVEL)


def sign_p_within(ahead: int, pairs: int, bounds: Bounds) -> float:
    """Exact, of the null hypothesis that the share of pairs in which one side is ahead lies beyond one of the bounds.

    Pairs without a winner are none of these: each of the others falls to either side like a coin.
    """
    upper = [] if bounds.upper is None else [_at_most(ahead, pairs, bounds.upper)]
    lower = [] if bounds.lower is None else [_at_least(ahead, pairs, bounds.lower)]
    return float(max([*upper, *lower]))


def sign_p_beyond(ahead: int, pairs: int, bounds: Bounds) -> float:
    """Of the null hypothesis that the share lies within the bounds: the same test the other way."""
    upper = [] if bounds.upper is None else [_at_least(ahead, pairs, bounds.upper)]
    lower = [] if bounds.lower is None else [_at_most(ahead, pairs, bounds.lower)]
    return float(min([*upper, *lower]))


def sign_test(pairs: SolvingPairs, bounds: Bounds) -> SignTest:
    """Pairs that are tied, or in which neither solves it, are counted and left out."""
    ahead, informative = len(pairs.ahead), pairs.informative
    p, opposite = sign_p_within(ahead, informative, bounds), sign_p_beyond(ahead, informative, bounds)
    return SignTest(**vars(pairs), p=p, p_opposite=opposite)


def solving_pairs(
    treatment: Mapping[int, Solved | None], control: Mapping[int, Solved | None], *, by_steps: bool
) -> SolvingPairs:
    """Of the seeds that both have: which side is ahead in each. It is the only one that solves the probe; by steps also
    the one that certainly solves it sooner."""
    found = SolvingPairs([], [], [], [])
    for seed in sorted(treatment.keys() & control.keys()):
        one, other = treatment[seed], control[seed]
        if one is None:
            side = found.neither if other is None else found.behind
        elif other is None or (by_steps and one.is_before(other)):
            side = found.ahead
        else:
            side = found.behind if by_steps and other.is_before(one) else found.tied
        side.append(seed)
    return found


def _at_most(count: int, of: int, share: float) -> Any:
    """The probability of so many heads or fewer."""
    return special.bdtr(count, of, share) if of else 1.0


def _at_least(count: int, of: int, share: float) -> Any:
    return special.bdtrc(count - 1, of, share) if of else 1.0


# ---- Examples ------------------------------------------------------------------------------------------------------


def mcnemar_p(only_one: int, only_other: int) -> float:
    """Of the null hypothesis that two classifiers are right equally often, from the examples only one is right on.

    Exact and two-sided: each such example falls to either side like a fair coin.
    """
    differing = only_one + only_other
    return min(1.0, 2 * float(special.bdtr(min(only_one, only_other), differing, 0.5))) if differing else 1.0


# ---- How many seeds ------------------------------------------------------------------------------------------------


def pairs_for_power(distances: Sequence[float], *, level: float) -> int | None:
    """So many pairs show, with a probability of 80 %, that the mean is within bounds that are so far from it, in
    standard deviations. None: it is not within them, or more than 1,000 pairs would be needed."""
    if min(distances) <= 0:
        return None
    pairs = range(LEAST_PAIRS, MOST_SEEDS + 1)
    first = bisect.bisect_left(pairs, True, key=lambda each: power(distances, each, level=level) >= POWER)
    return pairs[first] if first < len(pairs) else None


def power(distances: Sequence[float], pairs: int, *, level: float) -> float:
    """How often so many pairs show it. Of two bounds, at least so often."""
    in_errors = [distance * math.sqrt(pairs) for distance in distances]
    return power_of_t(in_errors, pairs - 1, critical=_quantile(pairs - 1, 1 - level))


def power_of_t(distances: Sequence[float], degrees: int, *, critical: float) -> float:
    """The same of any estimate with a t test, by its distances from the bounds in its own standard errors."""
    missed = [float(special.nctdtr(degrees, distance, critical)) for distance in distances]
    return 1 - sum(filter(math.isfinite, missed))  # far beyond the critical value the series underflows


def distance_seen(pairs: int, *, bounds: int, level: float) -> float:
    """Of the mean from each of so many bounds, in standard deviations: so many pairs show it with a probability of
    80 %."""
    critical = _quantile(pairs - 1, 1 - level)
    return distance_seen_by_t(pairs - 1, bounds=bounds, critical=critical) / math.sqrt(pairs)


def distance_seen_by_t(degrees: int, *, bounds: int, critical: float) -> float:
    """The same of any estimate with a t test, in its own standard errors."""

    def is_seen(distance: float) -> bool:
        return power_of_t([distance] * bounds, degrees, critical=critical) >= POWER

    low, high = 0.0, 1.0
    while not is_seen(high):
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if is_seen(middle) else (middle, high)
    return high


# ---- Tests by name -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairTest:
    """How a measure tests the mean of paired differences against the bounds of a claim."""

    p: Callable[[Sequence[float], Bounds], float]  # this one decides
    p_beside: Callable[[Sequence[float], Bounds], float | None]
    one_sided_bounds: Callable[[Sequence[float], float], tuple[float, float]]
    p_beyond: Callable[[Sequence[float], Bounds], float]  # by which a claim is refuted


PAIR_TESTS = {"paired_t": PairTest(p_within, sign_flip_p_within, one_sided_bounds, p_beyond)}
