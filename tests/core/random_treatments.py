"""Random models with treatments, valid ones and ones that cannot be, from a seed."""

from __future__ import annotations

import random

from oelm.core.config import Model
from oelm.core.moves import After, Always, Before, Every, Never
from oelm.core.parts import ROLES, Part, Parts
from oelm.core.repairs import Convolution, Repairs, Residual, Shift
from oelm.core.scores import Scores, Temperature
from oelm.core.starts import STARTS

PROJECTIONS = ["query", "key", "value", "output", "up", "down"]
MOVES = [Always(), Never(), Never(), Every(steps=2), After(fraction=0.5), Before(fraction=0.5)]
HEADS, LAYERS = 4, 2


def valid(seed: int) -> Model:
    """A tiny model: every section is at its default in a third of the cases."""
    draw = random.Random(seed)
    positions = draw.choice(["learned", "learned", "rotary", "none"])
    spoken_of = [
        role for role in ROLES if draw.random() < 0.3 and (role != "position_embedding" or positions == "learned")
    ]
    scores = _scores(draw)
    if scores.source != "tokens":
        spoken_of = [role for role in spoken_of if role not in ("query", "key")]
    square = {"value", "output"} | ({"query", "key"} if scores.query_key_width in (None, 4) else set())
    return Model(
        vocabulary=19, seq_len=8, d_model=16, num_layers=LAYERS, num_heads=HEADS, d_ff=draw.choice([8, 24]),
        positions=positions,
        parts=Parts(**{role: _part(draw, role, is_square=role in square) for role in spoken_of}),
        scores=scores,
        repairs=_repairs(draw, scores),
        tied=draw.random() < 0.6,
    )  # fmt: skip


def _part(draw: random.Random, role: str, *, is_square: bool) -> Part:
    row = ROLES[role]
    where: dict[str, object] = {"moves": draw.choice(MOVES), "gain": draw.choice([0.5, 1.0, 2.0])}
    if row.in_blocks and draw.random() < 0.3:
        where["layers"] = draw.choice(["odd", "even", [0], [1, 0]])
    if is_square and draw.random() < 0.3:
        free = [name for name, start in STARTS.items() if start.matrix_free and (row.by_head or not start.by_head)]
        return Part(**where | {"start": draw.choice(free), "moves": Never()})
    start = draw.choice([
        name
        for name, start in STARTS.items()
        if not start.of_given_weights and not start.only_for and (row.by_head or not start.by_head)
    ])  # fmt: skip
    if "layers" not in where and row.by_head and draw.random() < 0.3:
        where["share"] = draw.choice([0.25, 0.5])
    return Part(start=row.start if STARTS[row.start].only_for else start, **where)


def _scores(draw: random.Random) -> Scores:
    if draw.random() < 0.33:
        return Scores()
    source = draw.choice(["tokens", "tokens", "tokens", "distance", "nothing"])
    return Scores(
        source=source,
        temperature=Temperature(kind="fixed" if source == "nothing" else draw.choice(["fixed", "per_head"])),
        query_key_norm=source == "tokens" and draw.random() < 0.5,
        query_key_width=draw.choice([None, 2, 4, 6]),
    )


def _repairs(draw: random.Random, scores: Scores) -> Repairs:
    if draw.random() < 0.33:
        return Repairs()
    residual, projections, shifted = Residual(), PROJECTIONS, ["key", "value"]
    if scores.source != "tokens":
        projections, shifted = ["value", "output", "up", "down"], ["value"]
    if draw.random() < 0.6:
        on = draw.sample(projections, draw.randint(1, len(projections)))
        residual = Residual(rank=draw.choice([None, 1, 3]), on=on, nonlinear=draw.random() < 0.5)
    shift = Shift()
    if draw.random() < 0.6:
        shift = Shift(per=draw.choice(["head", "channel"]), on=draw.sample(shifted, draw.randint(1, len(shifted))))
    return Repairs(
        residual=residual,
        shift=shift,
        convolution=Convolution(width=draw.choice([0, 1, 2, 4])),
    )


def invalid(seed: int) -> tuple[list[str], str]:
    """--set pairs that together cannot be, and the key that says so."""
    draw = random.Random(seed)
    role, part = draw.choice(PROJECTIONS), draw.choice(["query", "key", "value"])
    odd, large = 2 * draw.randint(0, 40) + 1, draw.randint(129, 10**6)
    kind, read = draw.choice(["rotary", "none"]), draw.choice(["query", "key"])
    return draw.choice([
        ([f"query_key_width={odd}", "positions=rotary"], "model.positions"),
        ([f"positions={kind}", "position_embedding.moves.kind=never"], "model.parts.position_embedding"),
        ([f"residual.on=[{draw.choice(['value', 'output', 'up', 'down'])}]"], "model.repairs.residual.on"),
        ([f"residual.rank={draw.randint(1, 9)}", f"residual.on=[{role}, {role}]"], "model.repairs.residual.on"),
        ([f"residual.rank={large}"], "model.repairs.residual.rank"),
        (["shift.on=[key, value]"], "model.repairs.shift.on"),
        (["shift.per=head", f"shift.on=[{draw.choice(['query', 'up', 'norm'])}]"], "model.repairs.shift.on.0"),
        ([f"base_scale=[{role}]"], "model.repairs.base_scale"),
        ([f"{part}.share_of=layers"], f"model.parts.{part}.share_of"),
        (["scores.source=nothing", f"{read}.moves.kind=never"], f"model.parts.{read}"),
        (["scores.source=distance", "query_key_norm=true"], "model.scores.query_key_norm"),
        (["scores.source=nothing", "shift.per=channel"], "model.repairs.shift.on"),
        ([f"convolution.width={large}"], "model.repairs.convolution.width"),
        ([f"query_key_width={-draw.randint(0, 9)}"], "model.scores.query_key_width"),
        ([f"{part}.share=0.3"], f"model.parts.{part}.share"),
        ([f"{role}.layers=[{draw.randint(4, 99)}]"], f"model.parts.{role}.layers"),
        ([f"{part}x.gain=2"], f"{part}x.gain"),
    ])  # fmt: skip
