"""Draws within seeds: averaged before anything is tested, and their variance told apart from that of the seeds."""

import dataclasses
import json
import math
from statistics import fmean

import numpy as np
import pytest

from oelm.analysis.curves import mean_of_draws, mean_value
from oelm.analysis.statistics import draw_variance
from oelm.analysis.summary import findings_as_json, findings_of
from oelm.reporting.article import visible_text
from oelm.reporting.content import article_of
from oelm.reporting.tables import comparison_csv, runs_csv
from oelm.study.reading import study_of
from stored_runs import accuracy_claim, hypothesis, small_classification, small_study, store_study

ARMS = ["trained", "frozen_head_orthogonal"]
FROZEN = "frozen_head_orthogonal"


def loss(arm, seed, stage, point):
    return 2.0 + 0.1 * seed + (0.01 * seed**2 if arm == FROZEN else 0.0)


def of_draw(run):
    """Which seed it is decides how far apart the draws are, so that averaging early and late is not the same."""
    return 0.003 * run.draw * (1 + run.seed)


@pytest.fixture(scope="module")
def three_draws(tmp_path_factory):
    study = small_study(arms=ARMS, seeds=[0, 1, 2, 3], draws=3, hypotheses=[hypothesis()])
    return findings_of(study, store_study(study, tmp_path_factory.mktemp("three"), loss, shift=of_draw))


# ---- Averaging -----------------------------------------------------------------------------------------------------


def test_the_value_of_a_seed_is_the_mean_over_its_draws(three_draws):
    arm = three_draws.arms[FROZEN]
    means = {seed: loss(FROZEN, seed, "final", ()) + 0.003 * (1 + seed) for seed in range(4)}
    assert arm.losses == pytest.approx(means)
    assert arm.quality.values == arm.losses
    assert three_draws.arms["trained"].losses == pytest.approx({seed: 2.0 + 0.1 * seed for seed in range(4)})


def test_pairs_are_of_seeds_and_their_number_does_not_grow_with_the_draws(three_draws):
    difference = three_draws.verdicts[0].difference
    assert difference.seeds == [0, 1, 2, 3]
    assert difference.differences == pytest.approx([0.01 * seed**2 + 0.003 * (1 + seed) for seed in range(4)])


def test_the_tests_see_only_the_means(three_draws, tmp_path):
    """A study of one run per seed whose losses are these means decides the same."""
    study = small_study(arms=ARMS, seeds=[0, 1, 2, 3], hypotheses=[hypothesis()])
    means = {arm: three_draws.arms[arm].losses for arm in ARMS}
    plain = findings_of(study, store_study(study, tmp_path, lambda arm, seed, stage, point: means[arm][seed]))
    one, other = three_draws.verdicts[0], plain.verdicts[0]
    assert (one.outcome, one.reason) == (other.outcome, other.reason)
    for name in ("p", "p_adjusted", "sign_flip_p", "lower_bound", "upper_bound"):
        assert getattr(one, name) == pytest.approx(getattr(other, name))


def test_curves_are_averaged_within_a_seed(three_draws):
    curve, arm = three_draws.arms[FROZEN].validation_curve, three_draws.arms[FROZEN]
    assert curve.mean[-1] == pytest.approx(fmean(arm.losses.values()))
    assert (curve.low[-1], curve.high[-1]) == pytest.approx((min(arm.losses.values()), max(arm.losses.values())))


def test_records_of_draws_are_averaged_at_the_steps_they_share():
    one = [{"step": 1, "train_loss": 4.0}, {"step": 2, "val_loss": 3.0, "by": {"4": 1.0, "8": 0.5}, "at": [1, 2]}]
    other = [{"step": 2, "val_loss": 2.0, "by": {"4": 0.0, "8": 0.5}, "at": [3, 2]}, {"step": 3, "train_loss": 1.0}]
    assert mean_of_draws([one, other]) == [{"step": 2, "val_loss": 2.5, "by": {"4": 0.5, "8": 0.5}, "at": [2, 2]}]
    assert mean_of_draws([one]) == one
    assert mean_value([1.0, math.nan]) is None


