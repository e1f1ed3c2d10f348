"""In what two models differ: of their parts the family of the start, its scale, when they move, which share; options.

Normal and scaled normal are one family at two scales, so "orthogonal beats random" can be told from "larger beats
smaller". Weights that a model came with, and those made orthonormal, are families of their own; the scale of kept ones
no config knows. A hypothesis names what is its treatment; all else should be equal. An aspect alone (`start`) means
queries and keys; any part can be named, whole (`up`) or by an aspect (`up.start`), and so can any option
(`scores.temperature`, `positions`), or all of a section (`repairs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from oelm.core.arm_words import layers_of
from oelm.core.config import AnyModel
from oelm.core.moves import Always, values_of
from oelm.core.options import OPTIONS, said_of
from oelm.core.parts import ROLES
from oelm.core.starts import STARTS, Sizes

TOGETHER = ("query", "key")  # which are spoken of as one
KEYS = {"start": "start.family", "scale": "start.scale", "moves": "moves", "share": "share"}  # of those, as confounds
ASPECTS = tuple(KEYS)
SECTIONS = tuple(dict.fromkeys(key.partition(".")[0] for key in OPTIONS))
# Every word that a hypothesis may vary.
VARIATIONS = {
    word: word
    for word in (
        *ASPECTS, *ROLES, *(f"{role}.{aspect}" for role in ROLES for aspect in ASPECTS), *OPTIONS, *SECTIONS,
    )
}  # fmt: skip
SCALES_OF_SCORES = ("scale", *(f"{role}.scale" for role in TOGETHER))  # which normalised queries and keys do not have


@dataclass(frozen=True)
class AspectDifference:
    aspect: str
    roles: tuple[str, ...]  # that differ in it
    key: str  # as a confound
    treatment: str
    control: str

    def is_named_by(self, varies: Sequence[str]) -> bool:
        if self.aspect in varies and set(self.roles) <= set(TOGETHER):
            return True
        return all(role in varies or f"{role}.{self.aspect}" in varies for role in self.roles)


def aspect_differences(treatment: AnyModel, control: AnyModel) -> Iterator[AspectDifference]:
    """One for each aspect in which the queries or the keys differ, then one for each of every other part."""
    groups = [TOGETHER, *((role,) for role in ROLES if role not in TOGETHER)]
    for roles in groups:
        for aspect, text_of in _TEXTS.items():
            pairs = [(role, text_of(role, treatment), text_of(role, control)) for role in roles]
            if aspect == "share":  # which says nothing about a part that always moves
                parts = [(pair, [model.parts.of(pair[0]) for model in (treatment, control)]) for pair in pairs]
                pairs = [pair for pair, sides in parts if not any(isinstance(each.moves, Always) for each in sides)]
            unlike = tuple(role for role, one, other in pairs if one != other)
            if unlike:
                key = KEYS[aspect] if roles == TOGETHER else f"{roles[0]}.{aspect}"
                texts = ([pair[side] for pair in pairs] for side in (1, 2))
                yield AspectDifference(aspect, unlike, key, *(_joined(roles, text) for text in texts))


@dataclass(frozen=True)
class OptionDifference:
    key: str  # of the option, and as a confound
    treatment: str
    control: str

    def is_named_by(self, varies: Sequence[str]) -> bool:
        return self.key in varies or self.key.partition(".")[0] in varies


def option_differences(treatment: AnyModel, control: AnyModel) -> Iterator[OptionDifference]:
    """One for each option in which two GPTs differ; encoders have none."""
    for key in OPTIONS:
        one, other = (said_of(model, key) for model in (treatment, control))
        if one != other:
            yield OptionDifference(key, one, other)


def _start(role: str, model: AnyModel) -> str:
    part = model.parts.of(role)
    return STARTS[part.start].family + ("" if part.layers == "all" else f" in layers {layers_of(part)}")


def _scale(role: str, model: AnyModel) -> str:
    """The standard deviation of one number of the matrix, as far as the sizes are known, which the data may decide."""
    part = model.parts.of(role)
    start, layers, heads = STARTS[part.start], model.num_layers, model.num_heads
    sizes: Any = model  # of which the data may not have said all
    shape = ROLES[role].shape(sizes) if model.d_model is not None else ()
    if start.scale is None or not all(shape) or not shape or layers is None or heads is None:
        return start.scale_text + ("" if part.gain == 1 else f" x {part.gain:g}")
    return f"{start.scale(Sizes(shape[0], shape[-1], heads, layers)) * part.gain:.4g}"


def _share(role: str, model: AnyModel) -> str:
    part = model.parts.of(role)
    if part.layers != "all":
        return f"layers {layers_of(part)}"
    return f"{part.share:g} of the heads" if part.share < 1 else "all"


_TEXTS: dict[str, Callable[[str, AnyModel], str]] = {
    "start": _start,
    "scale": _scale,
    "moves": lambda role, model: values_of(model.parts.of(role).moves),
    "share": _share,
}


def _joined(roles: Sequence[str], texts: list[str]) -> str:
    if len(set(texts)) == 1:
        return texts[0]
    return ", ".join(f"{name} {text}" for name, text in zip(roles, texts, strict=False))
