"""Verdicts: how often they err, what they say of partial and degenerate studies, and that order does not matter."""

import math
import random

import numpy as np
import pytest

from oelm.analysis.findings import NOTES
from oelm.analysis.hypotheses import verdicts
from oelm.analysis.speed import Speed
from oelm.analysis.summary import findings_as_json, findings_of
from oelm.core.measures import LOSS
from oelm.study.claims.reasons import REASONS
from oelm.study.plan import Plan, planned
from oelm.study.shelf import Shelf
from stored_runs import hypothesis, small_study, store_bench, store_study, with_values

STUDIES = 2000
HIGHEST_ERROR_RATE = 0.065
MARGIN = math.log(1.05)
ARMS = ["trained", "frozen_head_orthogonal", "frozen_orthogonal", "frozen_normal", "frozen_scaled_normal"]


def noise(arm: str, seed: int, deviation: float = 0.005) -> float:
    return float(np.random.default_rng([len(arm), seed]).normal(0, deviation))


def losses_with(effects: dict[str, float]):
    """2 nats, the effect of the arm, and noise; an effect of None: the arm is missing."""

    def loss(arm, seed, stage, point):
        effect = effects.get(arm, 0.0)
        return None if effect is None else 2.0 + effect + noise(arm, seed)

    return loss


def findings_with(folder, claim):
    study = small_study(arms=ARMS[:2], hypotheses=[claim])
    return findings_of(study, store_study(study, folder, losses_with({})))


def only_verdict(folder, claim, loss, *, seeds=(0, 1, 2, 3, 4), **changes):
    study = small_study(arms=ARMS[:2], seeds=list(seeds), hypotheses=[claim], **changes)
    return findings_of(study, store_study(study, folder, loss)).verdicts[0]


# ---- Error rates ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def settled_by(tmp_path_factory):
    """Verdicts from losses held in memory: the outcome of thousands of studies."""

    def make(claims: list[dict], seeds: int):
        study = small_study(arms=ARMS, seeds=list(range(seeds)), hypotheses=claims)
        folder = tmp_path_factory.mktemp("simulated")
        store_study(study, folder, lambda *_: 2.0)
        findings = findings_of(study, Shelf(folder))
        plan: Plan = findings.plan

        def settle(losses: dict[str, np.ndarray]):
            arms = {arm: with_values(findings.arms[arm], LOSS, values) for arm, values in losses.items()}
            return verdicts(plan, arms, speed_of=lambda *_: Speed(), confounds={})

        return settle

    return make


def simulated(settle, effects: dict[str, float], seeds: int) -> tuple[float, float]:
    """How often any of the claims, all false, is supported, and how often any p-value alone would have done it.

    Arms share the noise of their seeds and have their own.
    """
    generator = np.random.default_rng(20260)
    supported = tempting = 0
    for _ in range(STUDIES):
        common = generator.normal(2.0, 0.02, seeds)
        losses = {arm: common + effects.get(arm, 0.0) + generator.normal(0, 0.005, seeds) for arm in ARMS}
        found = settle(losses)
        supported += any(verdict.outcome == "supported" for verdict in found)
        tempting += any(verdict.p <= 0.05 for verdict in found)
    return supported / STUDIES, tempting / STUDIES


@pytest.mark.parametrize(
    ("kind", "effect", "seeds"),
    [
        ("not_worse", MARGIN, 3),
        ("better", 0.0, 8),
        ("equivalent", -MARGIN, 3),
    ],
)
def test_a_false_claim_at_its_margin_is_rarely_supported(settled_by, kind, effect, seeds):
    rate, _ = simulated(settled_by([hypothesis(kind)], seeds), {"frozen_head_orthogonal": effect}, seeds)
    assert rate <= HIGHEST_ERROR_RATE
    assert rate > 0.03  # nor is the test blunt


def test_a_family_of_false_claims_rarely_has_one_supported(settled_by):
    claims = [hypothesis(name=arm, treatment=arm) for arm in ARMS[1:]]
    with_holm, without = simulated(settled_by(claims, 8), dict.fromkeys(ARMS[1:], MARGIN), 8)
    assert with_holm <= HIGHEST_ERROR_RATE < without


