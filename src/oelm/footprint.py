"""Bytes that a training step of a GPT has alive at its peak on a GPU, in closed form, without torch.

Sizes are those of CUDA's code path, where attention keeps no scores. Tests trace real steps over tensors without
content and hold the sum to 15 %. What the allocator and libraries take besides is not in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from oelm.accounting import BYTES_PER_MOMENT, BYTES_PER_WEIGHT, parts, totals
from oelm.config import ResolvedModel
from oelm.treatment.options import ADDITIONS
from oelm.treatment.parts import ROLES, Part
from oelm.treatment.starts import STARTS

MATRICES = ("query", "key", "value", "output", "up", "down")
# Beside the logits, code that is not compiled has so many numbers as large as they are at a time, and a mask in bytes;
# one more where sums are made in another type than products.
EAGER_COPIES_OF_LOGITS = 4
# Several processes send gradients in buckets of so many numbers at most, each of them a copy; what is larger is sent
# as it is (training/exchange.py).
BUCKET_ELEMENTS = 4 * 2**20


@dataclass(frozen=True)
class Step:
    """How a step is taken: `product_bytes` of a number in products, `weight_bytes` of one stored, the rows of a chunk
    of the loss, the examples of a micro-batch, and whether there are several of those. `exchanged_rows` of the token
    embedding are added up over all processes; None: there is one."""

    examples: int
    several: bool
    product_bytes: int
    weight_bytes: int
    chunk_rows: int
    compiled: bool
    exchanged_rows: int | None = None

    @property
    def is_mixed(self) -> bool:
        return self.product_bytes != self.weight_bytes


def peak_parts(model: ResolvedModel, step: Step) -> dict[str, int]:
    """By what it is for. The peak is in the loss, in the first layer of the backward pass, or at its end."""
    counts, wide = totals(model), step.weight_bytes
    scale = wide / BYTES_PER_WEIGHT
    tokens = step.examples * model.seq_len
    gradients = counts.gradient_bytes * scale
    kept = gradients if step.several else 0.0  # of the micro-batches before
    activations = tokens * _kept_per_token(model, step) + _copies_of_weights(model, step) + _masks(model, step)
    rows = _rows(model, step)
    phases = {
        "loss": (kept, activations, _loss_bytes(model, step, tokens), rows),
        "backward": (kept, activations, _backward_bytes(model, step, tokens), rows),
        "end": (gradients, 0.0, *_at_the_end(model, step, rows)),
    }
    gradients, activations, passing, exchange = max(phases.values(), key=sum)
    found = {
        "weights": counts.total * BYTES_PER_WEIGHT * scale,
        "gradients": gradients,
        "moments": counts.trainable * BYTES_PER_MOMENT * scale,
        "activations": activations,
        "loss and passing": passing,
        "exchange": exchange,
    }
    return {name: round(count) for name, count in found.items()}


# ---- What several processes exchange -------------------------------------------------------------------------------


def _rows(model: ResolvedModel, step: Step) -> float:
    """The token embedding's part, which is there from the start of a step to its end."""
    moving = any(part.trainable for part in parts(model) if part.role == "token_embedding")
    return float((step.exchanged_rows or 0) * model.d_model * step.weight_bytes) if moving else 0.0


def _at_the_end(model: ResolvedModel, step: Step, rows: float) -> tuple[float, float]:
    """Beside the gradients, and for the exchange. Alone, the embedding's dense gradient is added to the output layer's;
    with others, its rows are made once more to be added, and buckets wait to be copied back."""
    if step.exchanged_rows is None:
        return (1 + step.several) * _output_gradient(model, step), 0.0
    in_buckets = sum(part.trainable for part in parts(model) if part.trainable <= BUCKET_ELEMENTS)
    return rows, rows + in_buckets * step.weight_bytes


# ---- What the forward pass keeps -----------------------------------------------------------------------------------


def _kept_per_token(model: ResolvedModel, step: Step) -> float:
    """Of all layers, and of the final norm."""
    layers = sum(_kept_by_layer(model, step, layer) for layer in range(model.num_layers))
    return layers + 2 * model.d_model * step.weight_bytes


