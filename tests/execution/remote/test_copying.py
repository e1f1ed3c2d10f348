"""Sync and pull over a real server: what is sent, what is left alone, and that a pulled run is never half a run."""

import dataclasses
import json
import os
import shutil
import time
from pathlib import Path

import pytest
from loopback import HOST, World, git_add, needs_a_server

from oelm.execution.controller import refuse_what_runs_elsewhere
from oelm.execution.remote import pull as pulling
from oelm.execution.remote import verbs
from oelm.execution.remote.hosts import SSH_CONFIG_VARIABLE, server_named
from oelm.execution.remote.project import tracked_files
from oelm.execution.remote.pull import pull
from oelm.execution.remote.verbs import data_folders, sync
from oelm.machine.errors import UserError
from oelm.run.directory import CHECKPOINT_FILES
from oelm.storage.files import read_json, sha256_of
from oelm.storage.ownership import Process, now

pytestmark = needs_a_server


@pytest.fixture
def here(world, monkeypatch) -> World:
    """We stand in the project."""
    monkeypatch.chdir(world.project)
    monkeypatch.setenv(SSH_CONFIG_VARIABLE, str(world.server.client_config))
    return world


def sent(data=("data/tokens",)) -> list[str]:
    lines: list[str] = []
    sync(server_named(HOST), data_folders(list(data)), say=lines.append)
    return lines


# ---- Sync ----------------------------------------------------------------------------------------------------------


def track(project: Path, name: str, content: str) -> Path:
    file = project / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    git_add(project)
    return file


def test_what_git_tracks_and_the_data_asked_for_arrive_and_nothing_else(here):
    """Of a change only the difference goes over the wire; data behind a link comes as files."""
    (here.project / "secret.txt").write_text("not tracked")
    (here.project / "data" / "other").mkdir()
    (here.project / "data" / "other" / "train.bin").write_bytes(b"x")
    lines = sent()
    assert not (here.there / "secret.txt").exists()
    assert not (here.there / "data" / "other").exists()
    for name in ("src/oelm/cli/remote.py", "data/tokens/train.bin", "data/tokens/val.bin"):
        assert (here.there / name).read_bytes() == (here.project / name).read_bytes()
    tracked = len(tracked_files(here.project))
    assert lines[0].startswith(f"code: {tracked} files, ")
    assert lines[0].endswith(f"sent of {tracked} tracked files")
    (here.project / "secret.txt").unlink()
    file = here.project / "data" / "tokens" / "extra.bin"
    file.write_bytes(os.urandom(2**22))
    note = track(here.project, "note.txt", "one")
    os.utime(note, (1_000_000_000, 1_000_000_000))
    (here.project / "data" / "big").symlink_to(here.project / "data" / "tokens")
    again = sent(["data/tokens", "data/big"])
    assert again[0].startswith("code: 1 file, ")
    assert again[1].startswith("data/tokens: 1 file, 4.")
    assert not (here.there / "data" / "big").is_symlink()
    assert (here.there / "data" / "big" / "train.bin").stat().st_size == 40_000
    with open(file, "r+b") as stream:
        stream.write(b"x")
    os.utime(file, (1, 1))
    note.write_text("two")  # of the same size and time
    os.utime(note, (1_000_000_000, 1_000_000_000))
    again = sent()
    assert again[0].startswith("code: 1 file, ")
    assert again[1] == "data/tokens: 1 file, 0.0 MiB sent"
    assert (here.there / "data" / "tokens" / "extra.bin").read_bytes() == file.read_bytes()
    assert (here.there / "note.txt").read_text() == "two"


