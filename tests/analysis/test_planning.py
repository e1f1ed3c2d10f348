"""What a plan promises is what a simulation finds, and its numbers are those of the runs it is made from."""

import itertools
import math

import numpy as np
import pytest
from scipy import special

from oelm.analysis import statistics
from oelm.analysis.lines import line_through
from oelm.analysis.planning import pooled, prospect_of, spread_of
from oelm.core.accounting import training_flops
from oelm.machine.errors import UserError
from oelm.study.claims.kinds import KINDS
from oelm.study.plan import planned
from oelm.study.shelf import Shelf
from sized_studies import STEPS, sized_study
from stored_runs import hypothesis, small_classification, small_probes, small_study, solving_claim, store_study

FROZEN = "frozen_head_orthogonal"
CLAIMS = [
    hypothesis(),
    hypothesis("better", control="frozen_normal", varies=["start", "scale"]),
    hypothesis("equivalent", treatment="trained_head_orthogonal", varies=["start", "scale"], confirmatory=False),
]


def study_of(**changes):
    return small_study(seeds=list(range(8)), hypotheses=CLAIMS, **changes)


@pytest.fixture
def nothing(tmp_path):
    return Shelf(tmp_path)


def test_spread_is_pooled_over_samples_with_means_of_their_own():
    spread = pooled([[1.0, 2.0, 3.0], [10.0, 14.0], [5.0], []])
    assert spread.deviation == pytest.approx(math.sqrt((2 + 8) / 3))
    assert (spread.comparisons, spread.degrees_of_freedom) == (2, 3)
    assert (spread.least, spread.most) == pytest.approx((1.0, math.sqrt(8)))
    assert pooled([[1.0], []]) is None
    assert pooled([[2.0, 2.0, 2.0]]) is None


def test_spread_of_finished_runs_is_that_of_their_pairs(tmp_path):
    """Each pair of arms counts once, whatever claims are about it, and what a seed does to both arms does not."""
    claims = [hypothesis(), hypothesis("better"), hypothesis("better", name="other", treatment="frozen_normal")]
    study = small_study(seeds=[0, 1, 2], hypotheses=claims)
    own = {FROZEN: [0.0, 0.01, 0.02], "frozen_normal": [0.0, 0.03, 0.06]}
    shelf = store_study(study, tmp_path, lambda arm, seed, *_: 2.0 + 0.5 * seed + own.get(arm, [0.0] * 3)[seed])
    spread = spread_of(study, planned(study, shelf))
    assert spread.deviation == pytest.approx(math.sqrt((0.01**2 + 0.03**2) / 2))
    assert (spread.comparisons, spread.degrees_of_freedom) == (2, 4)
    like = prospect_of(study_of(), Shelf(tmp_path / "none"), like=(study, shelf))
    assert (like.spread, like.spread_from) == (spread, "small")
    assert prospect_of(study, shelf).spread == spread


@pytest.mark.parametrize("deviation", [3.0, 6.0])
def test_the_seeds_of_a_plan_show_a_claim_in_four_studies_of_five_and_one_fewer_does_not(nothing, deviation):
    drawn = np.random.default_rng(16).standard_normal((100_000, 60))
    for claim in prospect_of(study_of(), nothing, deviation=deviation).claims[:2]:
        distance = claim.assumed / math.log1p(deviation / 100)
        enough, fewer = claim.seeds_needed, claim.seeds_needed - 1
        for pairs in (enough, fewer):
            sample = drawn[:, :pairs]
            t = (sample.mean(axis=1) - distance) / sample.std(axis=1, ddof=1) * math.sqrt(pairs)
            share = float((special.stdtr(pairs - 1, t) <= claim.level).mean())
            assert share == pytest.approx(statistics.power([distance], pairs, level=claim.level), abs=0.005)
        at = (statistics.power([distance], pairs, level=claim.level) for pairs in (enough, fewer))
        assert next(at) >= 0.8 > next(at)


def test_the_level_is_what_holm_leaves_a_claim_at_worst(nothing):
    assert [claim.level for claim in prospect_of(study_of(), nothing).claims] == [0.025, 0.025, 0.05]


def test_the_smallest_difference_that_is_seen_needs_just_the_seeds_of_the_study(nothing):
    study = study_of()
    first = prospect_of(study, nothing, deviation=3.0).claims[0]
    seen = 100 * math.expm1(first.seen)
    again, less = (prospect_of(study, nothing, deviation=3.0, difference=seen * by).claims[0] for by in (1.001, 0.98))
    assert (again.seeds_needed, again.power) == (8, pytest.approx(0.8, abs=0.002))
    assert less.seeds_needed > 8
    assert first.seen < first.seen_by_looks


