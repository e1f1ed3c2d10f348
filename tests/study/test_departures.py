"""Whatever is no longer as it was declared before the first final run stands beside each verdict that it touches."""

import shutil
from pathlib import Path

import pytest

from oelm.analysis.summary import findings_of
from oelm.storage.files import read_sealed, write_sealed
from oelm.storage.ownership import now
from oelm.study.decisions import CHOICES_FILE
from oelm.study.registration import REGISTRATION_FILE, register
from oelm.study.shelf import Shelf
from stored_runs import hypothesis, sealed_again, small_study, store_study
from study.test_study_registration import set_status

ARMS = ["trained", "frozen_head_orthogonal", "frozen_normal"]
COST = hypothesis("not_worse", name="cost")
GAIN = hypothesis("better", name="gain", treatment="frozen_normal")
FEWER = hypothesis("fewer_parameters", name="fewer")


def study_of(**changes):
    return small_study(**{"arms": ARMS, "seeds": [0, 1, 2, 3], "hypotheses": [COST, GAIN, FEWER]} | changes)


def loss(arm, seed, stage, point) -> float:
    return 2.0 + 0.01 * seed + (0.001 * seed if arm == "trained" else 0.0)


def store_runs(folder: Path, study=None, losses=loss) -> None:
    """Runs that start now."""
    store_study(study or study_of(), folder, losses)
    for file in folder.rglob("status.json"):
        set_status(file, started=now())
        sealed_again(file.parent)


def declared_and_run(folder: Path, study=None) -> None:
    register(study or study_of(), folder, made_by="run")
    store_runs(folder, study)


def reserved(folder: Path, study=None) -> dict[str, dict]:
    """By claim, its reservations with their facts."""
    found = findings_of(study or study_of(), Shelf(folder))
    return {verdict.hypothesis.name: dict(verdict.reservations) for verdict in found.verdicts}


def test_a_study_that_is_what_it_declared_has_no_reservation(tmp_path):
    declared_and_run(tmp_path)
    assert reserved(tmp_path) == {"cost": {}, "gain": {}, "fewer": {}}


def test_a_study_whose_declaration_is_not_older_than_its_runs_is_exploratory(tmp_path):
    store_runs(tmp_path)
    assert all(set(each) == {"not_registered"} for each in reserved(tmp_path).values())
    register(study_of(), tmp_path)
    assert all(set(each) == {"not_registered"} for each in reserved(tmp_path).values())


@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_text("{}")])
def test_a_declaration_that_was_deleted_or_damaged_is_none(tmp_path, damage):
    declared_and_run(tmp_path)
    damage(tmp_path / REGISTRATION_FILE)
    assert all("not_registered" in each for each in reserved(tmp_path).values())
    if not (tmp_path / REGISTRATION_FILE).exists():
        register(study_of(), tmp_path, made_by="run")
        assert all("not_registered" in each for each in reserved(tmp_path).values())


BASE = study_of().base
LONGER = BASE | {"training": BASE["training"] | {"steps": 60}}
EVERY = {"cost", "gain", "fewer"}


@pytest.mark.parametrize(
    ("changes", "touched"),
    [
        ({"seeds": [0, 1, 2, 3, 4]}, {"cost", "gain"}),
        ({"hypotheses": [COST | {"margin_percent": 9}, GAIN, FEWER]}, {"cost"}),
        ({"hypotheses": [COST, GAIN | {"varies": ["moves"]}, FEWER]}, {"gain"}),
        ({"hypotheses": [COST, FEWER]}, {"cost"}),  # corrected for one claim fewer
        ({"hypotheses": [COST, GAIN | {"confirmatory": False}, FEWER]}, {"cost", "gain"}),
        ({"hypotheses": [COST, GAIN, FEWER, hypothesis("better", name="new")]}, {"new"}),
        ({"arms": [*ARMS, "frozen_scaled_normal"]}, set()),
        ({"looks": [3, 4]}, {"cost", "gain"}),
        ({"base": LONGER}, EVERY),
        ({"base": BASE | {"execution": {"threads": 1}}}, set()),
        ({"tuning": {"grid": {"learning_rate": [1e-3, 2e-3]}}}, {"cost", "gain"}),
        ({"question": "Does it?", "notes": "no more"}, set()),
        ({"scope": "models of every size"}, EVERY),
    ],
)
def test_a_change_after_the_first_final_run_is_said_beside_each_verdict_that_it_touches(tmp_path, changes, touched):
    declared_and_run(tmp_path)
    found = reserved(tmp_path, study_of(**changes))
    assert {claim for claim, each in found.items() if "changed" in each} == touched