# ---- Outcomes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "effect", "outcome"),
    [
        ("not_worse", 0.01, "supported"),
        ("not_worse", 0.10, "refuted"),
        ("not_worse", MARGIN, "undecided"),
        ("better", -0.05, "supported"),
        ("better", 0.05, "refuted"),
        ("equivalent", 0.0, "supported"),
        ("equivalent", -0.10, "refuted"),
    ],
)
def test_the_outcome_follows_the_effect(tmp_path, kind, effect, outcome):
    verdict = only_verdict(tmp_path, hypothesis(kind), losses_with({"frozen_head_orthogonal": effect}))
    assert (verdict.outcome, verdict.regardless) == (outcome, outcome)
    assert set(verdict.facts) == set(REASONS[verdict.reason].facts)
    assert 0 < verdict.p < 1
    assert 0 < verdict.sign_flip_p <= 1
    assert verdict.lower_bound < verdict.difference.mean < verdict.upper_bound
    if outcome == "refuted":
        assert verdict.refutation_p <= 0.05 < verdict.p
    else:
        assert verdict.refutation_p is None


def test_better_by_a_margin_asks_for_more_than_better(tmp_path):
    loss = losses_with({"frozen_head_orthogonal": -0.03})
    assert only_verdict(tmp_path / "a", hypothesis("better"), loss).outcome == "supported"
    demanding = only_verdict(tmp_path / "b", hypothesis("better", margin_percent=5), loss)
    assert demanding.outcome == "refuted"
    assert demanding.margin == pytest.approx(MARGIN)


@pytest.mark.parametrize(("spread", "doubt"), [(0.01, "near"), (10.0, "few")])
def test_an_undecided_verdict_tells_pairs_that_could_not_tell_the_margin_from_a_claim_near_its_bound(
    tmp_path, spread, doubt
):
    def loss(arm, seed, stage, point):
        worse = MARGIN * (1 + spread * noise(arm, seed) / abs(noise(arm, 0))) if arm == "frozen_head_orthogonal" else 0
        return 2.0 + worse

    study = small_study(arms=ARMS[:2], seeds=[0, 1, 2, 3, 4], hypotheses=[hypothesis()])
    findings = findings_of(study, store_study(study, tmp_path, loss))
    assert (findings.verdicts[0].outcome, findings.verdicts[0].doubt) == ("undecided", doubt)
    assert findings_as_json(findings)["verdicts"][0]["doubt"] == doubt


def test_holm_counts_the_confirmatory_claims_about_losses_and_no_others(tmp_path):
    claims = [
        hypothesis(name="a"),
        hypothesis(name="b", treatment="frozen_normal"),
        hypothesis(name="c", confirmatory=False),
        hypothesis("fewer_parameters"),
        hypothesis("faster"),
    ]
    study = small_study(hypotheses=claims)
    effects = {"frozen_head_orthogonal": 0.03, "frozen_normal": 0.04}
    found = {
        each.hypothesis.name: each
        for each in findings_of(study, store_study(study, tmp_path, losses_with(effects))).verdicts
    }
    smaller, larger = sorted((found["a"], found["b"]), key=lambda verdict: verdict.p)
    assert smaller.p_adjusted == pytest.approx(2 * smaller.p)
    assert larger.p_adjusted == max(larger.p, smaller.p_adjusted)
    assert found["c"].p_adjusted is None
    assert found["c"].p == found["a"].p
    assert found["fewer_parameters"].p is None


def test_a_claim_without_a_p_value_yet_is_counted_by_holm(tmp_path):
    """Else the first verdict would change when the second hypothesis is completed."""
    claims = [hypothesis(name="a"), hypothesis(name="b", treatment="frozen_normal")]
    study = small_study(hypotheses=claims)
    effects = {"frozen_head_orthogonal": 0.03, "frozen_normal": None}
    first, second = findings_of(study, store_study(study, tmp_path, losses_with(effects))).verdicts
    assert second.reason == "incomplete"
    assert first.p_adjusted == pytest.approx(2 * first.p)


