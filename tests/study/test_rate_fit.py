"""The fitted optimum: exact where the loss is quadratic, with an interval that covers it, and a reason where there is
none."""

import math
import random
from statistics import fmean

import pytest

from oelm.study.rate_fit import DIVERGED, EDGE, FLAT, OUTSIDE, Curve, fitted

RATES = [1e-3, 2e-3, 4e-3]


def losses(optimum, curvature=0.3, rates=RATES, seeds=3, spread=0.0, draw=None):
    """By rate and seed: a quadratic in the logarithm, shifted by each seed."""
    draw = draw or random.Random(0)
    shifts = [draw.gauss(0, 0.05) for _ in range(seeds)]
    return {
        rate: [2 + curvature * math.log(rate / optimum) ** 2 + shift + draw.gauss(0, spread) for shift in shifts]
        for rate in rates
    }


def best_of(losses):
    return min(losses, key=lambda rate: fmean(losses[rate]))


@pytest.mark.parametrize("optimum", [1.5e-3, 2e-3, 2.34e-3, 2.8e-3])
@pytest.mark.parametrize("rates", [RATES, [9e-4, 2e-3, 4.4e-3], [5e-4, 1e-3, 2e-3, 4e-3, 8e-3]])
def test_a_quadratic_loss_gives_its_own_minimum(optimum, rates):
    tried = losses(optimum, rates=rates)
    curve = fitted(tried, best_of(tried))
    assert isinstance(curve, Curve)
    assert curve.optimum == pytest.approx(optimum, rel=1e-2)
    assert float(f"{curve.optimum:.3g}") == curve.optimum
    assert curve.low == pytest.approx(optimum) == curve.high  # no spread but the seeds' own
    assert curve.curvature == pytest.approx(0.3)


def test_a_shift_of_a_seed_changes_nothing():
    tried = losses(2.3e-3, spread=0.01)
    shifted = {rate: [own[0] + 0.7, *own[1:]] for rate, own in tried.items()}
    one, other = fitted(tried, 2e-3), fitted(shifted, 2e-3)
    assert (one.optimum, one.low, one.high) == pytest.approx((other.optimum, other.low, other.high))


def test_the_optimum_lies_between_the_neighbours_and_so_does_its_interval():
    draw = random.Random(1)
    for _ in range(200):
        tried = losses(draw.uniform(1e-3, 4e-3), curvature=draw.uniform(0, 0.1), spread=0.05, draw=draw)
        curve = fitted(tried, best_of(tried))
        if isinstance(curve, Curve):
            assert curve.lower <= curve.low <= curve.high <= curve.upper
            assert curve.lower <= curve.optimum <= curve.upper


@pytest.mark.parametrize(
    ("tried", "best", "reason"),
    [
        (losses(1e-4), 1e-3, EDGE),
        (losses(1e-1), 4e-3, EDGE),
        (losses(2e-3) | {4e-3: [3.0, 3.0, math.inf]}, 2e-3, DIVERGED),
        (losses(2e-3, seeds=4) | {4e-3: [3.0, math.inf, math.inf, 3.0]}, 2e-3, DIVERGED),
        ({rate: [2.0, 2.0, 2.0] for rate in RATES}, 2e-3, FLAT),
        # Of the seeds that finished everywhere, another value is the best.
        ({1e-3: [2.0, 2.0, 2.0, 9.0], 2e-3: [2.5, 2.5, 2.5, 0.1], 4e-3: [2.6, 2.6, 2.6, math.inf]}, 2e-3, FLAT),
        ({1e-3: [2.0, 2.0, 2.0, 9.0], 2e-3: [2.1, 2.1, 2.1, 0.1], 4e-3: [4.0, 4.0, 4.0, math.inf]}, 2e-3, None),
        ({1e-3: [2.0, 2.0, 2.0, 9.0], 2e-3: [2.5, 2.5, 2.5, 0.1], 4e-3: [3.1, 3.1, 3.1, math.inf]}, 2e-3, OUTSIDE),
    ],
)
def test_without_a_minimum_between_neighbours_there_is_a_reason(tried, best, reason):
    found = fitted(tried, best)
    assert found == reason if reason else isinstance(found, Curve)


def test_one_diverged_seed_of_many_is_left_out():
    tried = losses(2.3e-3, seeds=4)
    tried[4e-3][2] = math.inf
    assert fitted(tried, 2e-3).optimum == pytest.approx(2.3e-3)


# ---- The interval --------------------------------------------------------------------------------------------------


