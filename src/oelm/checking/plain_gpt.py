"""The GPT that ours is timed beside: ordinary parts of torch, compiled as a whole, nothing frozen, nothing clever.

It has the sizes, the batch, the optimizer and the precision of ours, and computes the same function; what it takes is
what anybody would get who wrote a GPT in an afternoon. B batch, T time, D model width.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn
from torch.nn import functional

from oelm.config import GptRun, ResolvedModel
from oelm.training.device import Machine
from oelm.training.micro_batch import micro_batches


class _Block(nn.Module):
    def __init__(self, model: ResolvedModel) -> None:
        super().__init__()
        width = model.d_model
        self.heads = model.num_heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.mixed = nn.Linear(width, width, bias=False)
        self.fed = nn.Sequential(
            nn.Linear(width, model.d_ff), nn.GELU(approximate="tanh"), nn.Linear(model.d_ff, width)
        )

    def forward(self, x_BTD: Tensor) -> Tensor:
        parts = self.query_key_value(self.norms[0](x_BTD)).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x_BTD = x_BTD + self.mixed(seen.transpose(1, 2).flatten(2))
        fed_BTD: Tensor = self.fed(self.norms[1](x_BTD))
        return x_BTD + fed_BTD


class PlainGPT(nn.Module):
    """Tokens and targets in, mean loss out."""

    def __init__(self, model: ResolvedModel) -> None:
        super().__init__()
        self.tokens = nn.Embedding(model.vocabulary, model.d_model)
        self.positions = nn.Embedding(model.seq_len, model.d_model)
        self.blocks = nn.Sequential(*(_Block(model) for _ in range(model.num_layers)))
        self.norm = nn.LayerNorm(model.d_model)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        places = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        hidden_BTD = self.norm(self.blocks(self.tokens(tokens_BT) + self.positions(places)))
        logits_BTV = functional.linear(hidden_BTD, self.tokens.weight)
        return functional.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten())


class PlainSteps:
    """It and its optimizer, taking steps over micro-batches of the same size as ours."""

    def __init__(self, run: GptRun, machine: Machine, *, compiled: bool) -> None:
        torch.manual_seed(0)
        self.machine, self.run = machine, run
        self.model = PlainGPT(run.model).to(machine.device, machine.dtype)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, weight_decay=0.1, fused=True)
        self.loss = torch.compile(self.model, dynamic=False) if compiled else self.model
        shape = (run.training.batch_size, run.model.seq_len + 1)
        self.tokens = torch.randint(0, run.model.vocabulary, shape, device=machine.device)

    def step(self) -> float:
        """Seconds of one step, the device synchronised before and after."""
        self.machine.synchronize()
        began, batch = time.perf_counter(), self.run.training.batch_size
        for members in micro_batches(range(batch), self.machine.micro_batch_size, self.machine.kind):
            part = self.tokens[members.start : members.stop]
            with self.machine.autocast():
                loss = self.loss(part[:, :-1], part[:, 1:]) * (len(part) / batch)
            loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.run.training.gradient_clip or float("inf"))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.machine.synchronize()
        return time.perf_counter() - began