def test_verdicts_do_not_depend_on_the_order_of_runs_arms_and_seeds(tmp_path):
    claims = [hypothesis(), hypothesis("better"), hypothesis("equivalent"), hypothesis("fewer_parameters")]
    study = small_study(hypotheses=claims)
    loss = losses_with({"frozen_head_orthogonal": 0.045})
    shelf = store_study(study, tmp_path, loss)
    expected = findings_of(study, shelf).verdicts
    for shuffle in range(3):
        order = random.Random(shuffle)
        for path in sorted(tmp_path.glob("*/config.json")):
            path.parent.rename(tmp_path / f"{order.random():.12f}"[2:])
        arms, seeds = order.sample(list(study.arms), len(study.arms)), order.sample(study.seeds, len(study.seeds))
        other = small_study(hypotheses=claims, arms=arms, seeds=seeds, baseline="trained")
        assert findings_of(other, Shelf(tmp_path)).verdicts == expected


# ---- Partial and degenerate studies --------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [[0], [0, 1]])
def test_one_or_two_seeds_give_no_p_value(tmp_path, seeds):
    verdict = only_verdict(tmp_path, hypothesis(), losses_with({}), seeds=seeds)
    assert (verdict.outcome, verdict.reason) == ("undecided", "too_few_pairs")
    assert verdict.p is verdict.p_adjusted is verdict.sign_flip_p is None
    assert len(verdict.difference.seeds) == len(seeds)


@pytest.mark.parametrize("difference", [0.0, 0.1])
def test_equal_differences_give_no_p_value(tmp_path, difference):
    def loss(arm, seed, stage, point):
        return 2.0 + 0.3 * seed + (difference if arm != "trained" else 0.0)

    verdict = only_verdict(tmp_path, hypothesis(), loss)
    assert (verdict.outcome, verdict.reason) == ("undecided", "zero_variance")
    assert verdict.p is verdict.sign_flip_p is verdict.difference.low is None


@pytest.mark.parametrize(("lost", "state", "side"), [(None, "missing", "treatment"), (math.nan, "failed", "control")])
def test_half_of_the_seeds_is_never_passed_off_as_the_whole(tmp_path, lost, state, side):
    claim = hypothesis()

    def loss(arm, seed, stage, point):
        return lost if arm == claim[side] and seed == 3 else 2.0 + noise(arm, seed)

    verdict = only_verdict(tmp_path, claim, loss)
    assert (verdict.outcome, verdict.reason) == ("undecided", "incomplete")
    assert verdict.facts[side] == {state: [3]}
    assert verdict.p is verdict.lower_bound is None
    assert verdict.difference.seeds == [0, 1, 2, 4]
    assert verdict.confounds == []  # the seed may still come; that it has not is what the verdict says


def test_a_diverged_run_leaves_the_claim_undecided(tmp_path):
    def loss(arm, seed, stage, point):
        return math.inf if arm != "trained" and seed == 1 else 2.0 + noise(arm, seed)

    verdict = only_verdict(tmp_path, hypothesis(), loss)
    assert (verdict.outcome, verdict.reason) == ("undecided", "diverged")
    assert verdict.facts["treatment"] == [1]
    assert verdict.p is None


def test_a_treatment_that_always_diverges_refutes_its_claim(tmp_path):
    def loss(arm, seed, stage, point):
        return math.inf if arm != "trained" else 2.0

    assert only_verdict(tmp_path / "a", hypothesis(), loss).outcome == "refuted"
    two = only_verdict(tmp_path / "b", hypothesis(), loss, seeds=[0, 1])
    assert (two.outcome, two.reason) == ("undecided", "diverged")


