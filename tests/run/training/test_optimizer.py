"""What the optimizer holds, what it decays, and the learning rate of a step."""

import inspect
import sys

import pytest
import torch

from oelm.core.arms import GPT_ARMS, arm
from oelm.core.config import Training
from oelm.core.model.initialization import build
from oelm.core.model.parameters import encoder_role_of, frozen_names
from oelm.models.adaptation import adapt
from oelm.run.training.optimizer import AdamW, build_optimizer, clip_gradients, learning_rate_at
from small_runs import small_run
from tiny_transformers import tiny


def decay_of(model, optimizer) -> dict[str, float | None]:
    """What decays each parameter, by its name; None: the optimizer does not hold it."""
    held = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    return {name: held.get(id(parameter)) for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("arm", GPT_ARMS)
def test_decay_reaches_matrices_embeddings_and_residuals_and_nothing_else_that_moves(arm):
    run = small_run(arm)
    gpt = build(run.model, run.seeds)
    frozen = frozen_names(gpt)
    for name, decay in decay_of(gpt, build_optimizer(gpt, run.training)).items():
        never = "norm" in name or name.endswith((".bias", "_shift", ".temperature", ".convolution", "_scale"))
        expected = 0.0 if never else 0.1
        assert decay == (None if name in frozen else expected), name


def test_the_same_of_an_encoder_whose_projections_are_split():
    model = tiny("bert")
    adapt(model, arm("frozen_half", kind="encoder").parts, seed=0)
    frozen = frozen_names(model)
    found = decay_of(model, build_optimizer(model, Training(weight_decay=0.1), encoder_role_of))
    for name, parameter in model.named_parameters():
        assert found[name] == (None if name in frozen else 0.1 if parameter.dim() == 2 else 0.0), name


def test_it_steps_as_torchs_own_does_and_without_torchs_compiler(monkeypatch):
    def stepped(kind: type[torch.optim.AdamW]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        matrix, vector = torch.nn.Parameter(torch.randn(3, 4)), torch.nn.Parameter(torch.randn(4))
        optimizer = kind([{"params": [matrix], "weight_decay": 0.1}, {"params": [vector]}], lr=1e-2, fused=True)
        for _ in range(3):
            (matrix @ vector).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return [matrix, vector, *optimizer.state[matrix].values()]

    expected = stepped(torch.optim.AdamW)
    for name in ("add_param_group", "zero_grad"):  # which remember that they imported it
        method = inspect.unwrap(getattr(torch.optim.Optimizer, name))
        monkeypatch.delattr(method, "__dynamo_disable", raising=False)
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)
    assert all(map(torch.equal, stepped(AdamW), expected))
    with pytest.raises(ModuleNotFoundError):
        stepped(torch.optim.AdamW)


def test_learning_rate_warms_up_and_falls_to_a_tenth():
    training = Training(steps=100, warmup_steps=10, learning_rate=1.0)
    assert learning_rate_at(1, training) == pytest.approx(0.1)
    assert learning_rate_at(10, training) == pytest.approx(1.0)
    assert learning_rate_at(55, training) == pytest.approx(0.55)
    assert learning_rate_at(100, training) == pytest.approx(0.1)
    rates = [learning_rate_at(step, training) for step in range(10, 101)]
    assert rates == sorted(rates, reverse=True)
    assert learning_rate_at(1, Training(steps=4, warmup_steps=0, learning_rate=1.0)) > 0.8


def test_clipping_bounds_the_norm_and_reports_it():
    parameter = torch.nn.Parameter(torch.zeros(4))
    parameter.grad = torch.full((4,), 3.0)
    assert clip_gradients([parameter], 1.0) == pytest.approx(6.0)
    assert parameter.grad.norm().item() == pytest.approx(1.0)
    assert clip_gradients([parameter], 2.0) == pytest.approx(1.0)
    assert parameter.grad.norm().item() == pytest.approx(1.0)
