"""Effects against scale, from stored runs: slopes that are recovered, verdicts on them, and what is not said."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from scipy import stats

from oelm.analysis.findings import Findings, Scale, Trend, Verdict
from oelm.analysis.looks import looks_taken, seeds_saved
from oelm.analysis.scale import trend_over
from oelm.analysis.summary import findings_as_json, findings_of
from oelm.study.declaration import Study
from oelm.study.plan import planned
from oelm.study.scaled import dials_of
from oelm.study.shelf import Shelf
from sized_studies import PAIR, STEPS, WIDTHS, losses_with_slope, sized_study
from stored_runs import accuracy_claim, facts_of, hypothesis, small_classification, small_study, store_study

FROZEN = "frozen_head_orthogonal"
PER_DOUBLING = 0.02  # of the width, or of the steps


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    study = sized_study(forecast={"width": 128, "medium": {"d_model": 256}})
    return findings_of(study, store_study(study, tmp_path_factory.mktemp("runs"), losses_with_slope(PER_DOUBLING)))


@pytest.fixture(scope="module")
def scale(found: Findings) -> Scale:
    assert found.scale is not None
    return found.scale


def few_sizes(**changes: Any) -> Study:
    """Three budgets: enough for a slope, and quick."""
    return sized_study(**{"sizes": {"steps": [20, 40, 80]}, "main_size": "steps40"} | changes)


def trend_of(scale: Scale, dial: str) -> Trend:
    return next(trend for trend in scale.trends if trend.dial == dial)


def outcomes(findings: Findings) -> dict[str, tuple[str, str]]:
    return {each.hypothesis.name: (each.outcome, each.reason) for each in findings.verdicts}


def test_a_planted_slope_is_recovered(scale):
    slope = trend_of(scale, "steps").slopes["tokens"]
    assert slope.low < PER_DOUBLING < slope.high
    assert slope.slope == pytest.approx(PER_DOUBLING, abs=0.003)
    assert (slope.sizes, len(slope.line)) == (len(STEPS), 25)


def test_slopes_are_against_what_differs(scale):
    assert list(trend_of(scale, "width").slopes) == ["parameters", "flops"]
    assert list(trend_of(scale, "steps").slopes) == ["tokens", "flops"]


def test_a_size_is_counted_by_its_control(found):
    """A treatment that stores fewer numbers makes no model smaller."""
    arms = {name: replace(each, total=1) if name.startswith(FROZEN) else each for name, each in found.arms.items()}
    points = trend_over(found.study, arms, FROZEN, "trained", dials_of(found.study)["width"], dial="width").points
    assert [point.counts["parameters"] for point in points] == [arms[point.control].total for point in points]
    assert all(arms[point.treatment].total == 1 for point in points)
    counts = [point.counts["parameters"] for point in points]
    assert counts == sorted(counts)


def test_claims_about_scale_have_verdicts_in_the_family_of_the_others(found):
    assert outcomes(found) == {
        "grows": ("supported", "trend_shown"),
        "not_worse": ("refuted", "contradicted"),
        "shrinks": ("refuted", "trend_contradicted"),
    }
    grows = next(each for each in found.verdicts if each.hypothesis.name == "grows")
    assert grows.p_adjusted == pytest.approx(3 * grows.p)
    assert grows.scope.parameters.most > 100 * grows.scope.parameters.least


def test_a_slope_within_its_margin_holds_and_one_beyond_it_does_not(tmp_path):
    claims = [hypothesis("holds", name=f"{margin} %", margin_percent=margin) for margin in (9, 1)]
    study = few_sizes(hypotheses=claims)
    found = findings_of(study, store_study(study, tmp_path, losses_with_slope(PER_DOUBLING)))
    assert outcomes(found) == {"9 %": ("supported", "trend_shown"), "1 %": ("refuted", "trend_contradicted")}


def test_a_disturbed_size_makes_a_slope_uncertain_and_not_wrong(tmp_path):
    """A mistuned rate shifts all seeds of its size: with tiny noise between seeds, only the sizes can tell."""
    study = few_sizes(hypotheses=[hypothesis("shrinks")])
    losses = losses_with_slope(0.0, noise=1e-4, shifts=lambda size: -0.05 if size == "steps80" else 0.0)
    found = findings_of(study, store_study(study, tmp_path, losses))
    assert outcomes(found) == {"shrinks": ("undecided", "trend_unclear")}


@pytest.mark.parametrize("widths", [[32], [16, 32]])
def test_one_size_or_two_give_no_slope_and_say_why(widths, tmp_path):
    study = sized_study(sizes={"width": widths}, hypotheses=[hypothesis("grows")])
    found = findings_of(study, store_study(study, tmp_path, losses_with_slope()))
    assert outcomes(found) == {"grows": ("undecided", "too_few_sizes")}
    assert found.verdicts[0].facts == {"sizes": len(widths), "least": 3}
    assert not found.scale.trends[0].slopes


def test_intervals_of_points_are_those_of_the_arms_with_looks_too(tmp_path):
    """So that the figure of scale and the table of sizes agree."""
    study = few_sizes(seeds=[0, 1, 2, 3], looks=[3, 4], hypotheses=[hypothesis(size="steps40")])
    found = findings_of(study, store_study(study, tmp_path, losses_with_slope()))
    points = trend_of(found.scale, "steps").points
    assert len(points) == 3
    for point in points:
        assert point.difference == found.scale.arms[point.treatment].quality.difference


def test_a_size_that_is_not_complete_leaves_the_claim_open(tmp_path):
    study, losses = few_sizes(hypotheses=[hypothesis("grows")], sizes={"steps": STEPS}), losses_with_slope()

    def partly(arm, seed, stage, point):
        return None if (arm, seed) == (f"{FROZEN}+steps80", 2) else losses(arm, seed, stage, point)

    found = findings_of(study, store_study(study, tmp_path, partly))
    assert outcomes(found) == {"grows": ("undecided", "sizes_open")}
    assert found.verdicts[0].facts["open"] == ["steps80"]
    assert trend_of(found.scale, "steps").slopes["tokens"].sizes == len(STEPS) - 1


def test_points_on_a_line_are_no_evidence(tmp_path):
    study = few_sizes(hypotheses=[hypothesis("grows")])
    found = findings_of(study, store_study(study, tmp_path, losses_with_slope(0.0, noise=0.0)))
    assert outcomes(found) == {"grows": ("undecided", "trend_without_spread")}


def test_a_confound_at_one_size_confounds_the_claim(tmp_path):
    arms = {"trained": {}, FROZEN: {"set": {"training.weight_decay": 0.0}}}
    study = few_sizes(arms=arms, hypotheses=[hypothesis("grows")])
    found = findings_of(study, store_study(study, tmp_path, losses_with_slope()))
    assert found.verdicts[0].outcome == "confounded"
    assert [each.key for each in found.verdicts[0].confounds] == ["training.weight_decay"]  # once, not for each size


def test_accuracies_have_slopes_in_points(tmp_path):
    claim = accuracy_claim("holds", margin_points=5)
    study = small_classification(
        arms=["fine_tuned", "frozen_pretrained"], seeds=[0, 1, 2], sizes={"steps": [20, 40, 80]}, hypotheses=[claim]
    )
    errors = {"steps20": 0.200, "steps40": 0.210, "steps80": 0.221}

    def error(arm, seed, stage, point):
        family, _, size = arm.partition("+")
        return (errors[size] if family == "frozen_pretrained" else 0.2) + 0.005 * seed

    found = findings_of(study, store_study(study, tmp_path, error))
    assert found.verdicts[0].facts["slope"] == pytest.approx(-1.05, abs=0.2)  # of accuracy, which falls
    assert found.scale.trends[0].slopes["tokens"].slope == pytest.approx(0.0105, abs=0.002)


def test_what_a_look_decides_does_not_depend_on_how_far_other_sizes_have_come(tmp_path):
    """Claims about scale count in the family at every look, and none of them as shown."""
    claims = [hypothesis(size="steps40", margin_percent=11), hypothesis("grows")]
    study, losses = few_sizes(hypotheses=claims, looks=[3]), losses_with_slope(2 * PER_DOUBLING)
    store_study(study, tmp_path, losses, leaves=lambda run: run.arm.endswith("steps80"))
    before = {each.hypothesis.name: each for each in findings_of(study, Shelf(tmp_path)).verdicts}
    after = {each.hypothesis.name: each for each in findings_of(study, store_study(study, tmp_path, losses)).verdicts}
    assert (before["grows"].reason, after["grows"].outcome) == ("sizes_open", "supported")
    assert after["grows"].p < after["not_worse"].p  # so that it would leave the other more of the error rate
    assert before["not_worse"] == after["not_worse"]
    assert after["not_worse"].p_adjusted == pytest.approx(2 * after["not_worse"].sequential_p)


# ---- Carried rates -------------------------------------------------------------------------------------------------


def test_a_verdict_at_carried_rates_says_so_and_is_held_to_fewer_degrees_of_freedom(tmp_path):
    tuning = {"grid": {"learning_rate": [5e-4, 1e-3]}, "seeds": [1000], "extend": 0}
    claims = [
        hypothesis("grows", over="steps"),
        hypothesis(size="steps40"),
        hypothesis(name="carried", size="steps160"),
    ]
    found = {}
    for at in (None, ["steps20", "steps40", "steps80"]):
        study = sized_study(sizes={"steps": STEPS}, main_size="steps40", hypotheses=claims, tuning=tuning | {"at": at})
        findings = findings_of(study, store_study(study, tmp_path / str(at is None), losses_with_slope()))
        found[at is None] = {each.hypothesis.name: each for each in findings.verdicts}
    tuned, carried = found[True], found[False]
    assert not any(code == "carried_rates" for each in tuned.values() for code, _ in each.reservations)
    named = {
        name: [known for code, known in each.reservations if code == "carried_rates"] for name, each in carried.items()
    }
    assert named == {"grows": [{"sizes": ["steps160"]}], "not_worse": [], "carried": [{"sizes": ["steps160"]}]}
    slopes = [each["grows"].trend.slopes["tokens"] for each in (tuned, carried)]
    assert slopes[0].slope == pytest.approx(slopes[1].slope, abs=1e-12)
    # Two degrees of freedom become one, both for the spread and for the quantile.
    widths = [each.high - each.low for each in slopes]
    assert widths[1] / widths[0] == pytest.approx(math.sqrt(2) * stats.t.ppf(0.975, 1) / stats.t.ppf(0.975, 2))


# ---- What follows --------------------------------------------------------------------------------------------------


def test_the_law_of_an_arm_is_that_of_its_losses(scale):
    law = next(each for each in scale.laws if (each.arm, each.dial) == ("trained", "steps"))
    assert law.exponent == pytest.approx(-0.05, abs=0.005)
    assert law.low < -0.05 < law.high


def test_the_multiplier_is_what_the_laws_say(scale):
    """4.0 x 2^(-0.05 d) for the baseline, 0.1 + 0.02 d above it for the frozen arm, over two doublings either way."""
    assert {each.treatment for each in scale.multipliers} == {FROZEN}
    assert [each.budgets for each in scale.multipliers] == [len(STEPS)] * len(STEPS)
    at_base = next(each for each in scale.multipliers if each.tokens == 40 * 4 * 16)
    d = math.log2(at_base.ratio)
    assert 4.0 * 2 ** (-0.05 * d) + 0.1 + 0.02 * d == pytest.approx(4.0, abs=0.02)
    assert at_base.low < at_base.ratio < at_base.high
    assert at_base.flops_ratio < 1  # a frozen part needs no gradient
    assert [each.is_beyond for each in scale.multipliers][-1]


def test_losses_of_zero_have_no_law_and_no_multiplier(tmp_path):
    study = few_sizes(hypotheses=[])
    some = findings_of(study, store_study(study, tmp_path, lambda arm, *_: 0.0 if arm.endswith("steps80") else 1.0))
    assert [len(law.flops) for law in some.scale.laws] == [2, 2]
    assert some.scale.multipliers == []


def test_a_forecast_comes_with_its_check(scale):
    forecasts = {each.size: each for each in scale.forecasts}
    assert list(forecasts) == ["width128", "medium"]
    nearer, further = (forecasts[size].predicted for size in forecasts)
    assert nearer.low < 0.1 + 2 * PER_DOUBLING < nearer.high + 0.01
    assert further.high - further.low > nearer.high - nearer.low
    for each in forecasts.values():
        assert (each.sizes, each.left_out.size) == (len(WIDTHS), "width96")
        assert each.is_covered is (each.left_out.low <= each.observed <= each.left_out.high)


def test_a_forecast_waits_for_five_complete_sizes(tmp_path):
    sizes, losses = {"width": WIDTHS}, losses_with_slope()
    study = sized_study(sizes=sizes, forecast={"width": 128}, hypotheses=[], seeds=[0, 1])
    some = store_study(study, tmp_path, losses, leaves=lambda run: run.arm.endswith("width96"))
    assert [(each.sizes, each.predicted) for each in findings_of(study, some).scale.forecasts] == [(4, None)]


# ---- Stored --------------------------------------------------------------------------------------------------------


def test_stored_findings_have_the_scale_and_nothing_twice(found):
    tree = findings_as_json(found)
    assert set(tree["arms"]) == {f"{arm}+width32" for arm in PAIR}
    assert set(tree["arms"]) & set(tree["scale"]["arms"]) == set()
    assert {"trends", "laws", "multipliers", "forecasts"} <= set(tree["scale"])
    assert tree["study"]["sizes"] == {"width": WIDTHS, "steps": STEPS}


def test_a_study_without_sizes_has_none_of_it(tmp_path):
    study = small_study(arms=PAIR, seeds=[0, 1, 2], hypotheses=[hypothesis()])
    found = findings_of(study, store_study(study, tmp_path, lambda arm, seed, stage, point: 3.0 + 0.01 * seed))
    tree = findings_as_json(found)
    assert "scale" not in tree
    assert "trend" not in tree["verdicts"][0]
    assert not {"sizes", "main_size", "forecast"} & set(tree["study"])
    assert not {"size", "over", "per"} & set(tree["study"]["hypotheses"][0])


def test_a_tuning_run_that_serves_two_sizes_is_counted_once(tmp_path):
    tuning = {
        "grid": {"learning_rate": [5e-4, 1e-3]},
        "seeds": [1000, 1001],
        "method": "halving",
        "budgets": [0.25, 0.5],
    }
    study = few_sizes(sizes={"steps": [40, 80]}, tuning=tuning, hypotheses=[])
    found = findings_of(study, store_study(study, tmp_path, losses_with_slope())).provenance
    folders = [path for path in (tmp_path / "tuning").iterdir() if path.is_dir()]
    assert found["tuning_runs"] == len(folders) < len(planned(study, Shelf(tmp_path), facts=facts_of(study)).tuning)


# ---- Contrasts -----------------------------------------------------------------------------------------------------


def contrast(**changes: Any) -> dict[str, Any]:
    return hypothesis("contrast", size="steps80", against="steps20", **changes)


def verdict_of(tmp_path, claim: dict[str, Any], losses=None, **changes: Any) -> Verdict:
    study = few_sizes(**{"seeds": [0, 1, 2, 3], "hypotheses": [claim]} | changes)
    return findings_of(study, store_study(study, tmp_path, losses or losses_with_slope(PER_DOUBLING))).verdicts[0]


def test_a_contrast_is_the_paired_t_test_of_the_differences_of_two_sizes(tmp_path):
    """By brute force: four losses of each seed make one number."""
    losses, sizes = losses_with_slope(PER_DOUBLING), ("steps80", "steps20")
    at = {
        (arm, size): [losses(f"{arm}+{size}", seed, "final", None) for seed in range(4)]
        for arm in PAIR
        for size in sizes
    }
    costs = [[a - b for a, b in zip(at[FROZEN, size], at["trained", size], strict=True)] for size in sizes]
    numbers = [more - less for more, less in zip(*costs, strict=True)]
    found = verdict_of(tmp_path, contrast(), losses)
    assert found.difference.differences == pytest.approx(numbers)
    assert found.p == pytest.approx(stats.ttest_1samp(numbers, 0.0, alternative="greater").pvalue)
    assert (found.outcome, found.reason) == ("supported", "contrast_shown")
    assert found.scope.tokens.most == 4 * found.scope.tokens.least


def test_a_contrast_the_other_way_round_is_refuted_and_a_margin_beyond_it_too(tmp_path):
    other_way = hypothesis("contrast", size="steps20", against="steps80")
    assert verdict_of(tmp_path / "one", other_way).outcome == "refuted"
    assert verdict_of(tmp_path / "two", contrast(margin_percent=2)).outcome == "supported"  # 2 x 0.02 nats
    assert verdict_of(tmp_path / "three", contrast(margin_percent=9)).outcome == "refuted"


def test_what_seeds_do_at_one_size_alone_is_the_spread_of_a_contrast(tmp_path):
    assert verdict_of(tmp_path, contrast(), losses_with_slope(PER_DOUBLING, noise=0.3)).outcome == "undecided"


def test_a_contrast_counts_in_the_family_and_needs_three_pairs_at_both_sizes(tmp_path):
    losses = losses_with_slope(PER_DOUBLING)

    def partly(arm, seed, stage, point):
        return None if (arm, seed) == ("trained+steps20", 2) else losses(arm, seed, stage, point)

    def diverged(arm, seed, stage, point):
        return math.inf if arm == f"{FROZEN}+steps20" else losses(arm, seed, stage, point)

    assert verdict_of(tmp_path / "partly", contrast(), partly).reason == "incomplete"
    assert verdict_of(tmp_path / "two", contrast(), seeds=[0, 1]).reason == "too_few_pairs"
    assert verdict_of(tmp_path / "diverged", contrast(), diverged).reason == "diverged"
    claims = [contrast(), contrast(name="too much", margin_percent=50)]
    found = verdict_of(tmp_path / "family", claims[0], hypotheses=claims)
    assert found.p_adjusted == pytest.approx(2 * found.p)


def test_a_look_at_a_contrast_waits_for_both_sizes_and_saves_the_seeds_of_both(tmp_path):
    study, losses = few_sizes(seeds=list(range(5)), looks=[3, 5], hypotheses=[contrast()]), losses_with_slope(0.05)
    early = store_study(study, tmp_path, losses, leaves=lambda run: run.seed > 2 or run.arm == "trained+steps20")
    assert findings_of(study, early).verdicts[0].look.number == 0
    found = findings_of(study, store_study(study, tmp_path, losses, leaves=lambda run: run.seed > 2))
    assert (found.verdicts[0].outcome, found.verdicts[0].look.number) == ("supported", 1)
    saved = seeds_saved(found.plan, looks_taken(found.plan, found.at_all_sizes))
    assert set(saved) == {f"{arm}+{size}" for arm in PAIR for size in ("steps20", "steps80")}
