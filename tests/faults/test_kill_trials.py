"""Many real kills at random moments (make trials). Each prints what it did; docs/reliability.md holds the counts.

A trial is a process killed from outside at a moment it does not know, and the same command again. What counts as a
kill is a process that SIGKILL ended; one that was faster than the signal is not counted, and tried again.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from patches import SLOW_STEPS
from ranks import Group, is_alive
from runs import assert_equal_runs, newest, state, steps_recorded, training, whole_steps

from oelm.execution.warm_server import WarmStarts
from oelm.machine.system import process_exists
from oelm.run.directory import RunDirectory, check_whole, checkpoint_step
from oelm.storage.ownership import START_VARIABLE
from warm import COMPILER, PRELOADED, Ended, Running, WarmServer, cold, environment, wait_until

pytestmark = pytest.mark.trial
COUNT = int(os.environ.get("OELM_TRIALS", "25"))
LONGER = {"training.steps": 120, "checkpoint_every": 10, "validate_every": 15, "log_every": 1}


class WarmStarted:
    """What a WarmServer does, by the warm starts of a controller."""

    def __init__(self, folder: Path) -> None:
        self._starts, self._output = WarmStarts(), folder / "output"

    def start(self, *words: str) -> WarmStarted:
        variables = environment(**{START_VARIABLE: "trial"})
        self._starts.get_ready(variables)
        with open(self._output, "wb") as stream:
            self._run = self._starts.begun([sys.executable, "-m", "oelm", *words], variables, stream)
        assert self._run is not None
        self._run.release()
        return self

    def send(self, number: int) -> None:
        if process_exists(self._run.pid):
            os.killpg(self._run.pid, number)

    def has_ended(self) -> bool:
        return self._run.poll() is not None

    def wait(self, seconds: float = 600) -> Ended:
        wait_until(self.has_ended, seconds)
        return Ended(self._run.poll(), "", self._output.read_text())

    def run(self, *words: str, seconds: float = 600) -> Ended:
        return self.start(*words).wait(seconds)

    def close(self) -> None:
        self._starts.close()


@pytest.fixture(params=["forked", "compiled", "warm", "warm compiled"])
def starter(request, server, tmp_path_factory):
    """How runs are started: by the tests' own server, or warm as a controller does; and whether they compile."""
    if "compiled" in request.param and shutil.which("g++") is None:
        pytest.skip("compiling needs g++: apt-get install g++")
    if "warm" in request.param and sys.platform != "linux":
        pytest.skip("starts are cold on other systems")
    if request.param == "forked":
        yield server
        return
    folder = tmp_path_factory.mktemp("started")
    variables = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    folder.joinpath("warm").mkdir()
    started = (
        WarmServer(folder / "warm", modules=f"{PRELOADED} {COMPILER}", **variables)
        if request.param == "compiled"
        else WarmStarted(folder)
    )
    yield started
    started.close()


def undisturbed(folder: Path, data: Path, **changes: object) -> Path:
    """A cold run."""
    ended = cold(*training(folder / "reference", data, **changes), seconds=1200)
    assert ended.code == 0, ended.text
    return folder / "reference"


def assert_it_goes_on(server, command: list[str], run: Path, reference: Path) -> None:
    ended = server.run(*command, seconds=600)
    assert ended.code == 0, ended.text
    assert_equal_runs(run, reference)
    shutil.rmtree(run)


def killed_after(running: Running, seconds: float) -> bool:
    time.sleep(seconds)
    running.send(signal.SIGKILL)
    return running.wait(600).code == -signal.SIGKILL


# ---- K1 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("starter", "precision"),
    [(how, each) for how in ("forked", "compiled") for each in ("float32", "bfloat16")]
    + [("warm", "float32"), ("warm compiled", "bfloat16")],
    indirect=["starter"],
)
def test_resumed_runs_equal_uninterrupted_runs(starter, request, data, tmp_path, say, precision):
    how = request.node.callspec.params["starter"]
    changes = LONGER | {"precision": precision, "compile": "on" if "compiled" in how else "off"}
    reference, run, steps = undisturbed(tmp_path, data, **changes), tmp_path / "run", []
    draw, command = random.Random(f"{precision} {how}"), training(run, data, **changes)
    while len(steps) < COUNT:
        for _ in range(draw.choice((1, 1, 2, 3))):
            running, first = starter.start(*command), steps_recorded(run)
            if draw.random() < 0.8:  # in training; the others while it starts, which takes longer
                step = draw.randrange(min(first + 1, 119), 120)
                wait_until(lambda s=step, r=running: steps_recorded(run) >= s or r.has_ended(), seconds=600)
            if not killed_after(running, draw.uniform(0, 0.5)):
                break
            steps.append(steps_recorded(run))
        assert_it_goes_on(starter, command, run, reference)
    say(f"K1 {how} {precision}: {len(steps)} kills, 0 differences")
    say(f"  at steps {' '.join(map(str, sorted(steps)))} of 120")


# ---- K2, K3 --------------------------------------------------------------------------------------------------------