def test_an_arm_that_came_later_touches_the_claims_about_it(tmp_path):
    declared_and_run(tmp_path, study_of(arms=ARMS[:2], hypotheses=[COST]))
    store_runs(tmp_path)
    found = reserved(tmp_path)
    assert set(found["cost"]) == set()
    assert "arms.frozen_normal" in found["gain"]["changed"]["changes"]


def test_settings_of_an_arm_touch_the_claims_about_it(tmp_path):
    declared_and_run(tmp_path)
    arms = {"trained": {}, "frozen_head_orthogonal": {}, "frozen_normal": {"set": {"learning_rate": 2e-3}}}
    found = reserved(tmp_path, study_of(arms=arms))
    assert {claim for claim, each in found.items() if "changed" in each} == {"gain"}
    arms["frozen_normal"] = {"processes": 2}
    assert not any("changed" in each for each in reserved(tmp_path, study_of(arms=arms)).values())


def test_exchanged_labels_turn_a_sentence_round_and_are_told_beside_it(tmp_path):
    declared_and_run(tmp_path)
    labels = {
        "trained": "frozen_head_orthogonal",
        "frozen_head_orthogonal": "trained",
        "frozen_normal": "frozen_normal",
    }
    found = reserved(tmp_path, study_of(arms={arm: {"arm": arm, "label": label} for arm, label in labels.items()}))
    assert "arms.trained.label none, now frozen_head_orthogonal" in found["cost"]["changed"]["changes"]
    assert "arms.trained.label none, now frozen_head_orthogonal" in found["gain"]["changed"]["changes"]


def test_a_change_before_the_first_final_run_is_none(tmp_path):
    register(study_of(seeds=[0, 1, 2]), tmp_path, made_by="register")
    declared_and_run(tmp_path)
    assert reserved(tmp_path)["cost"] == {}


def test_a_declaration_edited_back_and_forth_is_told(tmp_path):
    """Once run under another margin, and with the old one again: the registrations remember it."""
    declared_and_run(tmp_path)
    moved = study_of(hypotheses=[COST | {"margin_percent": 9}, GAIN, FEWER])
    register(moved, tmp_path, made_by="run")
    register(study_of(), tmp_path, made_by="run")
    found = reserved(tmp_path)
    assert "hypotheses.cost.margin_percent 5, now 9" in found["cost"]["changed"]["changes"]
    assert found["gain"] == {}


def test_results_of_seeds_that_nobody_declared_are_told(tmp_path):
    """Made by hand, or under an earlier declaration whose entry is gone."""
    declared_and_run(tmp_path)
    store_runs(tmp_path, study_of(seeds=[7, 8], arms=ARMS[:2], hypotheses=[COST]))
    found = reserved(tmp_path)
    assert found["cost"]["results_elsewhere"]["runs"] == 4
    assert "seed 7" in found["cost"]["results_elsewhere"]["differences"]
    assert found["gain"]["results_elsewhere"]["runs"] == 2  # of the arm that both compare with
    assert found["fewer"] == {}


def test_results_on_other_data_under_the_same_path_are_told(tmp_path):
    declared_and_run(tmp_path)
    store_study(study_of(seeds=[0, 1]), tmp_path / "other", lambda *_: 2.0, environment={"data_digest": "e" * 64})
    for run in (tmp_path / "other").glob("*-s*"):
        shutil.copytree(run, tmp_path / f"again-{run.name}")
    shutil.rmtree(tmp_path / "other")
    found = reserved(tmp_path)
    assert "data digest eeeeeeeeeeee, now dddddddddddd" in found["cost"]["results_elsewhere"]["differences"]


def test_values_that_were_chosen_after_final_runs_are_told(tmp_path):
    tuned = study_of(tuning={"grid": {"learning_rate": [1e-3, 2e-3]}, "extend": 0})
    declared_and_run(tmp_path, tuned)
    assert all(not each for each in reserved(tmp_path, tuned).values())
    (tmp_path / CHOICES_FILE).unlink()
    found = reserved(tmp_path, tuned)
    assert found["cost"]["chosen_late"]["arms"] == ["trained", "frozen_head_orthogonal"]
    assert found["fewer"] == {}


def test_a_clock_set_back_makes_no_declaration_older(tmp_path):
    """An entry says how many final runs there were when it was written."""
    store_runs(tmp_path)
    register(study_of(), tmp_path)
    file = tmp_path / REGISTRATION_FILE
    tree = read_sealed(file)
    tree["registrations"][0]["registered"] = "2020-01-01T00:00:00+00:00"
    write_sealed(file, tree)
    assert all("not_registered" in each for each in reserved(tmp_path).values())
