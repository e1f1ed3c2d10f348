"""The objective of an encoder: name the label of a sentence or of a pair of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from oelm.core.config import EncoderRun
from oelm.core.model.parameters import encoder_role_of
from oelm.data.batches import SentenceBatches, evenly_spaced, padded
from oelm.data.sentences import SentenceData, encoder_of
from oelm.machine.errors import UserError
from oelm.models.encoder import build_encoder
from oelm.run.training.device import Machine
from oelm.run.training.distributed import Sharing
from oelm.run.training.objective import Validation

EXAMPLES_AT_ONCE = 64  # of a validation: no gradients are kept


def build_classification(run: EncoderRun, data: SentenceData, *, machine: Machine, world: Sharing) -> Classification:
    if run.model.pretrained and not data.encoder_has_weights:
        raise UserError(
            f"{data.encoder_source}: has no weights; prepare with another --encoder, or set pretrained=false"
        )
    model = build_encoder(run.model, run.seeds, folder=encoder_of(data).folder, labels=data.labels)
    return Classification(model.to(machine.device, machine.dtype), run, data, machine=machine, world=world)


def as_seen_by_all(mask_BT: Tensor) -> Tensor:
    """What is no padding, for every head and position: of a mask in this form transformers does not ask the device
    whether it hides anything, which would have us wait for it."""
    return mask_BT.bool()[:, None, None, :]


class Classification:
    def __init__(self, model: Any, run: EncoderRun, data: SentenceData, *, machine: Machine, world: Sharing) -> None:
        self.model, self.dropout = model, run.model.dropout
        self.warnings: list[str] = []
        self._run, self._machine, self._world = run, machine, world
        training = run.training
        self._batches = SentenceBatches(data.splits["train"], training.batch_size, run.seeds.data)
        self._held_out = data.splits[training.validation_split]
        self.held_out = len(self._held_out)
        self._curve = evenly_spaced(self.held_out, training.validation_sequences)
        self._final = evenly_spaced(self.held_out, training.final_validation_sequences)
        self._padding = data.pad_id
        self._token_types = run.model.token_types > 1

    def loss_of(self, step: int, members: range) -> Tensor:
        indices = self._batches.indices(step)[members.start : members.stop]
        logits_BC = self._logits(self._batches.sentences, indices)
        labels_B = self._machine.moved(self._batches.sentences.labels[indices].astype(np.int64))
        summed = functional.cross_entropy(logits_BC, labels_B, reduction="sum")
        return summed / self._run.training.batch_size

    def _logits(self, sentences: Any, indices: np.ndarray) -> Tensor:
        """In single precision at least, whatever the rest is computed in."""
        batch = padded(sentences, indices, padding=self._padding, token_types=self._token_types)
        given = {name: self._machine.moved(values) for name, values in batch.items()}
        if self._machine.kind == "cuda":
            given["attention_mask"] = as_seen_by_all(given["attention_mask"])
        logits_BC: Tensor = self.model(**given).logits
        return logits_BC if logits_BC.dtype == torch.float64 else logits_BC.float()

    def role_of(self, name: str) -> str:
        return encoder_role_of(name)

    def tokens_after(self, step: int) -> int:
        return self._batches.tokens_after(step)

    # -- held-out examples ---------------------------------------------------------------------------------------------

    def validation(self) -> Validation:
        return self._seen(self._curve)

    def final_validation(self, last_loss: float) -> Validation:
        return self._seen(self._final)

    @torch.no_grad()
    def _seen(self, indices: np.ndarray) -> Validation:
        """Losses and predictions in the order of `indices`; computed in the order of length."""
        by_length = np.argsort(-self._held_out.lengths[indices], kind="stable")
        share = self._world.share(len(by_length))
        mine = by_length[share.start : share.stop]
        losses, predicted = torch.zeros(len(indices), dtype=torch.float64), torch.zeros(len(indices))
        self.model.eval()
        for first in range(0, len(mine), EXAMPLES_AT_ONCE):
            places = mine[first : first + EXAMPLES_AT_ONCE]
            with self._machine.autocast():
                logits_BC = self._logits(self._held_out, indices[places])
            labels_B = self._machine.moved(self._held_out.labels[indices[places]].astype(np.int64))
            losses[places] = functional.cross_entropy(logits_BC, labels_B, reduction="none").cpu().double()
            predicted[places] = logits_BC.argmax(dim=1).cpu().float()
        self.model.train()
        total = self._world.sum(losses.sum()).item()
        guesses = self._world.sum(predicted.double()).long()
        labels = torch.from_numpy(self._held_out.labels[indices].astype(np.int64))
        accuracy = (guesses == labels).double().mean().item()
        return Validation(
            loss=total / len(indices),
            text=f"accuracy {accuracy:.2%}",
            record={"accuracy": accuracy},
            result={"accuracy": accuracy, "examples": len(indices)},
            predictions={
                "split": self._run.training.validation_split,
                "labels": labels.tolist(),
                "predicted": guesses.tolist(),
            },
        )

    def best_result(self, loss: float) -> dict[str, Any]:
        return {}
