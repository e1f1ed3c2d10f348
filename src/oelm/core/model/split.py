"""A linear module whose outputs follow several rules: a parameter for each rule, joined in forward and when stored.

Masking the gradient of a single parameter would let decay and momentum move the rows that rest. The joined weight has
the bits and the layout of the stock one, so outputs do not change by splitting; the state dict keeps the stock keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from oelm.core.moves import Moves

JOINED = ("weight", "bias")


@dataclass(frozen=True)
class OutputGroup:
    """Consecutive outputs of a module that follow one rule."""

    outputs: int
    moves: Moves
    requires_grad: bool


def joined_groups(groups: Sequence[OutputGroup]) -> list[OutputGroup]:
    """The same with neighbours of one rule as one, and without empty ones."""
    joined: list[OutputGroup] = []
    for group in groups:
        if joined and (joined[-1].moves, joined[-1].requires_grad) == (group.moves, group.requires_grad):
            group = OutputGroup(joined.pop().outputs + group.outputs, group.moves, group.requires_grad)
        if group.outputs:
            joined.append(group)
    return joined


def _numbered(name: str, index: int) -> str:
    return f"{name}_{index}"


class SplitLinear(nn.Module):
    """In place of an nn.Linear, or with `outputs_last` of a Conv1D (whose weight is in x out).

    `piece_name` says what the parameter of a group is called, from the joined one's name and the group's index.
    """

    def __init__(
        self,
        stock: nn.Module,
        groups: Sequence[OutputGroup],
        *,
        outputs_last: bool = False,
        piece_name: Callable[[str, int], str] = _numbered,
    ) -> None:
        super().__init__()
        self.outputs_last = outputs_last
        self.sizes = [group.outputs for group in groups]
        self.oelm_moves: dict[str, Moves] = {}
        self.pieces = {  # the names of its parameters, by that of the joined one
            name: [piece_name(name, index) for index in range(len(groups))]
            for name in JOINED
            if getattr(stock, name) is not None
        }
        for name, piece_names in self.pieces.items():
            values = getattr(stock, name).detach().split(self.sizes, dim=self._dimension(name))
            for piece, group, value in zip(piece_names, groups, values, strict=True):
                self.register_parameter(piece, nn.Parameter(value.clone(), requires_grad=group.requires_grad))
                self.oelm_moves[piece] = group.moves
        self._forward_of_stock: Callable[[nn.Module, Tensor], Tensor] = type(stock).forward  # it may add its bias apart
        self.train(stock.training)
        self.register_state_dict_post_hook(_join_on_save)
        self.register_load_state_dict_pre_hook(_split_on_load)

    def _dimension(self, name: str) -> int:
        return 1 if self.outputs_last and name == "weight" else 0

    def _whole(self, name: str) -> Tensor:
        return torch.cat([getattr(self, piece) for piece in self.pieces[name]], dim=self._dimension(name))

    @property
    def weight(self) -> Tensor:
        """As the stock module has it; a copy."""
        return self._whole("weight")

    @property
    def bias(self) -> Tensor | None:
        return self._whole("bias") if "bias" in self.pieces else None

    def forward(self, x: Tensor) -> Tensor:
        if not self.outputs_last:
            return self._forward_of_stock(self, x)
        outputs = torch.addmm(self._whole("bias"), x.view(-1, x.shape[-1]), self.weight)  # a Conv1D always has one
        return outputs.view(*x.shape[:-1], -1)

    def extra_repr(self) -> str:
        rules = (self.oelm_moves[piece].kind for piece in self.pieces["weight"])
        return ", ".join(f"{size} outputs move {kind}" for size, kind in zip(self.sizes, rules, strict=True))


def _join_on_save(module: SplitLinear, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    for name, pieces in module.pieces.items():
        values = [state.pop(f"{prefix}{piece}") for piece in pieces]
        state[f"{prefix}{name}"] = torch.cat(values, dim=module._dimension(name))


def _split_on_load(module: SplitLinear, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for name, pieces in module.pieces.items():
        whole = state.pop(f"{prefix}{name}", None)
        if whole is not None:
            values = whole.split(module.sizes, dim=module._dimension(name))
            state |= {f"{prefix}{piece}": value for piece, value in zip(pieces, values, strict=True)}
