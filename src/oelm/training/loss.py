"""Output layer and cross-entropy together, in chunks of positions, never holding all logits.

N positions, D model width, V vocabulary. The gradients are made in the forward pass, while a chunk's logits are
at hand; the weight's gradient is accumulated in place over the chunks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

CHUNK_BYTES = 64 * 2**20  # of float32 logits; larger chunks gain nothing once a product fills the caches


def chunk_rows(vocabulary: int) -> int:
    return max(64, CHUNK_BYTES // (4 * vocabulary) // 64 * 64)


def summed_cross_entropy(hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, *, scale: float = 1.0) -> Tensor:
    """scale times the sum of -log p(target). Pass 1 / (all positions of the global batch) as scale."""
    return _LinearCrossEntropy.apply(hidden_ND, weight_VD, targets_N, scale)


@torch.no_grad()
def position_losses(hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor) -> Tensor:
    """-log p(target) of every position, for validation."""
    rows = chunk_rows(weight_VD.shape[0])
    weight = weight_VD.to(_product_dtype(hidden_ND))
    losses = [
        functional.cross_entropy((h.to(weight.dtype) @ weight.T).to(_sum_dtype(h)), t, reduction="none")
        for h, t in zip(hidden_ND.split(rows), targets_N.split(rows), strict=True)
    ]
    return torch.cat(losses)


def _product_dtype(tensor: Tensor) -> torch.dtype:
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else tensor.dtype


def _sum_dtype(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, scale: float) -> Tensor:
        product_dtype, sum_dtype = _product_dtype(hidden_ND), _sum_dtype(hidden_ND)
        with torch.autocast(hidden_ND.device.type, enabled=False):
            hidden, weight = hidden_ND.to(product_dtype), weight_VD.to(product_dtype)
            rows = chunk_rows(weight.shape[0])
            loss = torch.zeros((), dtype=sum_dtype, device=hidden.device)
            hidden_gradient = torch.empty_like(hidden_ND)
            weight_gradient = torch.zeros_like(weight_VD) if ctx.needs_input_grad[1] else None
            for start in range(0, hidden.shape[0], rows):
                part = slice(start, start + rows)
                losses, logits_gradient = _chunk(hidden[part], weight, targets_N[part], scale, sum_dtype)
                loss += losses
                logits_gradient = logits_gradient.to(product_dtype)
                hidden_gradient[part] = logits_gradient @ weight
                if weight_gradient is not None:
                    _add_product(weight_gradient, logits_gradient, hidden[part])
        ctx.gradients = hidden_gradient, weight_gradient
        return loss * scale

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        hidden_gradient, weight_gradient = ctx.gradients
        # Nothing else may hold the gradients: then autograd adds the embedding's part into this tensor in place.
        ctx.gradients = None
        if outer.device.type != "cpu" or outer.item() != 1:
            hidden_gradient = hidden_gradient.mul_(outer)
            weight_gradient = None if weight_gradient is None else weight_gradient.mul_(outer)
        return hidden_gradient, weight_gradient, None, None


def _chunk(
    hidden: Tensor, weight: Tensor, targets: Tensor, scale: float, sum_dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The summed loss of one chunk and scale times its gradient at the logits."""
    logits = (hidden @ weight.T).to(sum_dtype)
    normalizer = logits.logsumexp(-1)
    index = targets.unsqueeze(1)
    loss = (normalizer - logits.gather(1, index).squeeze(1)).sum()
    gradient = logits.sub_(normalizer.unsqueeze(1)).exp_().mul_(scale)
    gradient.scatter_add_(1, index, torch.full_like(index, -scale, dtype=gradient.dtype))
    return loss, gradient


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left^T right."""
    if left.dtype == total.dtype:
        total.addmm_(left.T, right)
    else:
        total.add_(left.T @ right)