@pytest.mark.parametrize(
    ("what", "state"), [(None, "missing"), (math.inf, "diverged"), (math.nan, "failed")], ids=["none", "inf", "nan"]
)
def test_a_seed_counts_when_all_of_its_draws_are_finished(tmp_path, what, state):
    study = small_study(arms=ARMS, seeds=[0, 1, 2], draws=2, hypotheses=[hypothesis()])

    def shift(run):
        return (
            (what - 1.0 if what is not None else 0.0)
            if (run.arm, run.seed, run.draw) == (FROZEN, 1, 1)
            else of_draw(run)
        )

    shelf = store_study(
        study, tmp_path, loss, shift=shift, leaves=lambda run: what is None and run.title.endswith("s1 d1")
    )
    findings = findings_of(study, shelf)
    arm = findings.arms[FROZEN]
    assert list(arm.losses) == [0, 2]
    assert arm.states == {"finished": [0, 2], state: [1]}
    assert findings.verdicts[0].outcome == "undecided"
    assert findings.verdicts[0].reason == ("diverged" if state == "diverged" else "incomplete")
    assert [(run.seed, run.draw) for run in findings.unfinished] == [(1, 1)]
    assert findings_as_json(findings)["unfinished"][0]["draw"] == 1
    assert "1 d1" not in json.dumps(findings_as_json(findings)["arms"])


def test_all_has_diverged_only_where_every_draw_did(tmp_path):
    study = small_study(arms=ARMS, seeds=[0, 1, 2], draws=2, hypotheses=[hypothesis()])

    def partly(run):
        return math.inf if run.draw else 0.0

    some = findings_of(study, store_study(study, tmp_path / "some", loss, shift=partly))
    assert (some.verdicts[0].outcome, some.verdicts[0].reason) == ("undecided", "diverged")
    whole = findings_of(study, store_study(study, tmp_path / "all", lambda arm, *_: math.inf if arm == FROZEN else 2.0))
    assert (whole.verdicts[0].outcome, whole.verdicts[0].reason) == ("refuted", "all_diverged")


def test_examples_are_compared_draw_by_draw_with_the_only_run_of_the_control(tmp_path):
    claim = accuracy_claim(treatment="frozen_normal", control="fine_tuned", varies=["start", "scale", "moves"])
    study = small_classification(arms=["fine_tuned", "frozen_normal"], seeds=[0, 1], draws=2, hypotheses=[claim])
    shelf = store_study(study, tmp_path, lambda arm, seed, stage, point: 0.3 + 0.01 * seed)
    verdict = findings_of(study, shelf).verdicts[0]
    assert [pair.name for pair in verdict.mcnemar] == ["0", "0 d1", "1", "1 d1"]


# ---- Variance ------------------------------------------------------------------------------------------------------


def test_components_of_a_design_by_hand():
    found = draw_variance([[1.0, 3.0], [5.0, 7.0], [9.0, 11.0]])
    assert (found.seeds, found.draws) == (3, 2)
    assert found.between_draws.variance == pytest.approx(2.0)  # each seed: (1 + 1) / 1
    assert found.between_seeds.variance == pytest.approx(16.0 - 2.0 / 2)  # of the means 2, 6, 10, less the draws' share
    assert found.between_draws.low == pytest.approx(6 / 9.348404, rel=1e-5)  # chi-square with 3 degrees of freedom
    assert found.between_draws.high == pytest.approx(6 / 0.2157953, rel=1e-5)


def test_a_variance_is_never_negative_and_nothing_is_said_of_what_does_not_vary():
    alike = draw_variance([[0.0, 2.0], [2.0, 0.0], [0.0, 2.0]])
    assert alike.between_seeds.variance == alike.between_seeds.low == 0
    assert not alike.between_seeds.is_above_zero
    still = draw_variance([[0.5, 0.5], [0.5, 0.5]])
    assert (
        still.between_draws == still.between_seeds == dataclasses.replace(still.between_draws, variance=0.0, low=None)
    )
    assert draw_variance([[0.5, 0.6, 0.7]]).between_seeds is None


