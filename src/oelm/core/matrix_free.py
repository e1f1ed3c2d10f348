"""Starts that store no matrix: what each stores instead, from a normal draw, and how it multiplies. Imports torch.

A row of starts.py names these functions; x W^T is computed from a few integers, for x of width d in its last dimension.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from oelm.core.starts import factor_sizes

INTEGERS = torch.int32  # as wide as a float32 weight, so that a number costs the same whatever it is


# ---- What is stored, from a draw -----------------------------------------------------------------------------------


def random_order(draw: Tensor) -> Tensor:
    """A permutation: the order of the numbers of a draw."""
    return draw.argsort(stable=True).to(INTEGERS)


def random_signs(draw: Tensor) -> Tensor:
    return torch.where(draw < 0, -1, 1).to(INTEGERS)


def random_channels(draw: Tensor) -> Tensor:
    """Each head's own channels, from a draw of heads by channels: distinct in a head, whatever the others read."""
    heads, channels = draw.shape
    return draw.argsort(dim=1, stable=True)[:, : channels // heads].flatten().to(INTEGERS)


# ---- x W^T ---------------------------------------------------------------------------------------------------------


def selected(x: Tensor, stored: Mapping[str, Tensor]) -> Tensor:
    return x[..., stored["channels"]]


def signed_permuted(x: Tensor, stored: Mapping[str, Tensor]) -> Tensor:
    permuted: Tensor = _Permutation.apply(x, stored["order"])
    return permuted * stored["signs"].to(x.dtype)


def hadamard_transformed(x: Tensor, stored: Mapping[str, Tensor]) -> Tensor:
    """A signed permutation, then two small factors of a Kronecker product, the second on the transposed square.

    Leaving the result transposed only orders the rows of the product.
    """
    left, right = (_factor(size, x) for size in factor_sizes(x.shape[-1]))
    mixed = signed_permuted(x, stored).unflatten(-1, (len(left), len(right))) @ right.T
    transformed: Tensor = (mixed.transpose(-1, -2) @ left.T).flatten(-2)
    return transformed


class _Permutation(torch.autograd.Function):
    """x[..., order]. Its gradient is gathered too; autograd's own would add number by number, as for any index."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor) -> Tensor:
        ctx.save_for_backward(order)
        return x[..., order]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (order,) = ctx.saved_tensors
        return gradient[..., order.argsort()], None


# ---- The factors of a Hadamard matrix ------------------------------------------------------------------------------


def _factor(size: int, like: Tensor) -> Tensor:
    """Orthonormal: H(2^k), in a Kronecker product with the cosine transform of the odd factor of the size."""
    odd = size // (size & -size)
    matrix = _cosines(odd, like) / math.sqrt(size // odd)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix.to(like.dtype)


def _cosines(size: int, like: Tensor) -> Tensor:
    """The orthonormal discrete cosine transform (DCT-II), in double precision."""
    numbers = torch.arange(size, device=like.device, dtype=torch.float64)
    matrix = torch.cos(torch.outer(numbers, numbers + 0.5) * (math.pi / size)) * math.sqrt(2 / size)
    return torch.cat([matrix[:1] / math.sqrt(2), matrix[1:]])
