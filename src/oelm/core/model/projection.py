"""One projection of attention as its part says: whole, with rows that follow two rules (split.py), or without a matrix.

A whole one is an nn.Linear, so that whatever adapts linear layers finds it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from oelm.core.config import ResolvedModel
from oelm.core.model.split import OutputGroup, SplitLinear
from oelm.core.moves import Always, Never
from oelm.core.parts import ROLES
from oelm.core.starts import STARTS, MatrixFree

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