@pytest.mark.parametrize("failed", ["treatment", "control"])
def test_a_run_that_failed_withholds_the_verdict_and_is_named(tmp_path, failed):
    """What is said in its place: the median, and how many pairs are within. No pair is left out."""
    claim = hypothesis()

    def loss(arm, seed, stage, point):
        return 2.0 + noise(arm, seed, 0.002) + (0.2 if arm == claim[failed] and seed == 3 else 0.0)

    verdict = only_verdict(tmp_path, claim, loss, seeds=range(6))
    assert (verdict.outcome, verdict.reason) == ("undecided", "run_failed")
    assert (verdict.facts["treatment"], verdict.facts["control"]) == (([3], []) if failed == "treatment" else ([], [3]))
    assert (verdict.facts["apart"], verdict.facts["pairs"]) == (1, 6)
    assert verdict.facts["within"] == (5 if failed == "treatment" else 6)
    assert abs(verdict.facts["median"]) < 0.5 < abs(verdict.facts["difference"])
    assert len(verdict.difference.seeds) == 6
    assert verdict.p is verdict.p_adjusted is None


def test_tuning_that_goes_on_or_never_converges_is_the_reason(tmp_path):
    tuning = {"grid": {"learning_rate": [1e-3, 2e-3]}, "extend": 0}

    def slow(arm, seed, stage, point):
        return 2.0 if stage == "final" or arm == "trained" else None

    unfinished = only_verdict(tmp_path / "a", hypothesis(), slow, tuning=tuning)
    assert (unfinished.reason, unfinished.facts) == ("tuning_unfinished", {"finished": 2, "planned": 4})

    def wild(arm, seed, stage, point):
        return 2.0 if arm == "trained" else math.inf

    diverged = only_verdict(tmp_path / "b", hypothesis(), wild, tuning=tuning)
    assert (diverged.outcome, diverged.reason) == ("undecided", "tuning_diverged")
    assert diverged.facts == {"arms": ["frozen_head_orthogonal"]}


# ---- Parameters and time -------------------------------------------------------------------------------------------


def test_fewer_parameters_is_settled_by_counting(tmp_path):
    exactly = 2 * 2 * 32 * 32  # query and key of two layers
    met = only_verdict(tmp_path / "a", hypothesis("fewer_parameters", least_frozen=exactly), losses_with({}))
    missed = only_verdict(tmp_path / "b", hypothesis("fewer_parameters", least_frozen=exactly + 1), losses_with({}))
    assert (met.outcome, missed.outcome) == ("supported", "refuted")
    assert met.facts["percent"] == pytest.approx(100 * exactly / met.facts["control_trainable"])


def test_parameters_are_settled_although_no_run_is_finished(tmp_path):
    study = small_study(hypotheses=[hypothesis("fewer_parameters")], base=small_study().base | {"preset": "medium-512"})
    assert findings_of(study, Shelf(tmp_path)).verdicts[0].outcome == "supported"


@pytest.mark.parametrize(("ratio", "outcome"), [(0.95, "supported"), (1.05, "refuted"), (1.0, "undecided")])
def test_speed_comes_from_the_bench_alone(tmp_path, ratio, outcome):
    claim = hypothesis("faster")
    assert only_verdict(tmp_path, claim, losses_with({})).reason == "no_bench"
    control = [0.1, 0.11, 0.12, 0.1, 0.13, 0.1, 0.11, 0.12]
    wobble = [1.0, 1.002, 0.998, 1.001, 0.999, 1.0, 1.001, 0.999]
    treatment = [ratio * one * other for one, other in zip(control, wobble, strict=True)]
    store_bench(tmp_path, baseline="trained", seconds={"trained": control, "frozen_head_orthogonal": treatment})
    verdict = only_verdict(tmp_path, claim, losses_with({}))
    assert verdict.outcome == outcome
    assert verdict.ratio.middle == pytest.approx(ratio)


def speed_verdict(folder, blocks=12, records=None, **changes):
    """Of an arm that took half the time in every block."""
    changes |= {"blocks": records} if records else {}
    seconds = {"trained": [0.1] * blocks, "frozen_head_orthogonal": [0.05] * blocks}
    store_bench(folder, baseline="trained", seconds=seconds, **changes)
    verdict = only_verdict(folder, hypothesis("faster"), losses_with({}))
    assert set(verdict.facts) == set(REASONS[verdict.reason].facts)
    return verdict


