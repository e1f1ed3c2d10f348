"""Output layer and cross-entropy together, in chunks of positions, never holding all logits.

N positions, D model width, V vocabulary. The gradients are made in the forward pass, while a chunk's logits are
at hand; the weight's gradient is accumulated in place over the chunks, and all chunks share their buffers.
On a GPU memory traffic decides: everything between the products is one function (run/training/region.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from oelm.run.training import region

# Of float32 logits. In float32 a small product fills the caches already; in bfloat16 every chunk also costs a pass
# over the whole weight gradient, into which its rounded product is added in float32, so chunks are larger.
CHUNK_BYTES = {torch.float64: 96 * 2**20, torch.float32: 96 * 2**20, torch.bfloat16: 192 * 2**20}


def chunk_rows(vocabulary: int, product_dtype: torch.dtype) -> int:
    return max(64, CHUNK_BYTES[product_dtype] // (4 * vocabulary) // 64 * 64)


def summed_cross_entropy(
    hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, *, scale: float = 1.0, compiled: bool = False
) -> Tensor:
    """scale times the sum of -log p(target). Pass 1 / (all positions of the global batch) as scale.

    `compiled` matters on a GPU only: what is between the products is then one kernel.
    """
    loss: Tensor = _LinearCrossEntropy.apply(hidden_ND, weight_VD, targets_N, scale, compiled)
    return loss


def backward(loss: Tensor) -> None:
    """`loss.backward()`, so that the gradients made above are known to be the ones wanted: they need no factor, and
    no number has to be read from the device to find that out."""
    key = (loss.device, loss.dtype)
    if key not in _ONES:
        _ONES[key] = torch.ones_like(loss)
    loss.backward(_ONES[key])


_ONES: dict[tuple[torch.device, torch.dtype], Tensor] = {}


def _is_one(factor: Tensor) -> bool:
    known = _ONES.get((factor.device, factor.dtype))
    return factor is known or (factor.device.type == "cpu" and factor.item() == 1)


@torch.no_grad()
def position_losses(hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor) -> Tensor:
    """-log p(target) of every position, for validation."""
    return torch.cat(
        [
            functional.cross_entropy(logits, targets, reduction="none")
            for logits, targets in _chunks_of_logits(hidden_ND, weight_VD, targets_N)
        ]
    )


@torch.no_grad()
def losses_and_hits(hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
    """The same, and whether the likeliest token is the target."""
    losses, hits = [], []
    for logits, targets in _chunks_of_logits(hidden_ND, weight_VD, targets_N):
        losses.append(functional.cross_entropy(logits, targets, reduction="none"))
        hits.append(logits.argmax(dim=1) == targets)
    return torch.cat(losses), torch.cat(hits)


def _chunks_of_logits(hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    weight = weight_VD.to(_product_dtype(hidden_ND))
    rows = chunk_rows(weight.shape[0], weight.dtype)
    for h, t in zip(hidden_ND.split(rows), targets_N.split(rows), strict=True):
        yield (h.to(weight.dtype) @ weight.T).to(_sum_dtype(h)), t


def _product_dtype(tensor: Tensor) -> torch.dtype:
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else tensor.dtype


def _sum_dtype(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, scale: float, compiled: bool
    ) -> Tensor:
        product_dtype = _product_dtype(hidden_ND)
        hidden, weight = hidden_ND.to(product_dtype), weight_VD.to(product_dtype)
        hidden_gradient = torch.empty_like(hidden_ND)
        weight_gradient = torch.empty_like(weight_VD) if ctx.needs_input_grad[1] else None
        with torch.autocast(hidden.device.type, enabled=False):
            if hidden.device.type in region.DEVICES:
                made = region.Gradients(hidden_gradient, weight_gradient)
                loss = region.summed(hidden, weight, targets_N, scale, made, compiled=compiled)
            else:
                loss = _summed(hidden, weight, targets_N, scale, hidden_gradient, weight_gradient)
        ctx.gradients = hidden_gradient, weight_gradient
        return loss * scale

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        hidden_gradient, weight_gradient = ctx.gradients
        # Nothing else may hold the gradients: then autograd adds the embedding's part into this tensor in place.
        ctx.gradients = None
        if not _is_one(outer):
            hidden_gradient = hidden_gradient.mul_(outer)
            weight_gradient = None if weight_gradient is None else weight_gradient.mul_(outer)
        return hidden_gradient, weight_gradient, None, None, None


def _summed(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    scale: float,
    hidden_gradient: Tensor,
    weight_gradient: Tensor | None,
) -> Tensor:
    """The summed loss; gradients, times scale, are written into the last two."""
    loss = torch.zeros((), dtype=_sum_dtype(hidden_gradient), device=hidden.device)
    buffers = _Buffers(weight, rows=min(chunk_rows(weight.shape[0], weight.dtype), len(hidden)), sums=loss.dtype)
    for start in range(0, len(hidden), buffers.rows):
        part = slice(start, start + buffers.rows)
        chunk_loss, logits_gradient = _chunk(hidden[part], weight, targets[part], scale, buffers)
        loss += chunk_loss
        hidden_gradient[part] = logits_gradient @ weight
        if weight_gradient is not None:
            buffers.add_product(weight_gradient, logits_gradient, hidden[part], first=start == 0)
    return loss


class _Buffers:
    """Memory that all chunks share: fresh pages for every chunk would cost more than the sums made in them."""

    def __init__(self, weight: Tensor, *, rows: int, sums: torch.dtype) -> None:
        self.rows = rows
        vocabulary = weight.shape[0]
        padded = torch.empty(
            rows, -(-vocabulary // region.ALIGNED) * region.ALIGNED, dtype=weight.dtype, device=weight.device
        )
        same = weight.dtype == sums
        self._products = padded[:, :vocabulary]
        self._sums = self._products if same else torch.empty_like(padded, dtype=sums)[:, :vocabulary]
        self._outer = None if same else torch.empty_like(weight)

    def logits(self, hidden: Tensor, weight: Tensor) -> Tensor:
        """The scores of a chunk, in the type that sums are made in."""
        products = torch.mm(hidden, weight.T, out=self._products[: len(hidden)])
        return products if self._outer is None else self._sums[: len(hidden)].copy_(products)

    def for_products(self, gradient: Tensor) -> Tensor:
        """The gradient at the logits, in the type that products are made in."""
        return gradient if self._outer is None else self._products[: len(gradient)].copy_(gradient)

    def add_product(self, total: Tensor, left: Tensor, right: Tensor, *, first: bool) -> None:
        """total += left^T right; the first writes over what is there, instead of adding to zeros."""
        if self._outer is None:
            torch.addmm(total, left.T, right, beta=0.0 if first else 1.0, out=total)
        elif first:
            total.copy_(torch.mm(left.T, right, out=self._outer))
        else:
            total.add_(torch.mm(left.T, right, out=self._outer))


def _chunk(hidden: Tensor, weight: Tensor, targets: Tensor, scale: float, buffers: _Buffers) -> tuple[Tensor, Tensor]:
    """The summed loss of one chunk and scale times its gradient at the logits, with one exponential a logit."""
    logits = buffers.logits(hidden, weight)
    largest = logits.amax(dim=1, keepdim=True)
    of_target = logits.gather(1, targets.unsqueeze(1))
    exponentials = logits.sub_(largest).exp_()
    total = exponentials.sum(dim=1, keepdim=True)
    loss = (total.log() + largest - of_target).sum()
    gradient = exponentials.mul_(scale / total)
    gradient[torch.arange(len(targets), device=targets.device), targets] -= scale
    return loss, buffers.for_products(gradient)
