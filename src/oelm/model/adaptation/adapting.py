"""Queries and keys of a given model started as a spec says, and marked with when they move.

Each module that is governed gets `oelm_moves` ({parameter: when it moves}), which model/parameters.rules reads. A
module is replaced only where a part of one of its parameters rests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from oelm.errors import UserError
from oelm.model.adaptation.families import Family, Site, family_of, sites_of
from oelm.model.initialization import normal_draw, one_thread
from oelm.model.split import OutputGroup, SplitLinear, joined_groups
from oelm.treatment.moves import Always, Never, values_of
from oelm.treatment.parts import (
    AS_GIVEN,
    ROLES,
    Part,
    Parts,
    for_given_weights,
    problems_of_division,
    problems_of_layers,
)
from oelm.treatment.starts import STARTS, started

GOVERNED = tuple(role.name for role in ROLES.values() if role.drawn_apart)


@dataclass(frozen=True)
class AdaptedProjection:
    """What was done to one projection of one layer. The spec's `moves` holds for its first `covered_rows`."""

    name: str  # of the module
    role: str  # query or key
    spec: Part
    rows: int
    covered_rows: int
    heads: int  # key heads, for a key

    def __str__(self) -> str:
        gain = "" if self.spec.gain == 1 else f" x {self.spec.gain:g}"
        rule = values_of(self.spec.moves)
        rows = f"{self.covered_rows} of {self.rows} rows"
        return f"{self.name} ({self.role}): {self.spec.start}{gain}; {rows} move {rule}"


Planned = tuple[AdaptedProjection | None, ...]  # one for each role of a module; None: not governed


@dataclass(frozen=True)
class Adaptation:
    """What applying a spec did to a model, and what of the whole model requires a gradient now."""

    family: str
    projections: tuple[AdaptedProjection, ...]
    trainable: int
    frozen: int

    def __str__(self) -> str:
        totals = f"{self.family}: {self.trainable:,} parameters trainable, {self.frozen:,} frozen"
        return "\n".join([totals, *self._warnings(), *(f"  {projection}" for projection in self.projections)])

    def _warnings(self) -> list[str]:
        specs = [projection.spec for projection in self.projections]
        lines = []
        if any(not STARTS[spec.start].of_given_weights for spec in specs):
            lines.append("the given queries and keys were replaced by newly drawn ones")
        if any(not isinstance(spec.moves, Always | Never) for spec in specs):
            lines.append("they follow a schedule: pass oelm.FreezeCallback() to the Trainer")
        return lines


@torch.no_grad()
def adapt(model: nn.Module, parts: Parts, *, seed: int) -> Adaptation:
    """Start, mark and freeze the queries and keys of `model`, in place, as `parts` says.

    A draw depends on `seed` and the parameter's name from the list of layers on, so that models which differ in their
    heads draw the same. A model is adapted once: what was split cannot be started again.
    """
    parts = for_given_weights(parts)
    _check_spec(parts)
    family = family_of(model)
    sites = sites_of(model, family)
    _check_model(model, sites)
    layers = 1 + max(site.layer for site in sites)
    _check_layers(parts, layers)
    planned = [_planned(model, family, site, parts, layers=layers) for site in sites]
    with one_thread():
        for site, projections in zip(sites, planned, strict=True):
            _check_ranks(model.get_submodule(site.path), family, projections)
        for site, projections in zip(sites, planned, strict=True):
            _start(model.get_submodule(site.path), family, site, projections, seed=seed)
            _mark(model, family, site, projections)
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    trainable = sum(size for size, requires_grad in sizes if requires_grad)
    return Adaptation(
        family=family.name,
        projections=tuple(found for projections in planned for found in projections if found is not None),
        trainable=trainable,
        frozen=sum(size for size, _ in sizes) - trainable,
    )


# ---- What is refused -----------------------------------------------------------------------------------------------


def _check_spec(parts: Parts) -> None:
    for role, part in parts.items():
        if role not in GOVERNED and part != AS_GIVEN.of(role):
            raise UserError(f"parts.{role}: only queries and keys of a given model can be set; leave it out")
    for name in GOVERNED:
        start = STARTS[parts.of(name).start]
        if start.matrix_free:
            raise UserError(f"parts.{name}.start: cannot be {start.name}: a given model keeps its matrices")
        if start.by_depth:
            raise UserError(f"parts.{name}.start: cannot be {start.name}: nothing adds it to the residual stream")


def _check_layers(parts: Parts, layers: int) -> None:
    for name in GOVERNED:
        problems = list(problems_of_layers(ROLES[name], parts.of(name), num_layers=layers))
        if problems:
            raise UserError("\n".join(problems))


