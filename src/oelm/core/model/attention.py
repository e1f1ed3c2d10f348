"""Causal self-attention with a key/value cache.

B batch, T time, H heads, K width of a head, D model width, S time seen so far (cache included).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from oelm.core.config import ResolvedModel
from oelm.core.model.projection import projection
from oelm.core.model.repairs import Cache, Repairable, convolved, shifted
from oelm.core.model.scores import Places, normalised, rotated
from oelm.core.options import ATTENTION
from oelm.core.parts import ROLES
from oelm.core.scores import TOKENS

BLOCK = 128  # queries that share one slice of keys in block-causal attention


class KeyValueCache:
    """Keys and values of one layer for the positions seen so far, and the last steps of what repairs look back to."""

    def __init__(self) -> None:
        self.key_BHSK: Tensor | None = None
        self.value_BHSK: Tensor | None = None
        self.last_steps: dict[str, Tensor] = {}

    @property
    def length(self) -> int:
        return 0 if self.key_BHSK is None else self.key_BHSK.shape[2]

    def extended(self, key_BHTK: Tensor, value_BHTK: Tensor) -> tuple[Tensor, Tensor]:
        if self.key_BHSK is None or self.value_BHSK is None:
            self.key_BHSK, self.value_BHSK = key_BHTK, value_BHTK
        else:
            self.key_BHSK = torch.cat([self.key_BHSK, key_BHTK], dim=2)
            self.value_BHSK = torch.cat([self.value_BHSK, value_BHTK], dim=2)
        return self.key_BHSK, self.value_BHSK

    def preceded(self, name: str, values: Tensor, count: int) -> Tensor:
        before = self.last_steps.get(name)
        known = functional.pad(values, (0, 0, count, 0)) if before is None else torch.cat([before, values], dim=-2)
        self.last_steps[name] = known[..., -count:, :]
        return known


NOWHERE = Places()


class CausalSelfAttention(Repairable):
    query: nn.Module
    key: nn.Module
    value: nn.Module
    output: nn.Module

    def __init__(self, model: ResolvedModel, *, layer: int) -> None:
        super().__init__(ATTENTION, model)
        self.num_heads, self.dropout = model.num_heads, model.dropout
        self.source, self.query_key_width = model.scores.source, model.scores.query_key_width
        for role in ("query", "key", "value", "output"):
            if ROLES[role].exists(model):
                self.add_module(role, projection(model, role, layer))

    def forward(
        self,
        x_BTD: Tensor,
        cache: Cache | None = None,
        visible: Tensor | None = None,
        places: Places = NOWHERE,
        weights: list[Tensor] | None = None,
    ) -> Tensor:
        """`visible` says which of S positions each of T sees, or what is added to its scores; without it each sees all
        up to itself. With `weights`, attention is computed in plain products, and its weights (B H T S) are added to
        the list.
        """
        convolution_WD = self.weight_added("convolution")
        if convolution_WD is not None:
            x_BTD = convolved(x_BTD, convolution_WD, cache, places)
        if self.source == TOKENS:
            q_BHTK, k_BHTK, v_BHTK = (self._heads(part, x_BTD, cache, places) for part in ("query", "key", "value"))
        else:
            v_BHTK = self._heads("value", x_BTD, cache, places)
            q_BHTK, k_BHTK = self._of_no_token(v_BHTK, places)
        temperature_H = self.weight_added("temperature")
        if temperature_H is not None:
            q_BHTK = (q_BHTK * temperature_H[:, None, None]).to(q_BHTK.dtype)
        dropout = self.dropout if self.training else 0.0
        k_BHSK, v_BHSK = (k_BHTK, v_BHTK) if cache is None else cache.extended(k_BHTK, v_BHTK)
        if weights is not None:
            mixed_BHTK = plain_attention(q_BHTK, k_BHSK, v_BHSK, visible, dropout=dropout, weights=weights)
        elif visible is None and k_BHSK.shape[2] == q_BHTK.shape[2]:
            mixed_BHTK = causal_attention(q_BHTK, k_BHSK, v_BHSK, dropout=dropout)
        else:
            mixed_BHTK = masked_attention(q_BHTK, k_BHSK, v_BHSK, visible, dropout=dropout)
        return self.projected("output", mixed_BHTK.transpose(1, 2).flatten(2))

    def _heads(self, part: str, x_BTD: Tensor, cache: Cache | None, places: Places) -> Tensor:
        """The queries, keys or values of every head: projected, shifted, normalised, rotated."""
        heads_BHTK = self.projected(part, x_BTD).unflatten(2, (self.num_heads, -1)).transpose(1, 2)
        share = self.weight_added(f"{part}_shift")
        if share is not None:
            heads_BHTK = shifted(heads_BHTK, share, part, cache, places)
        gain_K = self.weight_added(f"{part}_norm_gain")
        if gain_K is not None:
            heads_BHTK = normalised(heads_BHTK, gain_K)
        return heads_BHTK if places.rotation is None or part == "value" else rotated(heads_BHTK, places.rotation)

    def _of_no_token(self, v_BHTK: Tensor, places: Places) -> tuple[Tensor, Tensor]:
        """Queries and keys that are the same for every token, in number and kind those of these values.

        A rotated query of ones meets a rotated key: for each pair of channels a cosine and a sine of the distance,
        weighted by the key. Without a source all keys are zero, and so is every score.
        """
        sizes = (*v_BHTK.shape[:3], self.query_key_width)
        key_HK = self.weight_added("distance_key")
        if key_HK is None:
            nothing = v_BHTK.new_zeros(sizes)
            return nothing, nothing
        assert places.rotation is not None
        keys = key_HK.to(v_BHTK.dtype)[None, :, None].expand(sizes)
        return rotated(v_BHTK.new_ones(sizes), places.rotation), rotated(keys, places.rotation)


def causal_attention(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor, *, dropout: float) -> Tensor:
    """The fastest kernel there is: PyTorch's fused one, except in bfloat16 on a CPU, where plain products win."""
    if q_BHTK.device.type == "cpu" and q_BHTK.dtype == torch.bfloat16:
        return block_causal_attention(q_BHTK, k_BHTK, v_BHTK, dropout=dropout)
    return _fused(q_BHTK, k_BHTK, v_BHTK, None, dropout=dropout)


