"""Findings of a whole study: arms, decomposition, provenance, notes, JSON."""

import json
import math

import pytest

from oelm.analysis.findings import NOTES
from oelm.analysis.summary import findings_as_json, findings_of
from oelm.core.accounting import totals, training_flops
from oelm.machine.errors import UserError
from oelm.study.shelf import Shelf
from stored_runs import ENVIRONMENT, hypothesis, small_study, store_bench, store_finished, store_study, without_seal

EFFECTS = {
    "trained": 0.0,
    "trained_head_orthogonal": -0.01,
    "frozen_head_orthogonal": 0.02,
    "frozen_normal": 0.08,
    "frozen_scaled_normal": 0.03,
}
WOBBLE = [0.0, 0.001, -0.001, 0.002, -0.002]


def loss(arm, seed, stage, point):
    shift = WOBBLE[seed % 5] * (1 + len(arm) % 3)
    return 2.0 + 0.1 * (seed % 7) + EFFECTS[arm] + shift + sum(abs(math.log(value / 1e-3)) for _, value in point)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    tuning = {"grid": {"learning_rate": [5e-4, 1e-3, 2e-3]}, "set": {"steps": 20}}
    claims = [hypothesis(), hypothesis("equivalent", treatment="trained_head_orthogonal", varies=["start", "scale"])]
    study = small_study(tuning=tuning, hypotheses=claims)
    folder = tmp_path_factory.mktemp("whole")
    store_bench(folder, baseline="trained", seconds={arm: [0.1, 0.2, 0.3] * 3 for arm in EFFECTS})
    return findings_of(study, store_study(study, folder, loss))


def codes(findings):
    return [code for code, _ in findings.notes]


def test_an_arm_is_summed_up_from_its_config_and_its_runs(whole):
    arm = whole.arms["frozen_head_orthogonal"]
    run = whole.plan.by_arm["frozen_head_orthogonal"][0].run
    counted = totals(run.model)
    assert (arm.total, arm.trainable, arm.frozen) == (counted.total, counted.trainable, counted.frozen)
    assert sum(part["frozen"] for part in arm.parts) == arm.frozen
    assert set(arm.parts[0]) == {"role", "layer", "total", "trainable", "frozen", "implied"}
    assert arm.flops == training_flops(run)
    assert arm.tokens == 40 * 4 * 16
    assert (arm.learning_rate, arm.values) == (1e-3, {"training.learning_rate": 1e-3})
    assert arm.states == {"finished": [0, 1, 2, 3, 4]}
    assert arm.mean_loss == pytest.approx(sum(arm.losses.values()) / 5)
    assert arm.seconds_per_step == pytest.approx(0.05)
    assert arm.training_seconds == pytest.approx(5 * 40 * 0.05)
    assert arm.validation_curve.steps[-1] == 40
    assert arm.learning_rate_curve[-1][1] == pytest.approx(1e-4)
    assert arm.reached.seeds >= 1
    assert arm.ratio.middle == 1


def test_the_baseline_is_not_compared_with_itself(whole):
    baseline = whole.arms["trained"]
    assert baseline.difference is None
    assert baseline.ratio is None


def test_the_target_lies_so_much_above_the_baseline(whole):
    assert whole.target_perplexity == pytest.approx(1.1 * math.exp(whole.arms["trained"].mean_loss))


def test_the_originals_ablation_is_decomposed(whole):
    found = {step.step: round(step.difference.mean, 3) for step in whole.decomposition}
    assert found == {
        "baseline_to_frozen": 0.02,
        "baseline_to_random": 0.08,
        "baseline_to_scaled_random": 0.03,
        "random_to_orthogonal": -0.06,
        "scaled_random_to_orthogonal": -0.01,
    }


def test_the_ablation_knows_arms_by_what_they_are(tmp_path):
    arms = {"base": {"arm": "gpt_base"}, "ours": {"arm": "oelm_v2"}}
    study = small_study(arms=arms)
    findings = findings_of(study, store_study(study, tmp_path, lambda arm, seed, *_: 2.0 + seed))
    assert [(step.step, step.treatment, step.control) for step in findings.decomposition] == [
        ("baseline_to_frozen", "ours", "base")
    ]


def test_a_partial_study_names_every_run_that_is_not_finished(tmp_path):
    lost = {("trained", 1): None, ("frozen_normal", 2): math.inf, ("frozen_normal", 0): math.nan}

    def partial(arm, seed, stage, point):
        return lost.get((arm, seed), loss(arm, seed, stage, point))

    study = small_study()
    findings = findings_of(study, store_study(study, tmp_path, partial))
    named = {(run.arm, run.seed): run.state for run in findings.unfinished}
    assert named == {("trained", 1): "missing", ("frozen_normal", 2): "diverged", ("frozen_normal", 0): "failed"}
    assert findings.arms["frozen_normal"].states == {"failed": [0], "finished": [1, 3, 4], "diverged": [2]}
    stored = {entry["state"]: entry for entry in findings_as_json(findings)["unfinished"]}
    assert stored["failed"]["error"] == "RuntimeError: something broke"


def test_a_study_without_any_run_says_how_to_start(tmp_path):
    with pytest.raises(UserError, match="oelm run"):
        findings_of(small_study(), Shelf(tmp_path))


