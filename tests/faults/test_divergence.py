"""T1, T2: a loss that is no number ends the run for good; a frozen weight that moved ends it at once."""

from __future__ import annotations

import json
import math
import re
import struct
from pathlib import Path

import pytest
from runs import everything_stored, reseal, state, training

from oelm.run.directory import RunDirectory, check_whole

# The loss of step 17 is multiplied by a number that is none; gradients follow.
SPOILED_LOSS = """
import oelm.run.training.loop as loop
accumulate = loop.accumulate_gradients
def spoiled(objective, run, step, **options):
    loss = accumulate(objective, run, step, **options)
    return loss * float("{number}") if step == 17 else loss
loop.accumulate_gradients = spoiled
"""

SPOILED_GRADIENT = """
import oelm.run.training.loop as loop
accumulate = loop.accumulate_gradients
def spoiled(objective, run, step, **options):
    loss = accumulate(objective, run, step, **options)
    if step == 17:
        objective.model.final_norm.weight.grad[0] = float("nan")
    return loss
loop.accumulate_gradients = spoiled
"""

SPOILED_VALIDATION = """
import oelm.run.training.next_token as next_token
validate, validations = next_token.validation_loss, 0
def spoiled(*arguments, **options):
    global validations
    validations += 1
    return validate(*arguments, **options) * (float("nan") if validations == 4 else 1)
next_token.validation_loss = spoiled
"""

THAW_WITHOUT_LEAVE = """
import torch, oelm.run.training.assembly as assembly
build = assembly.build_optimizer
def build_and_spoil(gpt, *arguments):
    optimizer, updates = build(gpt, *arguments), 0
    step = optimizer.step
    def spoiled(*arguments, **options):
        nonlocal updates
        updates += 1
        step(*arguments, **options)
        if updates == 17:
            with torch.no_grad():
                gpt.blocks[1].attention.key.weight[3, 5] += 1e-7
    optimizer.step = spoiled
    return optimizer
assembly.build_optimizer = build_and_spoil
"""


def whole_steps(run: Path) -> list[int]:
    stored = RunDirectory(run).stored_checkpoints()
    for folder in stored:
        check_whole(folder)
    return [int(folder.name[5:]) for folder in stored]


# ---- T1 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "patch",
    [
        SPOILED_LOSS.format(number="nan"),
        SPOILED_LOSS.format(number="inf"),
        SPOILED_GRADIENT,
    ],
    ids=["nan loss", "infinite loss", "nan gradient"],
)
def test_a_loss_or_gradient_that_is_no_number_ends_the_run_as_diverged(server, data, tmp_path, patch):
    run = tmp_path / "run"
    ended = server.run(*training(run, data), patch=patch)
    assert ended.code == 3, ended.text
    assert "Traceback" not in ended.text
    assert re.search(r"diverged at step 17: loss \S+, gradient norm \S+, learning rate 0\.00\d+", ended.err)
    assert state(run) == "diverged"
    assert whole_steps(run) == [7, 14]


def test_a_diverged_run_is_not_started_again(server, data, tmp_path):
    run = tmp_path / "run"
    server.run(*training(run, data), patch=SPOILED_GRADIENT)
    before = everything_stored(run)
    again = server.run(*training(run, data))
    assert again.code == 3
    assert "diverged at step 17" in again.err
    assert "a diverged run is not started again" in again.err
    assert "Traceback" not in again.text
    assert state(run) == "diverged"
    assert everything_stored(run) == before


@pytest.mark.parametrize("learning_rate", ["1e19", "1e30", "1e38"])
def test_an_enormous_learning_rate_ends_as_diverged_before_a_bad_weight_is_saved(server, data, tmp_path, learning_rate):
    """Whether the loss, the gradient, the weights or the validation stops being a number first."""
    run = tmp_path / "run"
    changes = {"learning_rate": learning_rate, "warmup_steps": 0, "checkpoint_every": 1, "validate_every": 3}
    ended = server.run(*training(run, data, **changes))
    assert "Traceback" not in ended.text
    assert (ended.code, state(run)) == (3, "diverged")
    for step in whole_steps(run):
        weights = (RunDirectory(run).checkpoint_folder(step) / "model.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", weights[:8])
        assert all(math.isfinite(number) for (number,) in struct.iter_unpack("<f", weights[8 + length :]))


def test_a_validation_loss_that_is_no_number_ends_the_run_as_diverged(server, data, tmp_path):
    run = tmp_path / "run"
    ended = server.run(*training(run, data), patch=SPOILED_VALIDATION)
    assert ended.code == 3, ended.text
    assert "Traceback" not in ended.text
    assert re.search(r"diverged at step 20: validation loss nan, learning rate 0\.00\d+", ended.err)
    assert state(run) == "diverged"
    assert whole_steps(run) == [7, 14]


# ---- T2 ------------------------------------------------------------------------------------------------------------


def test_a_frozen_weight_that_moves_stops_the_run(server, data, tmp_path):
    run = tmp_path / "run"
    ended = server.run(*training(run, data), patch=THAW_WITHOUT_LEAVE)
    assert ended.code == 4, ended.text
    assert "frozen weight changed between steps 14 and 21: blocks.1.attention.key.weight (digest differs)" in ended.err
    assert "Traceback" not in ended.text
    assert state(run) == "failed"
    assert whole_steps(run) == [7, 14]


def test_a_run_stopped_for_a_moved_weight_goes_on_from_before(server, data, reference, tmp_path):
    run = tmp_path / "run"
    server.run(*training(run, data), patch=THAW_WITHOUT_LEAVE)
    assert server.run(*training(run, data)).code == 0
    assert everything_stored(run) == everything_stored(reference)


def test_a_checkpoint_with_an_altered_frozen_weight_is_refused_though_its_manifest_agrees(server, data, stopped):
    checkpoint = RunDirectory(stopped).stored_checkpoints()[-1]
    alter(checkpoint / "model.safetensors", "blocks.0.attention.query.weight")
    reseal(checkpoint)
    check_whole(checkpoint)
    ended = server.run(*training(stopped, data))
    assert ended.code == 4, ended.text
    assert "frozen weight changed between steps 0 and 28: blocks.0.attention.query.weight" in ended.err
    assert "Traceback" not in ended.text


def alter(file: Path, name: str) -> None:
    """Flip the lowest bit of a tensor's first element."""
    content = bytearray(file.read_bytes())
    (length,) = struct.unpack("<Q", content[:8])
    content[8 + length + json.loads(content[8 : 8 + length])[name]["data_offsets"][0]] ^= 1
    file.write_bytes(content)
