"""The objective of a GPT: predict the next token of windows of text."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from oelm.core.config import GptRun
from oelm.core.logarithms import exponential
from oelm.core.model.parameters import role_of
from oelm.core.model.transformer import GPT
from oelm.data.batches import TrainingBatches, ValidationSequences
from oelm.run.training.device import Machine
from oelm.run.training.distributed import Sharing
from oelm.run.training.loss import position_losses, summed_cross_entropy
from oelm.run.training.objective import Validation
from oelm.run.training.records import finite


class NextToken:
    def __init__(
        self,
        gpt: GPT,
        run: GptRun,
        *,
        train: np.ndarray,
        held_out: np.ndarray,
        machine: Machine,
        world: Sharing,
    ) -> None:
        self.model, self.dropout = gpt, run.model.dropout
        self._run, self._machine, self._world = run, machine, world
        training, seq_len = run.training, run.model.seq_len
        self._batches = TrainingBatches(train, seq_len, training.batch_size, run.seeds.data)
        self._sequences = ValidationSequences(held_out, seq_len, training.validation_sequences)
        self._final_sequences = ValidationSequences(held_out, seq_len, training.final_validation_sequences)
        self.held_out = self._sequences.available
        self._scale = 1 / (training.batch_size * seq_len)
        self.warnings: list[str] = []
        if training.batch_size > self._batches.windows:
            self.warnings.append(
                f"one update reads {training.batch_size} sequences, but the training split contains "
                f"{self._batches.windows}: they repeat within it"
            )

    def loss_of(self, step: int, members: range) -> Tensor:
        inputs_BT, targets_BT = batch_on_device(self._batches, step, members, self._machine)
        hidden_BTD = self.model(inputs_BT)
        weight_VD = self.model.output_weight
        hidden_ND, targets_N, compiled = hidden_BTD.flatten(0, 1), targets_BT.flatten(), self._machine.compile
        return summed_cross_entropy(hidden_ND, weight_VD, targets_N, scale=self._scale, compiled=compiled)

    def role_of(self, name: str) -> str:
        return role_of(name)

    def tokens_after(self, step: int) -> int:
        return step * self._run.training.batch_size * self._run.model.seq_len

    def validation(self) -> Validation:
        loss = validation_loss(self.model, self._sequences, machine=self._machine, world=self._world)
        return self._seen(loss, self._sequences)

    def final_validation(self, last_loss: float) -> Validation:
        if len(self._final_sequences) == len(self._sequences):
            return self._seen(last_loss, self._sequences)
        loss = validation_loss(self.model, self._final_sequences, machine=self._machine, world=self._world)
        return self._seen(loss, self._final_sequences)

    def _seen(self, loss: float, sequences: ValidationSequences) -> Validation:
        perplexity = exponential(loss)
        measure = {"perplexity": finite(perplexity)}
        return Validation(
            loss=loss,
            text=f"perplexity {perplexity:.3f}",
            record=measure,
            result=measure | {"validation_tokens": len(sequences) * self._run.model.seq_len},
        )

    def best_result(self, loss: float) -> dict[str, Any]:
        return {"best_perplexity": finite(exponential(loss))}


def batch_on_device(batches: TrainingBatches, step: int, members: range, machine: Machine) -> tuple[Tensor, Tensor]:
    rows = machine.moved(batches.rows(step, members))
    return rows[:, :-1], rows[:, 1:]


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
            losses_N = position_losses(hidden_BTD.flatten(0, 1), gpt.output_weight, rows[:, 1:].flatten())
        total += losses_N.cpu().double().sum()
    gpt.train()
    summed = world.sum(total).item()
    return summed / (len(sequences) * sequences.seq_len)
