"""`oelm status` and `oelm logs`: what engines say of the runs is asked and told once; a run is found by few words."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from oelm.core.config import stored_form
from oelm.execution.engine import Wanted
from oelm.execution.status import find_run, overview, study_status, study_tree
from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory
from oelm.storage.files import write_json
from oelm.storage.ownership import Process
from oelm.study.plan import planned
from oelm.study.shelf import Shelf
from small_runs import small_run
from stored_runs import DATA_DIGEST, facts_of, small_study

STUDY = small_study(arms=["trained", "frozen_normal"], seeds=[0, 1])


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "small"


@pytest.fixture
def prepared(folder) -> list[RunDirectory]:
    """Every run of the study has been prepared, by this very process."""
    runs = planned(STUDY, Shelf(folder), facts=facts_of(STUDY), data_digest=DATA_DIGEST).runs
    wanted = [Wanted(run.directory(folder, data_digest=DATA_DIGEST), run) for run in runs]
    for run in wanted:
        run.prepare()
    return [run.directory for run in wanted]


# ---- What is queued ------------------------------------------------------------------------------------------------


def test_a_cluster_that_does_not_answer_is_named_once(prepared, folder, monkeypatch):
    monkeypatch.setenv("PATH", str(folder))
    for task, directory in enumerate(prepared):
        write_json(directory.handle_file, {"kind": "slurm", "name": "little-1", "task": task})
    plan, lines = study_status(STUDY, folder)
    assert [line.endswith("  Slurm: no answer") for line in lines[:4]] == [True] * 4
    reasons = [line for line in lines if "squeue is not on this machine" in line]
    assert len(reasons) == 1
    assert reasons[0].startswith("Slurm does not answer, so it is unknown whether it still has 4 of these runs: ")
    assert {run.state for run in plan.runs} == {"queued"}  # as far as is known
    tree = study_tree(STUDY, folder)
    assert reasons[0] in tree["remarks"]
    assert {row["place"] for row in tree["runs"]} == {"Slurm: no answer"}


def test_a_run_that_its_controller_is_about_to_start_is_queued(prepared, folder):
    assert study_status(STUDY, folder)[1][-1] == "small: final 0/4 finished (4 queued)"
    assert overview(folder.parent)[-1] == f"{folder}: 4 queued"


def test_a_run_whose_controller_died_before_it_was_started_is_missing(prepared, folder):
    dead = replace(Process.current(), pid_started="1")
    for directory in prepared[:3]:
        write_json(directory.status_file, {**dead.__dict__, "state": "queued"})
    plan, lines = study_status(STUDY, folder)
    assert lines[-1] == "small: final 0/4 finished (3 missing, 1 queued)"
    assert [run.state for run in plan.runs] == ["missing"] * 3 + ["queued"]
    assert overview(folder.parent)[-1] == f"{folder}: 3 missing, 1 queued"


def test_a_run_that_was_queued_on_another_machine_is_left_as_it_came(prepared, folder):
    """As pulled from a server: nobody here can tell."""
    for directory in prepared:
        write_json(directory.status_file, {**replace(Process.current(), host="lab").__dict__, "state": "queued"})
    assert study_status(STUDY, folder)[1][-1] == "small: final 0/4 finished (4 queued)"


# ---- Which run is meant --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    for name in ("a/trained-s1-123", "a/trained-s10-456", "a/tuning/trained-s9-789", "b/trained-s1-123", "b/frozen"):
        (root / name).mkdir(parents=True)
        write_json(root / name / "config.json", stored_form(small_run()))
    return root


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a/trained-s1", "a/trained-s1-123"),  # and not s10
        ("b/trained-s1", "b/trained-s1-123"),
        ("trained-s10", "a/trained-s10-456"),
        ("fro", "b/frozen"),
        ("a/trained-s9", "a/tuning/trained-s9-789"),
        ("tuning/trained-s9", "a/tuning/trained-s9-789"),
        ("a/trained-s1-123", "a/trained-s1-123"),
    ],
)
def test_a_run_is_found_by_the_beginning_of_its_name_or_of_its_studys_and_its_own(runs, name, found):
    assert find_run(name, runs).path == runs / found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("trained-s1", r"could be \S*/a/trained-s1-123, \S*/b/trained-s1-123; add its study, as STUDY/RUN"),
        ("a/trained", r"could be \S*/a/trained-s1-123, .*; give more of its name"),
        ("c/trained-s1", "no such run directory"),
    ],
)
def test_what_could_be_several_runs_or_none_is_one_line(runs, name, expected):
    with pytest.raises(UserError, match=expected) as caught:
        find_run(name, runs)
    assert "\n" not in str(caught.value)


# ---- Whose a run is, and what is none ------------------------------------------------------------------------------


def test_a_lock_of_a_clock_that_is_ahead_is_explained(prepared, folder):
    directory = prepared[0]
    elsewhere = {"host": "elsewhere", "boot_id": "x", "pid": 7, "pid_started": "1"}
    write_json(directory.status_file, {"state": "running", "step": 3, **elsewhere})
    write_json(directory.lock_file, {**elsewhere, "since": "then", "heartbeat": time.time() + 7200})
    line = study_status(STUDY, folder)[1][0]
    assert "held by host elsewhere, pid 7" in line
    assert "its clock is 2 h ahead of this host's" in line or "its clock is 120 min ahead of this host's" in line
    assert f"delete {directory.lock_file} to take over" in line


def test_folders_inside_a_run_are_no_runs(prepared, folder):
    run = prepared[0].path
    for inner in ("best", "damaged/1"):
        (run / inner).mkdir(parents=True)
        write_json(run / inner / "config.json", {"model_type": "gpt2"})
    for root in (folder, run):
        assert not [line for line in overview(root) if "best" in line or "damaged" in line]


def test_what_is_damaged_is_told_to_machines_too(prepared, folder):
    (folder / "bench.json").write_text("{}")
    assert any(f"{folder / 'bench.json'}: damaged: " in line for line in study_tree(STUDY, folder)["remarks"])
