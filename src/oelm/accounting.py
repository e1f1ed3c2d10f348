"""Parameters, bytes and FLOPs of a config in closed form, without torch. Tests hold it equal to what is counted.

A parameter counts as frozen when it never moves in the whole run; one that moves at times is trainable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oelm.config import FORWARD_SHARE_OF_A_TRAINING_STEP, PROJECTIONS, Encoder, Model, Never, Projection, Run

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


def parts(model: Model | Encoder) -> Iterator[Part]:
    """Every weight of the model, by role and layer, in the order of the state dict."""
    assert model.is_resolved
    return _encoder_parts(model) if isinstance(model, Encoder) else _gpt_parts(model)


def _gpt_parts(model: Model) -> Iterator[Part]:
    width, inner = model.d_model, model.d_ff
    yield Part("token_embedding", None, model.vocabulary * width, 0)
    yield Part("position_embedding", None, model.seq_len * width, 0)
    for layer in range(model.num_layers):
        for name in PROJECTIONS:
            frozen = _resting_rows(model, getattr(model.attention, name), layer) * width
            yield Part(name, layer, width * width, frozen)
        yield Part("feed_forward_up", layer, width * inner + inner, 0)
        yield Part("feed_forward_down", layer, inner * width + width, 0)
        yield Part("norm", layer, 4 * width, 0)
    yield Part("norm", None, 2 * width, 0)


def _encoder_parts(model: Encoder) -> Iterator[Part]:
    """BERT, RoBERTa and DistilBERT for classification: biases everywhere, and a dense layer before the classifier.

    A row of queries or keys rests together with its bias; the spec of values and outputs is not applied.
    """
    width, inner = model.d_model, model.d_ff
    yield Part("token_embedding", None, model.vocabulary * width, 0)
    yield Part("position_embedding", None, model.positions * width, 0)
    if model.token_types:
        yield Part("type_embedding", None, model.token_types * width, 0)
    yield Part("norm", None, 2 * width, 0)
    for layer in range(model.num_layers):
        for name in PROJECTIONS:
            rows = _resting_rows(model, getattr(model.attention, name), layer) if name in ("query", "key") else 0
            yield Part(name, layer, width * (width + 1), rows * (width + 1))
        yield Part("feed_forward_up", layer, width * inner + inner, 0)
        yield Part("feed_forward_down", layer, inner * width + width, 0)
        yield Part("norm", layer, 4 * width, 0)
    yield Part("head", None, width * (width + 1) + model.labels * (width + 1), 0)


def _resting_rows(model: Model | Encoder, projection: Projection, layer: int) -> int:
    return model.covered_rows(projection, layer) if isinstance(projection.moves, Never) else 0


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


def totals(model: Model | Encoder) -> Totals:
    total = frozen = 0
    for part in parts(model):
        total, frozen = total + part.total, frozen + part.frozen
    return Totals(total=total, trainable=total - frozen, frozen=frozen)


def forward_flops_per_token(model: Model | Encoder) -> float:
    """Matrix products only: two operations a weight, and scores and their product with the values.

    A GPT attends to half of the sequence on average. An encoder attends to the whole example, taken as long as the
    mean; its head works once an example.
    """
    assert model.is_resolved
    width = model.d_model
    weights = model.num_layers * (4 * width * width + 2 * width * model.d_ff)
    if isinstance(model, Encoder):
        attended, head = model.mean_length, width * (width + model.labels) / model.mean_length
    else:
        attended, head = (model.seq_len + 1) / 2, model.vocabulary * width
    attention = model.num_layers * 2 * width * attended
    return 2 * (weights + head + attention)


def training_flops_per_token(model: Model | Encoder) -> float:
    """Forward, the gradients of inputs, and those of the weights that are not frozen for good."""
    frozen = sum(part.frozen for part in parts(model))  # with an encoder's biases, which hardly matter
    return forward_flops_per_token(model) / FORWARD_SHARE_OF_A_TRAINING_STEP - 2 * frozen


def training_flops(run: Run) -> float:
    tokens = run.training.steps * run.training.batch_size * run.model.tokens_per_example
    return tokens * training_flops_per_token(run.model)
