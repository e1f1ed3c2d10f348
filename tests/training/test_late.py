"""Updates that a device guards by itself: what is no number changes no weight, and neither does any later update."""

import pytest
import torch

from oelm.config import Training
from oelm.model.initialization import build
from oelm.training.late import GuardedUpdates
from oelm.training.optimizer import build_optimizer, clip_gradients, set_learning_rate
from small_runs import small_run

RATE = 1e-2


def prepared(limit, dtype):
    run = small_run()
    gpt = build(run.model, run.seeds).to(dtype)
    parameters = list(gpt.parameters())
    optimizer = build_optimizer(gpt, Training(weight_decay=0.1))
    return parameters, optimizer, GuardedUpdates(optimizer, parameters, limit)


def given_gradients(parameters, step):
    generator = torch.Generator().manual_seed(step)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("limit", [None, 1.0, 1e6])
def test_guarded_updates_are_those_that_the_host_would_take(limit, dtype):
    ours, _, updates = prepared(limit, dtype)
    theirs, optimizer, _ = prepared(limit, dtype)
    for step in range(1, 4):
        given_gradients(ours, step)
        given_gradients(theirs, step)
        norm = updates.take(torch.tensor(1.0), RATE)
        assert norm.item() == pytest.approx(clip_gradients(theirs, limit), rel=1e-5)
        set_learning_rate(optimizer, RATE)
        optimizer.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("bad", ["loss", "gradient"])
def test_after_a_number_that_is_none_no_weight_moves_again(bad):
    parameters, _, updates = prepared(1.0, torch.float32)
    for step in range(1, 6):
        given_gradients(parameters, step)
        if step == 3 and bad == "gradient":
            parameters[0].grad[0] = torch.inf
        before = [parameter.detach().clone() for parameter in parameters]
        updates.take(torch.tensor(torch.nan if step == 3 and bad == "loss" else 1.0), RATE)
        moved = [not torch.equal(one, other) for one, other in zip(before, parameters, strict=True)]
        assert all(moved) if step < 3 else not any(moved), step