def test_the_spread_that_a_claim_bears_is_the_one_with_which_it_is_shown_so_often(nothing):
    study = study_of()
    for place in range(len(CLAIMS)):
        borne = prospect_of(study, nothing).claims[place].deviation_borne
        claim = prospect_of(study, nothing, deviation=100 * math.expm1(borne)).claims[place]
        assert claim.power == pytest.approx(0.8, abs=1e-3)


def test_without_any_spread_differences_are_in_its_units(nothing):
    prospect = prospect_of(study_of(), nothing)
    assert prospect.spread is None
    for claim in prospect.claims:
        assert (claim.seeds_needed, claim.power) == (None, None)
        assert 0.5 < claim.seen < 2
        assert 4 <= claim.seeds_by_looks <= 8


def test_looks_never_cost_more_and_cost_less_the_clearer_the_answer(nothing):
    for looks in ([], [3, 8], [4, 5, 6, 7, 8]):
        study, costs = study_of(looks=looks), []
        for deviation in (8.0, 2.0, 0.5):
            every_seed, by_looks = prospect_of(study, nothing, deviation=deviation).costs
            assert by_looks.final_runs <= every_seed.final_runs == 5 * 8
            costs.append(by_looks.final_runs)
        assert costs == sorted(costs, reverse=True)
        assert costs[-1] < costs[0]


def test_a_study_with_too_few_seeds_for_a_look_has_none(nothing):
    prospect = prospect_of(small_study(seeds=[0, 1], hypotheses=CLAIMS), nothing, deviation=2.0)
    assert prospect.looks is None
    assert (prospect.claims[0].seen, prospect.claims[0].power) == (None, None)
    assert prospect.claims[0].seeds_needed > 2
    assert [cost.looks for cost in prospect.costs] == [()]


def test_the_cost_of_a_grid_and_every_seed_is_that_of_the_runs(tmp_path):
    tuning = {"grid": {"learning_rate": [5e-4, 1e-3, 2e-3, 4e-3]}, "seeds": [1000, 1001], "extend": 0}
    study = study_of(tuning=tuning)

    def loss(arm, seed, stage, point):
        return 2.0 + abs(math.log(dict(point)["training.learning_rate"] / 1e-3)) / 4 + 0.001 * (seed % 3)

    shelf = store_study(study, tmp_path, loss)
    plan, costs = planned(study, shelf), prospect_of(study, shelf).costs
    assert [(cost.tuning, bool(cost.looks), cost.is_declared) for cost in costs] == [
        ("grid", False, True), ("grid", True, False), ("halving", False, False), ("halving", True, False),
    ]  # fmt: skip
    whole, _, halving, _ = costs
    assert (whole.tuning_runs, whole.final_runs) == (len(plan.tuning), len(plan.final))
    assert whole.flops == pytest.approx(sum(training_flops(run.resolved_run) for run in plan.runs))
    assert whole.seconds == pytest.approx(sum(run.stored.result["wall_seconds"] for run in plan.runs))
    # The best, and both beside it at 0.17 nats, are within the margin of 0.2: a quarter of a run of four, then three.
    assert halving.tuning_runs == 5 * 2 * (4 + 3)
    assert halving.flops == pytest.approx(whole.flops)


def test_without_finished_tuning_half_of_the_values_go_on(nothing):
    tuning = {"grid": {"learning_rate": [5e-4, 1e-3, 2e-3, 4e-3]}, "seeds": [1000, 1001, 1002]}
    plain, fitted = (
        prospect_of(study_of(tuning=tuning | more), nothing).costs[2].tuning_runs / (5 * 3)
        for more in ({}, {"choose": "fitted"})
    )
    assert (plain, fitted) == (4 + 2, 4 + 3)


def test_without_data_and_runs_the_flops_are_not_known(nothing):
    assert {(cost.flops, cost.seconds) for cost in prospect_of(study_of(), nothing).costs} == {(None, None)}


def test_claims_about_solving_need_pairs_that_tell(nothing):
    study = small_probes(hypotheses=[solving_claim()])
    prospect = prospect_of(study, nothing)
    (claim,) = prospect.claims
    assert (claim.least_telling, claim.seeds_needed, claim.seen) == (5, None, None)
    assert {cost.final_runs for cost in prospect.costs} == {16}


def test_with_looks_fewer_pairs_of_one_sign_show_nothing(nothing):
    """Five of five reach 1/32, which none of the looks allows: at most 0.026."""
    study = small_probes(hypotheses=[solving_claim()], looks=[4, 6, 8])
    assert [claim.least_telling for claim in prospect_of(study, nothing).claims] == [6]