def coverage(studies, *, shrink=1.0):
    """How often the interval contains the optimum of a quadratic loss, over curvatures and spreads like those stored.

    Shrunk, as a fault that the law must notice.
    """
    draw = random.Random(16)
    covered, fits = 0, 0
    for _ in range(studies):
        optimum = 2e-3 * 2 ** draw.uniform(-0.5, 0.5)
        tried = losses(optimum, draw.uniform(0.1, 0.6), seeds=3, spread=draw.uniform(0.01, 0.025), draw=draw)
        curve = fitted(tried, best_of(tried))
        if isinstance(curve, Curve):
            fits += 1
            middle = math.sqrt(curve.low * curve.high)
            covered += (curve.low / middle) ** shrink * middle <= optimum <= (curve.high / middle) ** shrink * middle
    assert fits > 0.9 * studies
    return covered / fits


def test_the_interval_covers_the_optimum():
    assert coverage(500) >= 0.94


@pytest.mark.trial
def test_the_interval_covers_the_optimum_in_many_studies():
    assert coverage(5000) >= 0.94


def test_an_interval_that_is_too_short_does_not():
    assert coverage(500, shrink=0.5) < 0.9


# ---- Losses with a kink --------------------------------------------------------------------------------------------

FIVE = [5e-4, 1e-3, 2e-3, 4e-3, 8e-3]


def kinked(draw, optimum, rates=FIVE):
    """Convex and lopsided: one side rises much faster than the other, straight or curved."""
    flat, steep = draw.uniform(0.03, 0.15), draw.uniform(0.3, 1.0)
    sides = draw.sample([flat, steep], 2)
    power, spread = draw.choice([1, 1.5, 2]), draw.uniform(0.005, 0.025)

    def loss(rate):
        away = math.log(rate / optimum)
        return 2 + sides[away > 0] * abs(away) ** power

    return {rate: [loss(rate) + draw.gauss(0, spread) for _ in range(3)] for rate in rates}


def kinked_coverage(studies, ends):
    draw, covered, widths = random.Random(3), [], []
    while len(covered) < studies:
        optimum = 2e-3 * 2 ** draw.uniform(-0.5, 0.5)
        tried = kinked(draw, optimum)
        curve = fitted(tried, best_of(tried))
        if isinstance(curve, Curve):
            low, high = ends(curve)
            covered.append(low <= optimum <= high)
            widths.append(math.log2(high / low))
    return fmean(covered), fmean(widths)


def if_convex(curve):
    return curve.convex_low, curve.convex_high


def if_quadratic(curve):
    return curve.low, curve.high


def test_the_interval_of_a_convex_loss_covers_the_optimum_of_a_kinked_one():
    """And it is one: shorter than from neighbour to neighbour, which are two octaves apart."""
    covered, octaves = kinked_coverage(500, if_convex)
    assert covered >= 0.94
    assert octaves < 1.7


@pytest.mark.trial
def test_the_interval_of_a_convex_loss_covers_it_in_many_studies():
    assert kinked_coverage(5000, if_convex)[0] >= 0.94


def test_the_interval_of_a_quadratic_loss_does_not():
    """Which is why there is the other one."""
    assert kinked_coverage(500, if_quadratic)[0] < 0.8


def test_the_interval_of_a_convex_loss_ends_where_the_line_from_beyond_reaches_the_best():
    """A quadratic about 2e-3 without noise: from the value beyond the neighbour the loss falls by 3, from it by 1."""
    curve = fitted(losses(2e-3, rates=FIVE), 2e-3)
    assert if_convex(curve) == pytest.approx((2e-3 * 2 ** (-2 / 3), 2e-3 * 2 ** (2 / 3)))


@pytest.mark.parametrize(
    "tried",
    [
        losses(2e-3),  # nothing was run beyond the neighbours
        losses(2e-3, rates=FIVE) | {5e-4: [math.inf] * 3, 8e-3: [3.0, math.inf, math.inf]},
        losses(2e-3, rates=FIVE) | {5e-4: [2.0] * 3, 8e-3: [2.0] * 3},  # not convex
        dict(zip(FIVE, [[3, 2.4, 2.2], [2.3, 2.9, 2.1], [2.1, 2, 2.2], [2.9, 2.2, 2.2], [2.3, 3.1, 2.4]], strict=True)),
    ],
)
def test_without_a_worse_value_beyond_the_neighbours_it_ends_at_them(tried):
    curve = fitted(tried, 2e-3)
    assert if_convex(curve) == pytest.approx((1e-3, 4e-3))
