"""What tuning chose stays chosen, whatever becomes of the runs it was chosen from; and what does not hold is said."""

import json
import math
import shutil
from pathlib import Path

import pytest

from oelm.analysis.summary import findings_of
from oelm.execution.status import study_status
from oelm.storage.files import Damaged, digest_of, read_sealed, write_sealed
from oelm.study.decisions import CHOICES_FILE, read_decisions
from oelm.study.kept_choices import store_choices
from oelm.study.plan import Plan, planned
from oelm.study.remarks import sentence
from oelm.study.shelf import Shelf
from stored_runs import DATA_DIGEST, VOCABULARY, small_study, store_finished, store_study

ARMS = ["trained", "frozen_head_orthogonal", "frozen_normal"]
RATE = "training.learning_rate"
GRID = {"grid": {"learning_rate": [1e-3, 2e-3, 4e-3]}}


def study_of(**changes):
    return small_study(**{"arms": ARMS, "seeds": [0, 1], "tuning": GRID} | changes)


def loss(arm, seed, stage, point):
    return 2.0 + 0.01 * seed + sum(abs(math.log(value / 2e-3)) for _, value in point)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory) -> Path:
    """A finished study; nobody changes it."""
    folder = tmp_path_factory.mktemp("tuned")
    store_study(study_of(), folder, loss)
    return folder


@pytest.fixture
def folder(tuned, tmp_path) -> Path:
    return Path(shutil.copytree(tuned, tmp_path / "runs"))


def plan_of(folder: Path, study=None, **given) -> Plan:
    return planned(study or study_of(), Shelf(folder), **given)


def finals(plan: Plan) -> list[tuple]:
    return [(run.title, run.run.training.learning_rate, run.state) for run in plan.final]


def lines(plan: Plan) -> list[str]:
    return [sentence(*remark) for remark in plan.remarks]


def tuning_run(folder: Path, arm: str, rate: float):
    return next(run for run in plan_of(folder).tuning if run.arm == arm and dict(run.point)[RATE] == rate)


# ---- Once and for all ----------------------------------------------------------------------------------------------


def test_a_choice_is_stored_with_all_that_it_rests_on(folder):
    decisions = {each.subject: each for each in read_decisions(folder)}
    assert list(decisions) == ARMS
    decision = decisions["trained"]
    assert decision.kind == "tuned_values"
    assert decision.decided["values"] == {RATE: 2e-3}
    assert decision.decided["grid"] == {RATE: [1e-3, 2e-3, 4e-3]}
    assert [each["loss"] for each in decision.decided["losses"]] == [each.loss for each in decision.runs]
    stored = {run.stored.name: run.loss for run in plan_of(folder).tuning if run.arm == "trained"}
    assert {each.name: each.loss for each in decision.runs} == stored
    assert all(each.name.endswith(each.fingerprint) for each in decision.runs)
    assert decision.final_runs_then == 0


def test_a_stored_choice_is_the_computed_one_and_needs_no_remark(folder):
    plan = plan_of(folder)
    assert (plan.remarks, plan.blocked) == ((), None)
    (folder / CHOICES_FILE).unlink()
    computed = plan_of(folder)
    for arm, choice in plan.choices.items():
        assert choice.made
        assert computed.choices[arm].made is None
        assert (choice.best, choice.losses, choice.edges) == (
            computed.choices[arm].best, computed.choices[arm].losses, computed.choices[arm].edges,
        )  # fmt: skip
    assert finals(plan) == finals(computed)


def test_one_more_tuning_run_with_a_better_loss_changes_no_plan_and_is_said(folder):
    before = plan_of(folder)
    store_finished(tuning_run(folder, "trained", 4e-3), folder, 0.5, name="a copy that is found first")
    plan = plan_of(folder)
    assert finals(plan) == finals(before)
    assert plan.choices["trained"].values == {RATE: 2e-3}
    (line,) = lines(plan)
    assert line.startswith("trained: learning_rate=0.002 was chosen at ")
    assert line.endswith("would be learning_rate=0.004")
    (folder / CHOICES_FILE).unlink()
    assert finals(plan_of(folder)) != finals(before)  # as it would have been without


