"""What an arm did to a model, as plain JSON for its config.json, with the digests of all that never moves."""

from __future__ import annotations

from typing import Any

from torch import nn

from oelm.core.model.parameters import frozen_names, tensor_digest
from oelm.core.parts import Parts
from oelm.models.adaptation.families import family_of, name_in_family

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