def test_only_what_an_earlier_sync_brought_is_ever_removed(here, monkeypatch):
    """A cut one too; and a list of earlier files cannot reach outside."""
    track(here.project, "old/module.py", "x = 1\n")
    sent([])
    (here.there / "runs" / "mine").mkdir(parents=True)
    (here.there / "runs" / "mine" / "result").write_text("precious")
    (here.there / "own.txt").write_text("theirs")
    shutil.rmtree(here.project / "old")

    def cut(*arguments, **options):
        (here.there / "new.txt").write_text("had come through")
        raise UserError("cut")

    new = track(here.project, "new.txt", "had come through")
    with monkeypatch.context() as patched:
        patched.setattr(verbs, "send", cut)
        with pytest.raises(UserError, match="cut"):
            sent([])
    new.unlink()
    git_add(here.project)
    assert "2 removed that are no longer tracked" in sent([])[0]
    assert not (here.there / "old").exists()
    assert not (here.there / "new.txt").exists()
    assert (here.there / "own.txt").read_text() == "theirs"
    assert (here.there / "runs" / "mine" / "result").read_text() == "precious"
    outside = here.there.parent / "outside.txt"
    outside.write_text("theirs")
    (here.there / "link").symlink_to(here.there.parent)
    names = ["../outside.txt", str(outside), "link/outside.txt", "", ".", "src"]
    (here.there / ".oelm-synced.json").write_text(json.dumps({"files": names}))
    sent([])
    assert outside.exists()
    assert (here.there / "src" / "oelm" / "cli").is_dir()


def test_a_tracked_link_is_sent_as_one_and_nothing_is_written_through_a_link(here, tmp_path):
    """Where a link becomes a folder here, and where one is in the place of a folder there; data may lie behind one."""
    track(here.project, "releases/note.txt", "one")
    (here.project / "latest").symlink_to("releases")
    git_add(here.project)
    sent([])
    assert os.readlink(here.there / "latest") == "releases"
    (here.project / "latest").unlink()
    track(here.project, "latest/note.txt", "two")
    track(here.project, "notes/about.txt", "tracked")
    disk = tmp_path / "large disk"
    disk.mkdir()
    for name in ("data", "notes"):
        (here.there / name).symlink_to(disk)
    sent()
    assert not (here.there / "latest").is_symlink()
    assert (here.there / "latest" / "note.txt").read_text() == "two"
    assert (here.there / "releases" / "note.txt").read_text() == "one"
    assert (here.there / "data").is_symlink()
    assert (disk / "tokens" / "train.bin").stat().st_size == 40_000
    assert (here.there / "notes" / "about.txt").read_text() == "tracked"
    assert [path.name for path in disk.iterdir()] == ["tokens"]


def test_what_is_there_is_a_copy_of_what_is_here(here):
    """Whatever it was changed to, and whatever an earlier version wrote down of it."""
    track(here.project, "note.txt", "one")
    sent([])
    note = here.there / "note.txt"
    for files in ({"note.txt": ["0" * 64]}, ["note.txt"], {}):
        note.write_text("edited there")
        (here.there / ".oelm-synced.json").write_text(json.dumps({"files": files}))
        sent([])
        assert note.read_text() == "one"
    note.unlink()
    sent([])
    assert note.read_text() == "one"


def test_what_cannot_be_sent_or_fetched_is_said(here, tmp_path, monkeypatch):
    for folder, expected in (
        ("data/none", "no such folder here"),
        ("..", "is not in the project"),
        ("src", "contains no prepared data"),
    ):
        with pytest.raises(UserError, match=expected):
            sent([folder])
    here.there.mkdir(parents=True, exist_ok=True)
    (here.there / "thesis.tex").write_text("mine")
    with pytest.raises(UserError, match="contains files of another project; choose another `folder`"):
        sent([])
    assert [path.name for path in here.there.iterdir()] == ["thesis.tex"]
    with pytest.raises(UserError, match="is missing: nothing was run in it"):
        pulled(here)
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


def make_whole(checkpoint: Path) -> None:
    """The files that a checkpoint has, where they are missing, and a manifest that names them."""
    checkpoint.mkdir(parents=True, exist_ok=True)
    files = {}
    for name in CHECKPOINT_FILES:
        file = checkpoint / name
        if not file.exists():
            file.write_bytes(b"{}")
        files[name] = {"bytes": file.stat().st_size, "sha256": sha256_of(file)}
    (checkpoint / "manifest.json").write_text(json.dumps({"format_version": 1, "files": files}))


@pytest.fixture
def far_runs(here):
    """Three runs over there as files: finished, running, and one of a grid."""
    runs = here.there / "runs" / "little"
    for name, state in (("a-s0", "finished"), ("b-s0", "running"), ("tuning/c-s9", "finished")):
        run = runs / name
        make_whole(run / "checkpoints" / "step-000001")
        (run / "config.json").write_text("{}")
        (run / "status.json").write_text(json.dumps({"state": state}))
        (run / "metrics.jsonl").write_text('{"step": 1}\n')
        (run / "lock.json").write_text("")
        (run / "slot.json").write_text("{}")
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


