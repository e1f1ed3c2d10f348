"""Laws of the line through sizes: what it is on exact points, and how often its intervals hold, by simulation.

A simulated study has the seeds of a real one: a part that a seed has at every size, a part that a size has in every
seed (its rate fits it badly), and what is left. Only the second makes an interval that counts runs too narrow.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from statistics import fmean

import numpy as np
import pytest

from oelm.analysis.findings import PairedDifference, SizePoint
from oelm.analysis.lines import Line, line_through, sideways
from oelm.analysis.scale import line_of
from oelm.core.intervals import LEVEL
from oelm.study.claims.kinds import KINDS

MILLIONS = (0.3, 0.6, 1.3, 3.0, 6.5)  # parameters
PLACES = [math.log2(each) for each in MILLIONS]
BUDGETS = [math.log2(each) for each in (0.6, 1.2, 2.5, 5.0)]
SLOPE, LEVEL_AT_ZERO = 0.012, 0.05
SEEDS = 4
STUDIES = [500, pytest.param(5000, marks=pytest.mark.trial)]
Runs = list[list[float]]  # by size, of its seeds


def simulated(
    studies: int, places: list[float], *, slope: float = SLOPE, of_sizes: float = 0.01, planted: float = 0.0
) -> Iterator[Runs]:
    """Differences by size and seed. `planted` is added to one size of each study, either way."""
    draw = random.Random(20260)
    for _ in range(studies):
        of_seeds = [draw.gauss(0, 0.02) for _ in range(SEEDS)]
        shifts = [draw.gauss(0, of_sizes) for _ in places]
        shifts[draw.randrange(len(places))] += draw.choice([-planted, planted])
        yield [
            [LEVEL_AT_ZERO + slope * place + shift + seed + draw.gauss(0, 0.006) for seed in of_seeds]
            for place, shift in zip(places, shifts, strict=True)
        ]


def line(places: list[float], runs: Runs) -> Line:
    found = line_through(places, [fmean(of_size) for of_size in runs])
    assert found is not None
    return found


def share(covered: list[bool]) -> float:
    return sum(covered) / len(covered)


def least(studies: int) -> float:
    """What a share of 95 % stays above by chance, but for one time in a thousand."""
    return 0.95 - 3.1 * math.sqrt(0.95 * 0.05 / studies)


# ---- On exact points -----------------------------------------------------------------------------------------------


def test_a_line_goes_through_points_that_lie_on_one():
    exact = line_through([0, 1, 3, 4], [1, 3, 7, 9])
    assert exact is not None
    assert exact.slope == pytest.approx(2)
    assert exact.at(2) == pytest.approx(5)
    assert exact.deviation == pytest.approx(0)


def test_one_place_or_two_give_no_line():
    assert line_through([1, 2], [0, 1]) is None
    assert line_through([1, 1, 2, 2], [0, 1, 2, 3]) is None  # four runs, two sizes
    assert line_through([1, 2, 3], [0, 1, 2]) is not None


def test_a_line_that_lies_beside_another_is_as_far_beside_it_everywhere():
    falling = [8.0, 7.0, 6.0, 5.0]
    one, other = (line_through(BUDGETS, heights) for heights in ([each + 0.5 for each in falling], falling))
    assert one
    assert other
    for place in BUDGETS:
        distance, *_ = sideways(one, other, place)
        assert other.at(place) == pytest.approx(one.at(place + distance))


def test_a_line_that_may_be_level_is_at_no_known_distance():
    level, other = line_through([0, 1, 2], [1.0, 0.9, 1.0]), line_through([0, 1, 2], [1.0, 0.5, 0.0])
    assert level
    assert other
    assert sideways(level, other, 1.0)[1:] == (None, None)


# ---- By simulation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("studies", STUDIES)
@pytest.mark.parametrize(("of_sizes", "planted"), [(0.0, 0.0), (0.03, 0.0), (0.005, 0.05)])
def test_the_interval_of_a_slope_contains_it_as_often_as_it_says(studies, of_sizes, planted):
    covered = []
    for runs in simulated(studies, PLACES, of_sizes=of_sizes, planted=planted):
        low, high = line(PLACES, runs).slope_bounds(LEVEL / 2)
        covered.append(low <= SLOPE <= high)
    assert share(covered) >= least(studies)
    assert planted or share(covered) <= 0.98  # and is no wider than it must be


@pytest.mark.parametrize("places", [PLACES[:3], BUDGETS])
def test_three_sizes_and_four_are_enough_for_an_interval_that_holds(places):
    intervals = [line(places, runs).slope_bounds(LEVEL / 2) for runs in simulated(1000, places)]
    assert least(1000) <= share([low <= SLOPE <= high for low, high in intervals]) <= 0.98


@pytest.mark.parametrize("studies", STUDIES)
@pytest.mark.parametrize("kind", ["shrinks", "grows", "holds"])
def test_a_claim_that_is_just_wrong_is_seldom_shown(studies, kind):
    """At the edge of its bounds: error at most 5 %."""
    margin = 0.01
    bounds = KINDS[kind].bounds(margin)
    edge = bounds.upper if bounds.upper is not None else bounds.lower
    runs = simulated(studies, PLACES, slope=edge, of_sizes=0.002)
    shown = share([line(PLACES, each).slope_p(bounds) <= LEVEL for each in runs])
    assert shown <= 0.05 + 3.1 * math.sqrt(0.05 * 0.95 / studies)


@pytest.mark.parametrize("millions", [1.0, 25.0])
@pytest.mark.parametrize("studies", STUDIES)
def test_a_further_size_lies_where_it_is_predicted_as_often_as_that_says(studies, millions):
    further = [*PLACES, math.log2(millions)]
    covered = []
    for runs in simulated(studies, further):
        low, high = line(PLACES, runs[:-1]).prediction(further[-1])
        covered.append(low <= fmean(runs[-1]) <= high)
    assert least(studies) <= share(covered) <= 0.98


# ---- Carried rates -------------------------------------------------------------------------------------------------

SIZES_TUNED = [(PLACES, 3), (range(6), 4), pytest.param(range(8), 6, marks=pytest.mark.trial)]  # the first so many


def at_carried_rates(
    places: Sequence[float], tuned: int, studies: int, *, mistuned: float, curvature: float, noise: float, ratio: float
) -> np.ndarray:
    """Differences of studies by size, the last of them not a part of the line, of arms that do not differ.

    The rate of a tuned size is wrong by so many octaves, and the others lie on the line through those; the loss is a
    parabola of the rate, for one arm so many times as sharp as for the other.
    """
    draw = np.random.default_rng(29)
    line = np.stack([np.ones(len(places)), np.asarray(places, dtype=float)], axis=1)
    carry = line @ np.linalg.pinv(line[:tuned])
    differences = draw.normal(0, noise, (studies, len(places)))
    for sharpness in (ratio, -1.0):
        wrong = draw.normal(0, mistuned, (studies, tuned))
        octaves = np.concatenate([wrong, (wrong @ carry.T)[:, tuned:]], axis=1)
        differences += sharpness * curvature * octaves**2
    return differences


def points_at(places: Sequence[float], values: Sequence[float], tuned: int) -> list[SizePoint]:
    return [
        SizePoint(
            f"size{number}", "frozen", "trained", {"tokens": 2.0**place},
            PairedDifference([0], [value], value, None, None, None), is_whole=True, is_carried=number >= tuned,
        )
        for number, (place, value) in enumerate(zip(places, values, strict=True))
    ]  # fmt: skip


@pytest.mark.parametrize("studies", [1000, pytest.param(5000, marks=pytest.mark.trial)])
@pytest.mark.parametrize("ratio", [1.0, 3.0])
@pytest.mark.parametrize(("mistuned", "curvature", "noise"), [(0.1, 0.1, 0.005), (0.5, 0.2, 0.002)])
@pytest.mark.parametrize(("places", "tuned"), SIZES_TUNED)
def test_carried_rates_show_no_slope_that_is_not_there(places, tuned, mistuned, curvature, noise, ratio, studies):
    """Neither that the cost grows nor that it shrinks, in more than 6 of 100 studies; and a further size, at rates that
    are carried too, lies where it is forecast."""
    further = [*places, 2 * places[-1] - places[-2]]
    drawn = at_carried_rates(further, tuned, studies, mistuned=mistuned, curvature=curvature, noise=noise, ratio=ratio)
    lines = [line_of(points_at(places, values[:-1], tuned), "tokens") for values in drawn]
    by_chance = 3.1 * math.sqrt(0.06 * 0.94 / studies)
    for kind in ("grows", "shrinks"):
        bounds = KINDS[kind].bounds(0.0)
        assert share([each.slope_p(bounds) <= LEVEL for each in lines]) <= 0.06 + by_chance
    predicted = [each.prediction(further[-1]) for each in lines]
    covered = [low <= values[-1] <= high for (low, high), values in zip(predicted, drawn, strict=True)]
    assert share(covered) >= least(studies)


def test_carried_rates_that_counted_like_tuned_ones_would_show_slopes():
    """What the lost degrees of freedom are there to prevent."""
    drawn = at_carried_rates(PLACES, 3, 1000, mistuned=0.3, curvature=0.05, noise=0.01, ratio=1.0)
    lines = [line_of(points_at(PLACES, values, len(PLACES)), "tokens") for values in drawn]
    assert share([each.slope_p(KINDS["grows"].bounds(0.0)) <= LEVEL for each in lines]) > 0.12


@pytest.mark.parametrize(("sizes", "carried", "degrees"), [(5, 0, 3), (5, 2, 1), (6, 2, 1), (8, 2, 3), (5, 3, 1)])
def test_a_carried_size_counts_no_degree_of_freedom(sizes, carried, degrees):
    found = line_through(range(sizes), range(sizes), carried=carried)
    assert found is not None
    assert found.degrees == degrees


# ---- Two laws ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("studies", STUDIES)
def test_the_interval_of_the_distance_between_two_laws_contains_it(studies):
    """Of losses that fall with the budget: the same budget, more of it, and what both arms share of a budget."""
    exponent, beside = -0.08, 0.7  # doublings
    draw = random.Random(5)
    covered = []
    for _ in range(studies):
        shared = [draw.gauss(0, 0.004) for _ in BUDGETS]
        control, treated = (
            [
                exponent * (place - more) + of_both + draw.gauss(0, 0.003)
                for place, of_both in zip(BUDGETS, shared, strict=True)
            ]
            for more in (0.0, beside)
        )
        one, other = line_through(BUDGETS, treated), line_through(BUDGETS, control)
        assert one
        assert other
        _, low, high = sideways(one, other, BUDGETS[1])
        covered.append(low is None or high is None or low <= beside <= high)
    assert share(covered) >= least(studies) - 0.01
