"""No verdict about quality from a control that has learnt nothing; from one that has learnt little, with a word."""

import json
import shutil

import pytest

from oelm.analysis.findings import NOTES
from oelm.analysis.summary import findings_as_json, findings_of
from oelm.data.prepare import prepare
from oelm.data.tokens import open_tokens
from oelm.study.archives import runs_folder
from oelm.study.archiving import archive
from oelm.study.claims.reasons import REASONS
from oelm.study.claims.reservations import RESERVATIONS
from oelm.study.shelf import Shelf
from stored_runs import (
    accuracy_claim,
    hypothesis,
    small_classification,
    small_probes,
    small_study,
    store_study,
)

ARMS = ["trained", "frozen_head_orthogonal"]
NOTHING, LITTLE = 4.0, 3.0
CLAIM = hypothesis()
WORSE = 0.2  # nats, far beyond the margin


def study_of(**changes):
    return small_study(**{"arms": ARMS, "seeds": [0, 1, 2, 3], "hypotheses": [CLAIM], "tuning": None} | changes)


def stored(folder, control, effect, *, study=None, floor=True, noise=0.01, **changes):
    """The control at a loss, the treatment so much above it, with a spread over seeds."""
    study = study or study_of()
    known = {"unigram_loss": NOTHING, "bigram_loss": LITTLE} if floor else {}
    known = known or {"unigram_loss": None, "bigram_loss": None}

    def loss(arm, seed, *_):
        return (
            control + (effect if arm != ARMS[0] else 0.0) + noise * (seed - 1.5) + 0.001 * (seed % 2) * (arm == ARMS[1])
        )

    return study, store_study(study, folder, loss, result=known, **changes)


def found(folder, control, effect, **changes):
    findings = findings_of(*stored(folder, control, effect, **changes))
    return findings, findings.verdicts[0], dict(findings.verdicts[0].reservations)


# ---- The three places of a control ---------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", [0.0, WORSE])
def test_a_control_above_the_unigram_decides_nothing_in_either_direction(tmp_path, effect):
    """Without the floor the first is supported, the second refuted: a planted untrained model, equal or worse."""
    _, verdict, reservations = found(tmp_path, NOTHING + 0.04, effect)
    assert (verdict.outcome, verdict.reason) == ("undecided", "nothing_learnt")
    assert (verdict.facts["arms"], verdict.facts["floor"]) == (["trained"], NOTHING)
    assert verdict.facts["reached"] == pytest.approx(NOTHING + 0.04)
    assert verdict.facts.keys() == set(REASONS["nothing_learnt"].facts)
    assert not reservations.keys() & {"learnt_little", "floor_unknown"}


@pytest.mark.parametrize(("effect", "outcome"), [(0.0, "supported"), (WORSE, "refuted")])
def test_a_control_between_the_two_has_learnt_little_and_keeps_its_verdict(tmp_path, effect, outcome):
    _, verdict, reservations = found(tmp_path, 3.5, effect)
    assert verdict.outcome == outcome
    assert reservations["learnt_little"] == {"arms": ["trained"], "reached": pytest.approx(3.5), "floor": LITTLE}
    assert reservations["learnt_little"].keys() == set(RESERVATIONS["learnt_little"].facts)


@pytest.mark.parametrize(("effect", "outcome"), [(0.0, "supported"), (WORSE, "refuted")])
def test_of_a_control_below_the_bigram_nothing_is_said(tmp_path, effect, outcome):
    findings, verdict, reservations = found(tmp_path, 2.5, effect)
    assert verdict.outcome == outcome
    assert not reservations.keys() & {"learnt_little", "floor_unknown"}
    assert not [code for code, _ in findings.notes if code.endswith("at_floor")]


def test_clearly_is_the_whole_interval_over_seeds_and_not_the_mean(tmp_path):
    """A mean of 3.9 lies below 4; with seeds 0.15 apart its interval reaches beyond, with seeds 0.01 apart not."""
    wide, close = (found(tmp_path / str(noise), 3.9, 0.0, noise=noise)[1] for noise in (0.15, 0.01))
    assert (wide.reason, close.outcome) == ("nothing_learnt", "supported")


def test_a_treatment_that_learnt_nothing_is_refuted_by_a_control_that_did_and_is_named(tmp_path):
    findings, verdict, _ = found(tmp_path, 2.0, NOTHING)
    assert verdict.outcome == "refuted"
    assert [facts["arm"] for code, facts in findings.notes if code == "at_floor"] == ["frozen_head_orthogonal"]
    assert all(set(facts) == set(NOTES[code]) for code, facts in findings.notes if code == "at_floor")


@pytest.mark.parametrize(("control", "outcome"), [(2.0, "refuted"), (4.1, "undecided")])
def test_a_treatment_that_always_diverged_is_not_refuted_by_a_control_that_knows_nothing(tmp_path, control, outcome):
    _, verdict, _ = found(tmp_path, control, float("inf"))
    assert (verdict.outcome, verdict.reason == "all_diverged") == (outcome, outcome == "refuted")


# ---- Where the number is -------------------------------------------------------------------------------------------


