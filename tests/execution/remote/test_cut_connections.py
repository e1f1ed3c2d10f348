"""R2: the connection is cut while code is sent, a study started, a log followed, results pulled. What runs goes on,
the same command again is safe, nothing starts twice. Cut by killing the ssh client, or the server's end of it.
"""

import json
import random
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from loopback import HOST, World, add_study, kill_clients, needs_a_server, results

from oelm.run.directory import RunDirectory
from oelm.storage.ownership import Process
from small_runs import PATIENCE, eventually

pytestmark = needs_a_server

BIG_BYTES = 60_000_000
ENDS = ["client", "server"]
TRIALS = 10


def cut(world: World, *arguments: object, end: str, when: Callable[[], object]) -> tuple[int, str]:
    """Start a remote verb, cut its connection once `when` holds; it has to end soon. Its code and what it said."""
    process = world.start("remote", HOST, *arguments)

    def is_cut() -> bool:
        if process.poll() is not None:
            return True
        return bool(when() and (kill_clients(process) if end == "client" else world.server.cut()))

    eventually(is_cut, what="a connection to cut")
    out, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, out


def after_connecting(world: World, most_seconds: float) -> Callable[[], bool]:
    """A random moment, counted from the first sign of a connection."""
    moments: list[float] = []

    def is_now() -> bool:
        if not moments and world.server.connections():
            moments.append(time.monotonic() + random.uniform(0, most_seconds))
        return bool(moments) and time.monotonic() > moments[0]

    return is_now


def is_said_in_a_line(code: int, out: str) -> bool:
    """One that was quicker than the cut has ended well; otherwise the last line says that the connection was cut."""
    return code == 0 or (code == 2 and "the connection was cut" in out.splitlines()[-1] and "Traceback" not in out)


def enough(trials: Iterable[bool]) -> None:
    """Trials whose connection was cut before they had ended by themselves."""
    cuts = list(trials)
    print(f"{sum(cuts)} of {len(cuts)} were cut before their end")
    assert sum(cuts) >= len(cuts) // 2


# ---- Sync ----------------------------------------------------------------------------------------------------------


