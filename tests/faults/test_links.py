"""C7: symbolic links in the place of a run's files and folders: what they point to stays as it is, to the byte."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from runs import assert_equal_runs, assert_refused, everything_stored, state, training

from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory
from oelm.storage.files import append_to, new_folder, refuse_link, remove, write_json, write_json_unflushed

ADDED_TO = [
    "lock.json", "training.log", "metrics.jsonl", "output.log", "checkpoints", "best", "tensorboard", "trackers",
]  # fmt: skip
REPLACED = [
    "status.json", "config.json", "environment.json", "parameters.json", "experiment_result.json",
    "settings.json", "slot.json", "predictions.json", "best/model.safetensors", "best/config.json",
]  # fmt: skip
INNER = ["checkpoints/step-000035", "checkpoints/step-000040", "checkpoints/step-000007", "checkpoints/step-999999"]
LEFT_BEHIND = [".partial-1-x", "checkpoints/.partial-1-step-000042", "best/.partial-1-model.safetensors"]
OWN_TEMPORARY = [
    "status.json", "parameters.json", "experiment_result.json", "config.json", "environment.json",
    "checkpoints/step-000035", "checkpoints/step-000040", "best/model.safetensors",
]  # fmt: skip
KINDS = ["a file", "a folder", "nothing"]


@pytest.fixture
def precious(tmp_path) -> Path:
    """Somebody's files, among them folders that are called like checkpoints."""
    folder = tmp_path / "precious"
    for name in ("step-000001", "step-000002", "step-000099", ".partial-1-mine"):
        (folder / name).mkdir(parents=True)
        (folder / name / "model.safetensors").write_bytes(b"years of work")
    (folder / "notes.txt").write_text("mine")
    return folder


def seen(folder: Path) -> dict[str, object]:
    files = {path: path.lstat() for path in sorted(folder.rglob("*"))}
    return {
        str(path): (path.read_bytes() if path.is_file() else None, found.st_mtime_ns) for path, found in files.items()
    }


def target_of(kind: str, precious: Path) -> Path:
    return {"a file": precious / "notes.txt", "a folder": precious, "nothing": precious / "absent"}[kind]


def link(place: Path, precious: Path, kind: str) -> None:
    """In the place of what is there; a file that it pointed to holds what was there."""
    target = target_of(kind, precious)
    place.parent.mkdir(exist_ok=True)
    if kind == "a file" and place.is_file():
        shutil.copy(place, target)
    remove(place)
    place.symlink_to(target)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("lock.json", "a file"),
        ("checkpoints", "a folder"),
        ("metrics.jsonl", "nothing"),
        *(
            pytest.param(name, kind, marks=pytest.mark.trial)
            for name in ADDED_TO + REPLACED + INNER + LEFT_BEHIND
            for kind in KINDS
        ),
    ],
)
def test_a_link_in_a_run_never_changes_what_it_points_to(server, data, stopped, precious, name, kind):
    """The run is refused in a line, or goes on to the same end."""
    link(stopped / name, precious, kind)
    before = seen(precious)
    ended = server.run(*training(stopped, data))
    assert "Traceback" not in ended.text
    assert seen(precious) == before
    assert not (precious / "absent").exists()
    if name in ADDED_TO:
        assert_refused(ended, f"oelm: {stopped / name}: is a symbolic link")
        assert state(stopped) == "running"  # as the kill left it
    elif kind == "a file" or name not in ("config.json", "environment.json"):
        assert ended.code == 0, ended.text


PREMADE = """
import os
for place in {names!r}:
    folder, _, name = place.rpartition("/")
    os.makedirs(os.path.join({run!r}, folder), exist_ok=True)
    temporary = os.path.join({run!r}, folder, ".partial-%d-%s" % (os.getpid(), name))
    os.symlink({target!r}, temporary)
"""


@pytest.mark.parametrize("kind", ["a folder", *(pytest.param(each, marks=pytest.mark.trial) for each in KINDS[::2])])
def test_many_links_at_once_change_neither_the_run_nor_what_they_point_to(
    server, data, reference, stopped, precious, kind
):
    """Results, checkpoints, leftovers and the very temporary names that the run is going to use."""
    target = target_of(kind, precious)
    for name in [*INNER, *LEFT_BEHIND, "status.json", "parameters.json", "experiment_result.json"]:
        remove(stopped / name)
        (stopped / name).symlink_to(target)
    before = seen(precious)
    patch = PREMADE.format(names=OWN_TEMPORARY, run=str(stopped), target=str(target))
    ended = server.run(*training(stopped, data), patch=patch)
    assert ended.code == 0, ended.text
    assert seen(precious) == before
    assert not (precious / "absent").exists()
    assert everything_stored(stopped) == everything_stored(reference)
    assert not (stopped / "experiment_result.json").is_symlink()


def test_a_run_reached_through_a_link_is_a_run(server, data, reference, stopped, tmp_path):
    (tmp_path / "exp_oelm_freeze").symlink_to(stopped)
    (tmp_path / "data").symlink_to(data)
    ended = server.run(*training(tmp_path / "exp_oelm_freeze", tmp_path / "data"))
    assert ended.code == 0, ended.text
    assert_equal_runs(stopped, reference)


# ---- The functions that write --------------------------------------------------------------------------------------


def test_a_link_that_comes_while_a_run_is_at_work_is_refused_too(precious, tmp_path):
    directory = RunDirectory(tmp_path / "run")
    directory.path.mkdir()
    directory.checkpoints.symlink_to(precious)
    directory.metrics_file.symlink_to(precious / "notes.txt")
    before = seen(precious)
    with pytest.raises(UserError, match="checkpoints: is a symbolic link"), directory.new_checkpoint(3, needed_bytes=1):
        pass
    for write in (
        lambda: directory.prune_checkpoints(newest=2, keep=1),
        directory.clear_leftovers,
        directory.close_torn_line,
        lambda: directory.append_metrics({"step": 1}),
    ):
        with pytest.raises(UserError, match="is a symbolic link"):
            write()
    assert seen(precious) == before


def test_a_file_with_a_second_name_is_not_added_to(tmp_path):
    """A tree copied with `cp -al` shares its files: to add to one would add to the other."""
    log = tmp_path / "training.log"
    log.write_text("mine\n")
    os.link(log, tmp_path / "snapshot")
    with pytest.raises(UserError, match=r"training\.log: has a second name \(a hard link\)"):
        append_to(log)
    assert (tmp_path / "snapshot").read_text() == "mine\n"


@pytest.mark.parametrize("write", [write_json, write_json_unflushed])
def test_a_result_takes_the_place_of_a_link(tmp_path, precious, write):
    (tmp_path / "result.json").symlink_to(precious / "notes.txt")
    before = seen(precious)
    write(tmp_path / "result.json", {"a": 1})
    assert seen(precious) == before
    assert not (tmp_path / "result.json").is_symlink()


def test_a_new_folder_takes_the_place_of_a_link(tmp_path, precious):
    before = seen(precious)
    (tmp_path / "place").symlink_to(precious)
    (new_folder(tmp_path / "place") / "notes.txt").write_text("ours")
    assert seen(precious) == before


def test_removing_a_link_removes_the_link(tmp_path, precious):
    before = seen(precious)
    for kind in KINDS:
        link(tmp_path / "place", precious, kind)
        with pytest.raises(UserError):
            refuse_link(tmp_path / "place")
        remove(tmp_path / "place")
        assert not os.path.lexists(tmp_path / "place")
    assert seen(precious) == before
