"""K4, K5 and T1 with two processes under the real torchrun: what happens to one rank stops all, and is resumed."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

from patches import SLOW_STEPS
from ranks import STEPS, Group, is_alive
from runs import assert_equal_runs, state, steps_recorded, training, whole_steps

from warm import wait_until

SPOILED_ON_ONE_RANK = """
import oelm.run.training.loop as loop
accumulate = loop.accumulate_gradients
def spoiled(objective, run, step, **options):
    loss = accumulate(objective, run, step, **options)
    return loss * float("nan") if RANK == 1 and step == 17 else loss
loop.accumulate_gradients = spoiled
"""


def wait_for_step(group: Group, run: Path, step: int) -> None:
    wait_until(lambda: steps_recorded(run) >= step or group.has_ended(), seconds=120)
    assert not group.has_ended(), group.text


def test_a_group_is_stopped_killed_and_resumed_as_if_nothing_had_happened(server, data, reference_of_two, tmp_path):
    """One run, four starts: SIGTERM to torchrun, Ctrl-C to all, kill -9 of one rank, and then to the end."""
    run, words = tmp_path / "run", training(tmp_path / "run", data, **STEPS)

    first = Group(server, tmp_path / "started", *words, patch=SLOW_STEPS)
    wait_for_step(first, run, 3)
    first.send_to_agent(signal.SIGTERM)
    ended = first.wait()
    assert ended.code != 0
    step = int(re.search(r"oelm: stopped at step (\d+) of 30, saved", ended.out)[1])
    assert "oelm: resume with: the same torchrun command" in ended.out
    assert whole_steps(run)[-1] == step
    assert state(run) == "interrupted"

    second = Group(server, tmp_path / "started", *words, patch=SLOW_STEPS)
    wait_for_step(second, run, step + 5)
    second.send_to_all(signal.SIGINT)
    ended = second.wait()
    assert f"resuming from step {step} of 30" in ended.out
    step = int(re.search(r"oelm: stopped at step (\d+) of 30, saved", ended.out)[1])
    assert whole_steps(run)[-1] == step

    third = Group(server, tmp_path / "started", *words, patch=SLOW_STEPS, cold=True)
    wait_for_step(third, run, step + 3)
    ranks = third.ranks()
    os.kill(ranks[1], signal.SIGKILL)
    killed = time.monotonic()
    ended = third.wait(30)
    assert time.monotonic() - killed < 30
    assert ended.code != 0
    assert re.search(rf"rank\s+: 1 \(local_rank: 1\)\s+exitcode\s+: -9 \(pid: {ranks[1]}\)", ended.out), ended.out
    assert not any(is_alive(pid) for pid in ranks.values())
    assert whole_steps(run)

    ended = Group(server, tmp_path / "started", *words).wait()
    assert ended.code == 0, ended.out
    assert "resuming from step" in ended.out
    assert "warning" not in ended.out
    assert_equal_runs(run, reference_of_two)


def test_a_loss_that_is_no_number_on_one_rank_stops_every_rank_for_good(server, data, tmp_path):
    run, words = tmp_path / "run", training(tmp_path / "run", data, **STEPS)
    ended = Group(server, tmp_path / "started", *words, patch=SPOILED_ON_ONE_RANK, cold=True).wait()
    assert ended.code != 0
    assert re.search(
        r"^oelm: diverged at step 17: loss nan, gradient norm \S+, learning rate 0\.00\d+", ended.out, re.M
    )
    assert re.search(r"exitcode  : 3 ", ended.out)  # one ended by itself; torchrun may end the slower one
    assert state(run) == "diverged"
    assert whole_steps(run)[-1] == 14

    again = Group(server, tmp_path / "started", *words).wait()
    assert again.code != 0
    assert "a diverged run is not started again" in again.out
    assert "[rank1]: Traceback" not in again.out
    assert state(run) == "diverged"
    assert whole_steps(run)[-1] == 14
