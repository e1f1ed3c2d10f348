"""The originals' classes, under their names and arguments, as thin layers over our parts.

They take no seed, so they draw from torch's global generator. `OrthogonalLinear` keeps a frozen weight in a buffer, as
the originals do: the state-dict keys are those of the trained twin, and no optimizer can hold it, but whoever counts
`parameters()` misses it; that is how a model with frozen weights came to be reported as "0 frozen". `oelm.diagnose`
counts both kinds and says so. The GPT of this package keeps frozen weights as parameters instead (ARCHITECTURE.md).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from oelm.core.config import Model, resolved_model
from oelm.core.model.attention import causal_attention
from oelm.core.model.transformer import NORM_EPSILON, FeedForward
from oelm.core.starts import nearest_orthonormal, orthonormal_rows
from oelm.machine.errors import UserError

# Of a normal draw, both are equally distributed.
ORTHO_METHODS: dict[str, Callable[[Tensor], Tensor]] = {"qr": orthonormal_rows, "svd": nearest_orthonormal}


class OrthogonalLinear(nn.Module):
    """A linear layer whose weight starts orthogonal: orthonormal rows, or columns where there are more rows."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = False,
        ortho_method: str = "qr",
        freeze: bool = True,
    ) -> None:
        super().__init__()
        if ortho_method not in ORTHO_METHODS:
            raise UserError(f"ortho_method: {ortho_method!r} is not one of {', '.join(ORTHO_METHODS)}")
        self.in_features, self.out_features, self.freeze = in_features, out_features, freeze
        weight = ORTHO_METHODS[ortho_method](torch.randn(out_features, in_features))
        if freeze:
            self.register_buffer("weight", weight)
        else:
            self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}, freeze={self.freeze}"


class OrthogonalMultiHeadAttention(nn.Module):
    """The first method: queries and keys orthogonal over the whole matrix."""

    def __init__(
        self, d_model: int, num_heads: int, dropout: float = 0.1, ortho_method: str = "qr", freeze_qk: bool = True
    ) -> None:
        super().__init__()
        _check_heads(d_model, num_heads)
        self.num_heads, self.dropout = num_heads, dropout
        self.W_q = OrthogonalLinear(d_model, d_model, ortho_method=ortho_method, freeze=freeze_qk)
        self.W_k = OrthogonalLinear(d_model, d_model, ortho_method=ortho_method, freeze=freeze_qk)
        self.W_v = nn.Linear(d_model, d_model, bias=False)
        self.W_o = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        mixed_BTD = _attended(self.W_q(x_BTD), self.W_k(x_BTD), self.W_v(x_BTD), self.num_heads, dropout=dropout)
        output_BTD: Tensor = self.W_o(mixed_BTD)
        return output_BTD


class OELMMultiHeadAttention(nn.Module):
    """The second method: the rows of every head of queries and keys orthonormal by themselves, and frozen."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        _check_heads(d_model, num_heads)
        self.d_model, self.num_heads = d_model, num_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)
        for projection in (self.q_proj, self.k_proj):
            heads = torch.randn(d_model, d_model).chunk(num_heads)
            projection.weight.requires_grad_(False).copy_(torch.cat([orthonormal_rows(head) for head in heads]))

    def forward(self, x_BTD: Tensor) -> Tensor:
        mixed_BTD = _attended(self.q_proj(x_BTD), self.k_proj(x_BTD), self.v_proj(x_BTD), self.num_heads, dropout=0.0)
        output_BTD: Tensor = self.o_proj(mixed_BTD)
        return output_BTD


class OELMTransformerBlock(nn.Module):
    """A pre-norm block around OrthogonalMultiHeadAttention."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        dropout: float = 0.1,
        ortho_method: str = "qr",
        freeze_qk: bool = True,
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(d_model, eps=NORM_EPSILON)
        self.attention = OrthogonalMultiHeadAttention(
            d_model, num_heads, dropout=dropout, ortho_method=ortho_method, freeze_qk=freeze_qk
        )
        self.feed_forward_norm = nn.LayerNorm(d_model, eps=NORM_EPSILON)
        self.feed_forward = FeedForward(
            resolved_model(Model(vocabulary=1, d_model=d_model, num_heads=num_heads, d_ff=d_ff))
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BTD: Tensor) -> Tensor:
        x_BTD = x_BTD + self.dropout(self.attention(self.attention_norm(x_BTD)))
        fed_BTD: Tensor = self.dropout(self.feed_forward(self.feed_forward_norm(x_BTD)))
        return x_BTD + fed_BTD


def _check_heads(d_model: int, num_heads: int) -> None:
    if d_model % num_heads:
        raise UserError(f"d_model {d_model} is not divisible by num_heads {num_heads}")


def _attended(q_BTD: Tensor, k_BTD: Tensor, v_BTD: Tensor, num_heads: int, *, dropout: float) -> Tensor:
    """B batch, T time, H heads, K width of a head, D model width."""
    q_BHTK, k_BHTK, v_BHTK = (
        projected.unflatten(2, (num_heads, -1)).transpose(1, 2) for projected in (q_BTD, k_BTD, v_BTD)
    )
    return causal_attention(q_BHTK, k_BHTK, v_BHTK, dropout=dropout).transpose(1, 2).flatten(2)
