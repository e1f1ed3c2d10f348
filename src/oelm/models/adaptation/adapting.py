"""The parts of a given model started as a spec says, and marked with when they move.

Each module that is governed gets `oelm_moves` ({parameter: when it moves}), which model/parameters.rules reads. A
module is replaced only where a part of one of its parameters rests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from oelm.core.model.initialization import normal_draw, one_thread
from oelm.core.model.parameters import frozen_names, tensor_digest
from oelm.core.model.projection import OutputGroup, SplitLinear, joined_groups
from oelm.core.moves import Always, Never, values_of
from oelm.core.parts import AS_GIVEN, KEPT, ROLES, Part, Parts, problems_of_given, problems_of_layers, problems_of_share
from oelm.core.starts import STARTS, started
from oelm.machine.errors import UserError
from oelm.models.adaptation.families import Family, Site, family_of, name_in_family, sites_of

# Of transformers: an nn.Linear with its weight transposed, and one that adds its bias in a second step.
LINEAR_CLASSES = ("Conv1D", "FalconLinear")
SHOWN_ADAPTERS = 3


@dataclass(frozen=True)
class AdaptedPart:
    """What was done to one role of one module. The spec's `moves` holds for its first `covered_rows`."""

    name: str  # of the module, or of the parameter
    role: str
    spec: Part
    rows: int
    covered_rows: int
    heads: int  # key heads, for a key or a value; 1 for what belongs to no head

    def __str__(self) -> str:
        gain = "" if self.spec.gain == 1 else f" x {self.spec.gain:g}"
        rule = values_of(self.spec.moves)
        rows = f"{self.covered_rows} of {self.rows} rows"
        return f"{self.name} ({self.role}): {self.spec.start}{gain}; {rows} move {rule}"


@dataclass(frozen=True)
class Planned:
    """One site: what is governed of it, by role, and whose its outputs are."""

    site: Site
    module: nn.Module | None  # None: a bare parameter
    weights: dict[str, Tensor]  # its parameters, by their last name
    segments: list[tuple[str, int]]  # the roles of consecutive outputs, and how many each has
    governed: dict[str, AdaptedPart]
    outputs_last: bool

    @property
    def matrix(self) -> Tensor:
        """The weight, outputs first."""
        return self.weights["weight"].T if self.outputs_last else self.weights["weight"]

    @property
    def is_linear(self) -> bool:
        """Whether it is a matrix that multiplies its inputs."""
        return self.module is not None and self.site.layer is not None and ROLES[self.site.roles[0]].multiplies

    def rows_of(self, role: str) -> Tensor:
        """The numbers of its outputs, head by head."""
        sizes = [size for _, size in self.segments]
        numbers = torch.arange(sum(sizes)).split(sizes)
        return torch.cat([rows for rows, (whose, _) in zip(numbers, self.segments, strict=True) if whose == role])


@dataclass(frozen=True)
class Adaptation:
    """What applying a spec did to a model, and what of the whole model requires a gradient now."""

    family: str
    parts: tuple[AdaptedPart, ...]
    shared: tuple[str, ...]  # a line for each weight that two modules share and that does not always move
    trainable: int
    frozen: int

    def __str__(self) -> str:
        totals = f"{self.family}: {self.trainable:,} parameters trainable, {self.frozen:,} frozen"
        return "\n".join([totals, *self._notes(), *(f"  {part}" for part in self.parts)])

    @property
    def follows_a_schedule(self) -> bool:
        return any(not isinstance(part.spec.moves, Always | Never) for part in self.parts)

    def _notes(self) -> Iterator[str]:
        if any(not STARTS[part.spec.start].of_given_weights for part in self.parts):
            yield "the given queries and keys were replaced by newly drawn ones"
        if self.follows_a_schedule:
            yield "weights follow a schedule: pass oelm.FreezeCallback() to the Trainer"
        yield from self.shared


@torch.no_grad()
def adapt(model: nn.Module, parts: Parts, *, seed: int) -> Adaptation:
    """Start, mark and freeze the parts of `model`, in place, as `parts` says (for_given_weights of core/parts.py).

    A draw depends on `seed` and the parameter's name from the list of layers on, so that models which differ in their
    heads draw the same. A model is adapted once: what was split cannot be started again.
    """
    _refuse(problems_of_given(parts))
    family = family_of(model)
    _check_model(model)
    sites = sites_of(model, family)
    layers = 1 + max(site.layer for site in sites if site.layer is not None)
    config: Any = model.config
    keys = family.key_heads(config)
    heads = {"query": int(config.num_attention_heads), "key": keys, "value": keys}  # roles whose rows belong to heads
    _check_parts(model, family, sites, parts, layers=layers, heads=heads)
    planned = [
        found
        for site in sites
        if (found := _planned(model, family, site, _parts_at(parts, site), layers=layers, heads=heads)).governed
    ]
    for each in planned:
        _check_site(each)
    with one_thread():
        for each in planned:
            _check_ranks(each)
        for each in planned:
            _start(each, seed=seed)
    holders = _holders(model)
    shared = [line for each in planned for line in _shared(each, holders)]
    for each in planned:
        _mark(model, each, holders, outputs_last=family.outputs_last)
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    trainable = sum(size for size, requires_grad in sizes if requires_grad)
    return Adaptation(
        family=family.name,
        parts=tuple(part for each in planned for part in each.governed.values()),
        shared=tuple(shared),
        trainable=trainable,
        frozen=sum(size for size, _ in sizes) - trainable,
    )


