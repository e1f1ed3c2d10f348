"""The levels of looks: exact for the t test, valid for any test, growing with the error rate."""

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy import special

from oelm.analysis.spending import (
    LARGEST_LEVEL,
    SMALLEST_LEVEL,
    WITHOUT_LOOKS,
    Levels,
    error_rates,
    interval_level,
    spent,
    t_levels,
    union_levels,
)

PATTERNS = [(4, 6, 8), (3, 5, 8, 12)]
RATES = (0.2, 0.05, 0.0125)
SAMPLES = 100_000


def crossings(looks, levels_at, seed=16) -> list[float]:
    """How often a normal sample on the bound first crosses at each look, if it is tested at these levels."""
    sample = np.random.default_rng(seed).standard_normal((SAMPLES, looks[-1]))
    crossed, found = np.zeros(SAMPLES, dtype=bool), []
    for pairs, level in zip(looks, levels_at, strict=True):
        prefix = sample[:, :pairs]
        t = prefix.mean(axis=1) / prefix.std(axis=1, ddof=1) * math.sqrt(pairs)
        beyond = t > -special.stdtrit(pairs - 1, level)
        found.append(float((beyond & ~crossed).mean()))
        crossed |= beyond
    return found


def is_near(simulated: float, stated: float) -> bool:
    return abs(simulated - stated) < 4 * math.sqrt(stated * (1 - stated) / SAMPLES) + 1 / SAMPLES


@pytest.mark.parametrize("looks", PATTERNS)
def test_a_false_claim_first_crosses_at_each_look_as_often_as_the_spending_says(looks):
    for rate in RATES:
        by_now = list(itertools.accumulate(crossings(looks, [levels.at(rate) for levels in t_levels(looks)])))
        assert all(map(is_near, by_now, [spent(rate, pairs / looks[-1]) for pairs in looks]))


def test_levels_that_forget_the_earlier_looks_are_found_out():
    """The fault that this module exists to prevent: five per cent at every look."""
    assert 0.09 < sum(crossings((4, 6, 8), [0.05] * 3)) < 0.11


@pytest.mark.parametrize("looks", PATTERNS)
def test_signs_of_a_fair_coin_cross_at_any_look_no_more_often_than_stated(looks):
    """Exact tests go by the increments of the spending."""
    heads = np.random.default_rng(16).random((SAMPLES, looks[-1])) < 0.5
    for rate in RATES:
        crossed = np.zeros(SAMPLES, dtype=bool)
        for pairs, levels in zip(looks, union_levels(looks), strict=True):
            crossed |= special.bdtrc(heads[:, :pairs].sum(axis=1) - 1, pairs, 0.5) <= levels.at(rate)
        assert crossed.mean() <= rate + 4 * math.sqrt(rate / SAMPLES)


@pytest.mark.parametrize("looks", PATTERNS)
def test_levels_grow_with_the_error_rate_and_are_its_inverse(looks):
    for levels in (*t_levels(looks), *union_levels(looks)):
        assert all(one < other for one, other in itertools.pairwise(levels.nominal))
        for rate in (1e-6, *RATES):
            assert levels.sequential_p(levels.at(rate)) == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize("looks", PATTERNS)
def test_increments_of_the_spending_add_up_and_the_exact_levels_are_never_stricter(looks):
    for rate in error_rates():
        assert sum(levels.at(rate) for levels in union_levels(looks)) == pytest.approx(rate, rel=1e-4)
    for exact, union in zip(t_levels(looks), union_levels(looks), strict=True):
        assert all(one >= other * (1 - 1e-3) for one, other in zip(exact.nominal, union.nominal, strict=True))
        assert exact.at(0.05) < 0.05


def test_what_is_spent_is_the_function_of_lan_and_demets():
    """At a half and three quarters of the pairs, of five per cent: 0.0056 and 0.0236, as textbooks print it."""
    normal = NormalDist()
    for rate in (0.05, 0.01):
        for share in (0.25, 0.5, 0.75, 1.0):
            expected = 2 * (1 - normal.cdf(normal.inv_cdf(1 - rate / 2) / math.sqrt(share)))
            assert spent(rate, share) == pytest.approx(expected, rel=1e-9)
    assert [round(spent(0.05, share), 4) for share in (0.5, 0.75)] == [0.0056, 0.0236]


def test_a_single_look_is_no_look_at_all():
    (levels,) = t_levels((8,))
    assert all(levels.at(rate) == pytest.approx(rate) for rate in RATES)
    assert interval_level([], 5) == 0.05
    assert interval_level([8], 8) == pytest.approx(0.05)


def test_p_values_beyond_the_table_decide_nothing_or_are_the_smallest_of_it():
    levels: Levels = t_levels((4, 6, 8))[1]
    assert levels.sequential_p(0.9) == 1.0
    assert levels.sequential_p(0.0) == pytest.approx(SMALLEST_LEVEL)
    assert levels.sequential_p(levels.nominal[-1]) == pytest.approx(LARGEST_LEVEL)


def test_there_is_no_interval_between_looks():
    assert interval_level([4, 6, 8], 5) is None
    assert interval_level([4, 6, 8], 4) < interval_level([4, 6, 8], 8) < 0.05


def test_without_looks_every_level_is_itself_to_the_last_bit():
    assert WITHOUT_LOOKS.at(0.0375) == WITHOUT_LOOKS.sequential_p(0.0375) == 0.0375