def lock(**changes: object) -> str:
    """As this process would write it, but for the changes."""
    return json.dumps(Process.current().__dict__ | {"since": now(), "heartbeat": time.time()} | changes)


def names_in(folder) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_pulled_runs_hold_what_readers_read_and_no_locks_and_a_second_pull_brings_what_changed(here, far_runs):
    for name in ("registration.json", "choices.json"):
        (far_runs / name).write_text(f'{{"{name}": 1}}')
    pulled(here)
    local, small = here.project / "runs" / "little", {"config.json", "status.json", "metrics.jsonl"}
    assert names_in(local) == {
        *(f"a-s0/{name}" for name in small | {"experiment_result.json"}),
        *(f"b-s0/{name}" for name in small),
        *(f"tuning/c-s9/{name}" for name in small | {"experiment_result.json"}),
        *("bench.json", "pulled.json", "registration.json", "choices.json"),
    }
    before = {name: (local / name).stat().st_mtime_ns for name in names_in(local)}
    (far_runs / "b-s0" / "experiment_result.json").write_text('{"val_loss": 2.5}')
    (far_runs / "b-s0" / "status.json").write_text('{"state": "finished"}')
    assert pulled(here)[0] == "runs/little: 2 files, 0.0 MiB new, 1 run changed"
    assert read_json(local / "b-s0" / "experiment_result.json") == {"val_loss": 2.5}
    changed = {name for name in before if (local / name).stat().st_mtime_ns != before[name]}
    assert changed == {"b-s0/status.json"}
    assert pulled(here)[0] == "runs/little: nothing new"


def test_runs_of_this_machine_are_never_touched(here, far_runs):
    """Also one that waits in a queue here and has not begun, and was brought before."""
    pulled(here)
    local = here.project / "runs" / "little"
    before = names_in(local / "b-s0")
    (local / "b-s0" / "slot.json").write_text(json.dumps({"kind": "slurm", "name": "little-1", "task": 0}))
    (local / "a-s0" / "lock.json").write_text("")
    (local / "a-s0" / "experiment_result.json").write_text('{"val_loss": 9}')
    (far_runs / "b-s0" / "status.json").write_text('{"state": "interrupted"}')
    lines = pulled(here, checkpoints=True)
    assert read_json(local / "a-s0" / "experiment_result.json") == {"val_loss": 9}
    assert not (local / "a-s0" / "checkpoints").exists()
    assert names_in(local / "b-s0") == before | {"slot.json"}
    assert read_json(local / "b-s0" / "status.json") == {"state": "running"}
    assert any("left unchanged" in line and "a-s0, b-s0" in line for line in lines)


def test_a_finished_run_there_that_an_unfinished_one_here_stands_in_the_way_of_is_named_with_the_way_to_take_it(
    here, far_runs
):
    mine = here.project / "runs" / "little" / "a-s0"
    mine.mkdir(parents=True)
    (mine / "lock.json").write_text("")
    (mine / "status.json").write_text('{"state": "interrupted"}')
    told = (
        f"finished on {HOST}, but not fetched, because this machine has unfinished runs with the same names: a-s0; to"
    )
    assert any(told in line for line in pulled(here))
    (mine / "lock.json").write_text(lock())  # at work on it
    assert not any("not fetched" in line for line in pulled(here))
    mine.rename(here.project / "away")
    assert not any("not fetched" in line or "left unchanged" in line for line in pulled(here))
    assert read_json(mine / "status.json") == {"state": "finished"}


def test_the_studys_files_of_this_machine_are_kept_and_those_of_the_server_follow_it(here, far_runs):
    local = here.project / "runs" / "little"
    local.mkdir(parents=True)
    (local / "bench.json").write_text('{"mine": 1}')
    (far_runs / "controller.log").write_text("one\n")
    assert any("left unchanged" in line and "bench.json" in line for line in pulled(here))
    (far_runs / "controller.log").write_text("one\ntwo\n")
    assert not any("controller.log" in line for line in pulled(here))
    assert (local / "controller.log").read_text() == "one\ntwo\n"
    with open(local / "controller.log", "a") as log:
        log.write("written here\n")
    (far_runs / "controller.log").write_text("one\ntwo\nthree\n")
    assert any("left unchanged" in line and "bench.json, controller.log" in line for line in pulled(here))
    assert (local / "controller.log").read_text() == "one\ntwo\nwritten here\n"
    assert read_json(local / "bench.json") == {"mine": 1}