def test_a_tuning_run_computed_again_with_another_number_changes_no_plan_and_is_said(folder):
    before = plan_of(folder)
    run = tuning_run(folder, "frozen_normal", 1e-3)
    name = run.stored.name
    shutil.rmtree(run.stored.directory.path)
    store_finished(run, folder, 20.0)
    plan = plan_of(folder)
    assert finals(plan) == finals(before)
    (line,) = lines(plan)
    assert f"have changed since: {name}: loss {run.loss:.6g} then, 20 now" in line


def test_a_lost_tuning_run_is_wanted_again_and_holds_no_final_run_up(folder):
    before = plan_of(folder)
    shutil.rmtree(tuning_run(folder, "trained", 1e-3).stored.directory.path)
    plan = plan_of(folder)
    assert finals(plan) == finals(before)
    assert [run.title for run in plan.runs if run.state == "missing"] == ["trained s1000 learning_rate=0.001"]
    assert "then, missing now" in lines(plan)[0]


def test_an_extended_grid_and_diverged_points_are_kept_as_they_were(tmp_path):
    study = study_of(tuning=GRID | {"extend": 1})

    def at_the_edge(arm, seed, stage, point):
        if arm == "frozen_normal" and stage == "tuning":
            return math.inf
        return math.inf if stage == "tuning" and point[0][1] > 3e-3 else 2.0 + sum(value for _, value in point)

    store_study(study, tmp_path, at_the_edge)
    plan = plan_of(tmp_path, study)
    assert plan.grid == {RATE: [5e-4, 1e-3, 2e-3, 4e-3]}
    assert plan.choices["trained"].edges == (RATE,)
    assert plan.choices["trained"].losses[((RATE, 4e-3),)] == math.inf
    assert plan.choices["frozen_normal"].best is None
    assert plan.remarks == ()


def test_the_order_of_the_keys_in_a_grid_is_no_other_declaration(tmp_path):
    keys = {"learning_rate": [1e-3, 2e-3, 4e-3], "warmup_steps": [2, 4]}
    store_study(study_of(arms=ARMS[:1], tuning={"grid": keys, "extend": 0}), tmp_path, loss)
    turned = study_of(arms=ARMS[:1], tuning={"grid": dict(reversed(keys.items())), "extend": 0})
    plan = plan_of(tmp_path, turned)
    assert (plan.remarks, plan.blocked) == ((), None)
    assert {run.state for run in plan.runs} == {"finished"}


def test_a_setting_that_a_later_version_added_makes_no_other_declaration(folder):
    tree = read_sealed(folder / CHOICES_FILE)
    for decision in tree["decisions"]:
        del decision["declaration"]["training.epsilon"]  # as if there had been none then
        decision["digest"] = digest_of(decision["declaration"])
    write_sealed(folder / CHOICES_FILE, tree)
    assert plan_of(folder).blocked is None
    training = study_of().base["training"]
    used = study_of(base=study_of().base | {"training": training | {"epsilon": 1e-6}})
    assert "training.epsilon none, now 1e-06" in plan_of(folder, used).blocked


# ---- Arms that come later ------------------------------------------------------------------------------------------


def test_an_arm_that_is_added_is_tuned_on_the_points_of_the_others_whose_choices_stay(folder):
    study = study_of(arms=[*ARMS, "trained_head_orthogonal"])
    plan = plan_of(folder, study)
    assert not plan.is_tuned
    assert {run.arm for run in plan.runs if run.state == "missing"} == {"trained_head_orthogonal"}
    assert {run.arm for run in plan.final} == set(ARMS)
    store_study(study, folder, loss)
    after = plan_of(folder, study)
    assert after.is_tuned
    assert {run.state for run in after.runs} == {"finished"}
    assert [after.choices[arm] for arm in ARMS] == [plan.choices[arm] for arm in ARMS]
    assert [each.subject for each in read_decisions(folder)] == [*ARMS, "trained_head_orthogonal"]


