"""What an arm did to a model, as plain JSON for its config.json, with the digests of all that never moves."""

from __future__ import annotations

import re
from typing import Any

from torch import nn

from oelm.config import Attention
from oelm.model.parameters import STACKS, frozen_names, parameter_digests

FIELD = "oelm"
FORMAT_VERSION = 1
CUSTOM = "custom"  # the arm's name where the spec has none


def adaptation_record(model: nn.Module, attention: Attention, *, arm: str, seed: int) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        "arm": arm,
        "attention": attention.model_dump(mode="json", include={"query", "key"}),
        "seed": seed,
        "frozen_digests": frozen_digests(model),
    }


def frozen_digests(model: nn.Module) -> dict[str, str]:
    """Of all that never moves, by names from the list of layers on: the same under any head or wrapper."""
    return {_name_in_stack(name): digest for name, digest in parameter_digests(model, frozen_names(model)).items()}


def _name_in_stack(name: str) -> str:
    return re.sub(rf"^.*?\b(?=({'|'.join(STACKS)})\.\d+\.)", "", name).replace(".base_layer.", ".")