def test_the_json_is_finite_and_whole(tmp_path):
    def wild(arm, seed, stage, point):
        diverges = arm == "frozen_normal" or dict(point).get("training.learning_rate", 0) > 1.5e-3
        return math.inf if diverges else 800.0 + seed

    tuning = {"grid": {"learning_rate": [1e-3, 2e-3]}}
    study = small_study(tuning=tuning, hypotheses=[hypothesis(), hypothesis("better", treatment="frozen_normal")])
    tree = findings_as_json(findings_of(study, store_study(study, tmp_path, wild)))
    assert json.loads(json.dumps(tree, allow_nan=False)) == tree
    assert tree["arms"]["trained"]["perplexity"] is None
    assert tree["tuning"]["arms"]["frozen_normal"]["chosen"] is None
    assert {each["val_loss"] for each in tree["tuning"]["arms"]["frozen_normal"]["points"]} == {None}
    assert tree["verdicts"][0]["hypothesis"]["name"] == "not_worse"


def test_provenance_counts_what_was_used(whole):
    found = whole.provenance
    assert (found["runs"], found["final_runs"], found["tuning_runs"]) == (40, 25, 15)
    assert (found["sealed_runs"], found["unsealed_runs"]) == (40, 0)
    assert found["final_compute_seconds"] == pytest.approx(25 * 40 * 0.05 * 1.2)
    assert found["tuning_compute_seconds"] == pytest.approx(15 * 20 * 0.05 * 1.2)
    assert found["commits"] == [{"commit": ENVIRONMENT["commit"], "dirty": False, "runs": 40}]
    assert found["data_digests"] == [ENVIRONMENT["data_digest"]]
    assert found["versions"]["torch"] == ["2.10.0"]
    assert len(found["study_digest"]) == 64


def test_a_clean_tuned_study_needs_no_notes(whole):
    assert whole.notes == []


def test_one_rate_for_all_arms_is_noted(tmp_path):
    study = small_study(seeds=[0])
    findings = findings_of(study, store_study(study, tmp_path, loss))
    assert findings.notes == [("fixed_learning_rate", {"learning_rate": 1e-3}), ("few_seeds", {"seeds": 1})]


def test_an_optimum_at_the_edge_is_noted(tmp_path):
    study = small_study(arms=["trained"], tuning={"grid": {"learning_rate": [2e-3, 4e-3]}, "extend": 0})
    findings = findings_of(study, store_study(study, tmp_path, loss))
    assert ("edge_optimum", {"arm": "trained", "key": "training.learning_rate", "value": 2e-3}) in findings.notes


def test_mixed_and_unknown_origins_are_noted(tmp_path):
    study = small_study(arms=["trained"])
    for run in findings_of(study, store_study(study, tmp_path / "whole", loss)).plan.final:
        other = {"threads": 2, "dirty": True} if run.seed == 3 else {}
        path = store_finished(run, tmp_path / "mixed", 2.0 + run.seed, environment=other)
        if run.seed == 4:
            (without_seal(path) / "environment.json").unlink()
    store_bench(tmp_path / "mixed", baseline="trained", seconds={"trained": [0.1]}, source_digest="another")
    broken = tmp_path / "mixed" / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{")
    findings = findings_of(study, Shelf(tmp_path / "mixed"))
    assert set(codes(findings)) == {
        "fixed_learning_rate",
        "mixed_environment",
        "not_recorded",
        "uncommitted_sources",
        "bench_of_other_sources",
        "unreadable",
    }
    for code, facts in findings.notes:
        assert set(facts) == set(NOTES[code])
    assert ("mixed_environment", {"key": "threads", "values": ["1", "2"]}) in findings.notes


@pytest.mark.parametrize(
    ("of_runs", "of_bench", "expected"),
    [
        ([{}, {}], {"source_scheme": 2}, {"bench_sources_not_comparable": {"bench": 2, "runs": [1]}}),
        ([{}, {"source_scheme": 2}], {}, {"sources_not_comparable": {"schemes": [1, 2]}}),
        (
            [{}, {"source_scheme": 2}],
            {"source_scheme": 3},
            {
                "sources_not_comparable": {"schemes": [1, 2]},
                "bench_sources_not_comparable": {"bench": 3, "runs": [1, 2]},
            },
        ),
    ],
)
def test_sources_that_cannot_be_compared_are_noted_as_unknown(tmp_path, of_runs, of_bench, expected):
    study = small_study(arms=["trained"], seeds=[0, 1])
    plan = findings_of(study, store_study(study, tmp_path / "whole", loss)).plan
    for run, scheme in zip(plan.final, of_runs, strict=True):
        digest = {"source_digest": "ab"[bool(scheme)] * 64}
        store_finished(run, tmp_path / "mixed", 2.0, environment=digest | scheme)
    store_bench(
        tmp_path / "mixed", baseline="trained", seconds={"trained": [0.1] * 8}, source_digest="a" * 64, **of_bench
    )
    notes = dict(findings_of(study, Shelf(tmp_path / "mixed")).notes)
    about_sources = {code: facts for code, facts in notes.items() if "source" in code or "mixed" in code}
    assert about_sources == expected
    assert all(set(facts) == set(NOTES[code]) for code, facts in about_sources.items())
