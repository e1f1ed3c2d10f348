"""What a model can have besides its parts, one row each: how scores are formed, and repairs, with the weights they add.

A row says when it is in use, in words, and which weights it then adds: their shapes, their start, whether they decay.
Initialization, counting, roles, weight decay, confounds, words and figures all ask it. What is added is always trained
and draws from the projections' seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from oelm.core.parts import ABBREVIATIONS, AS_GIVEN, BASELINE, OUTPUT_LAYER, ROLES, Parts
from oelm.core.repairs import NO_REPAIRS
from oelm.core.scores import TOKENS
from oelm.core.starts import STARTS

if TYPE_CHECKING:
    from oelm.core.config import ResolvedModel

ATTENTION, FEED_FORWARD = "attention", "feed_forward"  # the modules of a block to which weights are added
FED = ("up", "down")  # the parts of the second; all others are of the first


@dataclass(frozen=True)
class Added:
    """One added weight: rows (outputs) first."""

    shape: tuple[int, ...]
    start: Literal["zeros", "ones", "scaled_normal"]

    @property
    def numbers(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


Words = tuple[str, str]  # English, Chinese
Facts = dict[str, int | str | Words]


@dataclass(frozen=True)
class Option:
    """One row. `facts` are what its phrase is about; None where the model does as the baseline does."""

    key: str  # of the model's settings
    words: Words  # what it is called
    phrase: Words  # what it does, with its facts
    facts: Callable[[Any], Facts | None]
    weights: Callable[[ResolvedModel], dict[str, Added]] = lambda model: {}  # of one layer, by their names in a block
    endings: tuple[str, ...] = ()  # of these names
    keeps: Callable[[ResolvedModel], int] = lambda model: 0  # numbers of a token and layer that the backward pass needs
    otherwise: Words = ("none", "无")  # the baseline's
    decays: bool = False
    draws: bool = False  # some of its weights start from a draw
    multiplies: bool = False  # its weights are factors of matrix products
    colour: str = ""  # of its weights in a figure

    @property
    def role(self) -> str:
        """What its weights are counted as."""
        return self.key.rpartition(".")[2]

    def said(self, facts: Facts, language: int = 0) -> str:
        """Its phrase, in English (0) or Chinese (1)."""
        values = {name: fact[language] if isinstance(fact, tuple) else fact for name, fact in facts.items()}
        return self.phrase[language].format(**values)


def _module_of(part: str) -> str:
    return FEED_FORWARD if part in FED else ATTENTION


def _parts_named(parts: list[str]) -> Words:
    named = [role for role in ROLES if role in parts]
    return (
        ", ".join(ABBREVIATIONS.get(role, role) for role in named),
        "、".join(ABBREVIATIONS.get(role, ROLES[role].words[1]) for role in named),
    )


# ---- Scores --------------------------------------------------------------------------------------------------------


POSITIONS: dict[str, Words] = {
    "rotary": ("rotary positions", "旋转位置编码"),
    "none": ("no positions", "无位置信息"),
}


def _positions_facts(model: Any) -> Facts | None:
    kind = getattr(model, "positions", "learned")
    return None if kind == "learned" else {"kind": POSITIONS[kind]}


SOURCES: dict[str, Words] = {
    "distance": ("scores from the distance alone", "打分只取决于距离"),
    "nothing": ("equal scores: every token attends uniformly", "打分全部相等：均匀注意力"),
}


def _source_facts(model: Any) -> Facts | None:
    kind = model.scores.source
    return None if kind == TOKENS else {"kind": SOURCES[kind]}


def _waves(model: ResolvedModel) -> dict[str, Added]:
    if model.scores.source != "distance":
        return {}
    return {f"{ATTENTION}.distance_key": Added((model.num_heads, model.scores.query_key_width), "zeros")}


def _temperature(model: ResolvedModel) -> dict[str, Added]:
    if model.scores.temperature.kind == "fixed":
        return {}
    return {f"{ATTENTION}.temperature": Added((model.num_heads,), "ones")}


def _norms(model: ResolvedModel) -> dict[str, Added]:
    if not model.scores.query_key_norm:
        return {}
    gain = Added((model.scores.query_key_width,), "ones")
    return {f"{ATTENTION}.{part}_norm_gain": gain for part in ("query", "key")}


def _width_facts(model: Any) -> Facts | None:
    """Of an arm, the width it states; of a model, one that is not d_model / num_heads."""
    width = model.scores.query_key_width
    usual = model.d_model // model.num_heads if hasattr(model, "d_model") else None
    return None if width in (None, usual) else {"width": width}


# ---- Repairs -------------------------------------------------------------------------------------------------------


def _residual_facts(model: Any) -> Facts | None:
    residual = model.repairs.residual
    if residual.rank == 0:
        return None
    rank = "d_model / 128" if residual.rank is None else residual.rank
    form = ("nonlinear ", "非线性") if residual.nonlinear else ""
    return {"rank": rank, "parts": _parts_named([*residual.on]), "form": form}


def _residuals(model: ResolvedModel) -> dict[str, Added]:
    residual, found = model.repairs.residual, {}
    for part in residual.on if residual.rank else []:
        rows, columns = ROLES[part].shape(model)
        found[f"{_module_of(part)}.{part}_residual_in"] = Added((residual.rank, columns), "scaled_normal")
        found[f"{_module_of(part)}.{part}_residual_out"] = Added((rows, residual.rank), "zeros")
    return found


def _kept_by_residuals(model: ResolvedModel) -> int:
    residual = model.repairs.residual
    return residual.rank * len(residual.on) * (1 + residual.nonlinear)


def _shift_facts(model: Any) -> Facts | None:
    shift = model.repairs.shift
    share = {"head": ("head", "头"), "channel": ("channel", "通道")}
    return None if shift.per == "none" else {"per": share[shift.per], "parts": _parts_named([*shift.on])}


def _shifts(model: ResolvedModel) -> dict[str, Added]:
    shift, found = model.repairs.shift, {}
    for part in shift.on if shift.per != "none" else []:
        width = ROLES[part].shape(model)[0] // model.num_heads if shift.per == "channel" else 1
        found[f"{ATTENTION}.{part}_shift"] = Added((model.num_heads, width), "zeros")
    return found


def _kept_by_shifts(model: ResolvedModel) -> int:
    shift = model.repairs.shift
    return sum(ROLES[part].shape(model)[0] for part in shift.on) if shift.per != "none" else 0


def _convolution(model: ResolvedModel) -> dict[str, Added]:
    width = model.repairs.convolution.width
    return {f"{ATTENTION}.convolution": Added((width, model.d_model), "zeros")} if width else {}


def _convolution_facts(model: Any) -> Facts | None:
    width = model.repairs.convolution.width
    return {"width": width} if width else None


# ---- The table -----------------------------------------------------------------------------------------------------

OPTIONS: dict[str, Option] = {
    option.key: option
    for option in (
        Option(
            key="positions",
            words=("positions", "位置"),
            phrase=("{kind}", "{kind}"),
            facts=_positions_facts,
            otherwise=("learned positions", "可学习的位置嵌入"),
        ),
        Option(
            key="tied",
            words=OUTPUT_LAYER.words,
            phrase=("output layer of its own", "输出层不共享"),
            facts=lambda model: None if getattr(model, "tied", True) else {},
            otherwise=("output layer tied to the token embedding", "输出层与词嵌入共享"),
        ),
        Option(
            key="scores.source",
            words=("source of scores", "打分来源"),
            phrase=("{kind}", "{kind}"),
            facts=_source_facts,
            weights=_waves,
            endings=(".distance_key",),
            otherwise=("scores from queries and keys", "打分由 Q 与 K 得出"),
            colour="#B8B800",
        ),
        Option(
            key="scores.temperature",
            words=("temperature", "温度"),
            phrase=("a trained temperature per head", "每个头一个可训练温度"),
            facts=lambda model: None if model.scores.temperature.kind == "fixed" else {},
            weights=_temperature,
            keeps=lambda model: model.query_key_rows if model.scores.temperature.kind == "per_head" else 0,
            endings=(".temperature",),
            colour="#B22222",
        ),
        Option(
            key="scores.query_key_norm",
            words=("query-key norm", "Q/K 归一化"),
            phrase=("normalised queries and keys", "Q/K 归一化"),
            facts=lambda model: {} if model.scores.query_key_norm else None,
            weights=_norms,
            keeps=lambda model: 2 * model.query_key_rows if model.scores.query_key_norm else 0,
            endings=("_norm_gain",),
            colour="#8B5A2B",
        ),
        Option(
            key="scores.query_key_width",
            words=("query-key width", "Q/K 宽度"),
            phrase=("queries and keys of width {width} per head", "每个头的 Q/K 宽度为 {width}"),
            facts=_width_facts,
            otherwise=(
                "queries and keys of width d_model / num_heads per head",
                "每个头的 Q/K 宽度为 d_model / num_heads",
            ),
        ),
        Option(
            key="repairs.residual",
            words=("residual", "低秩残差"),
            phrase=("a {form}residual of rank {rank} on {parts}", "{parts} 上秩为 {rank} 的{form}残差"),
            facts=_residual_facts,
            weights=_residuals,
            keeps=_kept_by_residuals,
            endings=("_residual_in", "_residual_out"),
            decays=True,
            draws=True,
            multiplies=True,
            colour="#6A3D9A",
        ),
        Option(
            key="repairs.shift",
            words=("shift", "移位"),
            phrase=("a shift of {parts} per {per}", "按{per}的 {parts} 移位"),
            facts=_shift_facts,
            weights=_shifts,
            keeps=_kept_by_shifts,
            endings=("_shift",),
            colour="#FB9A99",
        ),
        Option(
            key="repairs.convolution",
            words=("convolution", "卷积"),
            phrase=("a convolution over {width} tokens before attention", "注意力之前宽度为 {width} 的卷积"),
            facts=_convolution_facts,
            weights=_convolution,
            keeps=lambda model: model.d_model if model.repairs.convolution.width else 0,
            endings=(".convolution",),
            colour="#1F3B73",
        ),
    )
}
ADDITIONS = {option.role: option for option in OPTIONS.values() if option.endings}


def in_use(model: Any) -> Iterator[tuple[Option, Facts]]:
    """The options in which a GPT or an arm differs from the baseline; a model of another kind has none."""
    if not hasattr(model, "repairs"):
        return
    for option in OPTIONS.values():
        facts = option.facts(model)
        if facts is not None:
            yield option, facts


def said_of(model: Any, key: str, language: int = 0) -> str:
    """What a model does by an option, or instead of it."""
    option = OPTIONS[key]
    facts = next((facts for used, facts in in_use(model) if used is option), None)
    return option.otherwise[language] if facts is None else option.said(facts, language)


def added_to_a_layer(model: ResolvedModel) -> Iterator[tuple[Option, str, Added]]:
    """Every added weight of one layer: what adds it, and its name within a block."""
    for option in ADDITIONS.values():
        for name, added in option.weights(model).items():
            yield option, name, added


def addition_of(name: str) -> Option | None:
    """What has added the parameter of this name; None: it belongs to a part."""
    return next((option for option in ADDITIONS.values() if name.endswith(option.endings)), None)


# ---- What cannot be ------------------------------------------------------------------------------------------------


def problems_of_options(model: Any, parts: Parts) -> Iterator[str]:
    """What of the scores and repairs our GPT of this size cannot have, a line each that begins with the key."""
    yield from _problems_of_scores(model, parts)
    residual, plain = model.repairs.residual, NO_REPAIRS.residual
    if residual.rank == 0:
        for name in ("on", "nonlinear"):
            if getattr(residual, name) != getattr(plain, name):
                yield f"repairs.residual.{name}: there is no residual (rank is 0); set rank, or leave {name} out"
    yield from _listed("repairs.residual.on", residual.on)
    if residual.rank is not None and residual.rank > model.d_model:
        yield f"repairs.residual.rank: {residual.rank} is more than d_model {model.d_model}"
    shift, width = model.repairs.shift, model.repairs.convolution.width
    if shift.per == "none" and shift.on != NO_REPAIRS.shift.on:
        yield "repairs.shift.on: there is no shift (per is none); set per to head or channel, or leave on out"
    yield from _listed("repairs.shift.on", shift.on)
    if width > model.seq_len:
        yield f"repairs.convolution.width: {width} is more than seq_len {model.seq_len}"


def _problems_of_scores(model: Any, parts: Parts) -> Iterator[str]:
    width = model.scores.query_key_width or model.d_model // model.num_heads
    if model.positions == "rotary" and width % 2:
        yield f"positions: rotary needs an even width of queries and keys per head, not {width}"
    if model.positions != "learned" and parts.position_embedding != BASELINE.position_embedding:
        yield f"parts.position_embedding: there is none where positions is {model.positions}; leave it out"
    if model.scores.source == TOKENS:
        return
    # What would treat, repair or multiply queries and keys that are not there.
    repairs, why = model.repairs, f"where scores.source is {model.scores.source}; leave it out"
    if model.scores.source == "distance" and width % 2:
        yield f"scores.source: distance needs an even width of queries and keys per head, not {width}"
    for role in ("query", "key"):
        if parts.of(role) != BASELINE.of(role):
            yield f"parts.{role}: there is none {why}"
        for key, named in (
            ("residual.on", repairs.residual.on if repairs.residual.rank != 0 else []),
            ("shift.on", repairs.shift.on if repairs.shift.per != "none" else []),
        ):
            if role in named:
                yield f"repairs.{key}: there is no {role} {why}"
    if model.scores.query_key_norm:
        yield f"scores.query_key_norm: there are no queries and keys {why}"
    if model.scores.source == "nothing" and model.scores.temperature.kind != "fixed":
        yield f"scores.temperature.kind: there is nothing to multiply {why}"


def _listed(key: str, parts: list[Any]) -> Iterator[str]:
    if not parts:
        yield f"{key}: names no part; leave it out"
    for part in dict.fromkeys(part for part in parts if parts.count(part) > 1):
        yield f"{key}: {part} is listed twice"


def draws_what_it_treats(model: Any) -> bool:
    """Of our GPT, the parts that are not the baseline's and what options add; of given weights, what starts anew."""
    untreated = BASELINE if hasattr(model, "repairs") else AS_GIVEN
    treated = (part for role, part in model.parts.items() if part != untreated.of(role))
    return any(STARTS[part.start].is_drawn for part in treated) or any(option.draws for option, _ in in_use(model))
