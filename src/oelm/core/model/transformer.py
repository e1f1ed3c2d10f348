"""The GPT under study: pre-norm blocks, and an output layer that is the token embedding, or one of its own.

The forward pass ends with the normalised hidden states: the loss applies the output layer in chunks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from oelm.core.config import ResolvedModel
from oelm.core.model.attention import NOWHERE, CausalSelfAttention, KeyValueCache
from oelm.core.model.parameters import mark
from oelm.core.model.projection import SplitLinear
from oelm.core.model.repairs import Cache, Repairable
from oelm.core.model.scores import Places, rotation_of
from oelm.core.moves import Always
from oelm.core.options import FEED_FORWARD
from oelm.core.parts import ROLES, Role

NORM_EPSILON = 1e-5


class FeedForward(Repairable):
    def __init__(self, model: ResolvedModel) -> None:
        super().__init__(FEED_FORWARD, model)
        self.up = nn.Linear(model.d_model, model.d_ff)
        self.down = nn.Linear(model.d_ff, model.d_model)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.projected("down", functional.gelu(self.projected("up", x_BTD), approximate="tanh"))


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
        places: Places = NOWHERE,
        weights: list[Tensor] | None = None,
    ) -> Tensor:
        mixed_BTD = self.attention(self.attention_norm(x_BTD), cache, visible, places, weights)
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
        if model.positions == "learned":
            self.position_embedding = nn.Embedding(model.seq_len, model.d_model)
        if not model.tied:
            self.output_layer = nn.Linear(model.d_model, model.vocabulary, bias=False)
        self.blocks = nn.ModuleList(block(model, layer=layer) for layer in range(model.num_layers))
        self.final_norm = nn.LayerNorm(model.d_model, eps=NORM_EPSILON)
        # Say of every module that is moved as a whole when it moves; what is split knows it of its pieces.
        for role in (role for role in ROLES.values() if role.exists(model)):
            for path in role.outside:
                self._mark(self.get_submodule(path), role, None)
            for layer, each in enumerate(self.blocks):
                for path in role.in_blocks:
                    self._mark(each.get_submodule(path), role, layer)

    def _mark(self, module: nn.Module, role: Role, layer: int | None) -> None:
        part = self.config.part_at(role.name, layer)
        covered = part.covered_rows(1, heads=1)
        if covered and not isinstance(part.moves, Always) and not isinstance(module, SplitLinear):
            mark(module, part.moves)

    def forward(self, tokens_BT: Tensor, caches: Sequence[KeyValueCache] | None = None) -> Tensor:
        """Hidden states after the final norm; `logits` turns them into scores."""
        past = caches[0].length if caches else 0
        places_T = torch.arange(past, past + tokens_BT.shape[1], device=tokens_BT.device)
        return self.hidden(self.token_embedding(tokens_BT), places_T, caches)

    def hidden(
        self,
        embedded_BTD: Tensor,
        positions: Tensor,
        caches: Sequence[Cache] | None = None,
        *,
        visible: Tensor | None = None,
        real: Tensor | None = None,
        states: list[Tensor] | None = None,
        weights: list[Tensor] | None = None,
    ) -> Tensor:
        """The same from embedded tokens at these positions (T, or B by T), of which each sees what `visible` says.

        Positions of T are consecutive; where those of a batch are not, what has the position 0 has no predecessor. What
        is not `real` (B by T) is padding, and a predecessor of nothing. What enters each block, and what leaves the
        last, is added to `states`; the attention of each to `weights`.
        """
        model = self.config
        x_BTD = embedded_BTD
        if model.positions == "learned":
            x_BTD = x_BTD + self.position_embedding(positions)
        places = self._places(positions, real, x_BTD.dtype)
        x_BTD = functional.dropout(x_BTD, model.dropout, self.training)
        for layer, block in enumerate(self.blocks):
            if states is not None:
                states.append(x_BTD)
            x_BTD = block(x_BTD, caches[layer] if caches else None, visible, places, weights)
        hidden_BTD: Tensor = self.final_norm(x_BTD)
        if states is not None:
            states.append(hidden_BTD)
        return hidden_BTD

    def _places(self, positions: Tensor, real: Tensor | None, dtype: torch.dtype) -> Places:
        rotation = None
        if self.config.positions == "rotary" or self.config.scores.source == "distance":
            rotation = rotation_of(positions, self.config.scores.query_key_width, dtype)
        return Places(rotation, positions if positions.dim() == 2 else None, real)

    @property
    def output_weight(self) -> Tensor:
        """The matrix of the output layer, V by D."""
        return self.token_embedding.weight if self.config.tied else self.output_layer.weight

    def logits(self, hidden_BTD: Tensor) -> Tensor:
        return functional.linear(hidden_BTD, self.output_weight)

    def new_caches(self) -> list[KeyValueCache]:
        return [KeyValueCache() for _ in self.blocks]
