"""The statistics agree with scipy and with simulated truth."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from oelm.analysis import statistics
from oelm.core.floors import accuracy_standard_error
from oelm.study.claims.kinds import Bounds

SAMPLES = [np.random.default_rng(seed).normal(0.01, 0.02, size) for seed, size in enumerate((3, 8, 13, 18))]
BOUNDS = (-0.02, 0.0, 0.0488)


def by_seed(values):
    return dict(enumerate(values))


@pytest.mark.parametrize("differences", SAMPLES, ids=len)
def test_the_paired_interval_is_that_of_scipy(differences):
    control = np.random.default_rng(9).normal(2.0, 0.5, len(differences))
    found = statistics.paired_difference(by_seed(control + differences), by_seed(control))
    expected = stats.ttest_rel(control + differences, control)
    interval = expected.confidence_interval(0.95)
    assert found.mean == pytest.approx(differences.mean())
    assert found.standard_deviation == pytest.approx(differences.std(ddof=1))
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


@pytest.mark.parametrize("differences", SAMPLES, ids=len)
@pytest.mark.parametrize("bound", BOUNDS)
def test_one_sided_p_values_are_those_of_scipy(differences, bound):
    below = stats.ttest_1samp(differences, bound, alternative="less")
    above = stats.ttest_1samp(differences, bound, alternative="greater")
    for bounds, expected, other in ((Bounds(None, bound), below, above), (Bounds(bound, None), above, below)):
        assert statistics.p_within(differences, bounds) == pytest.approx(expected.pvalue)
        assert statistics.p_beyond(differences, bounds) == pytest.approx(other.pvalue)
    low, high = statistics.one_sided_bounds(differences, statistics.LEVEL)
    assert high == pytest.approx(below.confidence_interval(0.95).high)
    assert low == pytest.approx(above.confidence_interval(0.95).low)


@pytest.mark.parametrize("differences", SAMPLES, ids=len)
@pytest.mark.parametrize("margin", [0.005, 0.02, 0.0488, 0.2])
def test_equivalence_is_shown_exactly_when_both_bounds_are_within_the_margin(differences, margin):
    low, high = statistics.one_sided_bounds(differences, statistics.LEVEL)
    assert (statistics.p_within(differences, Bounds(-margin, margin)) <= 0.05) == (-margin <= low and high <= margin)
    one, other = (stats.ttest_1samp(differences, side * margin) for side in (1, -1))
    assert statistics.p_within(differences, Bounds(-margin, margin)) >= min(one.pvalue, other.pvalue) / 2


@pytest.mark.parametrize("differences", [sample for sample in SAMPLES if len(sample) < 14], ids=len)
@pytest.mark.parametrize("bound", BOUNDS)
def test_the_sign_flip_test_is_the_exact_permutation_test_of_scipy(differences, bound):
    expected = stats.permutation_test(
        (differences - bound,),
        lambda sample, axis: sample.mean(axis=axis),
        permutation_type="samples",
        alternative="less",
        n_resamples=np.inf,
        vectorized=True,
    )
    assert statistics.sign_flip_p_within(differences, Bounds(None, bound)) == pytest.approx(expected.pvalue)
    assert statistics.sign_flip_p_within(-differences, Bounds(-bound, None)) == pytest.approx(expected.pvalue)


def test_the_sign_flip_test_counts_ties():
    differences = [0.1, 0.1, 0.1, -0.1, 0.3]
    patterns = [
        sum(s * d for s, d in zip(signs, differences, strict=True)) for signs in itertools.product((1, -1), repeat=5)
    ]
    expected = sum(value <= sum(differences) + 1e-12 for value in patterns) / 32
    assert statistics.sign_flip_p_below(differences, 0.0) == expected


def test_the_sign_flip_test_is_exact_up_to_40_pairs_and_refuses_more():
    differences = np.random.default_rng(3).normal(0.0, 1.0, 41)
    assert 0 < statistics.sign_flip_p_below(differences[:40], 0.3) < 1
    assert statistics.sign_flip_p_below(differences, 0.3) is None


@pytest.mark.parametrize("differences", [[], [0.1], [0.1, 0.2], [0.1] * 5, [2.1 - 2.0, 3.1 - 3.0, 4.1 - 4.0]])
def test_too_few_pairs_and_pairs_without_spread_cannot_be_tested(differences):
    assert not statistics.can_be_tested(differences)
    assert statistics.sign_flip_p_below(differences, 1.0) is None


def test_differences_without_spread_have_no_interval():
    found = statistics.paired_difference({0: 2.1, 1: 3.1, 2: 4.1}, {0: 2.0, 1: 3.0, 2: 4.0})
    assert (found.standard_deviation, found.low, found.high) == (0.0, None, None)
    assert found.mean == pytest.approx(0.1)


def test_only_common_seeds_are_paired():
    found = statistics.paired_difference({3: 2.5, 1: 2.0}, {1: 1.5, 2: 9.0, 3: 2.25})
    assert (found.seeds, found.differences) == ([1, 3], [0.5, 0.25])
    assert statistics.paired_difference({0: 1.0}, {1: 1.0}).mean is None


def test_holm_by_hand():
    assert statistics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert statistics.holm([0.6, 0.7]) == [1.0, 1.0]
    assert statistics.holm([]) == []


def test_holm_does_not_depend_on_the_order_and_never_lowers_a_p_value():
    p_values = np.random.default_rng(0).uniform(0, 0.2, 6)
    adjusted = dict(zip(p_values, statistics.holm(p_values), strict=True))
    for order in itertools.permutations(p_values):
        assert statistics.holm(order) == [adjusted[p] for p in order]
    assert all(adjusted[p] >= p for p in p_values)
    assert statistics.holm([0.03]) == [0.03]


@pytest.mark.parametrize(("lower", "upper"), [(None, 0.015), (-0.02, 0.015)])
def test_the_number_of_seeds_gives_the_power_it_promises(lower, upper):
    sample = np.array([0.002, 0.021, -0.006, 0.013])
    ends = [upper - sample.mean()] + ([] if lower is None else [sample.mean() - lower])
    needed = statistics.pairs_for_power([each / sample.std(ddof=1) for each in ends], level=0.05)
    generator = np.random.default_rng(1)

    def power(pairs):
        draws = generator.normal(sample.mean(), sample.std(ddof=1), (4000, pairs))
        error = draws.std(axis=1, ddof=1) / math.sqrt(pairs)
        t_below = (draws.mean(axis=1) - upper) / error
        shown = t_below <= stats.t.ppf(0.05, pairs - 1)
        if lower is not None:
            shown &= (draws.mean(axis=1) - lower) / error >= stats.t.ppf(0.95, pairs - 1)
        return shown.mean()

    assert power(needed) > 0.78
    assert power(needed - 2) < 0.81


def test_no_number_of_seeds_is_named_for_a_mean_on_the_wrong_side_or_a_hopeless_one():
    assert statistics.pairs_for_power([-0.1], level=0.05) is None
    assert statistics.pairs_for_power([0.1, -0.1], level=0.05) is None
    assert statistics.pairs_for_power([0.001], level=0.05) is None


# ---- Examples ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("one", "other"), [(0, 0), (0, 7), (5, 5), (512, 574), (3, 900)])
def test_mcnemar_is_the_exact_two_sided_test_of_a_fair_coin(one, other):
    expected = stats.binomtest(one, one + other, 0.5).pvalue if one + other else 1.0
    assert statistics.mcnemar_p(one, other) == pytest.approx(expected, rel=1e-9)
    assert statistics.mcnemar_p(one, other) == statistics.mcnemar_p(other, one)


def test_mcnemar_errs_as_rarely_as_it_says():
    """Two classifiers that are right equally often, on examples of different difficulty."""
    generator = np.random.default_rng(2490)
    difficulty = generator.uniform(0.4, 1.0, 500)
    rejected = 0
    for _ in range(2000):
        one, other = generator.random((2, 500)) < difficulty
        rejected += statistics.mcnemar_p(int((one & ~other).sum()), int((other & ~one).sum())) <= 0.05
    assert 0.02 < rejected / 2000 <= 0.055


def test_the_originals_gain_is_less_than_its_standard_error():
    one, other = (accuracy_standard_error(share, 2490) for share in (0.7671, 0.7779))
    assert one == pytest.approx(0.0085, abs=5e-5)
    assert math.hypot(one, other) == pytest.approx(0.0118, abs=1e-4)
    assert math.hypot(one, other) > 0.7779 - 0.7671


# ---- Signs, and pairs without spread -------------------------------------------------------------------------------

HALF = Bounds(0.5, None)


@pytest.mark.parametrize("bounds", [HALF, Bounds(None, 0.5), Bounds(0.3, None), Bounds(0.2, 0.8)])
def test_the_sign_test_is_the_exact_binomial_test_of_scipy(bounds):
    for pairs in (1, 5, 8, 20):
        for ahead in range(pairs + 1):
            greater = [] if bounds.lower is None else [stats.binomtest(ahead, pairs, bounds.lower, "greater").pvalue]
            less = [] if bounds.upper is None else [stats.binomtest(ahead, pairs, bounds.upper, "less").pvalue]
            assert statistics.sign_p_within(ahead, pairs, bounds) == pytest.approx(max(greater + less), rel=1e-9)
            other = [] if bounds.lower is None else [stats.binomtest(ahead, pairs, bounds.lower, "less").pvalue]
            other += [] if bounds.upper is None else [stats.binomtest(ahead, pairs, bounds.upper, "greater").pvalue]
            assert statistics.sign_p_beyond(ahead, pairs, bounds) == pytest.approx(min(other), rel=1e-9)
    assert statistics.sign_p_within(0, 0, bounds) == statistics.sign_p_beyond(0, 0, bounds) == 1.0


def test_five_pairs_of_one_sign_are_the_fewest_that_decide():
    assert statistics.LEAST_INFORMATIVE == 5
    assert statistics.sign_p_within(5, 5, HALF) <= 0.05 < statistics.sign_p_within(4, 4, HALF)
    assert [statistics.pairs_of_one_sign(level) for level in (0.5, 0.05, 0.05 / 2, 0.05 / 7)] == [1, 5, 6, 8]


@pytest.mark.parametrize("bounds", [Bounds(-0.02, 0.02), Bounds(None, 0.0), Bounds(0.01, None)])
@pytest.mark.parametrize("difference", [0.0, 0.01, -0.02, 0.3])
def test_pairs_without_spread_are_tested_by_every_pattern_of_their_signs(bounds, difference):
    for pairs in (3, 5, 8):
        differences = [(0.7 + 0.01 * seed + difference) - (0.7 + 0.01 * seed) for seed in range(pairs)]  # with rounding
        sides = [] if bounds.upper is None else [difference - bounds.upper]
        sides += [] if bounds.lower is None else [bounds.lower - difference]
        within, beyond = (
            [_share_as_low(sign * round(side, 9), pairs) for side in sides] for sign in (1, -1)
        )  # of sums as low as that of the pairs
        assert statistics.same_p_within(differences, bounds) == max(within)
        assert statistics.same_p_beyond(differences, bounds) == min(beyond)


def _share_as_low(side, pairs):
    sums = [sum(sign * side for sign in signs) for signs in itertools.product((1, -1), repeat=pairs)]
    return sum(each <= pairs * side for each in sums) / 2**pairs


# ---- Pairs that stand apart ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("pairs", [3, 4, 8])
def test_of_normal_pairs_hardly_any_stands_apart(pairs):
    samples = np.random.default_rng(pairs).standard_normal((40_000, pairs))
    share = statistics.standing_apart(samples, 0.0).any(axis=1).mean()
    assert 0.007 < share < (0.012 if pairs <= 4 else 0.024)
    assert statistics.standing_apart(samples, 2.0).any(axis=1).mean() < 0.012
    assert statistics.standing_apart(samples, 3.0).any(axis=1).mean() < 0.006


@pytest.mark.parametrize("pairs", [3, 4])
def test_one_pair_stands_apart_from_so_many_where_the_exact_test_says_so(pairs):
    """Further from the mean of the others than a further normal value would be, for any of so many pairs."""
    rest = np.linspace(-1.0, 1.0, pairs - 1)
    critical = stats.t.isf(0.01 / (2 * pairs), pairs - 2) * rest.std(ddof=1) * math.sqrt(1 + 1 / (pairs - 1))
    for side in (1, -1):
        rows = np.array([[*rest, side * each * critical] for each in (0.999, 1.001)])
        within, beyond = statistics.standing_apart(rows, 0.0)
        assert not within.any()
        assert beyond.tolist() == [*[False] * (pairs - 1), True]


@pytest.mark.parametrize(("pairs", "least", "most"), [(3, 0.02, 0.04), (6, 0.5, 0.7), (12, 0.98, 1.0)])
def test_a_failure_of_nine_standard_deviations_is_found_among_enough_pairs(pairs, least, most):
    samples = np.random.default_rng(pairs).standard_normal((10_000, pairs))
    samples[:, 0] += 8.7
    found = statistics.standing_apart(samples, 0.0)
    assert least < found[:, 0].mean() < most
    assert found[:, 1:].mean() < 0.01


def test_two_failures_do_not_hide_each_other():
    samples = np.random.default_rng(5).standard_normal((2000, 12))
    samples[:, :2] += 8.7
    assert statistics.standing_apart(samples, 0.0)[:, :2].all(axis=1).mean() > 0.95


def test_what_lies_within_the_least_distance_does_not_stand_apart_and_equal_pairs_do_not():
    pairs = np.array([[0.0, 0.0, 0.0, 0.0, 0.02]])
    assert not statistics.standing_apart(pairs, 0.02).any()
    assert statistics.standing_apart(pairs, 0.0199).tolist() == [[False, False, False, False, True]]
    assert not statistics.standing_apart(np.zeros((1, 5)), 0.0).any()