def cut_sync(world: World, end: str) -> bool:
    """Whether it was cut in the middle of a file."""
    big = world.project / "data" / "tokens" / "big.bin"
    big.write_bytes(random.randbytes(64) * (BIG_BYTES // 64))
    there = world.there / "data" / "tokens"
    code, out = cut(world, "sync", "little", end=end, when=lambda: list(there.glob(".big.bin.*")))
    assert is_said_in_a_line(code, out), out
    arrived = there / "big.bin"
    assert not arrived.exists() or arrived.stat().st_size == BIG_BYTES
    world.must("sync", "little")
    for name in ("big.bin", "train.bin"):
        assert (there / name).read_bytes() == (world.project / "data" / "tokens" / name).read_bytes()
    assert not list(there.glob(".*"))
    arrived.unlink()
    return code != 0


def test_a_cut_sync_leaves_no_half_file_and_the_next_one_completes_it(shared_world):
    add_study(shared_world)
    cut_sync(shared_world, "client")


@pytest.mark.trial
def test_cut_syncs(shared_world):
    add_study(shared_world)
    enough(cut_sync(shared_world, ENDS[number % 2]) for number in range(TRIALS))


# ---- Start ---------------------------------------------------------------------------------------------------------


def cut_start(world: World, name: str, end: str, when: Callable[[], object]) -> bool:
    """Cut one start, then start twice at once: one controller is at work."""
    code, out = cut(world, "run", name, end=end, when=when)
    assert is_said_in_a_line(code, out), out
    again = [world.start("remote", HOST, "run", name) for _ in range(2)]
    for process in again:
        out, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, out
    return code != 0


def started_once(folder: Path) -> bool:
    return (folder / "controller.log").read_text().count(": started") == 1


def cut_short_study(world: World, name: str, end: str) -> bool:
    was_cut = cut_start(world, name, end, after_connecting(world, 1.0))
    folder = world.there / "runs" / name
    eventually(lambda: len(results(folder)) == 1, what=f"the end of {name}")
    assert started_once(folder)
    assert next(iter(results(folder).values()))["resumes"] == 0
    return was_cut


@pytest.mark.trial
def test_cut_starts(shared_world):
    names = [f"trial-{number}" for number in range(TRIALS)]
    for name in names:
        add_study(shared_world, name, steps=150)
    shared_world.must("sync", names[0])
    enough(cut_short_study(shared_world, name, ENDS[number % 2]) for number, name in enumerate(names))


# ---- A run that goes on --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def going(shared_world) -> tuple[World, RunDirectory]:
    """A study whose start was cut, and which runs over there for as long as the tests take; then a user stops it."""
    add_study(shared_world, "going", steps=1_000_000)
    shared_world.must("sync", "going")
    folder = shared_world.there / "runs" / "going"
    cut_start(shared_world, "going", "server", (folder / "controller.log").exists)
    directory = eventually(lambda: running(folder), what="a run under way")
    yield shared_world, directory
    out = shared_world.must("stop", "going")
    assert "stopped; the same command with `run` instead of `stop` resumes" in out
    assert directory.status()["state"] == "interrupted"
    assert directory.stored_checkpoints()
    assert started_once(folder)
    assert "nothing is running" in shared_world.must("stop", "going")


def running(folder: Path) -> RunDirectory | None:
    found = (RunDirectory(path.parent) for path in folder.glob("*/metrics.jsonl"))
    return next((each for each in found if step_of(each) > 1), None)


def step_of(directory: RunDirectory) -> int:
    return (directory.last_metrics() or {}).get("step", 0)


def lives_on(directory: RunDirectory, pid: int) -> None:
    step = step_of(directory)
    eventually(lambda: step_of(directory) > step, what="further steps")
    status = directory.status()
    assert status["pid"] == pid
    assert Process.stored(status).is_alive_here()


def cut_logs(world: World, directory: RunDirectory, end: str, when: Callable[[], object]) -> bool:
    pid = directory.status()["pid"]
    code, out = cut(world, "logs", directory.path.name, "--follow", end=end, when=when)
    assert code == 2, out
    assert is_said_in_a_line(code, out), out
    lives_on(directory, pid)
    eventually(lambda: not followers(directory), what="the end of `oelm logs --follow` over there")
    return True


def followers(directory: RunDirectory) -> list[str]:
    listed = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if "oelm logs" in line and directory.path.name in line]


def cut_pull(world: World, directory: RunDirectory, end: str, when: Callable[[], object]) -> bool:
    pid = directory.status()["pid"]
    code, out = cut(world, "pull", "going", "--checkpoints", end=end, when=when)
    assert is_said_in_a_line(code, out), out
    was_cut = code != 0
    local = world.project / "runs" / "going"
    for file in local.glob("*/*.json"):
        json.loads(file.read_text())  # whole
    lives_on(directory, pid)
    world.must("pull", "going")
    pulled = RunDirectory(local / directory.path.name)
    assert pulled.status()["state"] == "running"
    assert pulled.config_file.read_bytes() == directory.config_file.read_bytes()
    assert not pulled.lock_file.exists()
    code, out = world.oelm("status", "going")
    assert (code, out.count(" running ")) == (0, 1), out
    return was_cut


def test_a_run_lives_on_when_its_log_is_no_longer_followed(going):
    cut_logs(*going, "server", lambda: followers(going[1]))


def test_a_cut_pull_leaves_whole_files_and_the_next_one_completes_it(going):
    cut_pull(*going, "client", lambda: (going[0].project / "runs" / "going" / ".pulling").exists())
    code, out = going[0].oelm("run", "going")  # not here as well
    assert code == 2, out
    assert f"is being run on {HOST}" in out


def test_a_cut_start_and_two_at_once_are_one_and_a_further_one_finds_it(going):
    world, directory = going
    pid = directory.status()["pid"]
    assert started_once(directory.path.parent)
    assert "already running" in world.must("run", "going")
    assert "controller: running" in world.must("status", "going")
    lives_on(directory, pid)


@pytest.mark.trial
def test_cut_logs(going):
    enough(cut_logs(*going, ENDS[number % 2], after_connecting(going[0], 3.0)) for number in range(TRIALS))


@pytest.mark.trial
def test_cut_pulls(going):
    enough(cut_pull(*going, ENDS[number % 2], after_connecting(going[0], 1.0)) for number in range(TRIALS))
