"""D1, D2: a full disk loses nothing and is explained; a disk that cannot be written to is found before training."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from runs import assert_equal_runs, assert_refused, training, whole_steps

from warm import environment

# Fills the disk up to the last byte just before a function is called for the n-th time.
FILL_BEFORE = """
import errno, importlib
def fill():
    size = 2**16
    with open({ballast!r}, "ab", buffering=0) as stream:
        while size:
            try:
                stream.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC
                size //= 2

owner = importlib.import_module({module!r})
*path, name = {function!r}.split(".")
for part in path:
    owner = getattr(owner, part)
real, calls = getattr(owner, name), 0
def filling(*arguments, **options):
    global calls
    calls += 1
    if calls == {call}:
        fill()
    return real(*arguments, **options)
setattr(owner, name, filling)
"""

MOMENTS = {
    "weights": ("oelm.run.training.checkpoint", "save_file", 8),
    "the metrics": ("oelm.run.directory", "RunDirectory.append_metrics", 20),
    "the best model": ("oelm.run.training.driver", "best_saver", 4),
    "the status": ("oelm.run.directory", "RunDirectory.write_progress", 6),
}
MORE_MOMENTS = {
    "a checkpoint": ("oelm.run.training.driver", "save_checkpoint", 3),
    "its state": ("oelm.run.training.checkpoint", "write_json_unflushed", 3),
    "its manifest": ("oelm.run.directory", "_seal", 3),
    "the log": ("oelm.run.training.journal", "Journal.log", 20),
    "the result": ("oelm.run.training.driver", "result_record", 1),
}


@pytest.mark.parametrize("moment", [*MOMENTS, *(pytest.param(each, marks=pytest.mark.trial) for each in MORE_MOMENTS)])
def test_a_disk_that_fills_up_is_explained_and_the_run_goes_on_when_there_is_room(
    server, data, reference, mounted, moment
):
    disk = mounted("size=4m")
    run, ballast = disk / "run", disk / "ballast"
    module, function, call = (MOMENTS | MORE_MOMENTS)[moment]
    patch = FILL_BEFORE.format(ballast=str(ballast), module=module, function=function, call=call)
    ended = server.run(*training(run, data), patch=patch)
    assert_refused(ended)
    room = r"needs 0\.[1-9] MiB, has 0\.\d MiB|needs more than the 0\.\d MiB that are free"
    assert re.search(rf"disk full: ({room}); make room", ended.err), ended.text
    assert whole_steps(run)

    ballast.unlink()
    again = server.run(*training(run, data))
    assert again.code == 0, again.text
    assert_equal_runs(run, reference)


def test_a_disk_that_is_full_from_the_beginning_is_found_before_training(server, data, mounted):
    disk = mounted("size=64k")
    (disk / "ballast").write_bytes(bytes(2**16))
    ended = server.run(*training(disk / "run", data))
    assert_refused(ended)
    assert re.search(r"(disk full|No space left on device)", ended.err)


@pytest.mark.parametrize("screen", ["a closed pipe", "a full disk"])
def test_a_screen_that_is_gone_does_not_end_a_run(server, data, reference, tmp_path, screen):
    """`oelm train ... | head`, or `> log` on a full disk: the run has its own log."""
    closed = "import os; reader, writer = os.pipe(); os.close(reader); os.dup2(writer, 1)"
    full = "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
    ended = server.run(*training(tmp_path / "run", data), patch=closed if screen == "a closed pipe" else full)
    assert ended.code == 0, ended.text
    assert ended.err == ""
    assert_equal_runs(tmp_path / "run", reference)
    assert "finished: validation loss" in (tmp_path / "run" / "training.log").read_text()


@pytest.mark.parametrize("words", ["--help", "arms"])
def test_an_output_that_takes_nothing_is_named_and_not_the_disk_one_is_on(mounted, words):
    output = Path("/dev/full")
    if words == "arms":
        output = mounted("size=64k") / "log"
        output.with_name("ballast").write_bytes(bytes(2**16))
    with open(output, "w") as full:
        command = [sys.executable, "-m", "oelm", words]
        done = subprocess.run(command, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == f"oelm: output: {output}: cannot be written to (No space left on device)\n"


# ---- D2 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["new folder", "the mount itself"])
def test_a_read_only_folder_is_found_before_training_starts(server, data, mounted, place):
    disk = mounted("ro")
    out = disk / "run" if place == "new folder" else disk
    ended = server.run(*training(out, data))
    assert_refused(ended, f"oelm: {out}: cannot write there (Read-only file system)", "--out")
    assert ended.out == ""


def test_a_run_on_a_disk_that_became_read_only_is_refused_untouched(server, data, mounted, stopped):
    disk = mounted("size=16m")
    run = disk / "run"
    subprocess.run(["cp", "-a", stopped, run], check=True)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    assert_refused(server.run(*training(run, data)), "Read-only file system")
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    assert server.run(*training(run, data)).code == 0


def test_a_file_in_place_of_the_run_directory_is_explained(server, data, tmp_path):
    out = tmp_path / "file"
    out.write_text("mine")
    for place in (out, out / "run"):
        assert_refused(server.run(*training(place, data)), f"{place}: cannot write there")
    assert out.read_text() == "mine"