def test_random_kills_during_frequent_saves_lose_nothing(server, data, tmp_path, say):
    """A save after every step, only one kept: most of the time is spent inside saves."""
    changes = {"checkpoint_every": 1, "keep_checkpoints": 1, "d_model": 256, "validate_every": 20}
    reference, run, began = undisturbed(tmp_path, data, **changes), tmp_path / "run", time.monotonic()
    command = training(run, data, **changes)
    assert_it_goes_on(server, command, run, reference)
    duration, draw, kills, inside = time.monotonic() - began, random.Random(2), 0, 0
    while kills < 2 * COUNT:
        if not killed_after(server.start(*command), draw.uniform(0.3, 0.95) * duration):
            shutil.rmtree(run)
            continue
        kills += 1
        inside += bool(list((run / "checkpoints").glob(".partial-*")))
        recorded = steps_recorded(run)  # step n was saved before step n + 1 was: it, or the next, is there and whole
        if recorded > 1:
            check_whole(newest(run))
            assert checkpoint_step(newest(run)) >= recorded - 1
        assert_it_goes_on(server, command, run, reference)
    say(f"K2: {kills} kills, {inside} of them inside a save (a half-written folder was left), 0 lost or torn")


def test_kills_between_publishing_and_pruning_leave_an_extra_checkpoint_that_goes_later(server, data, tmp_path, say):
    """Pruning waits a while; the signal comes when one checkpoint too many is seen from outside."""
    slow = "import time; from oelm.run.directory import RunDirectory as R; prune = R.prune_checkpoints\n"
    slow += "R.prune_checkpoints = lambda self, **options: (time.sleep(0.02), prune(self, **options))"
    changes = LONGER | {"checkpoint_every": 4}
    reference, run = undisturbed(tmp_path, data, **changes), tmp_path / "run"
    draw, kills, command, directory = random.Random(3), 0, training(run, data, **changes), RunDirectory(run)
    while kills < COUNT:
        running, after = server.start(*command, patch=slow), draw.randrange(4, 110)
        wait_until(
            lambda a=after, r=running: (
                (len(directory.stored_checkpoints()) == 3 and steps_recorded(run) >= a) or r.has_ended()
            )
        )
        running.send(signal.SIGKILL)
        killed = running.wait().code == -signal.SIGKILL
        if killed and len(directory.stored_checkpoints()) == 3:
            kills += 1
            assert len(whole_steps(run)) == 3
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


@pytest.mark.parametrize("starter", ["forked", "warm"], indirect=True)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"])
def test_random_signals_save_and_resume(starter, data, tmp_path, say, number, code):
    reference, run, draw, stops = undisturbed(tmp_path, data, **LONGER), tmp_path / "run", random.Random(number), 0
    command = training(run, data, **LONGER)
    while stops < COUNT:
        running = starter.start(*command)
        wait_until(lambda: steps_recorded(run) >= 1)
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
        assert_it_goes_on(starter, command, run, reference)
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
    reference, run, draw = undisturbed(tmp_path, data, **LONGER), tmp_path / "run", random.Random(6)
    left, inside, slowest, command = 0, 0, 0.0, training(run, data, **LONGER)
    while left < COUNT:
        running = server.start(*command, patch=SLOW_WRITES)
        wait_until(lambda: steps_recorded(run) >= 12)
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
        check_whole(newest(run))
        assert_it_goes_on(server, command, run, reference)
    say(
        f"K6: {left} second signals while saving ({inside} left a half-written folder), "
        f"gone after {slowest:.2f} s at most, 0 lost"
    )


# ---- A controller ----------------------------------------------------------------------------------------------------

STUDY = {
    "question": "Does it survive?",
    "base": {
        "preset": "tiny",
        "model": {"vocabulary": 64, "seq_len": 16, "d_model": 16, "num_layers": 2, "num_heads": 2},
        "training": {"steps": 120, "batch_size": 4, "validation_sequences": 8, "validate_every": 15},
        "execution": {
            "device": "cpu", "precision": "float32", "compile": "off", "threads": 1, "log_every": 1,
            "checkpoint_every": 10,
        },
    },
    "arms": ["trained", "frozen_head_orthogonal"],
    "seeds": [0, 1],
}  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="starts are cold on other systems")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["K9", "Ctrl-C"])
def test_controllers_ended_at_random_moments_lose_nothing_and_start_nothing_twice(data, tmp_path, say, number):
    """Also while torch is imported, and between a fork and its handle. Left alone, runs of a dead one go on."""
    file, runs, draw, ends = tmp_path / "survivors.yaml", tmp_path / "runs", random.Random(int(number)), 0
    file.write_text(json.dumps(STUDY | {"base": STUDY["base"] | {"data": str(data)}}))  # JSON is YAML
    words = ["run", str(file), "--slots", "2", "--runs"]
    assert cold(*words, tmp_path / "reference", seconds=600).code == 0
    references = {path.name: path for path in (tmp_path / "reference").iterdir() if path.is_dir()}
    assert len(references) == 4

    def about_runs() -> str:
        return subprocess.run(["pgrep", "-f", "--", f"{runs}/"], capture_output=True, text=True).stdout

    while ends < COUNT:
        for _ in range(5):
            with open(tmp_path / "said", "ab") as said:
                command = [sys.executable, "-m", "oelm", *words, str(runs)]
                controller = subprocess.Popen(command, env=environment(), stdout=said, stderr=said)
            time.sleep(draw.uniform(0.5, 8.0))
            controller.send_signal(number)
            code = controller.wait(600)
            ends += code in (-signal.SIGKILL, 130)
            if number == signal.SIGINT:  # it waited for what it had started
                assert not about_runs()
            if code == 0:
                break
        ended = cold(*words, runs, seconds=600)
        assert ended.code == 0, ended.text
        for name, reference in references.items():
            assert_equal_runs(runs / name, reference)
            words_of_run = (runs / name / "output.log").read_text()
            assert words_of_run.count("finished: ") == 1, words_of_run
            assert "another process" not in words_of_run
        assert not about_runs()
        shutil.rmtree(runs)
    say(f"{'K9' if number == signal.SIGKILL else 'Ctrl-C'} of a controller with warm runs: {ends}, 0 differences")
