"""The idea under test: one attention projection, how it starts and which of its rows may rest.

A projection whose rows follow two rules is two parameters, joined in forward and stored as one `weight`:
masking the gradient of a single parameter would let decay and momentum move the resting rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from oelm.treatment.moves import Always, Moves, Never
from oelm.treatment.parts import Part


class FreezableLinear(nn.Module):
    """x W^T. The first `covered_rows` of W follow the part's `moves`; the others always move."""

    def __init__(self, features: int, part: Part, *, covered_rows: int) -> None:
        super().__init__()
        self.features = features
        self.covered_rows = covered_rows
        self.covered_moves = part.moves
        if self.is_split:
            self.covered = nn.Parameter(torch.empty(covered_rows, features))
            self.free = nn.Parameter(torch.empty(features - covered_rows, features))
            self.register_state_dict_post_hook(_join_on_save)
            self.register_load_state_dict_pre_hook(_split_on_load)
        else:
            self.weight = nn.Parameter(torch.empty(features, features))
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(not isinstance(self.oelm_moves[name], Never))

    @property
    def is_split(self) -> bool:
        return 0 < self.covered_rows < self.features

    @property
    def oelm_moves(self) -> dict[str, Moves]:
        """When each parameter of this module moves."""
        if self.is_split:
            return {"covered": self.covered_moves, "free": Always()}
        return {"weight": self.covered_moves if self.covered_rows else Always()}

    def whole_weight(self) -> Tensor:
        return torch.cat([self.covered, self.free]) if self.is_split else self.weight

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.whole_weight())


def _join_on_save(module: FreezableLinear, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    covered, free = state.pop(f"{prefix}covered"), state.pop(f"{prefix}free")
    state[f"{prefix}weight"] = torch.cat([covered, free])


def _split_on_load(module: FreezableLinear, state: dict[str, Any], prefix: str, *_: Any) -> None:
    weight = state.pop(f"{prefix}weight", None)
    if weight is not None:
        state[f"{prefix}covered"] = weight[: module.covered_rows]
        state[f"{prefix}free"] = weight[module.covered_rows :]
