"""How much of an error rate each look at a growing sample may spend, and which nominal level of its test that allows.

Spending is of the O'Brien-Fleming type (Lan and DeMets): little early, nearly all at the end. For the paired t test the
levels are exact under a normal distribution: the t statistics of prefixes of one sample are a Markov chain, which is
followed step by step over a fine grid. For every other test, increments of the spending function are its levels, which
is valid for any test (union bound). Nothing is drawn at random, so the same looks have the same levels everywhere.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from oelm.analysis.distributions import special
from oelm.core.intervals import LEVEL

LARGEST_LEVEL = 0.3  # below it every level grows with the error rate (z > 1); a p-value beyond it decides nothing
SMALLEST_LEVEL = 1e-7
_LEVELS = 96  # of the table between the two
# The grid, in standard normal scores of the t statistic. Below it a path is as good as lost, above it all have crossed.
_LOWEST, _HIGHEST, _CELLS = -4.0, 7.0, 320
_FINEST = 1e-11  # of probabilities: below it the grid ends, and earlier looks hardly matter


def spent(level: float, share: float) -> float:
    """Of an error rate, after a share of the last number of pairs."""
    return float(2 * special.ndtr(-_score(level) / math.sqrt(share)))


def _score(level: float) -> float:
    """Two-sided: what a standard normal exceeds in size with this probability."""
    return float(-special.ndtri(level / 2))


@dataclass(frozen=True)
class Levels:
    """The nominal one-sided level of a test at one look, for any error rate over all looks, and the other way."""

    error_rates: tuple[float, ...]  # increasing
    nominal: tuple[float, ...]  # the same

    def at(self, error_rate: float) -> float:
        """The level at this look of a test that errs so often over all looks."""
        return float(special.ndtr(-np.interp(-special.ndtri(error_rate), self._rate_scores, self._nominal_scores)))

    def sequential_p(self, p: float) -> float:
        """The smallest error rate over all looks at which a p-value of this look is enough; 1 beyond the largest."""
        if p > self.nominal[-1]:
            return 1.0
        score = -special.ndtri(max(p, self.nominal[0]))
        return float(special.ndtr(-np.interp(score, self._nominal_scores, self._rate_scores)))

    @cached_property
    def _rate_scores(self) -> np.ndarray:
        return _scores_of(self.error_rates)

    @cached_property
    def _nominal_scores(self) -> np.ndarray:
        return _scores_of(self.nominal)


def _scores_of(probabilities: tuple[float, ...]) -> np.ndarray:
    """Of increasing probabilities: increasing too, so the last one's comes first."""
    scores: np.ndarray = -special.ndtri(np.array(probabilities))[::-1]
    return scores


@dataclass(frozen=True)
class Always:
    """Of a study without looks: a level is itself."""

    def at(self, error_rate: float) -> float:
        return error_rate

    def sequential_p(self, p: float) -> float:
        return p


AnyLevels = Levels | Always
WITHOUT_LOOKS = Always()


def error_rates() -> list[float]:
    """Of the table, increasing: evenly spaced in their scores."""
    scores = np.linspace(_score(SMALLEST_LEVEL), _score(LARGEST_LEVEL), _LEVELS)
    return [float(2 * special.ndtr(-score)) for score in scores]


@lru_cache(maxsize=64)
def union_levels(looks: tuple[int, ...]) -> tuple[Levels, ...]:
    """For each look, what its share of the spending allows any test whatever came before."""
    return _transposed([_increments(rate, looks) for rate in error_rates()])


@lru_cache(maxsize=64)
def t_levels(looks: tuple[int, ...]) -> tuple[Levels, ...]:
    """For each look, what it allows the one-sided t test after so many pairs."""
    chain = _Chain(looks)
    return _transposed([chain.levels(_increments(rate, looks)) for rate in error_rates()])


def interval_level(looks: Sequence[int], pairs: int) -> float | None:
    """What a two-sided interval of a mean difference may leave out, so that those of all looks hold at once; None
    between looks."""
    if not looks:
        return LEVEL
    return 2 * t_levels(tuple(looks))[list(looks).index(pairs)].at(LEVEL / 2) if pairs in looks else None


