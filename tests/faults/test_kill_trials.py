"""Many real kills at random moments (make trials). Each prints what it did; docs/reliability.md holds the counts.

A trial is a process killed from outside at a moment it does not know, and the same command again. What counts as a
kill is a process that SIGKILL ended; one that was faster than the signal is not counted, and tried again.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patches import SLOW_STEPS
from ranks import Group, is_alive
from runs import everything_stored, leftovers, losses, state, steps_recorded, training

from oelm.run.directory import RunDirectory, check_whole, checkpoint_step
from warm import COMPILER, PRELOADED, Running, WarmServer, wait_until

pytestmark = pytest.mark.trial
COUNT = int(os.environ.get("OELM_TRIALS", "25"))
LONGER = {"training.steps": 120, "checkpoint_every": 10, "validate_every": 15, "log_every": 1}


@pytest.fixture
def say(capsys):
    def shown(line: str) -> None:
        with capsys.disabled():
            print(f"\n  {line}", flush=True)

    return shown


@pytest.fixture(scope="module")
def compiling_server(tmp_path_factory) -> Iterator[WarmServer]:
    if shutil.which("g++") is None:
        pytest.skip("compiling needs g++: apt-get install g++")
    cache = tmp_path_factory.mktemp("compiled")
    variables = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    server = WarmServer(tmp_path_factory.mktemp("warm"), modules=f"{PRELOADED} {COMPILER}", **variables)
    yield server
    server.close()


def killed_after(running: Running, seconds: float) -> bool:
    time.sleep(seconds)
    running.send(signal.SIGKILL)
    return running.wait(600).code == -signal.SIGKILL


def assert_equal_runs(run: Path, reference: Path) -> None:
    assert state(run) == "finished"
    assert everything_stored(run) == everything_stored(reference)
    assert losses(run) == losses(reference)
    assert leftovers(run) == []


# ---- K1 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("compiled", ["off", "on"], ids=["eager", "compiled"])
def test_resumed_runs_equal_uninterrupted_runs(request, data, tmp_path, say, precision, compiled):
    server = request.getfixturevalue("server" if compiled == "off" else "compiling_server")
    changes = LONGER | {"precision": precision, "compile": compiled}
    reference = tmp_path / "reference"
    assert server.run(*training(reference, data, **changes), seconds=1200).code == 0
    draw, run, steps = random.Random(f"{precision} {compiled}"), tmp_path / "run", []
    command = training(run, data, **changes)
    while len(steps) < COUNT:
        for _ in range(draw.choice((1, 1, 2, 3))):
            running, first = server.start(*command), steps_recorded(run)
            if draw.random() < 0.8:  # in training; the others while it starts, which takes longer
                step = draw.randrange(min(first + 1, 119), 120)
                wait_until(lambda s=step, r=running: steps_recorded(run) >= s or r.has_ended(), seconds=600)
            if not killed_after(running, draw.uniform(0, 0.5)):
                break
            steps.append(steps_recorded(run))
        ended = server.run(*command, seconds=600)
        assert ended.code == 0, ended.text
        assert_equal_runs(run, reference)
        shutil.rmtree(run)
    say(f"K1 {'compiled' if compiled == 'on' else 'eager'} {precision}: {len(steps)} kills, 0 differences")
    say(f"  at steps {' '.join(map(str, sorted(steps)))} of 120")


# ---- K2, K3 --------------------------------------------------------------------------------------------------------


def test_random_kills_during_frequent_saves_lose_nothing(server, data, tmp_path, say):
    """A save after every step, only one kept: most of the time is spent inside saves."""
    changes = {"checkpoint_every": 1, "keep_checkpoints": 1, "d_model": 256, "validate_every": 20}
    reference = tmp_path / "reference"
    began = time.monotonic()
    assert server.run(*training(reference, data, **changes)).code == 0
    duration, draw, kills, inside = time.monotonic() - began, random.Random(2), 0, 0
    while kills < 2 * COUNT:
        run = tmp_path / "run"
        command = training(run, data, **changes)
        if not killed_after(server.start(*command), draw.uniform(0.3, 0.95) * duration):
            shutil.rmtree(run)
            continue
        kills += 1
        inside += bool(list((run / "checkpoints").glob(".partial-*")))
        assert_saved_is_whole(run)
        ended = server.run(*command)
        assert ended.code == 0, ended.text
        assert_equal_runs(run, reference)
        shutil.rmtree(run)
    say(f"K2: {kills} kills, {inside} of them inside a save (a half-written folder was left), 0 lost or torn")


def assert_saved_is_whole(run: Path) -> None:
    """Step n was saved before step n + 1 was recorded: it, or the next, is there and whole."""
    recorded, stored = steps_recorded(run), RunDirectory(run).stored_checkpoints()
    if recorded > 1:
        check_whole(stored[-1])
        assert checkpoint_step(stored[-1]) >= recorded - 1


def test_kills_between_publishing_and_pruning_leave_an_extra_checkpoint_that_goes_later(server, data, tmp_path, say):
    """Pruning waits a while; the signal comes when one checkpoint too many is seen from outside."""
    slow = "import time; from oelm.run.directory import RunDirectory as R; prune = R.prune_checkpoints\n"
    slow += "R.prune_checkpoints = lambda self, **options: (time.sleep(0.02), prune(self, **options))"
    changes = LONGER | {"checkpoint_every": 4}
    reference = tmp_path / "reference"
    assert server.run(*training(reference, data, **changes)).code == 0
    draw, kills = random.Random(3), 0
    while kills < COUNT:
        run = tmp_path / "run"
        command = training(run, data, **changes)
        running, after = server.start(*command, patch=slow), draw.randrange(4, 110)
        directory = RunDirectory(run)
        wait_until(
            lambda d=directory, a=after, r=running: (
                (len(d.stored_checkpoints()) == 3 and steps_recorded(d.path) >= a) or r.has_ended()
            )
        )
        running.send(signal.SIGKILL)
        killed = running.wait().code == -signal.SIGKILL
        if killed and len(directory.stored_checkpoints()) == 3:
            kills += 1
            for folder in directory.stored_checkpoints():
                check_whole(folder)
        ended = server.run(*command)
        assert ended.code == 0, ended.text
        assert len(directory.stored_checkpoints()) == 2
        assert_equal_runs(run, reference)
        shutil.rmtree(run)
    say(f"K3: {kills} kills between publishing and pruning, all resumed, the extra checkpoint gone at the end")


# ---- K4 ------------------------------------------------------------------------------------------------------------


def killed_rank(group: Group, rank: int) -> float | None:
    """Kill one rank; how long the group lived on, or None if it had finished."""
    ranks = group.ranks()
    if rank not in ranks:
        return None
    os.kill(ranks[rank], signal.SIGKILL)
    began = time.monotonic()
    ended = group.wait(30)
    if ended.code == 0:
        return None
    assert re.search(rf"rank\s+: {rank} \(local_rank: {rank}\)\s+exitcode\s+: -9", ended.out), ended.out
    assert not any(is_alive(pid) for pid in ranks.values())
    return time.monotonic() - began


def test_killed_ranks_stop_the_group_and_a_restart_resumes(server, data, tmp_path, say):
    """Several kills a run: every restart goes on from where the last was killed."""
    changes = {"training.steps": 60, "checkpoint_every": 3}
    reference, run = tmp_path / "reference", tmp_path / "run"
    assert Group(server, tmp_path / "started", *training(reference, data, **changes)).wait().code == 0
    draw, command, lived, victims = random.Random(4), training(run, data, **changes), [], []
    while len(lived) < COUNT:
        for _ in range(5):
            group = Group(server, tmp_path / "started", *command, patch=SLOW_STEPS, cold=True)
            step = steps_recorded(run)
            step += draw.randrange(1, 10)
            wait_until(lambda g=group, s=step: steps_recorded(run) >= s or g.has_ended())
            time.sleep(draw.uniform(0, 0.1))
            rank = draw.randrange(2)
            seconds = killed_rank(group, rank)
            if seconds is None:
                break
            lived.append(seconds)
            victims.append(rank)
        ended = Group(server, tmp_path / "started", *command).wait()
        assert ended.code == 0, ended.out
        assert_equal_runs(run, reference)
        shutil.rmtree(run)
    say(
        f"K4: {len(lived)} kills (rank 0: {victims.count(0)}, rank 1: {victims.count(1)}), "
        f"the group gone after {max(lived):.1f} s at most, 0 differences"
    )


# ---- K5, K6 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"])
def test_random_signals_save_and_resume(server, data, tmp_path, say, number, code):
    reference = tmp_path / "reference"
    assert server.run(*training(reference, data, **LONGER)).code == 0
    draw, stops = random.Random(number), 0
    while stops < COUNT:
        run = tmp_path / "run"
        command = training(run, data, **LONGER)
        running = server.start(*command)
        wait_until(lambda r=run: steps_recorded(r) >= 1)
        time.sleep(draw.uniform(0, 0.6))
        running.send(number)
        ended = running.wait()
        if ended.code == code:
            stops += 1
            step = int(re.search(r"stopped at step (\d+) of 120, saved", ended.err)[1])
            check_whole(RunDirectory(run).checkpoint_folder(step))
            assert "oelm: resume with: oelm train" in ended.err
            assert state(run) == "interrupted"
        else:
            assert ended.code in (0, -number), ended.text  # faster than the signal: it came during the last writes
        ended = server.run(*command)
        assert ended.code == 0, ended.text
        assert_equal_runs(run, reference)
        shutil.rmtree(run)
    say(f"K5 {number.name}: {stops} stops, each saved, exit {code}, resumed, 0 differences")


SLOW_WRITES = """
import time, oelm.run.training.checkpoint as checkpoint, oelm.run.training.signals as signals
write, stopping = checkpoint.write_tensors, False
def slow_write(path, *arguments):
    if stopping:
        time.sleep(0.5)
    write(path, *arguments)
    if stopping:
        time.sleep(0.5)
