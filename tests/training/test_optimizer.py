"""What the optimizer holds, what it decays, and the learning rate of a step."""

import pytest
import torch

from oelm.config import Training
from oelm.model.initialization import build
from oelm.training.optimizer import build_optimizer, clip_gradients, learning_rate_at
from small_runs import small_run


def test_decay_reaches_matrices_only_and_frozen_weights_are_not_held():
    run = small_run("frozen_half")
    gpt = build(run.model, run.seeds)
    optimizer = build_optimizer(gpt, run.training)
    held = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in gpt.named_parameters():
        frozen = name.endswith((".query.covered", ".key.covered"))
        expected = None if frozen else 0.1 if parameter.dim() >= 2 else 0.0
        assert held.get(id(parameter)) == expected, name


def test_learning_rate_warms_up_and_falls_to_a_tenth():
    training = Training(steps=100, warmup_steps=10, learning_rate=1.0)
    assert learning_rate_at(1, training) == pytest.approx(0.1)
    assert learning_rate_at(10, training) == pytest.approx(1.0)
    assert learning_rate_at(55, training) == pytest.approx(0.55)
    assert learning_rate_at(100, training) == pytest.approx(0.1)
    rates = [learning_rate_at(step, training) for step in range(10, 101)]
    assert rates == sorted(rates, reverse=True)


def test_a_run_without_warm_up_starts_high():
    assert learning_rate_at(1, Training(steps=4, warmup_steps=0, learning_rate=1.0)) > 0.8


def test_clipping_bounds_the_norm_and_reports_it():
    parameter = torch.nn.Parameter(torch.zeros(4))
    parameter.grad = torch.full((4,), 3.0)
    assert clip_gradients([parameter], 1.0) == pytest.approx(6.0)
    assert parameter.grad.norm().item() == pytest.approx(1.0)
    assert clip_gradients([parameter], 2.0) == pytest.approx(1.0)
    assert parameter.grad.norm().item() == pytest.approx(1.0)