def _kept_by_layer(model: ResolvedModel, step: Step, layer: int) -> float:
    """Two residual streams and the statistics of their norms, queries, keys, values and what attention gives, the two
    sides of the nonlinearity; and the input of every product whose weight is trained, once each in mixed precision,
    where every use has a copy of its own."""
    narrow, wide, width = step.product_bytes, step.weight_bytes, model.d_model
    moving = {role: _moves(model, role, layer) for role in MATRICES}
    streams = 2 * width * wide + 4 * wide
    attention = (2 * _query_key_rows(model) + 2 * width) * narrow + 4 * model.num_heads
    first = sum(moving[role] for role in ("query", "key", "value"))
    if not step.is_mixed:
        inputs = 2 * width * wide  # what a norm gives is a single tensor, kept if anything needs it
    elif step.compiled:
        inputs = width * narrow  # the compiler keeps one copy, and makes the second norm's again
    else:
        inputs = (first + moving["up"]) * width * narrow
    fed = (1 + moving["down"]) * model.d_ff * narrow
    added = sum(option.keeps(model) for option in ADDITIONS.values()) * narrow
    dropped = 2 * width if model.dropout else 0  # masks, a byte each
    return streams + attention + inputs + fed + added + dropped


def _query_key_rows(model: ResolvedModel) -> int:
    """As attention keeps them: narrower ones than values are filled up to a multiple of eight (model/attention.py)."""
    heads, of_a_head = model.num_heads, model.query_key_rows // model.num_heads
    return model.query_key_rows if of_a_head * heads == model.d_model else heads * -(-of_a_head // 8) * 8


def _moves(model: ResolvedModel, role: str, layer: int) -> bool:
    """Whether any row of it is ever trained."""
    part: Part = model.part_at(role, layer)
    if STARTS[part.start].matrix_free is not None:
        return False
    rows = ROLES[role].shape(model)[0]
    return part.frozen_rows(rows, heads=model.num_heads, layer=layer, num_layers=model.num_layers) < rows


def _masks(model: ResolvedModel, step: Step) -> float:
    """What ALiBi adds to the scores: one for all layers, and in mixed precision a copy for each of them."""
    if model.positions != "alibi":
        return 0.0
    copies = model.num_layers * step.product_bytes if step.is_mixed else 0
    return float(model.num_heads * model.seq_len**2 * (step.weight_bytes + copies))


def _copies_of_weights(model: ResolvedModel, step: Step) -> float:
    """In mixed precision every matrix of a block has a copy in the type of products until its gradient is made."""
    if not step.is_mixed:
        return 0.0
    return sum(part.total for part in parts(model) if part.role in MATRICES) * float(step.product_bytes)


# ---- What comes and goes -------------------------------------------------------------------------------------------


def _output_gradient(model: ResolvedModel, step: Step) -> float:
    """The output layer's, made by the loss while an earlier one may be there; nothing where it is frozen."""
    role = "token_embedding" if model.tied else "output_layer"
    moving = any(part.trainable for part in parts(model) if part.role == role)
    return float(model.vocabulary * model.d_model * step.weight_bytes) if moving else 0.0


def _loss_bytes(model: ResolvedModel, step: Step, tokens: int) -> float:
    narrow, wide, width = step.product_bytes, step.weight_bytes, model.d_model
    copies = (tokens * width + model.vocabulary * width) * narrow if step.is_mixed else 0
    logits = min(step.chunk_rows, tokens) * model.vocabulary
    beside = 0 if step.compiled else (EAGER_COPIES_OF_LOGITS + step.is_mixed) * wide + 1
    return copies + tokens * width * wide + _output_gradient(model, step) + logits * (narrow + beside)


def _backward_bytes(model: ResolvedModel, step: Step, tokens: int) -> float:
    """The gradients at the widest place of a block, and at the stream beside it."""
    narrow, wide = step.product_bytes, step.weight_bytes
    return tokens * (2 * model.d_ff * narrow + 2 * model.d_model * wide) + _output_gradient(model, step)