@pytest.mark.parametrize("between_seeds", [0.0, 0.5, 2.0])
def test_intervals_cover_and_components_are_recovered(between_seeds):
    """2,000 studies of 8 seeds and 3 draws: 95 % within three standard errors, or above for the approximate one."""
    random, studies = np.random.default_rng(7), 2000
    seeds = random.normal(0, between_seeds, (studies, 8, 1))
    found = [draw_variance(values.tolist()) for values in seeds + random.normal(0, 1, (studies, 8, 3))]

    def covered(component, variance):
        return fmean(getattr(each, component).low <= variance <= getattr(each, component).high for each in found)

    error = 3 * math.sqrt(0.95 * 0.05 / studies)
    assert covered("between_draws", 1.0) == pytest.approx(0.95, abs=error)
    assert 0.95 - error <= covered("between_seeds", between_seeds**2) <= 0.98
    assert fmean(each.between_draws.variance for each in found) == pytest.approx(1.0, abs=0.03)
    if between_seeds == 2.0:  # far from zero, where cutting off biases nothing
        assert fmean(each.between_seeds.variance for each in found) == pytest.approx(4.0, rel=0.05)
        assert fmean(each.between_seeds.is_above_zero for each in found) > 0.95
    if between_seeds == 0.0:
        assert fmean(each.between_seeds.is_above_zero for each in found) == pytest.approx(0.025, abs=0.015)


# ---- What is told --------------------------------------------------------------------------------------------------


def test_the_components_are_those_of_the_runs(three_draws):
    found = three_draws.arms[FROZEN].draw_variance
    values = [[loss(FROZEN, seed, "final", ()) + 0.003 * draw * (1 + seed) for draw in range(3)] for seed in range(4)]
    assert found.between_draws.variance == pytest.approx(draw_variance(values).between_draws.variance)
    assert three_draws.arms["trained"].draw_variance is None
    tree = findings_as_json(three_draws)
    assert tree["study"]["draws"] == 3
    assert tree["arms"][FROZEN]["draw_variance"]["between_seeds"].keys() == {"variance", "low", "high"}
    assert "draw_variance" not in tree["arms"]["trained"]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_report_says_how_many_draws_it_rests_on(three_draws, language):
    text = visible_text(article_of(three_draws, language, figures=set()))
    assert {"en": "4 seeds × 3 draws = 12", "zh": "4 个种子 × 3 次抽取 = 12 次"}[language] in text
    assert {"en": "nothing that they treat is drawn: trained", "zh": "不含随机抽取：trained"}[language] in text
    assert "4 × 3" in text


@pytest.mark.parametrize("language", ["en", "zh"])
def test_with_one_draw_it_says_that_nothing_can_be_told_apart(tmp_path, language):
    study = small_study(arms=ARMS, seeds=[0, 1, 2])
    findings = findings_of(study, store_study(study, tmp_path, loss))
    text = visible_text(article_of(findings, language, figures=set()))
    assert {"en": f"{FROZEN}. Number of draws: 3, one for each seed", "zh": f"{FROZEN}。共 3 次抽取，每个种子一次"}[
        language
    ] in text
    assert {"en": "Draws and seeds", "zh": "抽取与种子"}[language] not in text
    tree = findings_as_json(findings)
    assert "draws" not in tree["study"]
    assert "draw_variance" not in tree["arms"][FROZEN]
    assert "draw" not in runs_csv(findings).splitlines()[0]
    assert "draw" not in comparison_csv(findings).splitlines()[0]


def test_tables_of_plain_numbers_name_the_draw(three_draws):
    header, *rows = (line.split(",") for line in runs_csv(three_draws).splitlines())
    assert header[:4] == ["stage", "arm", "seed", "draw"]
    assert len(rows) == 4 * (1 + 3)
    assert "between_draws_variance" in comparison_csv(three_draws).splitlines()[0]


def test_a_study_with_draws_is_read_back_from_its_json(three_draws):
    tree = findings_as_json(three_draws)["study"]
    assert study_of(tree, name="again").draws == 3
