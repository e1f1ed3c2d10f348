"""Parameters, bytes and FLOPs of a config in closed form, without torch. Tests hold it equal to what is counted.

A parameter counts as frozen when it never moves in the whole run; one that moves at times is trainable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oelm.config import FORWARD_SHARE_OF_A_TRAINING_STEP, PROJECTIONS, Model, Never, Run

BYTES_PER_WEIGHT = 4
BYTES_PER_MOMENT = 8  # AdamW keeps two float32 numbers for each trainable one


@dataclass(frozen=True)
class Part:
    """The weights of one role in one layer (layer None: outside the blocks)."""

    role: str
    layer: int | None
    total: int
    frozen: int

    @property
    def trainable(self) -> int:
        return self.total - self.frozen


def parts(model: Model) -> Iterator[Part]:
    """Every weight of the model, by role and layer, in the order of the state dict."""
    assert model.is_resolved
    width, inner = model.d_model, model.d_ff
    yield Part("token_embedding", None, model.vocabulary * width, 0)
    yield Part("position_embedding", None, model.seq_len * width, 0)
    for layer in range(model.num_layers):
        for name in PROJECTIONS:
            projection = getattr(model.attention, name)
            never = isinstance(projection.moves, Never)
            frozen = model.covered_rows(projection, layer) * width if never else 0
            yield Part(name, layer, width * width, frozen)
        yield Part("feed_forward_up", layer, width * inner + inner, 0)
        yield Part("feed_forward_down", layer, inner * width + width, 0)
        yield Part("norm", layer, 4 * width, 0)
    yield Part("norm", None, 2 * width, 0)


@dataclass(frozen=True)
class Totals:
    total: int
    trainable: int
    frozen: int

    @property
    def weight_bytes(self) -> int:
        return self.total * BYTES_PER_WEIGHT

    @property
    def gradient_bytes(self) -> int:
        return self.trainable * BYTES_PER_WEIGHT

    @property
    def optimizer_bytes(self) -> int:
        return self.trainable * BYTES_PER_MOMENT


def totals(model: Model) -> Totals:
    total = frozen = 0
    for part in parts(model):
        total, frozen = total + part.total, frozen + part.frozen
    return Totals(total=total, trainable=total - frozen, frozen=frozen)


def forward_flops_per_token(model: Model) -> float:
    """Matrix products only: two operations a weight, and attention over half of the sequence on average."""
    assert model.is_resolved
    width = model.d_model
    weights = model.num_layers * (4 * width * width + 2 * width * model.d_ff) + model.vocabulary * width
    attention = model.num_layers * 2 * width * (model.seq_len + 1) / 2  # scores and their product with the values
    return 2 * (weights + attention)


def training_flops_per_token(model: Model) -> float:
    """Forward, the gradients of inputs, and those of the weights that are not frozen for good."""
    frozen = sum(part.frozen for part in parts(model))
    return forward_flops_per_token(model) / FORWARD_SHARE_OF_A_TRAINING_STEP - 2 * frozen


def training_flops(run: Run) -> float:
    tokens = run.training.steps * run.training.batch_size * run.model.tokens_per_example
    return tokens * training_flops_per_token(run.model)