def test_claims_about_scale_are_of_the_family_and_their_arms_run_every_seed(nothing):
    """The values of the largest width follow from those of the others; no claim about scale compares budgets."""
    tuned = ["width16", "width32", "width64", "steps80"]
    tuning = {"grid": {"learning_rate": [5e-4, 1e-3]}, "seeds": [1000], "at": tuned}
    claims = [hypothesis("grows", over="width"), hypothesis(size="steps80")]
    sizes = {"width": [16, 32, 64, 96], "steps": [80]}
    study = sized_study(seeds=list(range(8)), sizes=sizes, main_size=None, hypotheses=claims, tuning=tuning)
    prospect = prospect_of(study, nothing, deviation=0.5)
    assert [(claim.name, claim.level) for claim in prospect.claims] == [("grows", 0.025), ("not_worse", 0.025)]
    every_seed, by_looks = prospect.costs
    assert (every_seed.tuning_runs, every_seed.final_runs) == (2 * 4 * 2, 2 * 5 * 8)
    assert 2 * 4 * 8 + 2 * 4 <= by_looks.final_runs < every_seed.final_runs


@pytest.mark.parametrize("at", [None, ["steps20", "steps40", "steps80"]])
def test_a_slope_that_a_plan_says_is_seen_is_shown_in_four_studies_of_five(nothing, at):
    """Simulated through the line itself, with and without carried rates; and the seeds of the plan are enough."""
    tuning = {"grid": {"learning_rate": [5e-4, 1e-3]}, "seeds": [1000], "at": at} if at else None
    claims = [hypothesis("grows", over="steps"), hypothesis("holds", over="steps", margin_percent=3)]

    def claims_with(seeds):
        study = sized_study(
            seeds=list(range(seeds)), sizes={"steps": STEPS}, main_size="steps40", hypotheses=claims, tuning=tuning
        )
        return prospect_of(study, nothing, deviation=2.0).claims

    found, carried = claims_with(6), 1 if at else 0
    assert [(claim.per, claim.sizes, claim.degrees_of_freedom) for claim in found] == [("tokens", 4, 2 - carried)] * 2
    draw, places = np.random.default_rng(8), [math.log2(steps) for steps in STEPS]

    def share(slope, bounds, level):
        noise = draw.normal(0, math.log1p(0.02) / math.sqrt(6), (4000, len(places)))
        lines = [line_through(places, slope * np.array(places) + each, carried=carried) for each in noise]
        return np.mean([each.slope_p(bounds) <= level for each in lines])

    grows, holds = found
    within, margin = KINDS["holds"].bounds(math.log1p(0.03)), math.log1p(0.03)
    assert share(grows.assumed, KINDS["grows"].bounds(0.0), grows.level) == pytest.approx(grows.power, abs=0.03)
    assert share(margin - holds.assumed, within, holds.level) >= holds.power - 0.03  # of two bounds, at least so often
    assert share(grows.seen, KINDS["grows"].bounds(0.0), grows.level) == pytest.approx(0.8, abs=0.03)
    assert claims_with(grows.seeds_needed)[0].power >= 0.8


def test_a_contrast_varies_as_two_independent_differences_do(nothing):
    claims = [hypothesis("contrast", size="steps80", against="steps20"), hypothesis("better", size="steps80")]
    study = sized_study(seeds=list(range(8)), sizes={"steps": STEPS}, main_size="steps40", hypotheses=claims)
    for deviation in (None, 2.0):
        contrast, one_size = prospect_of(study, nothing, deviation=deviation).claims
        assert contrast.seen == pytest.approx(math.sqrt(2) * one_size.seen)
    every_seed, by_looks = prospect_of(study, nothing, deviation=0.1).costs
    assert every_seed.final_runs - by_looks.final_runs > 4 * 3  # looks end the seeds of both sizes


def test_the_runs_of_another_study_must_say_something_about_this_one(tmp_path, nothing):
    other = small_classification(hypotheses=[])
    with pytest.raises(UserError, match="--like sentences: compares accuracy, and small compares loss"):
        prospect_of(study_of(), nothing, like=(other, nothing))
    with pytest.raises(UserError, match="has fewer than two finished pairs"):
        prospect_of(study_of(), nothing, like=(study_of(name="other"), nothing))


def test_more_is_seen_with_more_seeds_and_a_stricter_level_sees_less():
    distances = [statistics.distance_seen(pairs, bounds=1, level=0.05) for pairs in (3, 4, 8, 30)]
    assert all(later < earlier for earlier, later in itertools.pairwise(distances))
    assert statistics.distance_seen(8, bounds=1, level=0.01) > distances[2]
    assert statistics.distance_seen(8, bounds=2, level=0.05) > distances[2]
