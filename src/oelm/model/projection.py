"""One projection of attention as its part says: whole, or with rows that follow two rules (split.py).

A whole one is an nn.Linear, so that whatever adapts linear layers finds it.
"""

from __future__ import annotations

from torch import nn

from oelm.config import ResolvedModel
from oelm.model.split import OutputGroup, SplitLinear
from oelm.treatment.moves import Always, Never
from oelm.treatment.parts import ROLES

PIECES = ("covered", "free")  # rows that follow the part's `moves`, and rows that always move


class Projection(nn.Linear):
    """x W^T, without bias and, until `initialize`, without values."""

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__(columns, rows, bias=False)

    def reset_parameters(self) -> None:
        """Nothing: a draw would advance torch's generator, and every value is replaced."""


def projection(model: ResolvedModel, role: str, layer: int) -> Projection | SplitLinear:
    """Shaped as its role says; what is split also says when its pieces move, as GPT does of what is whole."""
    rows, columns = ROLES[role].shape(model)
    whole, part = Projection(columns, rows), model.part_at(role, layer)
    covered = part.covered_rows(rows, heads=model.num_heads, layer=layer, num_layers=model.num_layers)
    if covered in (0, rows):
        return whole
    groups = (
        OutputGroup(covered, part.moves, not isinstance(part.moves, Never)),
        OutputGroup(rows - covered, Always(), True),
    )
    return SplitLinear(whole, groups, piece_name=lambda name, index: PIECES[index])
