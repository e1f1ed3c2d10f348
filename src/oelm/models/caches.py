"""A cache of transformers as our layers need it: keys and values, and the steps that repairs look back to."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from oelm.models.library import transformers


class CacheOfLayer:
    """One layer of a Hugging Face cache; what repairs look back to is kept in further layers of it, after the model's,
    so that reordering, cropping and repeating a cache reach it too."""

    def __init__(self, cache: Any, layer: int, further: Iterator[int]) -> None:
        self.cache, self.layer, self.further = cache, layer, further

    def extended(self, key_BHTK: Tensor, value_BHTK: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = self.cache.update(key_BHTK, value_BHTK, self.layer)
        return keys, values

    def preceded(self, name: str, values: Tensor, count: int) -> Tensor:
        """Every pass asks for the same names in the same order, so a number is enough to find a layer again."""
        heads = values if values.dim() == 4 else values.unsqueeze(1)
        layer = next(self.further)
        while len(self.cache.layers) <= layer:
            self.cache.layers.append(_one_more_like(self.cache.layers[0]))
        wanted = torch.arange(-count, heads.shape[2], device=heads.device) + self.cache.layers[layer].get_seq_length()
        kept, _ = self.cache.update(heads, heads[..., :0], layer)
        known: Tensor = kept.index_select(2, wanted.clamp(min=0)) * (wanted >= 0)[:, None]
        return known if values.dim() == 4 else known.squeeze(1)


def caches_of_layers(cache: Any, num_layers: int) -> list[CacheOfLayer]:
    if not cache.layers:
        cache.layers.extend(transformers.cache_utils.DynamicLayer() for _ in range(num_layers))
    further = itertools.count(num_layers)
    return [CacheOfLayer(cache, layer, further) for layer in range(num_layers)]


def _one_more_like(layer: Any) -> Any:
    if isinstance(layer, transformers.cache_utils.StaticLayer):
        return transformers.cache_utils.StaticLayer(max_cache_len=layer.max_cache_len)
    return transformers.cache_utils.DynamicLayer()
