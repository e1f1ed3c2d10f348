"""T1, T2: a loss that is no number ends the run for good; a frozen weight that moved ends it at once."""

from __future__ import annotations

import json
import math
import re
import struct

import pytest
from runs import assert_equal_runs, assert_refused, everything_stored, newest, reseal, state, training, whole_steps

from oelm.run.directory import RunDirectory, check_whole

SPOILED_LOSS = """
import oelm.run.training.loop as loop
accumulate = loop.accumulate_gradients
def spoiled(objective, run, step, **options):
    loss = accumulate(objective, run, step, **options)
    return loss * float("inf") if step == 17 else loss
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


# ---- T1 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        (SPOILED_LOSS, r"step 17: loss inf, gradient norm \S+"),
        (SPOILED_GRADIENT, r"step 17: loss \d\S+, gradient norm nan"),
        (SPOILED_VALIDATION, r"step 20: validation loss nan"),
    ],
    ids=["loss", "gradient", "validation"],
)
def test_a_number_that_is_none_ends_the_run_as_diverged_for_good(server, data, tmp_path, patch, said):
    run = tmp_path / "run"
    ended = server.run(*training(run, data), patch=patch)
    assert_refused(ended, code=3)
    assert re.search(rf"diverged at {said}, learning rate 0\.00\d+", ended.err), ended.err
    assert state(run) == "diverged"
    assert whole_steps(run) == [7, 14]
    if patch == SPOILED_GRADIENT:
        before = everything_stored(run)
        again = server.run(*training(run, data))
        assert_refused(again, "diverged at step 17", "a diverged run is not started again", code=3)
        assert state(run) == "diverged"
        assert everything_stored(run) == before


@pytest.mark.parametrize("learning_rate", ["1e38", pytest.param("1e19", marks=pytest.mark.trial)])
def test_an_enormous_learning_rate_ends_as_diverged_before_a_bad_weight_is_saved(server, data, tmp_path, learning_rate):
    """Whether the loss, the gradient, the weights or the validation stops being a number first."""
    run = tmp_path / "run"
    changes = {"learning_rate": learning_rate, "warmup_steps": 0, "checkpoint_every": 1, "validate_every": 3}
    assert_refused(server.run(*training(run, data, **changes)), code=3)
    assert state(run) == "diverged"
    for step in whole_steps(run):
        weights = (RunDirectory(run).checkpoint_folder(step) / "model.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", weights[:8])
        assert all(math.isfinite(number) for (number,) in struct.iter_unpack("<f", weights[8 + length :]))


# ---- T2 ------------------------------------------------------------------------------------------------------------


def test_a_frozen_weight_that_moves_stops_the_run_which_goes_on_from_before(server, data, reference, tmp_path):
    run = tmp_path / "run"
    ended = server.run(*training(run, data), patch=THAW_WITHOUT_LEAVE)
    said = "frozen weight changed between steps 14 and 21: blocks.1.attention.key.weight (digest differs)"
    assert_refused(ended, said, code=4)
    assert state(run) == "failed"
    assert whole_steps(run) == [7, 14]
    assert server.run(*training(run, data)).code == 0
    assert_equal_runs(run, reference)


def test_a_checkpoint_with_an_altered_frozen_weight_is_refused_though_its_manifest_agrees(server, data, stopped):
    """The lowest bit of a tensor's first element is flipped."""
    file = newest(stopped) / "model.safetensors"
    content = bytearray(file.read_bytes())
    (length,) = struct.unpack("<Q", content[:8])
    name = "blocks.0.attention.query.weight"
    content[8 + length + json.loads(content[8 : 8 + length])[name]["data_offsets"][0]] ^= 1
    file.write_bytes(content)
    reseal(newest(stopped))
    check_whole(newest(stopped))
    ended = server.run(*training(stopped, data))
    assert_refused(ended, f"frozen weight changed between steps 0 and 28: {name}", code=4)
