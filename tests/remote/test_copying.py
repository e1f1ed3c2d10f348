"""Sync and pull over a real server: what is sent, what is left alone, and that a pulled run is never half a run."""

import dataclasses
import json
import os
import shutil
from pathlib import Path

import pytest
from loopback import HOST, World, git_add, needs_a_server

from oelm.errors import UserError
from oelm.experiments.controller import refuse_what_runs_elsewhere
from oelm.files import read_json
from oelm.remote import pull as pulling
from oelm.remote.hosts import SSH_CONFIG_VARIABLE, server_named
from oelm.remote.pull import pull
from oelm.remote.sync import data_folders, sync

pytestmark = needs_a_server


@pytest.fixture
def here(world, monkeypatch) -> World:
    """We stand in the project."""
    monkeypatch.chdir(world.project)
    monkeypatch.setenv(SSH_CONFIG_VARIABLE, str(world.server.client_config))
    return world


def sent(data=("data/tokens",)) -> tuple[int, list[str]]:
    lines: list[str] = []
    copied = sync(server_named(HOST), data_folders(list(data)), say=lines.append)
    return copied.files, lines


# ---- Sync ----------------------------------------------------------------------------------------------------------


def test_what_git_tracks_and_the_data_asked_for_arrive_and_nothing_else(here):
    (here.project / "secret.txt").write_text("not tracked")
    (here.project / "data" / "other").mkdir()
    (here.project / "data" / "other" / "train.bin").write_bytes(b"x")
    files, lines = sent()
    assert not (here.there / "secret.txt").exists()
    assert not (here.there / "data" / "other").exists()
    for name in ("src/oelm/cli/remote.py", "data/tokens/train.bin", "data/tokens/val.bin"):
        assert (here.there / name).read_bytes() == (here.project / name).read_bytes()
    assert f"sent of {files - 2} tracked files" in lines[0]
    assert sent()[0] == 0  # again: nothing to send


def test_a_change_of_the_same_size_and_time_is_sent(here):
    file = here.project / "note.txt"
    file.write_text("one")
    os.utime(file, (1_000_000_000, 1_000_000_000))
    git_add(here.project)
    sent([])
    file.write_text("two")
    os.utime(file, (1_000_000_000, 1_000_000_000))
    assert sent([])[0] == 1
    assert (here.there / "note.txt").read_text() == "two"


def test_only_what_an_earlier_sync_brought_is_ever_removed(here):
    (here.project / "old").mkdir()
    (here.project / "old" / "module.py").write_text("x = 1\n")
    git_add(here.project)
    sent([])
    (here.there / "runs" / "mine").mkdir(parents=True)
    (here.there / "runs" / "mine" / "result").write_text("precious")
    (here.there / "own.txt").write_text("theirs")
    shutil.rmtree(here.project / "old")
    git_add(here.project)
    _, lines = sent([])
    assert "1 removed that are no longer tracked" in lines[0]
    assert not (here.there / "old").exists()
    assert (here.there / "own.txt").read_text() == "theirs"
    assert (here.there / "runs" / "mine" / "result").read_text() == "precious"


def test_a_list_of_earlier_files_cannot_reach_outside(here):
    sent([])
    outside = here.there.parent / "outside.txt"
    outside.write_text("theirs")
    (here.there / "link").symlink_to(here.there.parent)
    names = ["../outside.txt", str(outside), "link/outside.txt", "", ".", "src"]
    (here.there / ".oelm-synced.json").write_text(json.dumps({"files": names}))
    sent([])
    assert outside.exists()
    assert (here.there / "src" / "oelm" / "cli").is_dir()


def test_data_behind_a_link_is_sent_as_files(here, tmp_path):
    (here.project / "data" / "big").symlink_to(here.project / "data" / "tokens")
    sent(["data/big"])
    assert not (here.there / "data" / "big").is_symlink()
    assert (here.there / "data" / "big" / "train.bin").stat().st_size == 40_000


@pytest.mark.parametrize(
    ("folder", "expected"), [("data/none", "no such folder here"), ("..", "is not in the project")]
)
def test_data_that_has_no_place_there_is_refused(here, folder, expected):
    with pytest.raises(UserError, match=expected):
        sent([folder])


