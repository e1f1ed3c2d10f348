"""How likely an open claim is to be decided, either way, by the last look, if further pairs are like those seen.

Drawn with fixed seeds: the same pairs have the same chance everywhere. It is asked only to save runs; no error rate
depends on it, because a claim that is given up is never shown or refuted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oelm.analysis.distributions import special
from oelm.analysis.findings import SignTest, Verdict
from oelm.analysis.spending import AnyLevels, t_levels, union_levels
from oelm.claims.kinds import KINDS, Bounds
from oelm.intervals import LEVEL
from oelm.study.declaration import Study

FUTURES = 2000
_SEED = 20260


def chance_to_decide(study: Study, place: int, verdict: Verdict) -> float | None:
    """At one of the looks after this one. None where pairs say nothing about their spread.

    It is held to be shown at the level of a claim that is the last of its family to be shown: the easiest there is.
    """
    looks = tuple(study.looks)
    if verdict.sign_test is not None:
        bounds = KINDS[verdict.hypothesis.kind].bounds(0.0)
        return _of_signs(verdict.sign_test, bounds, looks, place)
    difference = verdict.difference
    if difference is None or not difference.standard_deviation or difference.mean is None:
        return None
    bounds, rates = KINDS[verdict.hypothesis.kind].bounds(verdict.margin or 0.0), verdict.rates
    moved = (bounds, bounds) if rates is None else rates.moved(bounds)
    return chance_of_t(np.array(difference.differences), moved, looks, place)


def chance_of_t(values: np.ndarray, bounds: tuple[Bounds, Bounds], looks: tuple[int, ...], place: int) -> float:
    """The same of the differences that were seen by this look, with the bounds to show it and those to exclude it."""
    drawn = np.random.default_rng(_SEED).standard_normal((FUTURES, looks[-1] - len(values)))
    future = values.mean() + values.std(ddof=1) * drawn
    sample = np.concatenate([np.broadcast_to(values, (FUTURES, len(values))), future], axis=1)
    return _decided_share(sample, bounds, looks, place)


def _decided_share(sample: np.ndarray, bounds: tuple[Bounds, Bounds], looks: tuple[int, ...], place: int) -> float:
    decided = np.zeros(len(sample), dtype=bool)
    for later in range(place + 1, len(looks)):
        decided |= decided_by_t(sample[:, : looks[later]], bounds, t_levels(looks)[later])
    return float(decided.mean())


def decided_by_t(sample: np.ndarray, bounds: tuple[Bounds, Bounds], levels: AnyLevels) -> np.ndarray:
    """Of each row of differences, whether its mean is shown to lie within the first bounds, or beyond one of the
    second."""
    critical = float(-special.stdtrit(sample.shape[1] - 1, levels.at(LEVEL)))
    within, beyond = (np.array([_t(sample, bound) * side for bound, side in _sides(each)]) for each in bounds)
    return np.asarray((within < -critical).all(axis=0) | (beyond > critical).any(axis=0))


def _sides(bounds: Bounds) -> Sequence[tuple[float, int]]:
    """Each bound with the sign by which values beyond it are above zero."""
    upper = [] if bounds.upper is None else [(bounds.upper, 1)]
    lower = [] if bounds.lower is None else [(bounds.lower, -1)]
    return [*upper, *lower]


def _t(sample: np.ndarray, bound: float) -> np.ndarray:
    pairs = sample.shape[1]
    found: np.ndarray = (sample.mean(axis=1) - bound) / (sample.std(axis=1, ddof=1) / np.sqrt(pairs))
    return found


def _of_signs(test: SignTest, bounds: Bounds, looks: tuple[int, ...], place: int) -> float:
    """Further pairs tell with the share of pairs that told, and are ahead with the share of those; half a pair is added
    to each side, so that a few pairs rule nothing out."""
    told = (test.informative + 0.5) / (test.pairs + 1)
    ahead = (len(test.ahead) + 0.5) / (test.informative + 1)
    drawn = np.random.default_rng(_SEED).random((2, FUTURES, looks[-1] - test.pairs))
    tells, leads = drawn[0] < told, drawn[1] < ahead
    share = bounds.lower if bounds.lower is not None else bounds.upper
    decided = np.zeros(FUTURES, dtype=bool)
    for later in range(place + 1, len(looks)):
        further = slice(0, looks[later] - test.pairs)
        informative = test.informative + tells[:, further].sum(axis=1)
        leading = len(test.ahead) + (tells & leads)[:, further].sum(axis=1)
        level = union_levels(looks)[later].at(LEVEL)
        decided |= special.bdtrc(leading - 1, informative, share) <= level
        decided |= special.bdtr(leading, informative, share) <= level
    return float(decided.mean())
