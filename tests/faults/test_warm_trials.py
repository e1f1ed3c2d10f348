"""K1, K5, K9 and Ctrl-C at random moments of runs that were started warm (make trials); docs/reliability.md holds the
counts. They are compared with what nothing disturbed: a cold run, or a whole study."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from runs import TINY, everything_stored, leftovers, losses, state, steps_recorded, training

from oelm.execution.warm_starts import WarmRun, WarmStarts
from oelm.machine.system import process_exists
from oelm.run.directory import RunDirectory, check_whole
from oelm.storage.ownership import START_VARIABLE
from warm import cold, environment, wait_until

pytestmark = [
    pytest.mark.trial,
    pytest.mark.skipif(sys.platform != "linux", reason="starts are cold on other systems"),
]
COUNT = int(os.environ.get("OELM_TRIALS", "25"))
LONGER = {"training.steps": 120, "checkpoint_every": 10, "validate_every": 15, "log_every": 1}


@pytest.fixture
def say(capsys):
    def shown(line: str) -> None:
        with capsys.disabled():
            print(f"\n  {line}", flush=True)

    return shown


@pytest.fixture
def warm() -> Iterator[WarmStarts]:
    starts = WarmStarts()
    yield starts
    starts.close()


def begun(warm: WarmStarts, words: list[str], output: Path) -> WarmRun:
    variables = environment(**{START_VARIABLE: "trial"})
    warm.get_ready(variables)
    with open(output, "ab") as stream:
        run = warm.begun([sys.executable, "-m", "oelm", *words], variables, stream)
    assert run is not None
    run.release()
    return run


def code_of(run: WarmRun, seconds: float = 600) -> int:
    wait_until(lambda: not run.is_alive(), seconds)
    assert run.exit_code is not None
    return run.exit_code


def assert_equal_runs(run: Path, reference: Path) -> None:
    assert state(run) == "finished"
    assert everything_stored(run) == everything_stored(reference)
    assert losses(run) == losses(reference)
    assert leftovers(run) == []


# ---- One run ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("precision", "compiled"), [("float32", "off"), ("bfloat16", "on")], ids=["eager", "compiled"])
def test_killed_warm_runs_end_bit_equal_to_a_cold_one(warm, data, tmp_path, say, precision, compiled):
    if compiled == "on" and shutil.which("g++") is None:
        pytest.skip("compiling needs g++: apt-get install g++")
    changes = LONGER | {"precision": precision, "compile": compiled}
    reference, run, output = tmp_path / "reference", tmp_path / "run", tmp_path / "output"
    assert cold(*training(reference, data, **changes), seconds=1200).code == 0
    draw, kills, command = random.Random(f"warm {precision}"), 0, training(run, data, **changes)
    while kills < COUNT:
        for _ in range(draw.choice((1, 1, 2, 3))):
            running, first = begun(warm, command, output), steps_recorded(run)
            if draw.random() < 0.8:  # in training; the others while it starts
                step = draw.randrange(min(first + 1, 119), 120)
                wait_until(lambda s=step, r=running: steps_recorded(run) >= s or not r.is_alive(), seconds=600)
            time.sleep(draw.uniform(0, 0.5))
            if process_exists(running.pid):
                os.kill(running.pid, signal.SIGKILL)
            if code_of(running) != -signal.SIGKILL:
                break
            kills += 1
        assert code_of(begun(warm, command, output)) == 0, output.read_text()
        assert_equal_runs(run, reference)
        shutil.rmtree(run)
    say(f"K1 warm, {'compiled' if compiled == 'on' else 'eager'} {precision}: {kills} kills, 0 differences")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"])
def test_random_signals_make_warm_runs_save_and_resume(warm, data, tmp_path, say, number, code):
    reference, run, output = tmp_path / "reference", tmp_path / "run", tmp_path / "output"
    assert cold(*training(reference, data, **LONGER)).code == 0
    draw, stops, command = random.Random(number), 0, training(run, data, **LONGER)
    while stops < COUNT:
        running = begun(warm, command, output)
        wait_until(lambda: steps_recorded(run) >= 1)
        time.sleep(draw.uniform(0, 0.6))
        if process_exists(running.pid):
            os.killpg(running.pid, number)
        ended = code_of(running)
        if ended == code:
            stops += 1
            check_whole(RunDirectory(run).stored_checkpoints()[-1])
            assert state(run) == "interrupted"
            assert "oelm: resume with: oelm train" in output.read_text()
        else:
            assert ended in (0, -number), output.read_text()  # faster than the signal
        assert code_of(begun(warm, command, output)) == 0, output.read_text()
        assert_equal_runs(run, reference)
        shutil.rmtree(run)
    say(f"K5 warm {number.name}: {stops} stops, each saved, exit {code}, resumed, 0 differences")


# ---- A controller ----------------------------------------------------------------------------------------------------


def write_study(folder: Path, data: Path) -> Path:
    """Of four short runs, in two slots. JSON is YAML."""
    keys = {key: value for key, value in (TINY | LONGER).items() if key not in ("threads", "compile")}
    training_keys = {"training.steps": "steps", "batch_size": "batch_size", "validation_sequences": None}
    tree = {
        "question": "Does it survive?",
        "base": {
            "preset": "tiny",
            "data": str(data),
            "model": {name: keys[name] for name in ("vocabulary", "seq_len", "d_model", "num_layers", "num_heads")},
            "training": {ours or name: keys[name] for name, ours in training_keys.items()},
            "execution": {
                "device": "cpu", "precision": "float32", "compile": "off", "threads": 1, "log_every": 1,
                "checkpoint_every": 10,
            },
        },
        "arms": ["trained", "frozen_head_orthogonal"],
        "seeds": [0, 1],
    }  # fmt: skip
    file = folder / "survivors.yaml"
    file.write_text(json.dumps(tree))
    return file


def processes_about(text: str) -> list[int]:
    found = subprocess.run(["pgrep", "-f", "--", text], capture_output=True, text=True).stdout
    return [int(pid) for pid in found.split()]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["K9", "Ctrl-C"])
def test_controllers_ended_at_random_moments_lose_nothing_and_start_nothing_twice(data, tmp_path, say, number):
    """Also while torch is imported, and between a fork and its handle. Left alone, runs of a dead one go on."""
    file, draw, ends = write_study(tmp_path, data), random.Random(int(number)), 0
    words = ["run", file, "--slots", "2", "--runs"]
    assert cold(*words, tmp_path / "reference", seconds=600).code == 0
    references = {path.name: path for path in (tmp_path / "reference").iterdir() if path.is_dir()}
    assert len(references) == 4
    while ends < COUNT:
        runs = tmp_path / "runs"
        command = [sys.executable, "-m", "oelm", *map(str, words), str(runs)]
        for _ in range(5):
            with open(tmp_path / "said", "ab") as said:
                controller = subprocess.Popen(command, env=environment(), stdout=said, stderr=said)
            time.sleep(draw.uniform(0.5, 8.0))
            controller.send_signal(number)
            code = controller.wait(600)
            ends += code in (-signal.SIGKILL, 130)
            if number == signal.SIGINT:  # it waited for what it had started
                assert not processes_about(f"{runs}/"), processes_about(f"{runs}/")
            if code == 0:
                break
        ended = cold(*words, runs, seconds=600)
        assert ended.code == 0, ended.text
        for name, reference in references.items():
            assert_equal_runs(runs / name, reference)
            words_of_run = (runs / name / "output.log").read_text()
            assert words_of_run.count("finished: ") == 1, words_of_run
            assert "another process" not in words_of_run
        assert not processes_about(f"{runs}/")
        shutil.rmtree(runs)
    say(f"{'K9' if number == signal.SIGKILL else 'Ctrl-C'} of a controller with warm runs: {ends}, 0 differences")