acknowledge = signals.StopRequest.acknowledge
def noted(self):
    global stopping
    stopping = True
    acknowledge(self)
checkpoint.write_tensors, signals.StopRequest.acknowledge = slow_write, noted
"""


def test_a_second_ctrl_c_at_any_moment_of_a_save_leaves_at_once(server, data, tmp_path, say):
    reference = tmp_path / "reference"
    assert server.run(*training(reference, data, **LONGER)).code == 0
    draw, left, inside, slowest = random.Random(6), 0, 0, 0.0
    while left < COUNT:
        run = tmp_path / "run"
        command = training(run, data, **LONGER)
        running = server.start(*command, patch=SLOW_WRITES)
        wait_until(lambda r=run: steps_recorded(r) >= 12)
        time.sleep(draw.uniform(0, 0.2))
        running.send(signal.SIGINT)
        time.sleep(draw.uniform(0.35, 1.8))
        alive = not running.has_ended()
        began = time.monotonic()
        running.send(signal.SIGINT)
        ended = running.wait()
        if alive and ended.code == 130 and state(run) != "interrupted":
            left += 1
            slowest = max(slowest, time.monotonic() - began)
            inside += bool(list((run / "checkpoints").glob(".partial-*")))
        stored = RunDirectory(run).stored_checkpoints()
        assert stored
        check_whole(stored[-1])
        ended = server.run(*command)
        assert ended.code == 0, ended.text
        assert_equal_runs(run, reference)
        shutil.rmtree(run)
    say(
        f"K6: {left} second signals while saving ({inside} left a half-written folder), "
        f"gone after {slowest:.2f} s at most, 0 lost"
    )
