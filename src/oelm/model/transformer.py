"""The GPT under study: pre-norm blocks, learned positions, output layer tied to the token embedding.

The forward pass ends with the normalised hidden states: the loss applies the output layer in chunks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from oelm.config import ResolvedModel
from oelm.model.attention import Cache, CausalSelfAttention, KeyValueCache
from oelm.model.parameters import mark
from oelm.model.projection import FreezableLinear
from oelm.treatment.moves import Always
from oelm.treatment.parts import ROLES, Role

NORM_EPSILON = 1e-5


class FeedForward(nn.Module):
    def __init__(self, model: ResolvedModel) -> None:
        super().__init__()
        self.up = nn.Linear(model.d_model, model.d_ff)
        self.down = nn.Linear(model.d_ff, model.d_model)

    def forward(self, x_BTD: Tensor) -> Tensor:
        fed_BTD: Tensor = self.down(functional.gelu(self.up(x_BTD), approximate="tanh"))
        return fed_BTD


class Block(nn.Module):
    def __init__(self, model: ResolvedModel, *, layer: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(model.d_model, eps=NORM_EPSILON)
        self.attention = CausalSelfAttention(model, layer=layer)
        self.feed_forward_norm = nn.LayerNorm(model.d_model, eps=NORM_EPSILON)
        self.feed_forward = FeedForward(model)
        self.dropout = model.dropout

    def forward(
        self,
        x_BTD: Tensor,
        cache: Cache | None = None,
        visible: Tensor | None = None,
        weights: list[Tensor] | None = None,
    ) -> Tensor:
        mixed_BTD = self.attention(self.attention_norm(x_BTD), cache, visible, weights)
        x_BTD = x_BTD + functional.dropout(mixed_BTD, self.dropout, self.training)
        fed_BTD = self.feed_forward(self.feed_forward_norm(x_BTD))
        return x_BTD + functional.dropout(fed_BTD, self.dropout, self.training)


class GPT(nn.Module):
    """Built without values; `initialization.initialize` gives every weight its start.

    `block` may be a subclass that adds what a library wants of a layer.
    """

    def __init__(self, model: ResolvedModel, *, block: type[Block] = Block) -> None:
        super().__init__()
        self.config = model
        self.token_embedding = nn.Embedding(model.vocabulary, model.d_model)
        self.position_embedding = nn.Embedding(model.seq_len, model.d_model)
        self.blocks = nn.ModuleList(block(model, layer=layer) for layer in range(model.num_layers))
        self.final_norm = nn.LayerNorm(model.d_model, eps=NORM_EPSILON)
        self._mark_parts()

    def _mark_parts(self) -> None:
        """Say of every module that is moved as a whole when it moves; projections know it of their rows."""
        for role in ROLES.values():
            for path in role.outside:
                self._mark(self.get_submodule(path), role, None)
            for layer, block in enumerate(self.blocks):
                for path in role.in_blocks:
                    self._mark(block.get_submodule(path), role, layer)

    def _mark(self, module: nn.Module, role: Role, layer: int | None) -> None:
        part = self.config.part_at(role.name, layer)
        covered = part.covered_rows(1, heads=1, layer=layer, num_layers=self.config.num_layers)
        if covered and not isinstance(part.moves, Always) and not isinstance(module, FreezableLinear):
            mark(module, part.moves)

    def forward(self, tokens_BT: Tensor, caches: Sequence[KeyValueCache] | None = None) -> Tensor:
        """Hidden states after the final norm; `logits` turns them into scores."""
        past = caches[0].length if caches else 0
        positions_T = torch.arange(past, past + tokens_BT.shape[1], device=tokens_BT.device)
        return self.hidden(self.token_embedding(tokens_BT), positions_T, caches)

    def hidden(
        self,
        embedded_BTD: Tensor,
        positions: Tensor,
        caches: Sequence[Cache] | None = None,
        *,
        visible: Tensor | None = None,
        states: list[Tensor] | None = None,
        weights: list[Tensor] | None = None,
    ) -> Tensor:
        """The same from embedded tokens at these positions (T, or B by T), of which each sees what `visible` says.

        What enters each block, and what leaves the last, is added to `states`; the attention of each to `weights`.
        """
        x_BTD = embedded_BTD + self.position_embedding(positions)
        x_BTD = functional.dropout(x_BTD, self.config.dropout, self.training)
        for layer, block in enumerate(self.blocks):
            if states is not None:
                states.append(x_BTD)
            x_BTD = block(x_BTD, caches[layer] if caches else None, visible, weights)
        hidden_BTD: Tensor = self.final_norm(x_BTD)
        if states is not None:
            states.append(hidden_BTD)
        return hidden_BTD

    def logits(self, hidden_BTD: Tensor) -> Tensor:
        return functional.linear(hidden_BTD, self.token_embedding.weight)

    def new_caches(self) -> list[KeyValueCache]:
        return [KeyValueCache() for _ in self.blocks]