# ---- What is refused -----------------------------------------------------------------------------------------------


def _refuse(problems: Iterator[str]) -> None:
    found = list(problems)
    if found:
        raise UserError("\n".join(found))


def _check_parts(
    model: nn.Module, family: Family, sites: list[Site], parts: Parts, *, layers: int, heads: dict[str, int]
) -> None:
    has = {role for site in sites for role in site.roles}
    for role, part in parts.items():
        if part == AS_GIVEN.of(role):
            continue
        if role not in has:
            model_type = getattr(model.config, "model_type", "")
            name = f"{family.name} (model_type {model_type})"
            raise UserError(f"parts.{role}: {name} has no {ROLES[role].words[0]}; leave it out")
        _refuse(problems_of_layers(ROLES[role], part, num_layers=layers))
        number, called = heads.get(role, 1), "heads" if role == "query" else f"{role} heads"
        _refuse(problems_of_share(ROLES[role], part, num_heads=number, called=called))


def _check_model(model: nn.Module) -> None:
    if any(hasattr(module, "oelm_moves") for module in model.modules()):
        raise UserError("model: an arm was already applied to it; load it again and apply one arm")
    modules = list(model.named_modules())
    adapters = [(path, module) for path, module in modules if type(module).__module__.partition(".")[0] == "peft"]
    if adapters:
        layers = [path for path, module in adapters if hasattr(module, "base_layer")]
        more = f" and {len(layers) - SHOWN_ADAPTERS} more" if len(layers) > SHOWN_ADAPTERS else ""
        kinds = sorted({f"{type(module).__module__}.{type(module).__name__}" for _, module in adapters})
        met = f"adapter layers {', '.join(layers[:SHOWN_ADAPTERS])}{more}" if layers else kinds[0]
        raise UserError(f"model: PEFT has changed it ({met}); load it again and apply the arm before PEFT")
    if any("crossattention" in name for name, _ in model.named_modules()):
        raise UserError("model: it has cross-attention, which is not supported; only self-attention is")


def _check_site(planned: Planned) -> None:
    path, kind = planned.site.path, type(planned.module).__name__
    if planned.is_linear and type(planned.module) is not nn.Linear and kind not in LINEAR_CLASSES:
        raise UserError(f"model: {path} is {kind}, not a plain linear layer; apply the arm before quantization")
    if any(weight.is_meta for weight in planned.weights.values()):
        raise UserError(f"model: {path} has no values yet (it is on the meta device); load them first")


def _check_ranks(planned: Planned) -> None:
    for role, part in planned.governed.items():
        start = STARTS[part.spec.start]
        if not (start.of_given_weights and start.by_head):
            continue
        for number, head in enumerate(planned.matrix[planned.rows_of(role)].double().chunk(part.heads)):
            if torch.linalg.matrix_rank(head @ head.T, hermitian=True) < min(head.shape):
                raise UserError(
                    f"model: {part.name}: rows of {role} head {number} depend on one another; no orthonormal ones span "
                    "the same"
                )


# ---- What is done --------------------------------------------------------------------------------------------------


def _parts_at(parts: Parts, site: Site) -> dict[str, Part]:
    """What a spec says of a site: always of queries and keys, of other roles where they do not stay as given."""
    said = {role: parts.of(role) if parts.of(role).holds_in(site.layer) else AS_GIVEN.of(role) for role in site.roles}
    return {role: part for role, part in said.items() if ROLES[role].drawn_apart or part != AS_GIVEN.of(role)}


