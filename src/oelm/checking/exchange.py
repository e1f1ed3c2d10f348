"""What several processes say to each other, started by torchrun: how fast sums are made, and what they cost a step."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from oelm.checking.contenders import asked
from oelm.checking.outcomes import compiled_on_a_gpu
from oelm.errors import UserError
from oelm.timing.workload import TimedArm
from oelm.training.distributed import World, joined, world_from_environment

MESSAGE_BYTES = {"cuda": 256 * 2**20, "cpu": 16 * 2**20}
WARMUP_ROUNDS, ROUNDS = 3, 10
WARMUP_STEPS, STEPS = 3, 8


class WrongSums(UserError):
    """Every process has sums of its own."""

    concerns_one_process = True


def bandwidth(request: dict[str, Any]) -> dict[str, Any]:
    """Gigabytes a second that each link carries while all processes add up a large tensor, whose sum is checked."""
    world, kind = world_from_environment(), request["kind"]
    _, machine, _ = asked(request, world=world)
    with joined(world, device=machine.device):
        ones = torch.ones(MESSAGE_BYTES[kind] // 4, device=machine.device)
        taken = []
        for number in range(WARMUP_ROUNDS + ROUNDS):
            ones.fill_(world.rank + 1)
            machine.synchronize()
            began = time.perf_counter()
            dist.all_reduce(ones)
            machine.synchronize()
            if number >= WARMUP_ROUNDS:
                taken.append(time.perf_counter() - began)
        expected = world.size * (world.size + 1) / 2
        wrong = int((ones != expected).sum())
        if wrong:
            raise WrongSums(f"rank {world.rank}: {wrong:,} of {ones.numel():,} sums are wrong")
        carried = 2 * (world.size - 1) / world.size * MESSAGE_BYTES[kind]  # by each link, in a ring
        return {
            "gigabytes_per_second": carried / median(taken) / 1e9,
            "processes": world.size,
            "backend": dist.get_backend(),
            "message_bytes": MESSAGE_BYTES[kind],
        }


def efficiency(request: dict[str, Any]) -> dict[str, Any]:
    """Steps by turns: each process alone with its part of the batch, then all together, who share their gradients."""
    world = world_from_environment()
    batch = request["settings"]["training"]["batch_size"]
    alone, together = dict(request["settings"]), dict(request["settings"])
    together["training"] = together["training"] | {"batch_size": batch * world.size}
    compiled = {"compile": compiled_on_a_gpu(request["kind"])}
    _, machine, _ = asked(request, world=world)
    with joined(world, device=machine.device):
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
