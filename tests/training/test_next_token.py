"""Validation of a GPT reads a fixed set, every position of it."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from oelm.data.batches import ValidationSequences
from oelm.model.initialization import build
from oelm.training.device import resolve_machine
from oelm.training.distributed import World
from oelm.training.next_token import validation_loss
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
