"""The objective of a GPT on a probe: the answers, and nothing else. The output layer is computed at them alone.

B examples, T tokens, N answers, D model width, L difficulties.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oelm.core.config import GptRun
from oelm.core.logarithms import exponential
from oelm.core.model.parameters import role_of
from oelm.core.model.transformer import GPT
from oelm.core.probes.examples import Examples, answers_of, held_out_examples, training_examples
from oelm.core.probes.probe import Probe
from oelm.core.probes.tasks import stored_values
from oelm.run.training.device import Machine
from oelm.run.training.distributed import Sharing
from oelm.run.training.loss import losses_and_hits, summed_cross_entropy
from oelm.run.training.objective import Validation
from oelm.run.training.records import finite
from oelm.storage.metric_records import BY_DIFFICULTY


class AtAnswers:
    def __init__(self, gpt: GPT, run: GptRun, probe: Probe, *, machine: Machine, world: Sharing) -> None:
        self.model, self.dropout = gpt, run.model.dropout
        self._run, self._probe, self._machine, self._world = run, probe, machine, world
        training, levels = run.training, len(probe.difficulties)
        # As many of each difficulty: they take turns.
        self._curve, self._final = (
            max(1, wanted // levels) * levels
            for wanted in (training.validation_sequences, training.final_validation_sequences)
        )
        self.held_out = max(self._curve, self._final)
        self._scale = 1 / answers_of(probe, training.batch_size)
        self.warnings: list[str] = []

    def loss_of(self, step: int, members: range) -> Tensor:
        examples = training_examples(self._probe, seed=self._run.seeds.data, step=step, members=members)
        hidden_ND, asked_N, _ = self._at_answers(examples)
        return summed_cross_entropy(
            hidden_ND, self.model.output_weight, asked_N, scale=self._scale, compiled=self._machine.compile
        )

    def _at_answers(self, examples: Examples) -> tuple[Tensor, Tensor, np.ndarray]:
        """The hidden states at the answers, what is asked for there, and in which example."""
        example_N, place_N = np.nonzero(examples.is_asked_BT)
        hidden_BTD = self.model(self._machine.moved(examples.tokens_BT))
        places = self._machine.moved(example_N * self._probe.length + place_N)
        asked_N = self._machine.moved(examples.asked_BT[example_N, place_N])
        return hidden_BTD.flatten(0, 1).index_select(0, places), asked_N, example_N

    def role_of(self, name: str) -> str:
        return role_of(name)

    def tokens_after(self, step: int) -> int:
        return step * self._run.training.batch_size * self._probe.length

    # -- held-out examples ---------------------------------------------------------------------------------------------

    def validation(self) -> Validation:
        return self._seen(self._curve)

    def final_validation(self, last_loss: float) -> Validation:
        return self._seen(self._final)

    @torch.no_grad()
    def _seen(self, count: int) -> Validation:
        mine, at_once = self._world.share(count), self._machine.micro_batch_size
        # Of each difficulty: answers, right ones, their summed loss.
        sums_L3 = torch.zeros(len(self._probe.difficulties), 3, dtype=torch.float64)
        self.model.eval()
        for first in range(mine.start, mine.stop, at_once):
            members = range(first, min(first + at_once, mine.stop))
            examples = held_out_examples(
                self._probe, self._run.training.validation_split, members, seed=self._run.seeds.data
            )
            with self._machine.autocast():
                hidden_ND, asked_N, example_N = self._at_answers(examples)
                losses_N, hits_N = losses_and_hits(hidden_ND, self.model.output_weight, asked_N)
            seen_N3 = (
                torch.stack([torch.ones_like(losses_N), hits_N.to(losses_N.dtype), losses_N], dim=1).cpu().double()
            )
            sums_L3.index_add_(0, torch.from_numpy(examples.difficulty_B[example_N]), seen_N3)
        self.model.train()
        difficulties = [str(each) for each in self._probe.difficulties]
        sums = dict(zip(difficulties, self._world.sum(sums_L3).tolist(), strict=True))
        accuracies = {each: right / answers for each, (answers, right, _) in sums.items()}
        losses = {each: summed / answers for each, (answers, _, summed) in sums.items()}
        loss = sum(summed for _, _, summed in sums.values()) / sum(answers for answers, _, _ in sums.values())
        accuracy = sum(accuracies.values()) / len(accuracies)  # every difficulty counts the same
        record = {"perplexity": finite(exponential(loss)), "accuracy": accuracy, BY_DIFFICULTY: accuracies}
        chances = {str(difficulty): chance for difficulty, chance in self._probe.chances_in_context.items()}
        return Validation(
            loss=loss,
            text=f"accuracy {accuracy:.2%}",
            record=record,
            result=record
            | {"loss_by_difficulty": losses, "examples": count}
            | {"chance_blind": self._probe.blind_chance, "chance_in_context": chances}
            | self._stored(losses),
        )

    def _stored(self, losses: dict[str, float]) -> dict[str, float]:
        """Bits of a fixed table: what an answer no longer leaves open, times its items."""
        if self._probe.task.holds_out:
            return {}
        items = self._probe.difficulties[-1]
        known = math.log2(len(stored_values(items, self._probe.options))) - losses[str(items)] / math.log(2)
        bits = items * max(0.0, known)
        trainable = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        return {"bits_stored": bits, "bits_per_parameter": bits / max(1, trainable)}

    def best_result(self, loss: float) -> dict[str, Any]:
        return {"best_perplexity": finite(exponential(loss))}
