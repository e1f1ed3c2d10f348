"""The loss of a GPT and its gradients; validation reads a fixed set, every position of it."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from bare_loop import start
from oelm.core.model.initialization import build
from oelm.data.batches import TrainingBatches, ValidationSequences
from oelm.run.training.device import resolve_machine
from oelm.run.training.distributed import World
from oelm.run.training.next_token import validation_loss
from small_runs import quiet_execution, small_run


def test_validation_loss_is_the_mean_over_every_position(token_folder):
    run = small_run()
    gpt = build(run.model, run.seeds).double()
    tokens = np.memmap(token_folder / "val.bin", dtype="<u2", mode="r")
    sequences = ValidationSequences(tokens, 16, 7)
    machine, _ = resolve_machine(
        quiet_execution(precision="float64", micro_batch_size=3), run, local_rank=0, world_size=1
    )
    rows = torch.from_numpy(sequences.rows(range(7)))
    with torch.no_grad():
        logits = gpt.logits(gpt(rows[:, :-1]))
    expected = functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).item()
    assert validation_loss(gpt, sequences, machine=machine, world=World()) == pytest.approx(expected, rel=1e-12)
    assert gpt.training


@pytest.mark.parametrize("arm", ["trained", "frozen_embedding"])
@pytest.mark.parametrize("tied", [True, False])
def test_gradients_equal_those_of_the_plain_loss(token_folder, arm, tied):
    """Also where the embedding's gradient is sparse, and where the output layer has a matrix of its own."""
    run = small_run(arm, data=token_folder, gradient_clip=None)
    run = run.model_copy(update={"model": run.model.model_copy(update={"tied": tied})})
    gpt, _, steps = start(run, token_folder, precision="float64", micro_batch_size=2)
    plain = build(run.model, run.seeds).double()
    tokens = np.memmap(token_folder / "train.bin", dtype="<u2", mode="r")
    rows = torch.from_numpy(TrainingBatches(tokens, 16, 4, run.seeds.data).rows(1, range(4)))
    functional.cross_entropy(plain.logits(plain(rows[:, :-1])).flatten(0, 1), rows[:, 1:].flatten()).backward()
    expected = {name: value.grad for name, value in plain.named_parameters()}
    assert {name for name, gradient in expected.items() if gradient is None} == (
        {"token_embedding.weight"} if arm == "frozen_embedding" else set()
    )
    assert ("output_layer.weight" in expected) is not tied
    found = {}
    for name, value in gpt.named_parameters():
        if value.requires_grad:
            value.register_post_accumulate_grad_hook(lambda each, name=name: found.update({name: each.grad.clone()}))
    next(steps)
    for name, gradient in expected.items():
        assert (name in found) == (gradient is not None), name
        if gradient is not None:
            torch.testing.assert_close(found[name].to_dense(), gradient, rtol=1e-9, atol=1e-12, msg=name)
