"""K10: a rank that hangs, stopped by a real SIGSTOP under the real torchrun, is named, and the group resumes."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
from ranks import STEPS, Group, is_alive
from runs import assert_equal_runs, state, training, whole_steps

from oelm.run.directory import RunDirectory
from warm import wait_until

LIMIT_SECONDS = 2.0
LINGER_SECONDS = 0.6  # a moment lasts so long, and shows itself by a file
MOMENTS = ("step", "save", "validation")

LINGER = """
import pathlib, time
from oelm.run.training import checkpoint, loop, next_token

def lingering(function, moment, call):
    calls = 0
    def slow(*arguments, **options):
        nonlocal calls
        calls += 1
        if calls == call:
            pathlib.Path({folder!r}, f"{{moment}}-{{RANK}}").touch()
            time.sleep({seconds})
        return function(*arguments, **options)
    return slow

if {moment!r} == "step":
    loop.accumulate_gradients = lingering(loop.accumulate_gradients, "step", 17)
if {moment!r} == "save":
    checkpoint.write_tensors = lingering(checkpoint.write_tensors, "save", 4)
if {moment!r} == "validation":
    next_token.position_losses = lingering(next_token.position_losses, "validation", 3)
"""


def stop_a_rank(server, data, folder: Path, *, moment: str, rank: int, after: float = 0.2, cold: bool = True) -> float:
    """Stop one rank at a moment, see the others leave and name it; returns the seconds until the group was gone."""
    run, marks = folder / "run", folder / "marks"
    marks.mkdir(parents=True, exist_ok=True)
    patch = LINGER.format(folder=str(marks), seconds=LINGER_SECONDS, moment=moment)
    words = training(run, data, step_limit_seconds=LIMIT_SECONDS, **STEPS)
    group = Group(server, folder / "started", *words, patch=patch, cold=cold)
    wait_until(lambda: (marks / f"{moment}-0").exists() or group.has_ended(), seconds=120)
    ranks = group.ranks()
    time.sleep(after)
    os.kill(ranks[rank], signal.SIGSTOP)
    stopped = time.monotonic()
    ended = group.wait(60)
    lived = time.monotonic() - stopped
    assert ended.code != 0, ended.text
    lines = re.findall(r"^oelm: .*", ended.text, re.M)
    assert len(lines) == 1, ended.text
    named = rf"oelm: rank {rank} \(host \S+, pid {ranks[rank]}\) did not respond for 2 s \(execution"
    assert re.match(named, lines[0]), lines
    assert "the same command resumes" in lines[0]
    assert not any(is_alive(pid) for pid in ranks.values())
    assert state(run) == "failed"
    assert f"rank {rank} " in RunDirectory(run).status()["error"]
    whole_steps(run)
    return lived


def resume_and_compare(server, data, folder: Path, reference: Path) -> None:
    run = folder / "run"
    ended = Group(server, folder / "started", *training(run, data, **STEPS)).wait()
    assert ended.code == 0, ended.text
    assert_equal_runs(run, reference)


def test_stopped_ranks_are_named_and_the_group_resumes(server, data, reference_of_two, tmp_path):
    """One run, three starts: the second rank stops in a step, the first in a save, and then to the end."""
    assert stop_a_rank(server, data, tmp_path, moment="step", rank=1) < 30
    assert stop_a_rank(server, data, tmp_path, moment="save", rank=0, cold=False) < 30
    resume_and_compare(server, data, tmp_path, reference_of_two)


@pytest.mark.trial
def test_twenty_stopped_ranks(server, data, reference_of_two, tmp_path, say):
    draw, lived, victims = random.Random(10), [], []
    for number in range(20):
        folder, moment, rank = tmp_path / str(number), MOMENTS[number % 3], draw.randrange(2)
        after = draw.uniform(0, LINGER_SECONDS - 0.1)
        lived.append(stop_a_rank(server, data, folder, moment=moment, rank=rank, after=after))
        resume_and_compare(server, data, folder, reference_of_two)
        victims.append((moment, rank))
        shutil.rmtree(folder)
    counts = ", ".join(f"{moment} {sum(victim[0] == moment for victim in victims)}" for moment in MOMENTS)
    say(
        f"K10: {len(lived)} stops ({counts}; rank 0: {sum(rank == 0 for _, rank in victims)}), with a limit of "
        f"{LIMIT_SECONDS:g} s the group gone after {max(lived):.1f} s at most, all named, resumed, 0 differences"
    )