def test_an_archive_without_data_has_the_floor_of_its_runs(tmp_path):
    study, _ = stored(tmp_path / "runs", NOTHING + 0.04, 0.0)
    archive(study.name, tmp_path / "runs", tmp_path / "study.zip")
    findings = findings_of(study, Shelf(runs_folder(tmp_path / "study.zip")))
    assert findings.verdicts[0].reason == "nothing_learnt"
    assert findings.arms["trained"].floor.learnt_nothing == NOTHING
    tree = findings_as_json(findings)
    assert json.loads(json.dumps(tree, allow_nan=False))["arms"]["trained"]["floor"]["learnt_little"] == LITTLE


def test_runs_of_before_without_data_say_that_the_floor_is_unknown_and_keep_their_verdict(tmp_path):
    findings, verdict, reservations = found(tmp_path, NOTHING + 0.04, 0.0, floor=False)
    assert verdict.outcome == "supported"
    assert reservations["floor_unknown"] == {"arms": ["trained"]}
    assert findings.arms["trained"].floor is None


def test_runs_of_before_have_the_floor_of_the_data_that_are_here_and_nothing_is_written(tmp_path):
    data = tmp_path / "stories"
    prepare("stories", out=data, tokenizer="bpe:300", stories=200)
    files = sorted(data.iterdir())
    study = study_of(base=study_of().base | {"data": str(data)})
    known = {"unigram_loss": None, "bigram_loss": None}

    def loss(arm, seed, *_):
        return 6.0 + 0.01 * seed + 0.001 * (seed % 2) * (arm == ARMS[1])

    store_study(study, tmp_path / "runs", loss, result=known, environment={"data_digest": open_tokens(data).digest})
    assert findings_of(study, Shelf(tmp_path / "runs")).verdicts[0].reason == "nothing_learnt"
    assert sorted(data.iterdir()) == files
    shutil.rmtree(data)
    verdict = findings_of(study, Shelf(tmp_path / "runs")).verdicts[0]
    assert (verdict.outcome, "floor_unknown" in dict(verdict.reservations)) == ("supported", True)


# ---- Shares: sentences and probes ----------------------------------------------------------------------------------


def test_a_classifier_that_names_one_label_always_decides_nothing(tmp_path):
    study = small_classification(hypotheses=[accuracy_claim()], tuning=None)
    for error, reason in ((0.66, "nothing_learnt"), (0.3, None)):
        shelf = store_study(
            study, tmp_path / str(error), lambda arm, seed, *_, error=error: error + 0.0025 * (seed % 3)
        )
        verdict = findings_of(study, shelf).verdicts[0]
        assert (verdict.reason == reason) is (reason is not None)
        assert not dict(verdict.reservations).keys() & {"learnt_little", "floor_unknown"}


@pytest.mark.parametrize(
    ("accuracy", "reason", "said"),
    [(0.015, "nothing_learnt", set()), (0.1, "shown", {"learnt_little"}), (0.6, "shown", set())],
)
def test_a_probe_has_a_guess_among_all_tokens_and_one_among_what_the_context_offers(tmp_path, accuracy, reason, said):
    """Of 64 tokens, of 4 and of 8 pairs: 1.6 % and 18.8 %."""
    claim = hypothesis("equivalent", measure="probe_accuracy", margin_points=2)
    del claim["margin_percent"]
    study = small_probes(hypotheses=[claim])

    def measured(loss):
        at = {"4": accuracy + 0.001 * (round(1e3 * loss) % 3), "8": accuracy}
        return {"accuracy": sum(at.values()) / 2, "accuracy_by_difficulty": at}

    shelf = store_study(
        study, tmp_path, lambda arm, seed, *_: 1 + 0.001 * seed + 0.01 * (arm == ARMS[1]), also=measured
    )
    verdict = findings_of(study, shelf).verdicts[0]
    assert verdict.reason == reason
    assert dict(verdict.reservations).keys() & {"learnt_little", "floor_unknown"} == said


# ---- Reported text that was trained on -----------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "is_said"), [(None, False), (0.009, False), (0.01, True)])
def test_reported_text_that_also_stands_in_train_is_named_beside_every_verdict_on_it(tmp_path, share, is_said):
    study = study_of()
    shelf = store_study(
        study,
        tmp_path,
        lambda arm, seed, *_: 2.5 + 0.01 * seed + 0.001 * (seed % 2) * (arm == ARMS[1]),
        result={"unigram_loss": NOTHING, "bigram_loss": LITTLE, "seen_in_train": share},
    )
    verdict = findings_of(study, shelf).verdicts[0]
    said = dict(verdict.reservations)
    assert verdict.outcome == "supported"
    assert said.keys() & {"seen_in_train"} == ({"seen_in_train"} if is_said else set())
    if is_said:
        assert said["seen_in_train"] == {"share": share}


def test_examples_that_were_also_trained_on_are_named_too(tmp_path):
    study = small_classification(hypotheses=[accuracy_claim()], tuning=None)
    shelf = store_study(
        study, tmp_path, lambda arm, seed, *_: 0.3 + 0.0025 * (seed % 3), result={"seen_in_train": 0.125}
    )
    assert dict(findings_of(study, shelf).verdicts[0].reservations)["seen_in_train"] == {"share": 0.125}
