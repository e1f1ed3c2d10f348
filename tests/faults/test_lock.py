"""D3: one run in one folder at a time."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from patches import SLOW_STEPS
from runs import assert_equal_runs, assert_refused, state, steps_recorded, training

from warm import Running

EAGER_HEART = "import oelm.storage.ownership as r; r.HEARTBEAT_SECONDS = 0.0\n"


@contextmanager
def a_run_at_work(server, data, run: Path, *, patch: str = "") -> Iterator[Running]:
    """Training slowly; killed at the end of the block if it has not ended by itself."""
    running = server.start(*training(run, data), patch=patch + SLOW_STEPS)
    first = steps_recorded(run)
    running.until(lambda: steps_recorded(run) >= first + 3)
    try:
        yield running
    finally:
        running.send(signal.SIGKILL)
        running.wait()


def owner_named(text: str) -> re.Match | None:
    since = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"
    return re.search(rf"another run is using this folder \(host (\S+), pid (\d+), since {since}\)", text)


def test_a_second_run_in_the_same_folder_is_refused_and_told_who_is_there(server, data, tmp_path):
    with a_run_at_work(server, data, tmp_path / "run") as first:
        second = server.run(*training(tmp_path / "run", data))
        assert_refused(second)
        assert owner_named(second.err).groups() == (socket.gethostname(), str(first.pid))
        assert first.wait().code == 0  # undisturbed


def test_the_owner_is_still_named_after_heartbeats_and_takeovers(server, data, tmp_path):
    """Every beat and every new owner replaces what the lock says; nothing is added behind it."""
    with a_run_at_work(server, data, tmp_path / "run"):
        pass  # killed: its lock stays behind
    with a_run_at_work(server, data, tmp_path / "run", patch=EAGER_HEART) as owner:
        refused = server.run(*training(tmp_path / "run", data))
        assert owner_named(refused.err)[2] == str(owner.pid)


def lock_of(*, host: str, heartbeat: float, **changes: object) -> dict:
    process = {"host": host, "boot_id": "another boot", "pid": 1, "pid_started": "7"}
    return process | {"since": "2024-01-01T00:00:00+00:00", "heartbeat": heartbeat} | changes


@pytest.mark.parametrize("host", [socket.gethostname(), "elsewhere"], ids=["another boot", "silent for minutes"])
def test_a_stale_lock_is_taken_over(server, data, reference, stopped, host):
    """That of a dead process of this boot, which a kill leaves behind, is in every test that resumes."""
    assert (stopped / "lock.json").read_text()
    silent = 600 if host == "elsewhere" else 0
    (stopped / "lock.json").write_text(json.dumps(lock_of(host=host, heartbeat=time.time() - silent)))
    assert server.run(*training(stopped, data)).code == 0
    assert_equal_runs(stopped, reference)
    assert (stopped / "lock.json").read_text() == ""


def test_the_lock_of_another_host_that_still_beats_is_respected(server, data, stopped):
    (stopped / "lock.json").write_text(json.dumps(lock_of(host="elsewhere", heartbeat=time.time() - 60, pid=4711)))
    ended = server.run(*training(stopped, data))
    assert ended.code == 2
    assert owner_named(ended.err).groups() == ("elsewhere", "4711")
    assert "4711" in (stopped / "lock.json").read_text()
    assert state(stopped) == "running"  # as the kill left it


def test_a_lock_from_a_clock_ahead_of_ours_says_so_and_how_to_take_over(server, data, reference, stopped):
    lock = stopped / "lock.json"
    lock.write_text(json.dumps(lock_of(host="elsewhere", heartbeat=time.time() + 2 * 86400 + 60, pid=4711)))
    refused = server.run(*training(stopped, data))
    assert_refused(refused, "host elsewhere, pid 4711", "clock is 2 days ahead", f"delete {lock} to take over")
    lock.unlink()
    assert server.run(*training(stopped, data)).code == 0
    assert_equal_runs(stopped, reference)


def test_a_run_that_computes_for_long_keeps_its_heart_beating(server, data, tmp_path):
    """One step may take minutes (compiling, a large validation): the lock must not look stale meanwhile."""
    long_step = "import time; from oelm.run.training import loop\n"
    long_step += "real = loop.accumulate_gradients\n"
    long_step += "def slow(*a, **o):\n    time.sleep(3)\n    return real(*a, **o)\n"
    long_step += "loop.accumulate_gradients = slow\n"
    beat = "import oelm.storage.ownership as r; r.HEARTBEAT_SECONDS = 0.2\n"
    lock = tmp_path / "run" / "lock.json"
    running = server.start(*training(tmp_path / "run", data), patch=beat + long_step)
    try:
        running.until(lambda: lock.exists() and lock.read_text())
        first = json.loads(lock.read_text())["heartbeat"]
        running.until(lambda: json.loads(lock.read_text())["heartbeat"] > first + 0.5, seconds=10)
        assert steps_recorded(tmp_path / "run") == 0
    finally:
        running.send(signal.SIGKILL)
        running.wait()