def _check_model(model: nn.Module, sites: list[Site]) -> None:
    if any(hasattr(module, "oelm_moves") for module in model.modules()):
        raise UserError("model: an arm was already applied to it; load it again and apply one arm")
    if any("crossattention" in name for name, _ in model.named_modules()):
        raise UserError("model: it has cross-attention, which is not supported; only self-attention is")
    for site in sites:
        module = model.get_submodule(site.path)
        kind = type(module).__name__
        if type(module) is not nn.Linear and kind != "Conv1D":
            raise UserError(
                f"model: {site.path} is {kind}, not a plain linear layer; apply the arm before PEFT or quantization"
            )
        if module.weight.is_meta:
            raise UserError(f"model: {site.path} has no values yet (it is on the meta device); load them first")


def _check_ranks(module: nn.Module, family: Family, projections: Planned) -> None:
    for planned, rows, _ in _by_role(module, family, projections):
        start = STARTS[planned.spec.start]
        if not (start.of_given_weights and start.by_head):
            continue
        for number, head in enumerate(rows.double().chunk(planned.heads)):
            if torch.linalg.matrix_rank(head @ head.T, hermitian=True) < min(head.shape):
                raise UserError(
                    f"model: {planned.name}: rows of {planned.role} head {number} depend on one another; no "
                    "orthonormal ones span the same"
                )


# ---- What is done --------------------------------------------------------------------------------------------------


def _planned(model: nn.Module, family: Family, site: Site, parts: Parts, *, layers: int) -> Planned:
    stock: Any = model.get_submodule(site.path)  # an nn.Linear, or a Conv1D of transformers
    outputs: int = stock.weight.shape[1 if family.outputs_last else 0]
    config: Any = model.config
    rows = outputs // len(site.roles)
    heads = {"query": config.num_attention_heads, "key": getattr(config, family.key_heads)}
    specs = {role: _part_at(parts, role, site.layer) for role in site.roles if role in GOVERNED}
    for role, spec in specs.items():
        _check_share(spec, role, heads=heads[role], layers=layers)
    return tuple(
        AdaptedProjection(
            name=site.path,
            role=role,
            spec=specs[role],
            rows=rows,
            covered_rows=specs[role].covered_rows(rows, heads=heads[role], layer=site.layer, num_layers=layers),
            heads=heads[role],
        )
        if role in specs
        else None
        for role in site.roles
    )


def _part_at(parts: Parts, role: str, layer: int) -> Part:
    part = parts.of(role)
    return part if part.holds_in(layer) else AS_GIVEN.of(role)


def _check_share(part: Part, role: str, *, heads: int, layers: int) -> None:
    called = "key heads" if role == "key" else "heads"
    for problem in problems_of_division(ROLES[role], part, heads=heads, num_layers=layers, called=called):
        raise UserError(problem)


def _by_role(
    module: Any, family: Family, projections: Planned
) -> Iterator[tuple[AdaptedProjection, Tensor, Tensor | None]]:
    """What is governed, with views of its weight (outputs first) and bias."""
    count = len(projections)
    weights = (module.weight.T if family.outputs_last else module.weight).chunk(count)
    biases = [None] * count if module.bias is None else module.bias.chunk(count)
    for planned, weight, bias in zip(projections, weights, biases, strict=True):
        if planned is not None:
            yield planned, weight, bias


def _start(module: nn.Module, family: Family, site: Site, projections: Planned, *, seed: int) -> None:
    """Set values in place. A bias has no start of its own: zero where its weight is drawn."""
    for planned, weight, bias in _by_role(module, family, projections):
        name = f"{site.name}.weight" if len(projections) == 1 else f"{site.name}.weight:{planned.role}"
        weight.copy_(_starting_weight(weight, planned, name, seed=seed))
        if bias is not None and not STARTS[planned.spec.start].of_given_weights:
            bias.zero_()


def _starting_weight(given: Tensor, planned: AdaptedProjection, name: str, *, seed: int) -> Tensor:
    spec = planned.spec
    values = given if STARTS[spec.start].of_given_weights else normal_draw(seed, name, given.shape)
    return started(spec.start, values, gain=spec.gain, heads=planned.heads, layers=1)


def _mark(model: nn.Module, family: Family, site: Site, projections: Planned) -> None:
    """Say when what moves, and set requires_grad; what a schedule governs requires one until training begins."""
    module: Any = model.get_submodule(site.path)
    outputs: int = module.weight.shape[1 if family.outputs_last else 0]
    groups: list[OutputGroup] = []
    for planned in projections:
        if planned is None:
            groups.append(OutputGroup(outputs // len(projections), Always(), module.weight.requires_grad))
        else:
            covered, moves = planned.covered_rows, planned.spec.moves
            groups.append(OutputGroup(covered, moves, not isinstance(moves, Never)))
            groups.append(OutputGroup(planned.rows - covered, Always(), True))
    groups = joined_groups(groups)
    if len(groups) == 1:
        module.oelm_moves = {name: groups[0].moves for name, _ in module.named_parameters(recurse=False)}
        module.requires_grad_(groups[0].requires_grad)
    else:
        model.set_submodule(site.path, SplitLinear(module, groups, outputs_last=family.outputs_last))
