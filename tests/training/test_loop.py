"""The arithmetic of a step: independent of the micro-batch, the same batches for every arm, repeatable."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch

from bare_loop import moved, parameters, start
from oelm.arms import GPT_ARMS
from oelm.training import loop
from oelm.training.driver import Driver
from oelm.training.loop import Diverged, accumulate_gradients
from oelm.training.records import Progress
from small_runs import small_run


@pytest.mark.parametrize("micro_batch_size", [1, 2, 3])
def test_gradient_does_not_depend_on_micro_batch_size(micro_batch_size, token_folder):
    results = []
    for size in (4, micro_batch_size):
        gpt, _, steps = start(small_run("frozen_half"), token_folder, precision="float64", micro_batch_size=size)
        losses = [result.loss for result in steps]
        results.append((losses, parameters(gpt)))
    (whole_losses, whole), (part_losses, part) = results
    assert part_losses == pytest.approx(whole_losses, rel=1e-11)
    for name in whole:
        torch.testing.assert_close(part[name], whole[name], rtol=0, atol=1e-10)


def test_two_runs_are_bit_equal(token_folder):
    first, second = (list(start(small_run("trained"), token_folder)[2]) for _ in range(2))
    assert [r.loss for r in first] == [r.loss for r in second]


def test_arms_see_the_same_batches(token_folder, monkeypatch):
    from oelm.training import next_token

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
    with pytest.raises(Diverged, match=r"step 2.*learning rate"):
        next(steps)
    for name, value in parameters(gpt).items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0, equal_nan=True)


# ---- Numbers that are read one step late, as on a GPU ----------------------------------------------------------------


def seldom(step: int) -> bool:
    return step in (7, 13)


def records(results) -> list[tuple]:
    return [(r.step, r.loss, r.gradient_norm, r.clipped, r.learning_rate, r.stop_requested) for r in results]


@pytest.mark.parametrize(
    ("arm", "precision", "roundings"),
    [("trained", "float32", 1e-3), ("late_unfreeze", "bfloat16", 0.05), ("frozen_half", "float64", 1e-11)],
)
def test_late_reading_gives_the_records_and_weights_of_immediate_reading(arm, precision, roundings, token_folder):
    """To the last bit where nothing is clipped; a clipping factor is a quotient there and a product here."""
    for clip, tolerance in ((None, 0.0), (0.3, roundings)):
        run = small_run(arm, gradient_clip=clip, steps=14)
        found = []
        for options in ({"late": False}, {"late": True}, {"late": True, "acts_after": seldom}):
            gpt, _, steps = start(run, token_folder, precision=precision, micro_batch_size=3, loop=options)
            found.append((records(steps), parameters(gpt)))
        (now, weights), (settled, settled_weights), (late, late_weights) = found
        assert settled == late
        assert all(torch.equal(settled_weights[name], late_weights[name]) for name in weights)
        assert clip is None or any(clipped for _, _, _, clipped, _, _ in now)
        assert [record[0] for record in now] == [record[0] for record in late]
        for one, other in zip(now, late, strict=True):
            assert one[1:3] == (pytest.approx(other[1:3], rel=tolerance) if tolerance else other[1:3])
            assert one[3:] == other[3:]
        if not tolerance:
            assert all(torch.equal(weights[name], late_weights[name]) for name in weights)


@pytest.mark.parametrize("spoiled", ["gradient", "loss"])
def test_a_number_that_is_none_leaves_the_weights_of_the_step_before_although_the_next_one_is_under_way(
    spoiled, token_folder, monkeypatch
):
    import oelm.training.loop as loop

    run = small_run("trained", steps=12)
    gpt, optimizer, steps = start(run, token_folder, loop={"late": True, "acts_after": lambda step: step == 5})
    yielded = [next(steps).step for _ in range(5)]
    before, counts = parameters(gpt), [float(state["step"]) for state in optimizer.state.values()]
    real, made = loop.accumulate_gradients, []

    def spoil(objective, run, step, **options):
        made.append(step)
        loss = real(objective, run, step, **options)
        if step != 6:
            return loss
        if spoiled == "loss":
            return loss * float("inf")
        objective.model.final_norm.weight.grad[0] = float("nan")
        return loss

    monkeypatch.setattr(loop, "accumulate_gradients", spoil)
    rate = f"{loop.learning_rate_at(6, run.training):.3g}"
    with pytest.raises(Diverged, match=rf"diverged at step 6: .*learning rate {rate}"):
        next(steps)
    assert yielded == [1, 2, 3, 4, 5]
    assert made == [6, 7]  # the next one was begun, and its update left out
    assert moved(before, parameters(gpt)) == set()
    assert [float(state["step"]) for state in optimizer.state.values()] == counts


def test_a_wish_to_stop_is_answered_after_the_step_that_is_under_way(token_folder):
    wishes = iter([False, False, True, True, True])
    options = {"late": True, "acts_after": lambda step: False, "stop_requested": lambda: next(wishes)}
    gpt, _, steps = start(small_run("trained", steps=12), token_folder, loop=options)
    seen = []
    for result in steps:
        seen.append((result.step, result.stop_requested))
        if result.stop_requested:
            break
    assert seen == [(1, False), (2, False), (3, False), (4, True)]
    whole, _, _ = start(small_run("trained", steps=12), token_folder)
    again, _, four = start(small_run("trained", steps=12), token_folder, loop={"late": True})
    for _ in range(4):
        next(four)
    assert moved(parameters(again), parameters(gpt)) == set()
    assert moved(parameters(whole), parameters(gpt))


def test_a_graph_compiled_for_a_step_is_booked_to_it_also_where_the_one_before_is_read_later(token_folder, monkeypatch):
    """The compiler's counter goes up while step 3 is launched, which on a GPU is before step 2 is read."""
    for late in (False, True):
        counter, real = [1], accumulate_gradients

        def compiling(objective, run, step, *, counter=counter, real=real, **given):
            counter[0] += step == 3
            return real(objective, run, step, **given)

        monkeypatch.setattr(loop, "accumulate_gradients", compiling)
        monkeypatch.setattr(loop, "graphs_compiled", lambda counter=counter: counter[0])
        _, _, steps = start(
            small_run("trained", steps=5), token_folder, loop={"late": late, "acts_after": lambda step: False}
        )
        progress = Progress()
        driver = SimpleNamespace(
            progress=progress, graphs=1, machine=SimpleNamespace(compile=True), patience=MagicMock(),
            journal=MagicMock(), _tokens_per_second=lambda result: 0.0,
        )  # fmt: skip
        seconds = {}
        for result in steps:
            Driver._note(driver, result)
            seconds[result.step] = result.seconds
        assert (progress.compiling_steps, progress.compiling_seconds) == (1, seconds[3])
        monkeypatch.setattr(loop, "accumulate_gradients", real)