def test_verdicts_about_arms_that_have_their_values_do_not_wait_for_another(folder):
    claim = {
        "name": "H", "claim": "x", "kind": "better", "treatment": ARMS[1], "control": "trained",
        "varies": ["start", "scale", "moves"],
    }  # fmt: skip
    study = study_of(arms=[*ARMS, "trained_head_orthogonal"], hypotheses=[claim])
    (verdict,) = findings_of(study, Shelf(folder)).verdicts
    assert verdict.reason == "too_few_pairs"


# ---- Another declaration -------------------------------------------------------------------------------------------


def test_an_unused_choice_for_another_declaration_gives_way_and_is_kept_in_the_list(folder):
    for path in folder.glob("*-s*"):
        shutil.rmtree(path)
    other = study_of(tuning={"grid": {"learning_rate": [2e-3, 4e-3, 8e-3, 1.6e-2]}})
    plan = plan_of(folder, other)
    assert plan.blocked is None
    assert (
        "(tuning.grid.training.learning_rate [0.001, 0.002, 0.004], now [0.002, 0.004, 0.008, 0.016]); no"
        in (lines(plan)[0])
    )
    store_study(other, folder, lambda arm, seed, stage, point: 1 + sum(abs(value - 4e-3) for _, value in point))
    plan = plan_of(folder, other)
    assert plan.remarks == ()
    assert plan.choices["trained"].values == {RATE: 8e-3}
    assert [each.subject for each in read_decisions(folder)] == 2 * ARMS


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"tuning": {"grid": {"learning_rate": [1e-3, 2e-3]}}}, "tuning.grid.training.learning_rate"),
        ({"tuning": GRID | {"seeds": [7]}}, "tuning.seeds [1000], now [7]"),
        ({"tuning": GRID | {"set": {"steps": 10}}}, "training.steps 40, now 10"),
        ({"arms": {arm: {"set": {"weight_decay": 0.2}} for arm in ARMS}}, "training.weight_decay 0.1, now 0.2"),
    ],
)
def test_a_used_choice_is_not_replaced_because_the_declaration_changed(folder, changes, expected):
    plan = plan_of(folder, study_of(**changes), facts={"vocabulary": VOCABULARY})
    assert f"{folder / CHOICES_FILE}: what was chosen at " in plan.blocked
    assert "for trained, frozen_head_orthogonal, frozen_normal belongs to another declaration" in plan.blocked
    assert expected in plan.blocked
    assert "delete the file to choose again" in plan.blocked
    (folder / CHOICES_FILE).unlink()
    assert plan_of(folder, study_of(**changes)).blocked is None


def test_what_was_chosen_on_other_data_does_not_hold(folder):
    assert plan_of(folder, data_digest=DATA_DIGEST).blocked is None
    assert "data digest dddddddddddd, now eeeeeeeeeeee" in plan_of(folder, data_digest="e" * 64).blocked


# ---- Damage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: text.replace('"training.learning_rate": 0.002', '"training.learning_rate": 0.004'), "sealed"),
        (lambda text: "", "empty"),
        (lambda text: "{}", "has no seal"),
    ],
)
def test_a_damaged_file_is_named_and_nothing_goes_by_it(folder, damage, reason):
    before, file = finals(plan_of(folder)), folder / CHOICES_FILE
    file.write_text(damage(file.read_text()))
    plan = plan_of(folder)
    assert plan.blocked.startswith(f"{file}: damaged: ")
    assert reason in plan.blocked
    assert "restore the file, or delete it" in plan.blocked
    assert [code for code, _ in plan.remarks] == ["choices_damaged"]
    assert finals(plan) == before  # what is finished is still shown
    with pytest.raises(Damaged):
        store_choices(plan, folder, data_digest=None)
    assert "choices_damaged" in [code for code, _ in findings_of(study_of(), Shelf(folder)).notes]


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: tree | {"decisions": [{"kind": "tuned_values"}]},
        lambda tree: tree | {"decisions": [tree["decisions"][0] | {"decided": {}}]},
        lambda tree: tree | {"decisions": [_with_values(tree["decisions"][0], {"training.steps": 3.0})]},
        lambda tree: tree | {"format_version": 99},
    ],
)
def test_a_sealed_file_of_another_shape_is_refused_too(folder, change):
    write_sealed(folder / CHOICES_FILE, change(read_sealed(folder / CHOICES_FILE)))
    assert str(folder / CHOICES_FILE) in plan_of(folder).blocked