def test_a_registration_is_sent_along_and_replaces_none(here):
    runs = Path("runs/little")
    sync(server_named(HOST), [], say=print, runs=runs)
    assert not (here.there / runs).exists()
    runs.mkdir(parents=True)
    (runs / "registration.json").write_text("{}")
    (runs / "choices.json").write_text("{}")
    for expected in ("runs/little/registration.json: sent", "runs/little/registration.json: not sent, because one"):
        lines: list[str] = []
        sync(server_named(HOST), [], say=lines.append, runs=runs)
        assert any(line.startswith(expected) for line in lines), lines
        assert names_in(here.there / runs) == {"registration.json"}
        assert (here.there / runs / "registration.json").read_text() == "{}"
        (runs / "registration.json").write_text('{"another": 1}')


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
    assert any("step-000002: left out, incomplete" in line for line in lines)
    before = (local / "b-s0" / "checkpoints" / "step-000001").stat().st_mtime_ns
    make_whole(torn)
    again = pulled(here, checkpoints=True)
    assert "3 files," in again[-1] or "4 files," in again[-1]  # the torn one, which is whole now
    assert not any("not whole" in line for line in again)
    assert (local / "b-s0" / "checkpoints" / "step-000002" / "model.safetensors").is_file()
    assert (local / "b-s0" / "checkpoints" / "step-000001").stat().st_mtime_ns == before


def test_a_best_model_of_the_same_size_and_second_is_brought(here, far_runs):
    best, second = far_runs / "a-s0" / "best" / "model.safetensors", 1_700_000_000_000_000_000
    best.parent.mkdir()
    for content, nanoseconds in ((b"one", 100_000_000), (b"two", 200_000_000)):
        best.write_bytes(content)
        os.utime(best, ns=(second + nanoseconds, second + nanoseconds))
        pulled(here, checkpoints=True)
        assert (here.project / "runs/little/a-s0/best/model.safetensors").read_bytes() == content


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
    """By a controller, or by a run that outlived its own."""
    folder, outlived = here.project / "runs" / "little", far_runs / "tuning" / "c-s9" / "lock.json"
    for there in (far_runs / "controller.lock", outlived):
        there.write_text(lock())
        lines = pulled(here)
        with pytest.raises(
            UserError,
            match=f"is being run on {HOST}, seen at .*`oelm remote {HOST} pull little`; or delete .*/pulled.json to",
        ):
            refuse_what_runs_elsewhere("little", folder)
        there.write_text("")
        pulled(here)
        refuse_what_runs_elsewhere("little", folder)
    assert f"runs/little: no controller on {HOST}, but runs continue there: tuning/c-s9" in lines


def test_runs_of_another_server_are_kept_and_its_note_stays(here, far_runs, tmp_path):
    """The same host with another folder is another server."""
    (far_runs / "controller.lock").write_text(lock())
    pulled(here)
    other = tmp_path / "other" / "oelm"
    for name, state in (("a-s0", "queued"), ("d-s0", "finished")):
        run = other / "runs" / "little" / name
        run.mkdir(parents=True)
        (run / "config.json").write_text("{}")
        (run / "status.json").write_text(json.dumps({"state": state}))
    (other / "runs" / "little" / "bench.json").write_text('{"other": 1}')
    lines: list[str] = []
    second = dataclasses.replace(server_named(HOST), folder=str(other))
    pull(second, Path("runs/little"), checkpoints=False, say=lines.append)
    local = here.project / "runs" / "little"
    assert read_json(local / "a-s0" / "status.json") == {"state": "finished"}
    assert read_json(local / "d-s0" / "status.json") == {"state": "finished"}
    assert read_json(local / "bench.json") == {}
    assert any("left unchanged" in line and "a-s0" in line and "d-s0" not in line for line in lines)
    assert any("left unchanged" in line and "bench.json" in line for line in lines)
    with pytest.raises(UserError, match=f"is being run on {HOST}"):
        refuse_what_runs_elsewhere("little", local)
    (far_runs / "a-s0" / "metrics.jsonl").write_text('{"step": 2}\n')
    pulled(here)  # its own server still brings what is new
    assert (local / "a-s0" / "metrics.jsonl").read_text() == '{"step": 2}\n'
