"""Studies that classify: verdicts on accuracy, McNemar from the stored predictions, studies side by side."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from oelm.analysis.findings import NOTES
from oelm.analysis.summary import PRETRAINED_STEPS, findings_as_json, findings_of
from oelm.show.verdicts import as_text
from oelm.study.claims.reasons import REASONS
from oelm.study.declaration import Neighbour
from oelm.study.shelf import Shelf
from stored_runs import (
    EXAMPLES,
    accuracy_claim,
    sealed_again,
    small_classification,
    store_bench,
    store_study,
    without_seal,
)

REPOSITORY = Path(__file__).parents[2]
ARMS = ["fine_tuned", "frozen_pretrained"]
WOBBLE = [0.0, 0.0025, -0.0025, 0.005, -0.005]  # whole examples of 400


def errors_with(effects):
    """An error rate of 30 %, the effect of the arm, and a wobble of the seed; an effect of None: the arm is missing."""

    def error(arm, seed, stage, point):
        effect = effects.get(arm, 0.0)
        wobble = 0.01 * seed + (WOBBLE[seed % 5] if arm == "fine_tuned" else 0.0)
        return None if effect is None else 0.3 + effect + wobble

    return error


def only_verdict(folder, claim, effect, **changes):
    study = small_classification(**({"arms": ARMS, "hypotheses": [claim]} | changes))
    return findings_of(study, store_study(study, folder, errors_with({"frozen_pretrained": effect}))).verdicts[0]


# ---- Verdicts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "error", "outcome", "reason"),
    [
        ("not_worse", 0.05, "refuted", "contradicted"),
        ("not_worse", 0.02, "undecided", "not_shown"),
        ("better", 0.02, "refuted", "contradicted"),
        ("equivalent", -0.05, "refuted", "contradicted"),
    ],
)
def test_the_outcome_follows_the_accuracy(tmp_path, kind, error, outcome, reason):
    """More errors are a loss: the points have the sign of accuracy."""
    verdict = only_verdict(tmp_path, accuracy_claim(kind), error)
    assert (verdict.outcome, verdict.reason) == (outcome, reason)
    assert set(verdict.facts) == set(REASONS[reason].facts)
    assert verdict.facts["difference"] == pytest.approx(-100 * error)
    assert verdict.margin == pytest.approx(0.0 if kind == "better" else 0.02)
    if reason == "contradicted":
        assert verdict.facts["bound"] == pytest.approx(
            -100 * (verdict.lower_bound if error > 0 else verdict.upper_bound)
        )


# ---- Differences without spread ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "worse", "seeds", "outcome"),
    [
        ("not_worse", 0.0, 5, "supported"),  # equal is a verdict
        ("not_worse", 0.01, 4, "undecided"),  # 1 in 16
        ("not_worse", 0.02, 8, "undecided"),  # on the margin itself
        ("not_worse", 0.03, 5, "refuted"),
        ("equivalent", 0.0, 5, "supported"),
        ("equivalent", -0.03, 5, "refuted"),
        ("better", -0.01, 5, "supported"),
        ("better", 0.0, 8, "undecided"),
    ],
)
def test_differences_without_spread_are_decided_by_the_exact_test(tmp_path, kind, worse, seeds, outcome):
    claim = accuracy_claim(kind)
    study = small_classification(arms=ARMS, hypotheses=[claim], seeds=list(range(seeds)))
    shelf = store_study(study, tmp_path, lambda arm, *_: 0.3 if arm == "fine_tuned" else 0.3 + worse)
    findings = findings_of(study, shelf)
    (verdict,) = findings.verdicts
    reason = {"supported": "same_shown", "refuted": "same_contradicted", "undecided": "same_not_shown"}[outcome]
    assert (verdict.outcome, verdict.reason) == (outcome, reason)
    assert set(verdict.facts) == set(REASONS[reason].facts)
    assert verdict.facts["difference"] == pytest.approx(-100 * worse)
    assert (verdict.p == 2**-seeds) == (outcome == "supported" or (seeds == 4 and worse < 0.02))
    assert verdict.sign_flip_p == verdict.p
    assert verdict.doubt == ("few" if outcome == "undecided" else None)
    for language in ("en", "zh"):
        assert as_text(findings, language)


def test_the_exact_test_is_held_to_the_level_of_its_family(tmp_path):
    claims = [accuracy_claim(name=str(number)) for number in range(2)]
    shown = {}
    for seeds in (5, 6):
        study = small_classification(arms=ARMS, hypotheses=claims, seeds=list(range(seeds)))
        shelf = store_study(study, tmp_path / str(seeds), lambda *_: 0.0)
        shown[seeds] = [(each.outcome, each.p_adjusted) for each in findings_of(study, shelf).verdicts]
    assert shown == {5: [("undecided", 2 * 2**-5)] * 2, 6: [("supported", 2 * 2**-6)] * 2}


def test_a_finished_run_without_an_accuracy_is_no_result(tmp_path):
    study = small_classification(arms=ARMS, hypotheses=[accuracy_claim()])
    shelf = store_study(study, tmp_path, errors_with({}))
    run = next(stored for stored in shelf.runs if stored.run.arm == "frozen_pretrained" and stored.run.seeds.data == 2)
    result = json.loads(run.directory.result_file.read_text())
    run.directory.result_file.write_text(json.dumps({key: result[key] for key in result if key != "accuracy"}))
    run.directory.predictions_file.unlink()
    without_seal(run.directory.path)
    findings = findings_of(study, Shelf(tmp_path))
    assert findings.arms["frozen_pretrained"].states == {"finished": [0, 1, 3, 4], "unmeasured": [2]}
    assert (findings.verdicts[0].outcome, findings.verdicts[0].reason) == ("undecided", "incomplete")


# ---- Example by example --------------------------------------------------------------------------------------------


def rewrite(stored, **changes):
    path = stored.directory.predictions_file
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def stored_arm(shelf, arm, seed):
    return next(stored for stored in shelf.runs if (stored.run.arm, stored.run.seeds.data) == (arm, seed))


def test_mcnemar_counts_the_examples_of_each_pair(tmp_path):
    study = small_classification(arms=ARMS, hypotheses=[accuracy_claim()])
    shelf = store_study(study, tmp_path, errors_with({"frozen_pretrained": 0.02}))
    findings = findings_of(study, shelf)
    pairs = findings.verdicts[0].mcnemar
    assert [pair.seed for pair in pairs] == study.seeds
    for pair in pairs:
        one, other = (stored_arm(shelf, arm, pair.seed).predictions for arm in ("frozen_pretrained", "fine_tuned"))
        right, also = (np.array(each["predicted"]) == np.array(each["labels"]) for each in (one, other))
        assert pair.examples == EXAMPLES
        assert pair.both_right == (right & also).sum()
        assert (pair.treatment_only, pair.control_only) == ((right & ~also).sum(), (also & ~right).sum())
        assert pair.both_wrong == (~right & ~also).sum()
        assert pair.p == pytest.approx(
            stats.binomtest(pair.treatment_only, pair.treatment_only + pair.control_only, 0.5).pvalue
        )
        gain = (pair.treatment_only - pair.control_only) / pair.examples
        accuracies = [findings.arms[arm].quality.values[pair.seed] for arm in ("frozen_pretrained", "fine_tuned")]
        assert gain == pytest.approx(accuracies[0] - accuracies[1])
    notes = [note for note in findings.notes if note[0] != "same_losses"]  # made-up ones of two seeds coincide
    assert notes == [("fixed_learning_rate", {"learning_rate": 1e-4})]


def test_predictions_of_other_examples_are_not_compared(tmp_path):
    """Both runs are whole, but their data was another."""
    study = small_classification(arms=ARMS, hypotheses=[accuracy_claim()])
    stored = stored_arm(store_study(study, tmp_path, errors_with({})), "frozen_pretrained", 3)
    labels, predicted = stored.predictions["labels"], stored.predictions["predicted"]
    rewrite(stored, labels=[(each + 1) % 3 for each in labels], predicted=[(each + 1) % 3 for each in predicted])
    sealed_again(stored.directory.path)
    findings = findings_of(study, Shelf(tmp_path))
    assert ("predictions_unlike", {"hypothesis": "not_worse", "seeds": [3]}) in findings.notes
    assert [pair.seed for pair in findings.verdicts[0].mcnemar] == [0, 1, 2, 4]
    assert findings.verdicts[0].outcome == "supported"  # which rests on the seeds
    assert all(set(facts) == set(NOTES[code]) for code, facts in findings.notes)


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": [0, 1], "predicted": [0, 1]},
        {"labels": [], "predicted": []},
        {"predicted": [example % 3 for example in range(EXAMPLES)]},
    ],
)
@pytest.mark.parametrize("form", [without_seal, sealed_again])
def test_predictions_that_the_accuracy_was_not_counted_from_make_a_run_damaged(tmp_path, changes, form):
    study = small_classification(arms=ARMS, hypotheses=[accuracy_claim()])
    stored = stored_arm(store_study(study, tmp_path, errors_with({})), "frozen_pretrained", 3)
    rewrite(stored, **changes)
    form(stored.directory.path)
    findings = findings_of(study, Shelf(tmp_path))
    assert findings.arms["frozen_pretrained"].states == {"finished": [0, 1, 2, 4], "damaged": [3]}
    assert "damaged" in [code for code, _ in findings.notes]
    assert findings.verdicts[0].outcome == "undecided"


def test_predictions_that_an_older_run_did_not_keep_are_noted(tmp_path):
    study = small_classification(arms=ARMS, hypotheses=[accuracy_claim()])
    path = stored_arm(store_study(study, tmp_path, errors_with({})), "fine_tuned", 0).directory.predictions_file
    without_seal(path.parent)
    path.unlink()
    findings = findings_of(study, Shelf(tmp_path))
    assert ("predictions_missing", {"hypothesis": "not_worse", "seeds": [0]}) in findings.notes


# ---- The whole study -----------------------------------------------------------------------------------------------

EFFECTS = {"frozen_orthogonalised": 0.02, "frozen_head_orthogonal": 0.05, "frozen_normal": 0.06}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    claim = accuracy_claim(treatment="frozen_head_orthogonal", varies=["start", "scale", "moves"])
    study = small_classification(hypotheses=[accuracy_claim(name="kept"), claim])
    folder = tmp_path_factory.mktemp("whole")
    seconds = {arm: [1.0, 1.1, 1.2] * 3 for arm in study.arms} | {"frozen_head_orthogonal": [0.9, 1.0, 1.1] * 3}
    store_bench(folder, study=study, baseline="fine_tuned", seconds=seconds)
    return findings_of(study, store_study(study, folder, errors_with(EFFECTS)))


def test_an_arm_is_summed_up_by_its_accuracy(whole):
    arm = whole.arms["frozen_head_orthogonal"]
    assert arm.quality.mean == pytest.approx(1 - 0.35 - 0.02)
    assert arm.quality.costs[1] == pytest.approx(1 - arm.quality.values[1])
    assert arm.quality.difference.mean == pytest.approx(0.05)
    assert arm.examples == EXAMPLES
    assert arm.training_examples == 40 * 8
    assert arm.quality.curve.mean[-1] == pytest.approx(arm.quality.mean)
    assert arm.reached is None
    assert arm.frozen == 2 * 2 * (16 * 16 + 16)
    assert whole.target_perplexity is None
    assert whole.arms["fine_tuned"].quality.difference is None


def test_the_effects_are_taken_apart(whole):
    found = {step.step: round(step.difference.mean, 4) for step in whole.decomposition}
    assert found == {
        "baseline_to_frozen_pretrained": 0.0,
        "pretrained_to_orthogonalised": 0.02,
        "orthogonalised_to_fresh": 0.03,
        "baseline_to_frozen": 0.05,
        "random_to_orthogonal": -0.01,
    }
    assert set(found) <= set(PRETRAINED_STEPS)


def test_classifiers_that_learnt_nothing_are_noted(tmp_path):
    """A third of the labels each: an error of two thirds is chance, and what tuning chose there is noise."""

    def error(arm, seed, stage, point):
        guessing = 0.66 if arm == "frozen_normal" or (arm == "frozen_pretrained" and stage == "tuning") else 0.4
        return guessing + 0.0025 * (seed % 3)

    study = small_classification(tuning={"grid": {"learning_rate": [5e-5, 1e-4]}, "extend": 0})
    notes = findings_of(study, store_study(study, tmp_path, error)).notes
    assert [facts["arm"] for code, facts in notes if code == "tuning_at_floor"] == [
        "frozen_pretrained",
        "frozen_normal",
    ]
    assert [facts["arm"] for code, facts in notes if code == "at_floor"] == ["frozen_normal"]
    assert all(set(facts) == set(NOTES[code]) for code, facts in notes)


def test_the_json_is_finite_and_speaks_of_accuracy(whole):
    tree = findings_as_json(whole)
    text = json.dumps(tree, allow_nan=False)
    assert "perplexity" not in text
    assert json.loads(text) == tree
    assert tree["arms"]["fine_tuned"]["accuracy"] == pytest.approx(0.68)
    first = tree["verdicts"][0]
    assert first["mcnemar"][0]["both_right"] > 0
    assert first["reason"].startswith("accuracy_")
    assert {"points", "margin_points"} <= first["facts"].keys()
    assert (first["margin_nats"], first["margin_error"]) == (None, 0.02)
    assert "beside" not in tree


# ---- Side by side --------------------------------------------------------------------------------------------------


def beside(tmp_path, *neighbours):
    study = small_classification(beside=[each.model_dump() for each in neighbours])
    return findings_of(study, store_study(study, tmp_path / "own", errors_with(EFFECTS))).beside


def test_a_neighbour_is_read_from_its_stored_runs(tmp_path):
    stored = REPOSITORY / "docs" / "findings" / "tinystories_cpu" / "runs"
    neighbour = Neighbour(study="tinystories_cpu", runs=str(stored))
    own, other = beside(tmp_path, neighbour)
    assert (own.fine_tunes, own.treatment, own.baseline) == (True, "frozen_head_orthogonal", "fine_tuned")
    assert own.difference.mean == pytest.approx(0.05)
    assert own.treatment_quality == pytest.approx(0.63)
    assert (other.study, other.fine_tunes, len(other.difference.seeds)) == ("tinystories_cpu", False, 8)
    assert other.outcomes == {"cost-of-freezing": "supported"}
    assert 100 * math.expm1(other.difference.mean) == pytest.approx(3.26, abs=0.01)
    assert other.trainable_share == pytest.approx(0.902, abs=1e-3)
    assert other.problem is None


@pytest.mark.parametrize("broken", ["study", "runs", "empty", "not a study"])
def test_a_neighbour_that_cannot_be_read_is_named_with_the_reason(tmp_path, monkeypatch, broken):
    monkeypatch.chdir(tmp_path)  # where no data are, whatever is prepared in the clone
    file = tmp_path / "other.yaml"
    file.write_text(
        "1" if broken == "not a study" else "question: Q\nbase: {preset: tiny}\narms: [trained]\nseeds: [0]\n"
    )
    (tmp_path / "runs").mkdir()
    study = tmp_path / "nowhere.yaml" if broken == "study" else file
    runs = tmp_path / ("nowhere" if broken == "runs" else "runs")
    own, other = beside(tmp_path, Neighbour(study=str(study), runs=str(runs)))
    assert own.problem is None
    assert other.study == study.stem
    assert other.problem
    assert "\n" not in other.problem


def test_neighbours_of_neighbours_are_not_asked(tmp_path):
    file = tmp_path / "itself.yaml"
    file.write_text(
        "question: Q\nbase: {preset: tiny, model: {vocabulary: 64}}\narms: [trained, frozen_head_orthogonal]\n"
        "seeds: [0]\nbeside: [{study: " + str(file) + ", runs: " + str(tmp_path) + "}]\n"
    )
    rows = beside(tmp_path, Neighbour(study=str(file), runs=str(tmp_path)))
    assert [row.study for row in rows] == ["sentences", "itself"]
