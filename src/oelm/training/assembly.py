"""Config to parts: the model with its starting values, its optimizer, and when each weight moves."""

from __future__ import annotations

import torch

from oelm.config import Run
from oelm.model.initialization import build
from oelm.model.parameters import rules
from oelm.model.transformer import GPT
from oelm.training.device import Machine
from oelm.training.freezing import Schedule
from oelm.training.optimizer import build_optimizer


def assembled(run: Run, machine: Machine) -> tuple[GPT, torch.optim.AdamW, Schedule]:
    """The model with its starting values on its device, its optimizer, and when each weight moves."""
    gpt = build(run.model, run.seeds).to(machine.device, machine.dtype)
    # The output layer's gradient is dense; the embedding's part of it is then added row by row, in place.
    gpt.token_embedding.sparse = machine.kind == "cpu"
    if machine.compile:
        compile_blocks(gpt)
    schedule = Schedule(rules(gpt), steps=run.training.steps, num_layers=run.model.num_layers)
    return gpt, build_optimizer(gpt, run.training), schedule


def compile_blocks(gpt: GPT) -> None:
    """Compile one block's code for all layers. Every state of requires_grad and every shape has its own graph, so
    falling back to eager when there are too many must be an error, not a silent change of the arithmetic."""
    torch._dynamo.config.recompile_limit = 64
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    for block in gpt.blocks:
        block.compile(dynamic=False)
