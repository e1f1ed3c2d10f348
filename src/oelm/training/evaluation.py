"""Validation loss over a fixed set of sequences, shared out over all processes."""

from __future__ import annotations

import torch

from oelm.data.batches import ValidationSequences
from oelm.model.transformer import GPT
from oelm.training.device import Machine
from oelm.training.distributed import Sharing
from oelm.training.loss import position_losses


@torch.no_grad()
def validation_loss(gpt: GPT, sequences: ValidationSequences, *, machine: Machine, world: Sharing) -> float:
    """Mean -log p over every position of the set, in nats."""
    mine = world.share(len(sequences))
    total = torch.zeros((), dtype=torch.float64)
    gpt.eval()
    for first in range(mine.start, mine.stop, machine.micro_batch_size):
        members = range(first, min(first + machine.micro_batch_size, mine.stop))
        rows = torch.from_numpy(sequences.rows(members)).to(machine.device)
        with machine.autocast():
            hidden_BTD = gpt(rows[:, :-1])
            losses_N = position_losses(hidden_BTD.flatten(0, 1), gpt.token_embedding.weight, rows[:, 1:].flatten())
        total += losses_N.cpu().double().sum()
        world.attendance.sign()
    gpt.train()
    summed = world.sum(total).item()
    return summed / (len(sequences) * sequences.seq_len)
