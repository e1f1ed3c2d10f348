"""What several processes say to each other, started by torchrun: what that costs a step."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from oelm.execution.checking.outcomes import compiled_on_a_gpu
from oelm.execution.checking.steps import asked
from oelm.execution.timing.workload import TimedArm
from oelm.run.training.distributed import World, joined, world_from_environment

WARMUP_STEPS, STEPS = 3, 8


def efficiency(request: dict[str, Any]) -> dict[str, Any]:
    """Steps by turns: each process alone with its part of the batch, then all together, who share their gradients."""
    world = world_from_environment()
    batch = request["settings"]["training"]["batch_size"]
    alone, together = dict(request["settings"]), dict(request["settings"])
    together["training"] = together["training"] | {"batch_size": batch * world.size}
    compiled = {"compile": compiled_on_a_gpu(request["kind"])}
    _, machine, _ = asked(request, world=world)
    with joined(world, device=machine.device) as world:
        one = _stepper(request | {"settings": alone}, World(local_rank=world.local_rank), compiled)
        all_of_them = _stepper(request | {"settings": together}, world, compiled)
        for _ in range(WARMUP_STEPS):
            one()
            all_of_them()
        times: dict[str, list[float]] = {"alone": [], "together": []}
        for _ in range(STEPS):
            world.barrier()
            times["alone"].append(one())
            world.barrier()
            times["together"].append(all_of_them())
        slowest = [_slowest(world, median(each)) for each in times.values()]
    return {
        "efficiency": slowest[0] / slowest[1],
        "alone_seconds": slowest[0],
        "together_seconds": slowest[1],
        "processes": world.size,
    }


def _stepper(request: dict[str, Any], world: World, execution: dict[str, str]) -> Callable[[], float]:
    run, machine, workload = asked(request, world=world, **execution)
    return TimedArm(run, machine, workload, world=world).step


def _slowest(world: World, seconds: float) -> float:
    """What the slowest process took: all wait for it."""
    mine = torch.zeros(world.size, dtype=torch.float64)
    mine[world.rank] = seconds
    return float(world.sum(mine).max())
