"""The parts of a transformer, one row a role, and what an arm can say of each: how it starts and when it moves.

A bias follows its matrix. A row says where our GPT keeps the weights of a role and which shape they have; counting,
starting, freezing, weight decay, words and figures all ask it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from oelm.core.moves import Always, Moves, Never
from oelm.core.scores import TOKENS
from oelm.core.sections import RETIRED, Section, Share
from oelm.core.starts import STARTS

KEPT = "keep"
NAMED_LAYERS = ("all", "odd", "even")


def _layers(value: Any) -> Any:
    numbers = value if isinstance(value, list) else []
    if value not in NAMED_LAYERS and not (numbers and all(type(each) is int and each >= 0 for each in numbers)):
        raise ValueError("must be all, odd, even, or a list of layers (the first is 0)")
    return value


def _heads(value: str) -> str:
    if value != "heads":
        raise ValueError("a share is of the heads; write layers: [0, 1, ...] to name layers")
    return value


if TYPE_CHECKING:
    from oelm.core.config import ResolvedModel

    StartName = str
    Layers = list[int] | Literal["all", "odd", "even"]
else:
    StartName = Literal[tuple(STARTS)]
    Layers = Annotated[Any, AfterValidator(_layers), WithJsonSchema({"type": "string"})]


class Part(Section):
    """How the weights of one role start, and when they may move.

    `moves` holds for the first `share` of the heads; the others always move. With `layers`, all of it
    holds for these layers only; in the others the part is the baseline's.
    """

    start: StartName = Field(default="normal", description="How the weights are initialised: docs/arms.md.")
    gain: float = Field(default=1.0, gt=0, description="Factor applied to the initial weights.")
    moves: Moves = Field(default=Always(), description="When the weights are trained.")
    share: Share = Field(
        default=1.0, description="Fraction that `moves` applies to, counted from the first; the rest is always trained."
    )
    share_of: Annotated[str, AfterValidator(_heads)] = Field(default="heads", json_schema_extra=RETIRED)
    layers: Layers = Field(default="all", description="Layers it applies to: all, odd, even or a list; the first is 0.")

    def holds_in(self, layer: int | None) -> bool:
        """Whether it speaks of this layer (None: outside the layers)."""
        if self.layers == "all":
            return True
        if layer is None:
            return False
        if isinstance(self.layers, list):
            return layer in self.layers
        return layer % 2 == ("even", "odd").index(self.layers)

    def covered_rows(self, rows: int, *, heads: int) -> int:
        """How many of a weight's rows `moves` holds for; the others always move."""
        if self.share == 1:
            return rows
        return round(self.share * heads) * (rows // heads)

    def frozen_rows(self, rows: int, *, heads: int) -> int:
        """How many of them never move."""
        if not isinstance(self.moves, Never):
            return 0
        return self.covered_rows(rows, heads=heads)


@dataclass(frozen=True)
class Role:
    """One row. `in_blocks` and `outside` name the modules of our GPT, within a block and beside the blocks."""

    name: str
    words: tuple[str, str]  # English, Chinese
    shape: Callable[[ResolvedModel], tuple[int, ...]]  # of a weight: outputs, inputs
    in_blocks: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    start: str = "normal"  # the baseline's
    has_bias: bool = False
    by_head: bool = False  # its rows belong to heads
    drawn_apart: bool = False  # always from the projections' seed; other roles only where an arm speaks of them
    multiplies: bool = True  # its weights are factors of matrix products
    decays: bool = True  # its weights have weight decay; a bias never has
    exists: Callable[[ResolvedModel], bool] = lambda model: True  # in our GPT
    note: Callable[[ResolvedModel], str] = lambda model: ""  # what freezing it also means

    def weight_size(self, model: ResolvedModel) -> tuple[int, int]:
        """Rows of one of its modules, and numbers in each: the entries of the matrix and of the bias."""
        rows, *columns = self.shape(model)
        return rows, (columns[0] if columns else 1) + self.has_bias


def _is_read(model: ResolvedModel) -> bool:
    """Whether scores come from tokens, by queries and keys."""
    return model.scores.source == TOKENS


_SHARED = "the output layer uses the same matrix: where the token embedding is frozen, so is the output layer"
ROLES: dict[str, Role] = {
    role.name: role
    for role in (
        Role(
            name="token_embedding",
            words=("token embedding", "词嵌入"),
            shape=lambda model: (model.vocabulary, model.d_model),
            outside=("token_embedding",),
            note=lambda model: _SHARED if model.tied else "",
        ),
        Role(
            name="position_embedding",
            words=("position embedding", "位置嵌入"),
            shape=lambda model: (model.seq_len, model.d_model),
            outside=("position_embedding",),
            multiplies=False,
            exists=lambda model: model.positions == "learned",
        ),
        Role(
            name="query",
            words=("query", "Q（查询）"),
            shape=lambda model: (model.query_key_rows, model.d_model),
            in_blocks=("attention.query",),
            by_head=True,
            drawn_apart=True,
            exists=_is_read,
        ),
        Role(
            name="key",
            words=("key", "K（键）"),
            shape=lambda model: (model.query_key_rows, model.d_model),
            in_blocks=("attention.key",),
            by_head=True,
            drawn_apart=True,
            exists=_is_read,
        ),
        Role(
            name="value",
            words=("value", "V（值）"),
            shape=lambda model: (model.d_model, model.d_model),
            in_blocks=("attention.value",),
            by_head=True,
        ),
        Role(
            name="output",
            words=("attention output", "O（输出）"),
            shape=lambda model: (model.d_model, model.d_model),
            in_blocks=("attention.output",),
            start="residual_normal",
        ),
        Role(
            name="up",
            words=("feed-forward up", "前馈升维"),
            shape=lambda model: (model.d_ff, model.d_model),
            in_blocks=("feed_forward.up",),
            has_bias=True,
        ),
        Role(
            name="down",
            words=("feed-forward down", "前馈降维"),
            shape=lambda model: (model.d_model, model.d_ff),
            in_blocks=("feed_forward.down",),
            start="residual_normal",
            has_bias=True,
        ),
        Role(
            name="norm",
            words=("norms", "归一化"),
            shape=lambda model: (model.d_model,),
            in_blocks=("attention_norm", "feed_forward_norm"),
            outside=("final_norm",),
            start="ones",
            has_bias=True,
            multiplies=False,
            decays=False,
        ),
    )
}
OUTPUT_LAYER = Role(  # where it is not the token embedding; no arm treats it, so it always moves
    name="output_layer",
    words=("output layer", "输出层"),
    shape=ROLES["token_embedding"].shape,
    outside=("output_layer",),
    exists=lambda model: not model.tied,
)
ALL_ROLES = ROLES | {OUTPUT_LAYER.name: OUTPUT_LAYER}  # every weight of our GPT but what options add
ABBREVIATIONS = {"query": "Q", "key": "K", "value": "V", "output": "O"}
_OLDER_NAMES = {"feed_forward_up": "up", "feed_forward_down": "down"}


def with_roles_of_now(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The counts of a parameters.json, which an earlier format stored under other names of roles."""
    return [part | {"role": _OLDER_NAMES.get(part["role"], part["role"])} for part in parts]


def _baseline(role: str) -> Part:
    return Part(start=ROLES[role].start)


class Parts(Section):
    """Every part of a model; as they stand here, the baseline's."""

    token_embedding: Part = _baseline("token_embedding")
    position_embedding: Part = _baseline("position_embedding")
    query: Part = _baseline("query")
    key: Part = _baseline("key")
    value: Part = _baseline("value")
    output: Part = _baseline("output")
    up: Part = _baseline("up")
    down: Part = _baseline("down")
    norm: Part = _baseline("norm")

    def of(self, role: str) -> Part:
        part: Part = getattr(self, role)
        return part

    def items(self) -> Iterator[tuple[str, Part]]:
        for role in ROLES:
            yield role, self.of(role)


BASELINE = Parts()
AS_GIVEN = Parts(**{role: Part(start=KEPT) for role in ROLES})  # of a model that comes with weights


def for_given_weights(parts: Parts) -> Parts:
    """The same for a model that comes with weights: only queries and keys are ever started anew there.

    Every other part keeps the weights it has, whatever start is named. So do queries or keys that are not mentioned,
    where something else is; parts that mention nothing are the baseline's, which draws both.
    """
    mentioned = parts.model_fields_set

    def given(role: str, part: Part) -> Part:
        if ROLES[role].drawn_apart:
            return AS_GIVEN.of(role) if mentioned and role not in mentioned else part
        return part if part.start == KEPT else part.model_copy(update={"start": KEPT, "gain": 1.0})

    return Parts(**{role: given(role, part) for role, part in parts.items()})


def problems_of_given(parts: Parts) -> Iterator[str]:
    """What cannot be said of any model that comes with weights, a line each that begins with the key."""
    for role, part in parts.items():
        start = STARTS[part.start]
        if ROLES[role].drawn_apart and start.matrix_free:
            yield f"parts.{role}.start: cannot be {start.name}: a model that comes with weights keeps its matrices"
        if ROLES[role].drawn_apart and start.by_depth:
            yield f"parts.{role}.start: cannot be {start.name}: nothing adds it to the residual stream"
        if ROLES[role].drawn_apart and start.only_for and not start.matrix_free:
            yield f"parts.{role}.start: cannot be {start.name}: only oelm's own GPT can start so"
        if not ROLES[role].drawn_apart and part.start != KEPT:
            yield f"parts.{role}.start: must be {KEPT}: of given weights only queries and keys can be started anew"
        if not ROLES[role].drawn_apart and part.gain != 1:
            yield f"parts.{role}.gain: must be 1: of given weights only queries and keys can be started anew"


def problems_of(parts: Parts, *, num_heads: int, num_layers: int) -> Iterator[str]:
    """What of it our GPT of this size cannot have, a line each that begins with the key."""
    for role, part in parts.items():
        yield from _problems_of_start(ROLES[role], part)
        yield from problems_of_layers(ROLES[role], part, num_layers=num_layers)
        if STARTS[part.start].matrix_free:
            why = f"{part.start} stores no matrix that could be trained"
            if not isinstance(part.moves, Never):
                yield f"parts.{role}.moves: must be never: {why}"
            if part.share != 1:
                yield f"parts.{role}.share: must be 1: {why}; name layers instead"
        elif part.layers == "all":
            yield from problems_of_share(ROLES[role], part, num_heads=num_heads)


def _problems_of_start(role: Role, part: Part) -> Iterator[str]:
    key, start = f"parts.{role.name}.start", STARTS[part.start]
    if start.of_given_weights:
        yield f"{key}: cannot be {start.name}: this model comes with no weights"
    elif start.by_head and not role.by_head:
        yield f"{key}: cannot be {start.name}: its rows belong to no head"
    elif start.matrix_free and role.name not in start.only_for:
        *others, last = start.only_for
        yield f"{key}: cannot be {start.name}: it needs a square matrix, as {', '.join(others)} and {last} have"
    elif start.only_for and role.name not in start.only_for:
        yield f"{key}: cannot be {start.name}: only {', '.join(start.only_for)} can"
    elif STARTS[role.start].only_for and part.start != role.start:
        yield f"{key}: cannot be {start.name}: it can only be {role.start}"


def problems_of_squares(parts: Parts, roles: Iterable[str], *, why: str) -> Iterator[str]:
    """Of roles whose matrices are not square, and why they are not."""
    for role in roles:
        if STARTS[parts.of(role).start].matrix_free:
            yield f"parts.{role}.start: cannot be {parts.of(role).start}: it needs a square matrix, and {why}"


def problems_of_layers(role: Role, part: Part, *, num_layers: int) -> Iterator[str]:
    """What is wrong with the layers that a part is said to hold for, in a model with so many."""
    if part.layers == "all":
        return
    key = f"parts.{role.name}.layers"
    if not role.in_blocks:
        yield f"{key}: it is in no layer; leave layers out"
        return
    if part.share != 1:
        yield f"{key}: leave out either layers or share"
    listed = part.layers if isinstance(part.layers, list) else []
    twice = [layer for layer in listed if listed.count(layer) > 1]
    if twice:
        yield f"{key}: layer {twice[0]} is listed twice"
    if listed and max(listed) >= num_layers:
        yield f"{key}: layer {max(listed)} is not one of 0 to {num_layers - 1}"
    if not listed and not any(part.holds_in(layer) for layer in range(num_layers)):
        yield f"{key}: the model has no {part.layers} layer (the first of its {num_layers} is 0)"


def problems_of_share(role: Role, part: Part, *, num_heads: int, called: str = "heads") -> Iterator[str]:
    """Whether it is a share of what the role has, and a whole number of it; heads may be called otherwise."""
    if part.share == 1:
        return
    key = f"parts.{role.name}.share"
    if not role.by_head:
        advice = "; name layers instead" if role.in_blocks else ""
        yield f"{key}: its rows belong to no head{advice}"
        return
    if not float(part.share * num_heads).is_integer():
        yield f"{key}: {part.share:g} of {num_heads} {called} is not a whole number"
