"""One projection of attention as its part says: whole, with rows that follow two rules, or without a matrix.

A whole one is an nn.Linear, so that whatever adapts linear layers finds it. One that is split has a parameter for each
rule, joined in forward and when stored: masking the gradient of a single one would let decay and momentum move the rows
that rest. The joined weight has the bits and the layout of the stock one, so outputs do not change by splitting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from oelm.core.config import ResolvedModel
from oelm.core.moves import Always, Moves, Never
from oelm.core.parts import ROLES
from oelm.core.starts import STARTS, MatrixFree

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


PIECES = ("covered", "free")  # rows that follow the part's `moves`, and rows that always move


class Projection(nn.Linear):
    """x W^T, without bias and, until `initialize`, without values."""

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__(columns, rows, bias=False)

    def reset_parameters(self) -> None:
        """Nothing: a draw would advance torch's generator, and every value is replaced."""


class MatrixFreeProjection(nn.Module):
    """x W^T for a W that exists nowhere: computed from the integers that its start stores, which never move.

    They are parameters, so that there is one way to count, digest, save and watch what is frozen.
    """

    def __init__(self, width: int, start: MatrixFree, *, gain: float) -> None:
        super().__init__()
        self.width, self.start, self.gain = width, start, gain
        for name in start.stores:
            self.register_parameter(name, nn.Parameter(torch.zeros(width, dtype=torch.int32), requires_grad=False))

    @property
    def implied(self) -> int:
        """Entries of the matrix that nobody stores."""
        return self.width * self.width

    @property
    def weight(self) -> Tensor:
        """The matrix itself, made for whoever needs one."""
        device = next((numbers.device for numbers in self.parameters()), None)
        return self._multiplied(torch.eye(self.width, device=device)).T.contiguous()

    def forward(self, x: Tensor) -> Tensor:
        kind = x.device.type
        return self._multiplied(x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x)

    def _multiplied(self, x: Tensor) -> Tensor:
        multiplied = self.start.multiply(x, dict(self.named_parameters()))
        return multiplied if self.gain == 1 else multiplied * self.gain

    def extra_repr(self) -> str:
        return f"{self.width} x {self.width}, no matrix"


def matrices_of(model: nn.Module) -> dict[str, Tensor]:
    """The state of a model, with the matrix in the place of what a projection stores instead of one."""
    state = dict(model.state_dict())
    for path, module in model.named_modules():
        if isinstance(module, MatrixFreeProjection):
            for name, _ in module.named_parameters():
                del state[f"{path}.{name}"]
            state[f"{path}.weight"] = module.weight.detach()
    return state


def projection(model: ResolvedModel, role: str, layer: int) -> Projection | SplitLinear | MatrixFreeProjection:
    """Shaped as its role says; what is split also says when its pieces move, as GPT does of what is whole."""
    (rows, columns), part = ROLES[role].shape(model), model.part_at(role, layer)
    start = STARTS[part.start].matrix_free
    if start is not None:
        return MatrixFreeProjection(columns, start, gain=part.gain)
    whole = Projection(columns, rows)
    covered = part.covered_rows(rows, heads=model.num_heads)
    if covered in (0, rows):
        return whole
    groups = (
        OutputGroup(covered, part.moves, not isinstance(part.moves, Never)),
        OutputGroup(rows - covered, Always(), True),
    )
    return SplitLinear(whole, groups, piece_name=lambda name, index: PIECES[index])
