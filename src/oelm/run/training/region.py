"""The loss on a GPU: between the product that makes a chunk's logits and the two that use their gradient stands one
function, which writes the gradient over the logits. Compiled, it reads them once for each of its sums, and writes once.

Every shape has a graph of its own, whatever was computed before: a resumed run must give the same bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

DEVICES = {"cuda"}  # where the loss is made here
MOST_ROWS, LEAST_ROWS = 8192, 4096  # of a chunk; fewer only if there are fewer positions
CHUNK_BYTES = 2**30  # of logits, between these
EAGER_CHUNK_BYTES = 192 * 2**20  # of float32 logits: uncompiled, there are several of them at a time
ALIGNED = 64  # rows of logits begin at multiples of so many: with GPT-2's 50,257 a product would straddle cache lines

Function = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Gradients:
    """What `summed` fills in: at the hidden states and, if it is wanted, at the weight."""

    hidden_ND: Tensor
    weight_VD: Tensor | None


def chunk_rows(positions: int, vocabulary: int, product_dtype: torch.dtype, *, compiled: bool) -> int:
    """As few chunks as allowed, of equal size up to one: then most have one shape, and one graph."""
    if compiled:
        most = min(MOST_ROWS, max(LEAST_ROWS, CHUNK_BYTES // (product_dtype.itemsize * vocabulary)))
    else:
        most = max(64, EAGER_CHUNK_BYTES // (4 * vocabulary))
    chunks = max(1, -(-positions // most))
    return max(1, -(-positions // chunks))


def loss_and_gradient(logits_NV: Tensor, targets_N: Tensor, scale: Tensor) -> Tensor:
    """The summed loss of a chunk. Over its logits, scale times their gradient is written, in their own type; sums are
    made in single precision at least."""
    scores_NV = logits_NV.to(scale.dtype)
    largest_N1 = scores_NV.amax(dim=1, keepdim=True)
    exponentials_NV = (scores_NV - largest_N1).exp()
    total_N1 = exponentials_NV.sum(dim=1, keepdim=True)
    of_target_N1 = scores_NV.gather(1, targets_N.unsqueeze(1))
    is_target_NV = torch.arange(logits_NV.shape[1], device=logits_NV.device) == targets_N.unsqueeze(1)
    gradient_NV = exponentials_NV * (scale / total_N1) - torch.where(is_target_NV, scale, 0.0)
    logits_NV.copy_(gradient_NV)
    return (total_N1.log() + largest_N1 - of_target_N1).sum()


@functools.cache
def compiled_function() -> Function:
    return torch.compile(loss_and_gradient, dynamic=False, fullgraph=True)


def summed(
    hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, scale: float, made: Gradients, *, compiled: bool
) -> Tensor:
    """The summed loss; gradients, times scale, are written into `made`. Hidden states and weight are in the type that
    products are made in."""
    positions, (vocabulary, _) = len(hidden_ND), weight_VD.shape
    rows = chunk_rows(positions, vocabulary, weight_VD.dtype, compiled=compiled)
    padded = torch.empty(rows, -(-vocabulary // ALIGNED) * ALIGNED, dtype=weight_VD.dtype, device=weight_VD.device)
    sums = torch.promote_types(weight_VD.dtype, torch.float32)
    factor = torch.full((), scale, dtype=sums, device=weight_VD.device)
    function = compiled_function() if compiled else loss_and_gradient
    loss = torch.zeros((), dtype=sums, device=weight_VD.device)
    for start in range(0, positions, rows):
        part = slice(start, start + rows)
        logits_NV = padded[: len(hidden_ND[part]), :vocabulary]
        torch.mm(hidden_ND[part], weight_VD.T, out=logits_NV)
        loss += function(logits_NV, targets_N[part], factor)
        _product(made.hidden_ND[part], logits_NV, weight_VD, add=False)
        if made.weight_VD is not None:
            _product(made.weight_VD, logits_NV.T, hidden_ND[part], add=start > 0)
    return loss


def _product(total: Tensor, left: Tensor, right: Tensor, *, add: bool) -> None:
    """total = left right, or total += left right, summed and stored in the type of `total` without a rounded step."""
    if total.dtype != left.dtype and left.device.type != "cuda":  # no such product there
        left, right = left.to(total.dtype), right.to(total.dtype)
    if total.dtype == left.dtype:
        torch.addmm(total, left, right, beta=float(add), out=total)
    elif add:
        torch.addmm(total, left, right, out_dtype=total.dtype, out=total)
    else:
        torch.mm(left, right, out_dtype=total.dtype, out=total)