def test_outside_of_git_it_says_what_to_do(here, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="not in a git repository; sync sends what git tracks"):
        sync(server_named(HOST), [], say=print)


def test_names_that_a_shell_would_read_are_sent_and_stay_names(here):
    odd = ["$(touch canary).txt", "a;touch canary", "`touch canary`", "with 'quotes' \"both\"", "*", "雪 file", "-rf"]
    for name in odd:
        (here.project / name).write_text(name)
    git_add(here.project)
    sent([])
    for name in odd:
        assert (here.there / name).read_text() == name
    assert not [*here.project.rglob("canary"), *here.there.rglob("canary")]


# ---- Pull ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def far_runs(here):
    """Three runs over there as files: finished, running, and one of a grid."""
    runs = here.there / "runs" / "little"
    for name, state in (("a-s0", "finished"), ("b-s0", "running"), ("tuning/c-s9", "finished")):
        run = runs / name
        (run / "checkpoints" / "step-000001").mkdir(parents=True)
        (run / "config.json").write_text("{}")
        (run / "status.json").write_text(json.dumps({"state": state}))
        (run / "metrics.jsonl").write_text('{"step": 1}\n')
        (run / "lock.json").write_text("")
        (run / "slot.json").write_text("{}")
        (run / "checkpoints" / "step-000001" / "manifest.json").write_text('{"format_version": 1, "files": {}}')
        (run / ".partial-7-status.json").write_text("half")
        if state == "finished":
            (run / "experiment_result.json").write_text('{"val_loss": 1.5}')
    (runs / "controller.lock").write_text("{}")
    (runs / "bench.json").write_text("{}")
    return runs


def pulled(world, *, checkpoints: bool = False) -> list[str]:
    lines: list[str] = []
    pull(server_named(HOST), Path("runs/little"), checkpoints=checkpoints, say=lines.append)
    return lines


def names_in(folder) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_pulled_runs_hold_what_readers_read_and_no_locks(here, far_runs):
    pulled(here)
    small = {"config.json", "status.json", "metrics.jsonl"}
    assert names_in(here.project / "runs" / "little") == {
        *(f"a-s0/{name}" for name in small | {"experiment_result.json"}),
        *(f"b-s0/{name}" for name in small),
        *(f"tuning/c-s9/{name}" for name in small | {"experiment_result.json"}),
        "bench.json",
        "pulled.json",
    }


def test_a_second_pull_brings_what_changed_and_nothing_else(here, far_runs):
    pulled(here)
    local = here.project / "runs" / "little"
    before = {name: (local / name).stat().st_mtime_ns for name in names_in(local)}
    (far_runs / "b-s0" / "experiment_result.json").write_text('{"val_loss": 2.5}')
    (far_runs / "b-s0" / "status.json").write_text('{"state": "finished"}')
    assert "2 files" in pulled(here)[0]
    assert read_json(local / "b-s0" / "experiment_result.json") == {"val_loss": 2.5}
    changed = {name for name in before if (local / name).stat().st_mtime_ns != before[name]}
    assert changed == {"b-s0/status.json"}
    assert "0 files" in pulled(here)[0]


def test_runs_of_this_machine_are_never_touched(here, far_runs):
    mine = here.project / "runs" / "little" / "a-s0"
    mine.mkdir(parents=True)
    (mine / "lock.json").write_text("")
    (mine / "experiment_result.json").write_text('{"val_loss": 9}')
    lines = pulled(here, checkpoints=True)
    assert names_in(mine) == {"lock.json", "experiment_result.json"}
    assert read_json(mine / "experiment_result.json") == {"val_loss": 9}
    assert any("kept as they are" in line and "a-s0" in line for line in lines)


