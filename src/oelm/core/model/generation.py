"""Sampling from a GPT, one token at a time, with a key/value cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from oelm.core.model.attention import KeyValueCache
from oelm.core.model.transformer import GPT


@dataclass(frozen=True)
class Sampling:
    temperature: float = 0.8  # 0: always the likeliest token
    top_k: int | None = 50
    seed: int = 0


@torch.no_grad()
def generated_tokens(gpt: GPT, prompt: list[int], sampling: Sampling, *, cached: bool = True) -> Iterator[int]:
    """Endless; the caller stops. Beyond seq_len the context starts again from its later half."""
    gpt.eval()
    device = gpt.token_embedding.weight.device
    generator = torch.Generator().manual_seed(sampling.seed)
    context = prompt[-gpt.config.seq_len :]
    caches, fresh = gpt.new_caches(), context
    while True:
        if cached:
            logits_V = _last_logits(gpt, torch.tensor([fresh], device=device), caches)
        else:
            logits_V = _last_logits(gpt, torch.tensor([context], device=device), None)
        token = _pick(logits_V, sampling, generator)
        yield token
        context, fresh = [*context, token], [token]
        if len(context) > gpt.config.seq_len:
            context = context[-max(1, gpt.config.seq_len // 2) :]
            caches, fresh = gpt.new_caches(), context


def _last_logits(gpt: GPT, tokens_BT: Tensor, caches: list[KeyValueCache] | None) -> Tensor:
    return gpt.logits(gpt(tokens_BT, caches)[:, -1])[0].double().cpu()


def _pick(logits_V: Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    if sampling.temperature == 0:
        return int(logits_V.argmax())
    scaled_V = (logits_V - logits_V.max()) / sampling.temperature  # no overflow, however cold
    if sampling.top_k is not None and sampling.top_k < len(scaled_V):
        lowest = scaled_V.topk(sampling.top_k).values[-1]
        scaled_V = scaled_V.masked_fill(scaled_V < lowest, -torch.inf)
    return int(torch.multinomial(scaled_V.softmax(0), 1, generator=generator))
