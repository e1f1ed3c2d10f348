"""The fitted optimum: exact where the loss is quadratic, and a reason where there is none."""

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


@pytest.mark.parametrize("optimum", [1.5e-3, 2.34e-3])
@pytest.mark.parametrize("rates", [RATES, [9e-4, 2e-3, 4.4e-3], [5e-4, 1e-3, 2e-3, 4e-3, 8e-3]])
def test_a_quadratic_loss_gives_its_own_minimum(optimum, rates):
    tried = losses(optimum, rates=rates)
    curve = fitted(tried, best_of(tried))
    assert isinstance(curve, Curve)
    assert curve.optimum == pytest.approx(optimum, rel=1e-2)
    assert float(f"{curve.optimum:.3g}") == curve.optimum
    assert curve.curvature == pytest.approx(0.3)


def test_a_shift_of_a_seed_changes_nothing():
    tried = losses(2.3e-3, spread=0.01)
    shifted = {rate: [own[0] + 0.7, *own[1:]] for rate, own in tried.items()}
    one, other = fitted(tried, 2e-3), fitted(shifted, 2e-3)
    assert (one.optimum, one.curvature) == pytest.approx((other.optimum, other.curvature))


def test_the_optimum_lies_between_the_neighbours():
    draw = random.Random(1)
    for _ in range(200):
        tried = losses(draw.uniform(1e-3, 4e-3), curvature=draw.uniform(0, 0.1), spread=0.05, draw=draw)
        curve = fitted(tried, best_of(tried))
        if isinstance(curve, Curve):
            assert curve.lower <= curve.optimum <= curve.upper


@pytest.mark.parametrize(
    ("tried", "best", "reason"),
    [
        (losses(1e-4), 1e-3, EDGE),
        (losses(1e-1), 4e-3, EDGE),
        (losses(2e-3) | {4e-3: [3.0, 3.0, math.inf]}, 2e-3, DIVERGED),
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