def test_checkpoints_come_whole_or_not_at_all(here, far_runs):
    torn = far_runs / "b-s0" / "checkpoints" / "step-000002"
    torn.mkdir()
    (torn / "model.safetensors").write_bytes(b"half of it")
    (far_runs / "a-s0" / "best").mkdir()
    (far_runs / "a-s0" / "best" / "model.safetensors").write_bytes(b"best")
    lines = pulled(here, checkpoints=True)
    local = here.project / "runs" / "little"
    assert (local / "a-s0" / "best" / "model.safetensors").read_bytes() == b"best"
    assert (local / "b-s0" / "checkpoints" / "step-000001" / "manifest.json").is_file()
    assert not (local / "b-s0" / "checkpoints" / "step-000002").exists()
    assert any("step-000002: left out, not whole" in line for line in lines)
    before = (local / "b-s0" / "checkpoints" / "step-000001").stat().st_mtime_ns
    (torn / "manifest.json").write_text('{"format_version": 1, "files": {}}')
    again = pulled(here, checkpoints=True)
    assert "1 files" in again[-1] or "2 files" in again[-1]  # the torn one, which is whole now
    assert not any("not whole" in line for line in again)
    assert (local / "b-s0" / "checkpoints" / "step-000002" / "model.safetensors").is_file()
    assert (local / "b-s0" / "checkpoints" / "step-000001").stat().st_mtime_ns == before


def test_a_status_that_says_finished_never_comes_without_its_result(here, far_runs, monkeypatch):
    """The run ends between the two copies: the status is the older one."""
    copies = []
    receive_for_real = pulling.receive

    def receive(*arguments):
        copies.append(receive_for_real(*arguments))
        if len(copies) == 1:
            (far_runs / "b-s0" / "experiment_result.json").write_text('{"val_loss": 2.5}')
            (far_runs / "b-s0" / "status.json").write_text('{"state": "finished"}')
        return copies[-1]

    monkeypatch.setattr(pulling, "receive", receive)
    pulled(here)
    local = here.project / "runs" / "little" / "b-s0"
    assert read_json(local / "status.json") == {"state": "running"}
    assert read_json(local / "experiment_result.json") == {"val_loss": 2.5}
    pulled(here)
    assert read_json(local / "status.json") == {"state": "finished"}


def test_a_study_that_is_being_run_there_is_not_started_here_until_a_pull_after_its_end(here, far_runs):
    (far_runs / "controller.lock").write_text(json.dumps({"pid": os.getpid()}))
    pulled(here)
    folder = here.project / "runs" / "little"
    with pytest.raises(UserError, match=f"is being run on {HOST}, seen at .*`oelm remote {HOST} pull little`"):
        refuse_what_runs_elsewhere("little", folder)
    (far_runs / "controller.lock").write_text("")
    pulled(here)
    refuse_what_runs_elsewhere("little", folder)


def test_runs_of_another_server_are_kept_and_its_note_stays(here, far_runs, tmp_path):
    """The same host with another folder is another server."""
    (far_runs / "controller.lock").write_text(json.dumps({"pid": os.getpid()}))
    pulled(here)
    other = tmp_path / "other" / "oelm"
    for name, state in (("a-s0", "queued"), ("d-s0", "finished")):
        run = other / "runs" / "little" / name
        run.mkdir(parents=True)
        (run / "config.json").write_text("{}")
        (run / "status.json").write_text(json.dumps({"state": state}))
    lines: list[str] = []
    second = dataclasses.replace(server_named(HOST), folder=str(other))
    pull(second, Path("runs/little"), checkpoints=False, say=lines.append)
    local = here.project / "runs" / "little"
    assert read_json(local / "a-s0" / "status.json") == {"state": "finished"}
    assert read_json(local / "d-s0" / "status.json") == {"state": "finished"}
    assert any("kept as they are" in line and "a-s0" in line and "d-s0" not in line for line in lines)
    with pytest.raises(UserError, match=f"is being run on {HOST}"):
        refuse_what_runs_elsewhere("little", local)
    (far_runs / "a-s0" / "metrics.jsonl").write_text('{"step": 2}\n')
    pulled(here)  # its own server still brings what is new
    assert (local / "a-s0" / "metrics.jsonl").read_text() == '{"step": 2}\n'


def test_a_folder_of_somebody_else_is_left_alone(here):
    here.there.mkdir(parents=True, exist_ok=True)
    (here.there / "thesis.tex").write_text("mine")
    with pytest.raises(UserError, match="holds files that are not this project's; choose another `folder`"):
        sent([])
    assert [path.name for path in here.there.iterdir()] == ["thesis.tex"]


def test_only_prepared_data_is_sent_as_data(here):
    with pytest.raises(UserError, match="holds no prepared data"):
        sent(["src"])


def test_nothing_to_pull_is_said(here):
    sent([])
    with pytest.raises(UserError, match="is not there: nothing was run in it"):
        pulled(here)
