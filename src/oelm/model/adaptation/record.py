"""What an arm did to a model, as plain JSON for its config.json, with the digests of all that never moves."""

from __future__ import annotations

import re
from typing import Any

from torch import nn

from oelm.model.parameters import STACKS, frozen_names, parameter_digests
from oelm.treatment.parts import Parts

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
    }


def frozen_digests(model: nn.Module) -> dict[str, str]:
    """Of all that never moves, by names from the list of layers on: the same under any head or wrapper."""
    return {_name_in_stack(name): digest for name, digest in parameter_digests(model, frozen_names(model)).items()}


def _name_in_stack(name: str) -> str:
    return re.sub(rf"^.*?\b(?=({'|'.join(STACKS)})\.\d+\.)", "", name).replace(".base_layer.", ".")
