"""In what the queries and keys of two models differ: family of the start, its scale, when they move, which share.

Normal and scaled normal are one family at two scales, so "orthogonal beats random" can be told from "larger beats
smaller". Weights that a model came with, and those made orthonormal, are families of their own; the scale of kept ones
no config knows. A hypothesis names the aspects that are its treatment; the others should be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from oelm.config import Always, AnyModel, Projection, values_of
from oelm.starts import STARTS, Sizes
from oelm.study.declaration import Aspect

KEYS: dict[Aspect, str] = {"start": "start.family", "scale": "start.scale", "moves": "moves", "share": "share"}


ASPECTS: tuple[Aspect, ...] = tuple(KEYS)


@dataclass(frozen=True)
class AspectDifference:
    aspect: Aspect
    key: str  # as a confound
    treatment: str
    control: str


def aspect_differences(treatment: AnyModel, control: AnyModel) -> Iterator[AspectDifference]:
    """One for each aspect in which the queries or the keys differ."""
    for aspect, text_of in _TEXTS.items():
        one, other = ([text_of(projection, model) for projection in _pair(model)] for model in (treatment, control))
        if aspect == "share":
            one, other = _where_both_rest(treatment, control, one, other)
        if one != other:
            yield AspectDifference(aspect, KEYS[aspect], _joined(one), _joined(other))


def _pair(model: AnyModel) -> tuple[Projection, Projection]:
    return model.attention.query, model.attention.key


def _family(projection: Projection, model: AnyModel) -> str:
    return STARTS[projection.start].family


def _scale(projection: Projection, model: AnyModel) -> str:
    """The standard deviation of one number of the matrix, as far as the sizes are known, which the data may decide."""
    start = STARTS[projection.start]
    if start.scale is None or model.d_model is None or model.num_layers is None or model.num_heads is None:
        return start.scale_text + ("" if projection.gain == 1 else f" x {projection.gain:g}")
    sizes = Sizes(model.d_model, model.d_model, model.num_heads, model.num_layers)
    return f"{start.scale(sizes) * projection.gain:.4g}"


def _moves(projection: Projection, model: AnyModel) -> str:
    return values_of(projection.moves)


def _share(projection: Projection, model: AnyModel) -> str:
    return f"{projection.share:g} of the {projection.share_of}" if projection.share < 1 else "all"


_TEXTS: dict[Aspect, Callable[[Projection, AnyModel], str]] = {
    "start": _family,
    "scale": _scale,
    "moves": _moves,
    "share": _share,
}


def _where_both_rest(
    treatment: AnyModel, control: AnyModel, one: list[str], other: list[str]
) -> tuple[list[str], list[str]]:
    """A share says nothing about a projection that always moves; that difference is one of `moves`."""
    pairs = zip(_pair(treatment), _pair(control), one, other, strict=True)
    kept = [(a, b) for p, q, a, b in pairs if not isinstance(p.moves, Always) and not isinstance(q.moves, Always)]
    return [a for a, _ in kept], [b for _, b in kept]


def _joined(query_and_key: list[str]) -> str:
    return (
        query_and_key[0]
        if len(set(query_and_key)) == 1
        else ", ".join(f"{name} {text}" for name, text in zip(("query", "key"), query_and_key, strict=False))
    )