def _planned(
    model: nn.Module, family: Family, site: Site, parts: dict[str, Part], *, layers: int, heads: dict[str, int]
) -> Planned:
    module, weights = site.held(model)
    first = next(iter(weights.values()))
    outputs_last = family.outputs_last and site.layer is not None  # embeddings have one row a token in every family
    inputs = first.shape[-1] if first.dim() > 1 else 1
    outputs = first.shape[1] if outputs_last and first.dim() == 2 else first.numel() // inputs
    # Fused outputs are whole heads: all of one role and then of the next, or so for each key head in turn.
    segments = [(site.roles[0], outputs)]
    if len(site.roles) > 1:
        turns = heads["key"] if family.by_key_head else 1
        width = outputs // sum(heads[role] for role in site.roles)
        segments = [(role, heads[role] // turns * width) for _ in range(turns) for role in site.roles]

    def adapted(role: str, part: Part) -> AdaptedPart:
        rows, number = sum(size for whose, size in segments if whose == role), heads.get(role, 1)
        covered = part.covered_rows(rows, heads=number)
        return AdaptedPart(name=site.path, role=role, spec=part, rows=rows, covered_rows=covered, heads=number)

    governed = {role: adapted(role, part) for role, part in parts.items()}
    return Planned(site, module, weights, segments, governed, outputs_last)


def _start(planned: Planned, *, seed: int) -> None:
    """Set values in place. A bias has no start of its own: zero where its weight is drawn."""
    for role, part in planned.governed.items():
        if part.spec.start == KEPT and part.spec.gain == 1:
            continue
        name = f"{planned.site.name}.weight" if len(planned.site.roles) == 1 else f"{planned.site.name}.weight:{role}"
        rows = planned.rows_of(role).to(planned.matrix.device)
        given, keeps = planned.matrix[rows], STARTS[part.spec.start].of_given_weights
        values = given if keeps else normal_draw(seed, name, given.shape)
        made = started(part.spec.start, values, gain=part.spec.gain, heads=part.heads, layers=1)
        planned.matrix[rows] = made.to(given)
        if "bias" in planned.weights and not keeps:
            planned.weights["bias"][rows] = 0


Holders = dict[int, list[tuple[str, nn.Module, str]]]  # id of a parameter -> path, module and name, wherever it is


def _holders(model: nn.Module) -> Holders:
    """A parameter that two modules share must be marked in both: either may give it its name."""
    found: Holders = {}
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            found.setdefault(id(parameter), []).append((f"{path}.{name}".lstrip("."), module, name))
    return found


def _shared(planned: Planned, holders: Holders) -> Iterator[str]:
    for weight in planned.weights.values():
        first, *others = (path for path, _, _ in holders[id(weight)])
        for part in planned.governed.values():
            if others and not isinstance(part.spec.moves, Always):
                state = "are frozen" if isinstance(part.spec.moves, Never) else f"move {values_of(part.spec.moves)}"
                yield f"{' and '.join([first, *others])} are one tied matrix: both {state}"


def _mark(model: nn.Module, planned: Planned, holders: Holders, *, outputs_last: bool) -> None:
    """Say when what moves, and set requires_grad; what a schedule governs requires one until training begins."""
    requires_grad = next(iter(planned.weights.values())).requires_grad
    groups = joined_groups(list(_groups(planned, requires_grad=requires_grad)))
    if len(groups) > 1:
        assert planned.module is not None
        model.set_submodule(planned.site.path, SplitLinear(planned.module, groups, outputs_last=outputs_last))
        return
    for weight in planned.weights.values():
        weight.requires_grad_(groups[0].requires_grad)
        for _, module, name in holders[id(weight)]:
            marked: Any = module
            marked.oelm_moves = getattr(module, "oelm_moves", {}) | {name: groups[0].moves}


def _groups(planned: Planned, *, requires_grad: bool) -> Iterator[OutputGroup]:
    """A role's first rows follow its rule and its others always move; what is not governed stays as it is."""
    left = {role: part.covered_rows for role, part in planned.governed.items()}
    for role, size in planned.segments:
        if role not in planned.governed:
            yield OutputGroup(size, Always(), requires_grad)
            continue
        covered, moves = min(left[role], size), planned.governed[role].spec.moves
        left[role] -= covered
        yield OutputGroup(covered, moves, not isinstance(moves, Never))
        yield OutputGroup(size - covered, Always(), True)


# ---- What is noted of it -------------------------------------------------------------------------------------------


FIELD = "oelm"
FORMAT_VERSION = 2  # 1 called the parts attention
CUSTOM = "custom"  # the arm's name where the spec has none


def adaptation_record(model: nn.Module, parts: Parts, *, arm: str, seed: int) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        "arm": arm,
        "parts": parts.model_dump(mode="json"),
        "seed": seed,
        "frozen_digests": frozen_digests(model),
        "frozen_shapes": frozen_shapes(model),
    }


def frozen_digests(model: nn.Module) -> dict[str, str]:
    return {name: tensor_digest(parameter) for name, parameter in _frozen(model).items()}


def frozen_shapes(model: nn.Module) -> dict[str, list[int]]:
    """Which tell a resized matrix from a changed one."""
    return {name: list(parameter.shape) for name, parameter in _frozen(model).items()}


def _frozen(model: nn.Module) -> dict[str, nn.Parameter]:
    """All that never moves, by names that are the same under any head or wrapper."""
    family = family_of(model)
    parameters = dict(model.named_parameters())
    frozen = {id(parameters[name]) for name in frozen_names(model)}
    return {
        known: parameter
        for name, parameter in model.named_parameters(remove_duplicate=False)  # either name of a tied matrix
        if id(parameter) in frozen and (known := name_in_family(name, family)) is not None
    }
