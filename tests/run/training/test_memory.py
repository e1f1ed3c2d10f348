"""What a run needs of memory is known before it starts, and never overestimated."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from oelm.core.accounting import activation_bytes, totals
from oelm.core.config import Model, Seeds, resolved_model
from oelm.core.model.initialization import build
from oelm.core.repairs import Convolution, Repairs, Residual, Shift
from oelm.core.scores import Scores, Temperature
from oelm.machine.errors import UserError
from oelm.run.training.assembly import gpt_on_device
from oelm.run.training.device import Machine
from oelm.run.training.loss import summed_cross_entropy
from oelm.run.training.memory import needed_bytes, refuse_what_does_not_fit
from small_runs import small_run


def machine(**changes) -> Machine:
    settings = {"device": "cpu", "precision": "float32", "compile": False, "threads": 1, "micro_batch_size": 4}
    return Machine(**settings | changes)


REPAIRED = Repairs(
    residual=Residual(rank=4, on=["query", "down"], nonlinear=True),
    shift=Shift(per="channel", on=["key", "value"]),
    convolution=Convolution(width=2),
)
OPTIONS = {"scores": Scores(temperature=Temperature(kind="per_head"), query_key_norm=True), "repairs": REPAIRED}


@pytest.mark.parametrize(
    "options", [{}, {"scores": Scores(query_key_width=4)}, OPTIONS], ids=["plain", "narrow", "all"]
)
def test_activations_are_what_a_forward_pass_keeps(options):
    sized = {"d_model": 64, "num_layers": 5, "num_heads": 4, "d_ff": 100}
    model = resolved_model(Model(vocabulary=64, seq_len=48, **sized, **options))
    gpt = build(model, Seeds())
    weights = {weight.untyped_storage().data_ptr() for weight in gpt.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    tokens = torch.randint(0, 64, (6, 49))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = gpt(tokens[:, :-1])
        summed_cross_entropy(hidden.flatten(0, 1), gpt.token_embedding.weight, tokens[:, 1:].flatten())
    counted = sum(each.untyped_storage().nbytes() for where, each in kept.items() if where not in weights)
    assert activation_bytes(model, examples=6) <= counted
    assert activation_bytes(model, examples=6) == pytest.approx(counted, rel=0.25)


def test_weights_gradients_moments_and_activations_are_counted():
    run = small_run("frozen_head_orthogonal")
    counts, parts = totals(run.model), needed_bytes(run, machine())
    assert parts == {
        "weights": counts.weight_bytes,
        "gradients": counts.gradient_bytes,
        "moments": counts.optimizer_bytes,
        "activations": activation_bytes(run.model, examples=4),
    }
    assert needed_bytes(run, machine(precision="float64")) == {name: 2 * count for name, count in parts.items()}
    assert needed_bytes(run, machine(compile=True))["activations"] < parts["activations"]


def test_a_run_is_refused_for_any_part_that_does_not_fit_and_processes_share_a_machine(monkeypatch):
    run, parts = small_run(), needed_bytes(small_run(), machine())
    for part in ("weights", "moments", "activations"):
        has = sum(parts.values()) - parts[part] // 2
        monkeypatch.setattr("oelm.run.training.memory.memory_bytes", lambda has=has: has)
        with pytest.raises(UserError, match=rf"needs at least .*{part} [\d.]+ \w+.*lower micro_batch_size"):
            refuse_what_does_not_fit(run, machine())
    monkeypatch.setattr("oelm.run.training.memory.memory_bytes", lambda: sum(parts.values()))
    refuse_what_does_not_fit(run, machine())
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(UserError, match="for 2 of them"):
        refuse_what_does_not_fit(small_run(), machine())


def test_a_gpu_is_asked_for_one_sequence_where_the_run_may_take_fewer(monkeypatch):
    one = sum(needed_bytes(small_run(), machine(micro_batch_size=1)).values())
    for total, fits in ((one, True), (one - 1, False)):
        monkeypatch.setattr(
            torch.cuda, "get_device_properties", lambda name, total=total: SimpleNamespace(total_memory=total)
        )
        with nullcontext() if fits else pytest.raises(UserError, match="the GPU has"):
            refuse_what_does_not_fit(small_run(), machine(device="cuda:0"))


def test_nothing_is_built_of_a_run_that_does_not_fit(monkeypatch):
    monkeypatch.setattr("oelm.run.training.memory.memory_bytes", lambda: 1000)
    monkeypatch.setattr("oelm.run.training.assembly.build", lambda *given: pytest.fail("it was built"))
    with pytest.raises(UserError, match=r"this machine has 1000 bytes; lower micro_batch_size"):
        gpt_on_device(small_run(), machine())
