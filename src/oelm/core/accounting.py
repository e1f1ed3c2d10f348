"""Parameters, bytes and FLOPs of a config in closed form, without torch. Tests hold it equal to what is counted.

A parameter counts as frozen when it never moves in the whole run; one that moves at times is trainable. What a matrix
would have that nobody stores is implied: counted apart, in no total.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from oelm.core.config import (
    FORWARD_SHARE_OF_A_TRAINING_STEP,
    AnyResolvedModel,
    ResolvedEncoder,
    ResolvedModel,
    ResolvedRun,
    Run,
)
from oelm.core.moves import Always, Before, Every, Moves, Never
from oelm.core.options import ADDITIONS, Option
from oelm.core.parts import ALL_ROLES, ROLES, Role
from oelm.core.starts import STARTS, Sizes

AnyRun = TypeVar("AnyRun", bound=Run)

BYTES_PER_WEIGHT = 4
BYTES_PER_MOMENT = 8  # AdamW keeps two float32 numbers for each trainable one


@dataclass(frozen=True)
class PartCount:
    """The weights of one role in one layer (layer None: outside the blocks)."""

    role: str
    layer: int | None
    total: int
    frozen: int
    implied: int = 0
    products: int = 0  # with what is computed in the place of an implied matrix, for one token

    @property
    def trainable(self) -> int:
        return self.total - self.frozen


def parts(model: AnyResolvedModel) -> Iterator[PartCount]:
    """Every weight of the model, by role and layer, in the order of the state dict."""
    if isinstance(model, ResolvedEncoder):
        yield from _encoder_parts(model)
        return
    roles = [role for role in ALL_ROLES.values() if role.exists(model)]
    after = [role for role in roles if role.outside and role.in_blocks]
    for role in roles:
        if role.outside and role not in after:
            yield _count(model, role, None)
    added = {option.role: sum(weight.numbers for weight in option.weights(model).values()) for option in _used(model)}
    for layer in range(model.num_layers):
        for role in roles:
            if role.in_blocks:
                yield _count(model, role, layer)
        for name, numbers in added.items():
            yield PartCount(name, layer, numbers, 0)
    for role in after:
        yield _count(model, role, None)


def _used(model: ResolvedModel) -> list[Option]:
    """The options that add weights to this model."""
    return [option for option in ADDITIONS.values() if option.weights(model)]


def _count(model: ResolvedModel, role: Role, layer: int | None) -> PartCount:
    rows, numbers = role.weight_size(model)
    modules = len(role.outside if layer is None else role.in_blocks)
    part = model.part_at(role.name, layer)
    start = STARTS[part.start].matrix_free
    if start is not None:
        columns = role.shape(model)[-1]
        stored = modules * rows * len(start.stores)
        products = modules * start.products(Sizes(rows, columns, model.num_heads, model.num_layers))
        return PartCount(role.name, layer, stored, stored, modules * rows * columns, products)
    frozen = part.frozen_rows(rows, heads=model.num_heads)
    return PartCount(role.name, layer, modules * rows * numbers, modules * frozen * numbers)


def _encoder_parts(model: ResolvedEncoder) -> Iterator[PartCount]:
    """BERT, RoBERTa and DistilBERT for classification: biases everywhere, and a dense layer before the classifier.

    A row is frozen together with its bias. Token types and the head have no role: they always move.
    """
    width, inner = model.d_model, model.d_ff

    def count(role: str, layer: int | None, rows: int, numbers: int) -> PartCount:
        part = model.part_at(role, layer)
        frozen = part.frozen_rows(rows, heads=model.num_heads)
        return PartCount(role, layer, rows * numbers, frozen * numbers)

    yield count("token_embedding", None, model.vocabulary, width)
    yield count("position_embedding", None, model.positions, width)
    if model.token_types:
        yield PartCount("type_embedding", None, model.token_types * width, 0)
    yield count("norm", None, width, 2)
    for layer in range(model.num_layers):
        for name in ("query", "key", "value", "output"):
            yield count(name, layer, width, width + 1)
        yield count("up", layer, inner, width + 1)
        yield count("down", layer, width, inner + 1)
        yield count("norm", layer, 2 * width, 2)
    yield PartCount("head", None, width * (width + 1) + model.labels * (width + 1), 0)


@dataclass(frozen=True)
class Totals:
    total: int
    trainable: int
    frozen: int
    implied: int = 0

    @property
    def never_trained(self) -> int:
        """Numbers that are there and stay, and entries of matrices that are nowhere."""
        return self.frozen + self.implied

    @property
    def weight_bytes(self) -> int:
        return self.total * BYTES_PER_WEIGHT

    @property
    def gradient_bytes(self) -> int:
        return self.trainable * BYTES_PER_WEIGHT

    @property
    def optimizer_bytes(self) -> int:
        return self.trainable * BYTES_PER_MOMENT


def totals(model: AnyResolvedModel) -> Totals:
    counted = list(parts(model))
    total, frozen = sum(part.total for part in counted), sum(part.frozen for part in counted)
    return Totals(total, total - frozen, frozen, implied=sum(part.implied for part in counted))


def activation_bytes(model: AnyResolvedModel, *, examples: int) -> int:
    """What a forward pass over some examples keeps for the backward pass, without dropout, in single precision.

    In each layer six times the width (both norms and their inputs, values, what attention gives), queries and keys (no
    narrower than values: a CPU's kernel fills them up), twice the inner width, and what options keep. Attention itself
    keeps no scores; the logits are made in chunks.
    """
    per_layer = 6 * model.d_model + 2 * max(model.query_key_rows, model.d_model) + 2 * model.d_ff
    if isinstance(model, ResolvedModel):
        per_layer += sum(option.keeps(model) for option in ADDITIONS.values())
    return round(examples * model.tokens_per_example * model.num_layers * per_layer) * BYTES_PER_WEIGHT


def forward_flops_per_token(model: AnyResolvedModel) -> float:
    """Matrix products only: two operations a weight, and scores and their product with the values. An implied matrix is
    no factor of one; what is computed in its place is.

    A GPT attends to half of the sequence on average. An encoder attends to the whole example, taken as long as the
    mean; its head works once an example.
    """
    width, rows = model.d_model, model.query_key_rows
    has_queries = isinstance(model, ResolvedEncoder) or ROLES["query"].exists(model)
    weights = model.num_layers * (2 * width * (rows * has_queries + width) + 2 * width * model.d_ff)
    weights += sum(part.products - part.implied for part in parts(model))
    if isinstance(model, ResolvedEncoder):
        attended, head = model.mean_length, width * (width + model.labels) / model.mean_length
    else:
        attended, head = (model.seq_len + 1) / 2, model.vocabulary * width
        factors = [option.weights(model) for option in _used(model) if option.multiplies]
        weights += model.num_layers * sum(added.numbers for each in factors for added in each.values())
    attention = model.num_layers * (rows + width) * attended
    return 2 * (weights + head + attention)


def training_flops_per_token(model: AnyResolvedModel) -> float:
    """Forward, the gradients of inputs, and those of the factors of products that are not frozen for good.

    A tied token embedding is such a factor, of the output layer; one that is not tied, as an encoder's, is only looked
    up. Biases are counted with their matrices: they hardly matter.
    """
    roles = {role.name for role in ROLES.values() if role.multiplies}
    if isinstance(model, ResolvedEncoder) or not model.tied:
        roles.remove("token_embedding")
    multiplying = (part for part in parts(model) if part.role in roles)
    frozen = sum(part.products if part.implied else part.frozen for part in multiplying)
    return forward_flops_per_token(model) / FORWARD_SHARE_OF_A_TRAINING_STEP - 2 * frozen


def training_flops(run: ResolvedRun) -> float:
    tokens = run.training.steps * run.training.batch_size * run.model.tokens_per_example
    return tokens * training_flops_per_token(run.model)


# ---- One step, by its components -----------------------------------------------------------------------------------

# Bytes for each trainable weight: AdamW reads the gradient, reads and writes the weight and its two moments.
OPTIMIZER_BYTES = 3 * BYTES_PER_WEIGHT + 2 * BYTES_PER_MOMENT
WEIGHT_PASSES = 2  # forward, and backward for the gradients of inputs
GRADIENT_PASSES = 2  # written, and read for the norm that clips


def step_work(run: ResolvedRun) -> dict[str, float]:
    """What a training step does, each component in its own unit.

    How long a component takes depends on the machine; how much of it one arm does against another does not. Passes over
    activations are left out: they are the same for every arm of one size.
    """
    count = totals(run.model)
    tokens = run.training.batch_size * run.model.tokens_per_example
    return {
        "products": tokens * training_flops_per_token(run.model),
        "optimizer": float(count.trainable * OPTIMIZER_BYTES),
        "memory": float(BYTES_PER_WEIGHT * (WEIGHT_PASSES * count.total + GRADIENT_PASSES * count.trainable)),
    }


def as_at_first_step(run: AnyRun) -> AnyRun:
    """The run that a bench times: what its schedule moves at the first of many updates always moves, what rests then
    never does; a test holds it equal to what the training loop does."""

    def moves_first(moves: Moves) -> bool:
        return isinstance(moves, Always | Before) or (isinstance(moves, Every) and moves.steps == 1)

    kept = {
        role: part.model_copy(update={"moves": Always() if moves_first(part.moves) else Never()})
        for role, part in run.model.parts.items()
    }
    model = run.model.model_copy(update={"parts": run.model.parts.model_copy(update=kept)})
    return run.model_copy(update={"model": model})
