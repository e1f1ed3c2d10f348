"""How a weight can start: one row a start, with its family, its scale, its draw and its words. A new start is a row.

Every start is made from one standard normal draw of the weight's shape, so that two arms of one seed differ in what was
done to it and not in luck; those of given weights are made from these. Torch is imported by whoever draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

WEIGHT_STANDARD_DEVIATION = 0.02  # GPT-2's


@dataclass(frozen=True)
class Sizes:
    """What a start may depend on: the weight's rows (outputs) and columns (inputs), its heads, the model's layers."""

    rows: int
    columns: int
    heads: int
    layers: int


@dataclass(frozen=True)
class StoredNumbers:
    """Integers in the place of a matrix: drawn in a shape of their own, as many as the matrix has rows."""

    drawn: Callable[[Sizes], tuple[int, ...]]
    make: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class MatrixFree:
    """A start that stores no matrix and so cannot be trained: what it stores by name, and how it multiplies."""

    stores: Mapping[str, StoredNumbers]
    multiply: Callable[[Tensor, Mapping[str, Tensor]], Tensor]  # x W^T
    products: Callable[[Sizes], int]  # multiplications by it, of one x


@dataclass(frozen=True)
class Start:
    """`scale` is the standard deviation of one entry at a gain of one; None: the given weights decide it. Starts of one
    family differ by scale alone.
    """

    name: str
    family: str
    scale: Callable[[Sizes], float] | None
    make: Callable[[Tensor, Sizes], Tensor] | MatrixFree  # from the draw, or from the given weights
    words: tuple[str, str]  # English, Chinese
    documentation: tuple[str, str]  # entries, note: a line of docs/arms.md
    scale_text: str = "1/sqrt(d)"  # where the sizes are not known
    of_given_weights: bool = False  # for models that come with weights
    by_head: bool = False  # for weights whose rows belong to heads
    by_depth: bool = False  # for what is added to the residual stream
    only_for: tuple[str, ...] = ()  # roles; empty: any that fits
    is_constant: bool = False  # the same whatever is drawn
    drawn_as: str = ""  # the role whose draw it is made from, whatever part has it; empty: each part's own

    @property
    def matrix_free(self) -> MatrixFree | None:
        return self.make if isinstance(self.make, MatrixFree) else None

    @property
    def is_drawn(self) -> bool:
        """Whether another draw gives other weights."""
        return not (self.of_given_weights or self.is_constant)


# ---- What is done to the draw --------------------------------------------------------------------------------------


def orthonormal_rows(draw: Tensor) -> Tensor:
    """Rows orthonormal and uniformly distributed (Haar): QR of the transpose, with the signs of R's diagonal.

    More rows than columns cannot be orthonormal; then the columns are.
    """
    import torch

    if draw.shape[0] > draw.shape[1]:
        return orthonormal_rows(draw.T).T.contiguous()
    q, r = torch.linalg.qr(draw.double().T, mode="reduced")
    signs = torch.where(r.diagonal() < 0, -1.0, 1.0).double()
    rows: Tensor = (q * signs).T.to(draw.dtype).contiguous()
    return rows


def nearest_orthonormal(matrix: Tensor) -> Tensor:
    """The matrix with orthonormal rows (or columns, where there are more rows) nearest to this one: its polar factor.

    Its rows span what the rows of `matrix` span.
    """
    import torch

    left, _, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    nearest: Tensor = (left @ right).to(matrix.dtype)
    return nearest


def _by_head(make: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Sizes], Tensor]:
    def made(draw: Tensor, sizes: Sizes) -> Tensor:
        import torch

        return torch.cat([make(head) for head in draw.chunk(sizes.heads)])

    return made


def _depth_scale(sizes: Sizes) -> float:
    return WEIGHT_STANDARD_DEVIATION / math.sqrt(2 * sizes.layers)


def _xavier_scale(sizes: Sizes) -> float:
    return math.sqrt(2 / (sizes.columns + sizes.rows))


def _orthonormal_scale(sizes: Sizes) -> float:
    """Orthonormal rows of length d have entries of 1/sqrt(d); where the columns are orthonormal, of their length."""
    return 1 / math.sqrt(max(sizes.columns, sizes.rows))


def _scaled_scale(sizes: Sizes) -> float:
    return 1 / math.sqrt(sizes.columns)


# ---- What is done without a matrix ---------------------------------------------------------------------------------


def _functions() -> ModuleType:
    """What computes, and imports torch."""
    from oelm.core import matrix_free

    return matrix_free


def factor_sizes(width: int) -> tuple[int, int]:
    """Two factors of the width as alike as can be, the first a power of two: 512 = 16 x 32, 768 = 32 x 24."""
    first = 1
    while width % (2 * first) == 0 and 2 * first + width // (2 * first) < first + width // first:
        first *= 2  # a plain loop: torch traces this
    return first, width // first


_ORDER = StoredNumbers(drawn=lambda sizes: (sizes.columns,), make=lambda draw: _functions().random_order(draw))
_SIGNS = StoredNumbers(drawn=lambda sizes: (sizes.rows,), make=lambda draw: _functions().random_signs(draw))
_CHANNELS = StoredNumbers(
    drawn=lambda sizes: (sizes.heads, sizes.columns), make=lambda draw: _functions().random_channels(draw)
)
SQUARE = ("query", "key", "value", "output")  # roles whose matrices are d_model by d_model


# ---- The table -----------------------------------------------------------------------------------------------------

STARTS: dict[str, Start] = {
    start.name: start
    for start in (
        Start(
            name="normal",
            family="normal",
            scale=lambda sizes: WEIGHT_STANDARD_DEVIATION,
            scale_text="0.02",
            make=lambda draw, sizes: draw * WEIGHT_STANDARD_DEVIATION,
            words=("normal, std 0.02", "随机正态，标准差 0.02"),
            documentation=("std 0.02", "GPT-2's"),
        ),
        Start(
            name="scaled_normal",
            family="normal",
            scale=_scaled_scale,
            make=lambda draw, sizes: draw / math.sqrt(sizes.columns),
            words=("normal at the scale of an orthogonal start", "随机正态，与正交初始化同尺度"),
            documentation=("std 1/sqrt(d)", "the scale of an orthogonal matrix, without its orthogonality"),
        ),
        Start(
            name="xavier",
            family="normal",
            scale=_xavier_scale,
            make=lambda draw, sizes: draw * _xavier_scale(sizes),
            words=("Xavier", "Xavier"),
            documentation=("std sqrt(2 / (in + out))", "the same scale for a square matrix"),
        ),
        Start(
            name="orthogonal",
            family="orthogonal",
            scale=_orthonormal_scale,
            make=lambda draw, sizes: orthonormal_rows(draw),
            words=("orthogonal over the whole matrix", "全局正交"),
            documentation=("QR of the whole matrix", "rows orthonormal, within heads too"),
        ),
        Start(
            name="shared_orthogonal",
            family="shared_orthogonal",
            scale=_orthonormal_scale,
            make=lambda draw, sizes: orthonormal_rows(draw),
            words=("orthogonal, one matrix for query and key", "全局正交，Q 与 K 同一矩阵"),
            documentation=("QR of the whole matrix", "query and key start as one matrix; frozen, they stay one"),
            only_for=("query", "key"),
            drawn_as="query",
        ),
        Start(
            name="head_orthogonal",
            family="head_orthogonal",
            scale=_scaled_scale,
            make=_by_head(orthonormal_rows),
            words=("orthogonal per head", "分头正交"),
            documentation=("QR of each head", "rows orthonormal within a head only"),
            by_head=True,
        ),
        Start(
            name="residual_normal",
            family="normal",
            scale=_depth_scale,
            scale_text="0.02/sqrt(2 layers)",
            make=lambda draw, sizes: draw * _depth_scale(sizes),
            words=("normal, scaled by depth", "随机正态，按深度缩放"),
            documentation=("std 0.02 / sqrt(2 layers)", "default of the output projection"),
            by_depth=True,
        ),
        Start(
            name="binary",
            family="binary",
            scale=_scaled_scale,
            make=lambda draw, sizes: (draw >= 0).to(draw.dtype).mul_(2).sub_(1) / math.sqrt(sizes.columns),
            words=("random signs at the scale of an orthogonal start", "随机正负号，与正交初始化同尺度"),
            documentation=("+1/sqrt(d) or -1/sqrt(d)", "random signs at the scale of an orthogonal matrix"),
        ),
        Start(
            name="identity",
            family="identity",
            scale=_orthonormal_scale,
            make=MatrixFree(stores={}, multiply=lambda x, stored: x, products=lambda sizes: 0),
            words=("identity, without a matrix", "恒等映射，不存矩阵"),
            documentation=("1 on the diagonal", "no matrix, frozen only: head h reads the h-th group of channels"),
            only_for=SQUARE,
            is_constant=True,
        ),
        Start(
            name="dense_identity",
            family="identity",
            scale=_orthonormal_scale,
            make=lambda draw, sizes: draw.new_zeros(draw.shape).fill_diagonal_(1),
            words=("identity, as a matrix", "恒等映射，存为矩阵"),
            documentation=("1 on the diagonal, 0 elsewhere", "`identity` as a matrix, which can be trained"),
            only_for=SQUARE,
            is_constant=True,
        ),
        Start(
            name="selection",
            family="selection",
            scale=_scaled_scale,
            make=MatrixFree(
                stores={"channels": _CHANNELS},
                multiply=lambda x, stored: _functions().selected(x, stored),
                products=lambda sizes: 0,
            ),
            words=("selected channels, without a matrix", "按头选取通道，不存矩阵"),
            documentation=("one 1 in each row", "no matrix, frozen only: each head reads channels drawn for it"),
            by_head=True,
            only_for=SQUARE,
        ),
        Start(
            name="signed_permutation",
            family="signed_permutation",
            scale=_orthonormal_scale,
            make=MatrixFree(
                stores={"order": _ORDER, "signs": _SIGNS},
                multiply=lambda x, stored: _functions().signed_permuted(x, stored),
                products=lambda sizes: 0,
            ),
            words=("signed permutation, without a matrix", "带符号置换，不存矩阵"),
            documentation=("one 1 or -1 in each row and column", "no matrix, frozen only: channels in random order"),
            only_for=SQUARE,
        ),
        Start(
            name="hadamard",
            family="hadamard",
            scale=_orthonormal_scale,
            make=MatrixFree(
                stores={"order": _ORDER, "signs": _SIGNS},
                multiply=lambda x, stored: _functions().hadamard_transformed(x, stored),
                products=lambda sizes: sizes.columns * sum(factor_sizes(sizes.columns)),
            ),
            words=(
                "random signs and order, then a Hadamard transform, without a matrix",
                "随机符号与次序后作哈达玛变换，不存矩阵",
            ),
            documentation=(
                "signed permutation, then H(2^k) x a cosine transform of the odd factor of d",
                "no matrix, frozen only: orthogonal, and every output reads all channels",
            ),
            only_for=SQUARE,
        ),
        Start(
            name="ones",
            family="ones",
            scale=lambda sizes: 1.0,
            scale_text="1",
            make=lambda draw, sizes: draw.new_ones(draw.shape),
            words=("ones", "全一"),
            documentation=("1", "of norms, and only of them"),
            only_for=("norm",),
            is_constant=True,
        ),
        Start(
            name="keep",
            family="keep",
            scale=None,
            scale_text="keep",
            make=lambda given, sizes: given,
            words=("as pretrained", "保留预训练权重"),
            documentation=(
                "as given",
                "models that come with weights only: stock fine-tuning, or frozen as pretrained",
            ),
            of_given_weights=True,
        ),
        Start(
            name="orthogonalised",
            family="orthogonalised",
            scale=_scaled_scale,
            make=_by_head(nearest_orthonormal),
            words=("pretrained, made orthonormal per head", "预训练权重按头正交化"),
            documentation=(
                "nearest orthonormal rows of each head",
                "models that come with weights only: each head keeps its row space",
            ),
            of_given_weights=True,
            by_head=True,
        ),
    )
}


def started(name: str, values: Tensor, *, gain: float, heads: int, layers: int) -> Tensor:
    """The start with this name, made from a standard normal draw or, where it is one of given weights, from these."""
    make = STARTS[name].make
    assert not isinstance(make, MatrixFree), f"{name} has no matrix"
    return make(values, Sizes(rows=values.shape[0], columns=values.shape[-1], heads=heads, layers=layers)) * gain
