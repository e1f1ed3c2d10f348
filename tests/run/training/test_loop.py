"""The arithmetic of a step: independent of the micro-batch, the same batches for every arm, repeatable."""

import itertools
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch

from bare_loop import parameters, start
from oelm.core.arms import GPT_ARMS
from oelm.run.training import driver, loop
from oelm.run.training.loop import Diverged, accumulate_gradients
from oelm.run.training.records import Progress
from small_runs import small_run


def test_gradient_does_not_depend_on_micro_batch_size(token_folder):
    results = []
    for size in (4, 3):
        gpt, _, steps = start(small_run("frozen_half"), token_folder, precision="float64", micro_batch_size=size)
        losses = [result.loss for result in steps]
        results.append((losses, parameters(gpt)))
    (whole_losses, whole), (part_losses, part) = results
    assert part_losses == pytest.approx(whole_losses, rel=1e-11)
    for name in whole:
        torch.testing.assert_close(part[name], whole[name], rtol=0, atol=1e-10)


def test_arms_see_the_same_batches(token_folder, monkeypatch):
    from oelm.run.training import next_token

    seen: dict[str, list] = {}
    for arm in GPT_ARMS:
        original = next_token.batch_on_device
        rows: list = []

        def spy(*arguments, rows=rows, original=original):
            batch = original(*arguments)
            rows.append(batch[0].tolist())
            return batch

        monkeypatch.setattr(next_token, "batch_on_device", spy)
        list(start(small_run(arm, steps=3), token_folder)[2])
        monkeypatch.setattr(next_token, "batch_on_device", original)
        seen[arm] = rows
    assert all(rows == seen["trained"] for rows in seen.values())
    assert len(seen["trained"]) == 3


def test_training_lowers_the_loss(token_folder):
    losses = [result.loss for result in start(small_run("frozen_head_orthogonal", steps=60), token_folder)[2]]
    assert losses[-1] < losses[0] - 1.0


def test_dropout_masks_depend_on_seed_step_and_micro_batch_only(token_folder):
    run = small_run("trained", steps=4)
    run = run.model_copy(update={"model": run.model.model_copy(update={"dropout": 0.2})})
    first = [result.loss for result in start(run, token_folder)[2]]
    torch.manual_seed(99)
    again = [result.loss for result in start(run, token_folder)[2]]
    assert first == again


def test_a_loss_that_is_no_number_stops_before_the_update(token_folder):
    gpt, _, steps = start(small_run("trained"), token_folder)
    next(steps)
    with torch.no_grad():
        gpt.final_norm.weight[0] = torch.nan
    before = parameters(gpt)
    with pytest.raises(Diverged, match=r"diverged at step 2: .*learning rate"):
        next(steps)
    for name, value in parameters(gpt).items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0, equal_nan=True)


def test_a_wish_to_stop_is_answered_after_the_step_it_came_in(token_folder):
    wishes = iter([False, False, True])
    _, _, steps = start(small_run("trained", steps=12), token_folder, loop={"stop_requested": lambda: next(wishes)})
    assert [(result.step, result.stop_requested) for result in itertools.islice(steps, 3)] == [
        (1, False), (2, False), (3, True),
    ]  # fmt: skip


def test_the_steps_that_compile_are_counted_and_their_time(token_folder, monkeypatch):
    counter, real = [1], accumulate_gradients

    def compiling(objective, run, step, **given):
        counter[0] += step == 3
        return real(objective, run, step, **given)

    monkeypatch.setattr(loop, "accumulate_gradients", compiling)
    monkeypatch.setattr(driver, "graphs_compiled", lambda: counter[0])
    _, _, steps = start(small_run("trained", steps=5), token_folder)
    progress = Progress()
    noting = SimpleNamespace(
        progress=progress, graphs=1, machine=SimpleNamespace(compile=True), recent_seconds=[],
        journal=MagicMock(), _tokens_per_second=lambda result: 0.0,
    )  # fmt: skip
    seconds = {}
    for result in steps:
        driver.Driver._note(noting, result)
        seconds[result.step] = result.seconds
    assert (progress.compiling_steps, progress.compiling_seconds) == (1, seconds[3])