def block_causal_attention(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor, *, dropout: float) -> Tensor:
    """Each block of queries meets only the keys up to its end: half of the products of a masked square."""
    time, scale = q_BHTK.shape[2], 1 / math.sqrt(q_BHTK.shape[3])
    blocks = []
    for start in range(0, time, BLOCK):
        end = min(start + BLOCK, time)
        scores = (q_BHTK[:, :, start:end] * scale) @ k_BHTK[:, :, :end].transpose(2, 3)
        future = torch.ones(end - start, end, dtype=torch.bool, device=scores.device).triu(start + 1)
        weights = scores.float().masked_fill(future, -math.inf).softmax(-1).to(scores.dtype)
        blocks.append(functional.dropout(weights, dropout) @ v_BHTK[:, :, :end])
    return torch.cat(blocks, dim=2)


def masked_attention(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, visible: Tensor | None, *, dropout: float
) -> Tensor:
    """The last T of S positions ask; without a mask each sees everything up to itself."""
    if visible is None:
        visible = _up_to_itself(q_BHTK, k_BHSK)
    return _fused(q_BHTK, k_BHSK, v_BHSK, visible, dropout=dropout)


def plain_attention(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    visible: Tensor | None,
    *,
    dropout: float,
    weights: list[Tensor],
) -> Tensor:
    """The same, step by step; what each position gives to each other is added to `weights`."""
    scores_BHTS = (q_BHTK * (1 / math.sqrt(q_BHTK.shape[3]))) @ k_BHSK.transpose(2, 3)
    if visible is None:
        visible = _up_to_itself(q_BHTK, k_BHSK)
    if visible.dtype == torch.bool:
        scores_BHTS = scores_BHTS.masked_fill(~visible, torch.finfo(scores_BHTS.dtype).min)
    else:
        scores_BHTS = scores_BHTS + visible
    weights_BHTS = scores_BHTS.softmax(-1, dtype=torch.promote_types(scores_BHTS.dtype, torch.float32))
    weights_BHTS = functional.dropout(weights_BHTS.to(v_BHSK.dtype), dropout)
    weights.append(weights_BHTS)
    return weights_BHTS @ v_BHSK


def _up_to_itself(q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
    asking, seen = q_BHTK.shape[2], k_BHSK.shape[2]
    return torch.ones(asking, seen, dtype=torch.bool, device=q_BHTK.device).tril(seen - asking)


def _fused(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, visible: Tensor | None, *, dropout: float) -> Tensor:
    """PyTorch's kernel, causal where nothing says what is visible. Zeros fill up what it would not take as it is."""
    mask = visible if visible is None or visible.dtype == torch.bool else visible.to(q_BHTK.dtype)
    width, value_width = q_BHTK.shape[3], v_BHSK.shape[3]
    wider, wider_values, scale = width, value_width, None
    if width != value_width and q_BHTK.device.type == "cpu":  # where both must be equally wide
        wider = wider_values = max(width, value_width)
    elif width != value_width and q_BHTK.device.type == "cuda":  # a multiple of eight, or it would keep every weight
        wider = -(-width // 8) * 8
    if (wider, wider_values) != (width, value_width):
        scale = 1 / math.sqrt(width)
        q_BHTK, k_BHSK = (functional.pad(each, (0, wider - width)) for each in (q_BHTK, k_BHSK))
        v_BHSK = functional.pad(v_BHSK, (0, wider_values - value_width))
    mixed_BHTK = functional.scaled_dot_product_attention(
        q_BHTK, k_BHSK, v_BHSK, attn_mask=mask, is_causal=mask is None, dropout_p=dropout, scale=scale
    )
    return mixed_BHTK if wider_values == value_width else mixed_BHTK[..., :value_width]
