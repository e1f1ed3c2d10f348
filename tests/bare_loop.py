"""Runs of the bare loop on the tiny token folder, for the laws of training."""

from pathlib import Path
from typing import Any

import torch

from oelm.core.config import Run
from oelm.core.model.transformer import GPT
from oelm.data.tokens import open_tokens
from oelm.run.training.assembly import assembled
from oelm.run.training.device import resolve_machine
from oelm.run.training.distributed import World
from oelm.run.training.loop import optimization_steps
from small_runs import quiet_execution


def start(run: Run, folder: Path, *, loop: dict[str, Any] | None = None, **execution: object):
    """(model, optimizer, iterator over steps) of a fresh run; `loop`: further options of the loop."""
    machine, _ = resolve_machine(quiet_execution(**execution), run, local_rank=0, world_size=1)
    world = World()
    objective, optimizer, schedule = assembled(run, open_tokens(folder), machine=machine, world=world)
    steps = optimization_steps(
        objective, optimizer, run, schedule=schedule, machine=machine, world=world, **(loop or {})
    )
    return objective.model, optimizer, steps


def parameters(gpt: GPT) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in gpt.named_parameters()}


def moved(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}
