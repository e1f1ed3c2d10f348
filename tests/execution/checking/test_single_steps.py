"""Single steps: the memory of two, and gradients compared with eager ones, parameter by parameter."""

import itertools
from types import SimpleNamespace

import pytest
import torch

from oelm.core.settings import load_settings, written_out
from oelm.execution.checking import steps
from oelm.execution.checking.conduct import GRADIENT_TOLERANCES
from oelm.machine.errors import UserError


def test_the_peak_of_two_steps_is_said_beside_what_the_gpu_has(monkeypatch):
    """A stand-in for the GPU's counters; the steps are real."""
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 10**9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda name: SimpleNamespace(total_memory=2 * 10**9))
    settings = written_out(load_settings(preset="tiny", assignments=["training.batch_size=2", "execution.compile=off"]))
    found = steps.memory({"kind": "cpu", "settings": settings})
    assert (found["peak_bytes"], found["total_bytes"]) == (10**9, 2 * 10**9)


def test_an_arm_that_cannot_take_a_step_is_named_and_ends_none_of_the_others(monkeypatch):
    settings = dict(itertools.islice(steps._kinds(), 3))
    second = list(settings)[1]
    monkeypatch.setattr(steps, "_kinds", lambda: iter(settings.items()))
    take = steps._second_loss

    def taken(of, kind):
        if of is settings[second]:
            raise RuntimeError("embedding_backward does not have a deterministic implementation\nmore")
        return take(of, kind)

    monkeypatch.setattr(steps, "_second_loss", taken)
    found = steps.arms({"kind": "cpu"})
    assert found == {
        "arms": list(settings),
        "failed": {second: "embedding_backward does not have a deterministic implementation"},
        "not_finite": [],
    }


def test_a_small_parameter_with_a_wrong_gradient_shows_beside_large_ones():
    """The norm of all gradients would differ by 1e-9 of itself."""
    eager = {"large": torch.full((1000,), 100.0), "small": torch.full((4,), 0.1), "none": torch.zeros(3)}
    compiled = {name: value.clone() for name, value in eager.items()}
    assert set(steps.differences(eager, compiled).values()) == {0.0}
    compiled["small"] *= 1.1
    apart = steps.differences(eager, compiled)
    assert max(apart, key=apart.get) == "small"
    assert apart["small"] == pytest.approx(0.1, rel=1e-5)
    assert apart["small"] > max(GRADIENT_TOLERANCES.values())
    compiled["none"] += 1
    assert steps.differences(eager, compiled)["none"] > 1e9
    with pytest.raises(UserError, match="the gradient of none is not finite"):
        steps.differences(eager, compiled | {"none": torch.full((3,), torch.nan)})
    with pytest.raises(UserError, match="only one of the two has a gradient of small"):
        steps.differences(eager, {"large": compiled["large"], "none": compiled["none"]})