def _increments(error_rate: float, looks: tuple[int, ...]) -> list[float]:
    by_now = [spent(error_rate, look / looks[-1]) for look in looks]
    return [after - before for before, after in zip([0.0, *by_now], by_now, strict=False)]


def _transposed(by_rate: list[list[float]]) -> tuple[Levels, ...]:
    rates = tuple(error_rates())
    return tuple(Levels(rates, tuple(nominal)) for nominal in zip(*by_rate, strict=True))


# ---- The t statistics of one growing sample ------------------------------------------------------------------------


class _Chain:
    """From look to look, pair by pair, under the null hypothesis that the mean lies on the bound.

    The state after n pairs is the sum over the root of n times the sum of squares, from -1 to 1: what a t statistic is
    a function of. Given it, the next state depends on one further value over the root of the sum of squares, and that
    is Student-t with n degrees of freedom over the root of n, whatever the state and however it was reached.
    """

    def __init__(self, looks: tuple[int, ...]) -> None:
        self.looks = looks
        self.edges = np.linspace(_LOWEST, _HIGHEST, _CELLS + 1)
        middles = (self.edges[1:] + self.edges[:-1]) / 2
        self.kernels: list[np.ndarray] = []  # between looks: from a cell to beyond each edge
        for before, after in itertools.pairwise(looks):
            kernel = np.eye(_CELLS)
            for pairs in range(before, after):
                beyond = _beyond(_states(middles, pairs), _states(self.edges, pairs + 1), pairs)
                kernel = kernel @ beyond if pairs == after - 1 else kernel @ (beyond[:, :-1] - beyond[:, 1:])
            self.kernels.append(kernel)

    def levels(self, increments: list[float]) -> list[float]:
        """Nominal ones, so that a path crosses first at each look with the probability given."""
        first, *rest = increments
        found = [first]
        beyond = special.ndtr(-self.edges)
        for kernel, increment in zip(self.kernels, rest, strict=True):
            beyond = self._not_crossed(beyond, -special.ndtri(found[-1])) @ kernel
            exact = float(special.ndtr(-self._score_at(beyond, increment))) if increment > _FINEST else 0.0
            found.append(max(increment, exact))  # which is valid anyway; far out the grid is up to 2 % too strict
        return found

    def _not_crossed(self, beyond: np.ndarray, score: float) -> np.ndarray:
        """The mass of each cell as far as it lies below a score."""
        kept = np.clip((score - self.edges[:-1]) / np.diff(self.edges), 0.0, 1.0)
        mass: np.ndarray = kept * (beyond[:-1] - beyond[1:])
        return mass

    def _score_at(self, beyond: np.ndarray, probability: float) -> float:
        """Beyond which so much lies, between edges by the logarithm."""
        logarithms = np.log(np.maximum(beyond, 1e-300))
        return float(np.interp(-math.log(probability), -logarithms, self.edges))


def _states(scores: np.ndarray, pairs: int) -> np.ndarray:
    """Where the t statistic of so many pairs has a standard normal's score."""
    t = -special.stdtrit(pairs - 1, special.ndtr(-scores))
    states: np.ndarray = t / np.sqrt(pairs - 1 + t * t)
    return states


def _beyond(states: np.ndarray, edges: np.ndarray, pairs: int) -> np.ndarray:
    """The probability to get from each state (rows) beyond each edge (columns) by one more pair.

    With the value as a tangent: sqrt(n) c cos(phi) + sin(phi) > sqrt(n + 1) y, a cosine around its peak.
    """
    along, wanted = math.sqrt(pairs) * states[:, None], math.sqrt(pairs + 1) * edges[None, :]
    peak = np.arctan2(1.0, along)
    reach = np.arccos(np.clip(wanted / np.sqrt(1 + along * along), -1.0, 1.0))
    found = _share_below(peak + reach, pairs) - _share_below(peak - reach, pairs)
    around = np.maximum(0.0, _share_below(peak + reach - 2 * math.pi, pairs))  # past the end, from the other side
    total: np.ndarray = found + around
    return total


def _share_below(angle: np.ndarray, pairs: int) -> np.ndarray:
    within = np.clip(angle, -math.pi / 2, math.pi / 2)
    below: np.ndarray = special.stdtr(pairs, math.sqrt(pairs) * np.tan(within))
    return below