def _with_values(decision, values):
    return decision | {"decided": decision["decided"] | {"values": values}}


def test_a_kind_that_a_later_version_adds_is_left_alone(folder):
    tree = read_sealed(folder / CHOICES_FILE)
    later = tree["decisions"][0] | {"kind": "looks", "subject": "trained", "decided": {"at": [4, 8]}}
    write_sealed(folder / CHOICES_FILE, tree | {"decisions": [*tree["decisions"], later]})
    plan = plan_of(folder)
    assert (plan.remarks, plan.blocked) == ((), None)
    assert plan.choices["trained"].made


# ---- Who writes, and what a report says ----------------------------------------------------------------------------


def test_readers_write_nothing(tmp_path):
    study = study_of()
    shelf = store_study(study, tmp_path, loss, stores_choices=False)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    findings_of(study, shelf)
    study_status(study, tmp_path)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}


def test_a_study_without_the_file_is_planned_as_before_and_its_report_says_so(tmp_path):
    findings = findings_of(study_of(), store_study(study_of(), tmp_path, loss, stores_choices=False))
    assert {run.state for run in findings.plan.runs} == {"finished"}
    assert ("choices_not_stored", {"names": ARMS}) in findings.notes


def test_choices_that_are_stored_after_their_runs_began_are_told_from_others(tmp_path):
    study = study_of()
    shelf = store_study(study, tmp_path, loss, stores_choices=False)
    store_choices(planned(study, shelf), tmp_path, data_digest=DATA_DIGEST)
    notes = dict(findings_of(study, Shelf(tmp_path)).notes)
    assert notes["choices_stored_late"]["runs"] == 6
    assert "choices_not_stored" not in notes


def test_a_choice_dated_after_the_runs_that_use_it_is_said_to_be_late_whatever_it_says_itself(tmp_path):
    study = study_of()
    store_study(study, tmp_path, loss)
    assert not any("chosen values were stored" in line for line in study_status(study, tmp_path)[1])
    tree = read_sealed(tmp_path / CHOICES_FILE)
    later = [each | {"made": "2026-01-01T00:15:00+00:00"} for each in tree["decisions"]]  # when the runs were going on
    write_sealed(tmp_path / CHOICES_FILE, tree | {"decisions": later})
    line = "The chosen values were stored at 2026-01-01T00:15:00+00:00, when 6 final runs that use them had started"
    assert line in study_status(study, tmp_path)[1]
    assert dict(findings_of(study, Shelf(tmp_path)).notes)["choices_stored_late"]["runs"] == 6


def test_status_says_what_does_not_hold(folder):
    store_finished(tuning_run(folder, "trained", 4e-3), folder, 0.5, name="a copy that is found first")
    assert any("would be learning_rate=0.004" in line for line in study_status(study_of(), folder)[1])
    (folder / CHOICES_FILE).write_text(json.dumps({}))
    assert any("choices.json: damaged: has no seal" in line for line in study_status(study_of(), folder)[1])


def test_an_arm_that_is_taken_out_changes_nothing_for_the_others(folder):
    plan = plan_of(folder, study_of(arms=ARMS[:2]))
    assert plan.remarks == ()
    assert {run.state for run in plan.runs} == {"finished"}