def test_seven_blocks_are_too_few(tmp_path):
    verdict = speed_verdict(tmp_path, blocks=7)
    assert (verdict.outcome, verdict.reason) == ("undecided", "too_few_blocks")


@pytest.mark.parametrize(("disturbed", "reason"), [(4, "faster"), (5, "machine_busy")])
def test_on_a_busy_machine_nothing_is_decided_and_no_ratio_shown(tmp_path, disturbed, reason):
    records = [{"seconds": 1.0, "disturbed": ["others"] * (number < disturbed)} for number in range(12)]
    verdict = speed_verdict(tmp_path, records=records)
    assert verdict.reason == reason
    if reason == "machine_busy":
        assert (verdict.outcome, verdict.ratio) == ("undecided", None)
        assert verdict.facts == {"blocks": 12, "quiet": 7, "least": 8}


def test_a_damaged_bench_is_named_and_decides_nothing(tmp_path):
    assert speed_verdict(tmp_path).outcome == "supported"
    file = tmp_path / "bench.json"
    file.write_text(file.read_text().replace("0.05", "0.06", 1))
    findings = findings_with(tmp_path, hypothesis("faster"))
    assert (findings.verdicts[0].reason, findings.verdicts[0].ratio) == ("bench_damaged", None)
    assert ("unreadable", {"line": f"{file}: damaged: changed since it was sealed"}) in findings.notes


def test_a_bench_of_another_config_decides_nothing_and_names_the_keys(tmp_path):
    """Measured at width 32 and one layer, believed at width 128 and six."""
    model = small_study().base["model"]
    before = small_study(base=small_study().base | {"model": model | {"num_layers": 1}})
    verdict = speed_verdict(tmp_path, study=before)
    assert (verdict.outcome, verdict.reason, verdict.ratio) == ("undecided", "bench_other_config", None)
    assert verdict.facts == {"differences": "model.num_layers 1, now 2", "study": "small"}
    assert speed_verdict(tmp_path).outcome == "supported"


def test_a_ratio_that_arithmetic_does_not_allow_is_marked(tmp_path):
    work = {"trained": {"products": 100.0, "optimizer": 10.0}, "frozen_head_orthogonal": {"products": 97.0}}
    work["frozen_head_orthogonal"]["optimizer"] = 9.0
    ratio = speed_verdict(tmp_path, work=work).ratio
    assert (ratio.smallest, ratio.is_implausible) == (0.9, True)


# ---- Confounds -----------------------------------------------------------------------------------------------------


def test_an_unexplained_confound_marks_the_verdict_and_an_explained_one_does_not(tmp_path):
    arms = {"trained": {}, "frozen_head_orthogonal": {"set": {"learning_rate": 3e-3}}}
    loss = losses_with({"frozen_head_orthogonal": 0.01})
    for number, (explained, outcome) in enumerate(
        [({}, "confounded"), ({"training.learning_rate": "on purpose"}, "supported")]
    ):
        study = small_study(arms=arms, hypotheses=[hypothesis(explained=explained)])
        verdict = findings_of(study, store_study(study, tmp_path / str(number), loss)).verdicts[0]
        assert (verdict.outcome, verdict.regardless, verdict.reason) == (outcome, "supported", "shown")
        assert [confound.key for confound in verdict.confounds] == ["training.learning_rate"]


def test_every_code_is_announced(tmp_path):
    study = small_study(seeds=[0], hypotheses=[hypothesis(), hypothesis("faster"), hypothesis("fewer_parameters")])
    findings = findings_of(study, store_study(study, tmp_path, losses_with({})))
    for verdict in findings.verdicts:
        assert set(verdict.facts) == set(REASONS[verdict.reason].facts)
    for code, facts in findings.notes:
        assert set(facts) == set(NOTES[code])
    assert planned(study, Shelf(tmp_path)).runs == findings.plan.runs
