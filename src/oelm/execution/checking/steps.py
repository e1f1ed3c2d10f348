"""Single steps, in a process of their own: every kind of arm, compiled code against eager code, memory at its peak."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch
from torch import Tensor

from oelm.core.arms import GPT_ARMS
from oelm.core.config import Encoder, GptRun, Run, Settings, resolved
from oelm.core.probes.probe import is_probe
from oelm.core.settings import settings_of
from oelm.execution.checking.outcomes import compiled_on_a_gpu
from oelm.execution.timing.workload import TimedArm, Workload, drawn_tokens, workload_of
from oelm.machine.errors import UserError
from oelm.machine.system import processor
from oelm.run.training.device import Machine, prepare_process, resolve_machine
from oelm.run.training.distributed import World, joined, world_from_environment
from oelm.run.training.loop import accumulate_gradients

SMALL = {"vocabulary": 512, "seq_len": 64, "d_model": 128, "num_layers": 2, "num_heads": 4}
# What no named arm has.
FURTHER: dict[str, dict[str, Any]] = {
    "rotary positions": {"model.positions": "rotary"},
    "no positions": {"model.positions": "none"},
    "an output layer of its own": {"model.tied": False},
    "scores from the distance": {"model.scores.source": "distance"},
    "scores from nothing": {"model.scores.source": "nothing"},
    "query-key norm": {"model.scores.query_key_norm": True},
    "nonlinear residual": {"model.repairs.residual.rank": 4, "model.repairs.residual.nonlinear": True},
    "dropout": {"model.dropout": 0.1},
    "a probe": {"data": "probe:recall?pairs=2,3,4&length=64&vocabulary=512"},
}


DRAWN_VOCABULARY = 1024  # of a run whose data would say


def asked(request: dict[str, Any], *, world: World | None = None, **execution: Any) -> tuple[GptRun, Machine, Workload]:
    """What a request's settings mean on this machine; `execution` goes above what they say."""
    return on_this_machine(settings_of(request["settings"], name="check"), request["kind"], world=world, **execution)


def on_this_machine(
    settings: Settings, kind: str, *, world: World | None = None, **execution: Any
) -> tuple[GptRun, Machine, Workload]:
    workload, place = _drawn(settings.run), world or World()
    run = resolved(settings.run, workload.facts)
    if not isinstance(run, GptRun):
        raise UserError("check: these settings are an encoder's, and only a GPT can be measured without its data")
    given = settings.execution.model_copy(update={"device": kind, **execution})
    machine, _ = resolve_machine(given, run, local_rank=place.local_rank, world_size=place.size)
    prepare_process(machine)
    return run, machine, workload


def _drawn(run: Run) -> Workload:
    """Random tokens, whatever data a run names; a probe makes its own."""
    if is_probe(run.data) or isinstance(run.model, Encoder):
        return workload_of(run)
    return drawn_tokens(run, vocabulary=run.model.vocabulary or DRAWN_VOCABULARY, seq_len=run.model.seq_len)


def device(request: dict[str, Any]) -> dict[str, Any]:
    """What torch says of itself and of the GPUs that it may see."""
    facts: dict[str, Any] = {"torch": torch.__version__, "python": platform.python_version(), "processor": processor()}
    if request["kind"] == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        properties = [torch.cuda.get_device_properties(number) for number in range(count)]
        facts["gpus"] = [each.name for each in properties]
        facts["memory_bytes"] = [each.total_memory for each in properties]
        facts["cuda"] = torch.version.cuda
    return facts


# ---- Every kind of arm ---------------------------------------------------------------------------------------------


def arms(request: dict[str, Any]) -> dict[str, Any]:
    """Each arm takes a real step, and computes another."""
    kinds, failed, not_finite = dict(_kinds()), dict[str, str](), []
    for name, settings in kinds.items():
        try:
            if not math.isfinite(_second_loss(settings, request["kind"])):
                not_finite.append(name)
        except RuntimeError as error:
            failed[name] = str(error).splitlines()[0]
    return {"arms": list(kinds), "failed": failed, "not_finite": not_finite}


def _second_loss(settings: Settings, kind: str) -> float:
    run, machine, workload = on_this_machine(settings, kind, compile="off")
    arm = TimedArm(run, machine, workload)
    arm.step()
    return accumulate_gradients(arm.objective, run, 2, machine=machine, world=World()).item()


def _kinds() -> Iterator[tuple[str, Settings]]:
    tree = {"model": SMALL, "training": {"batch_size": 4, "steps": 100}}
    for name in GPT_ARMS:
        yield name, settings_of(tree, name="check", arm=name)
    for name, values in FURTHER.items():
        yield name, settings_of(tree, name="check", arm="frozen_head_orthogonal", values=values)


# ---- Compiled against eager ----------------------------------------------------------------------------------------


def compiled(request: dict[str, Any]) -> dict[str, Any]:
    """Loss and every parameter's gradient at step 1, the same weights, with compiled blocks and without."""
    (eager, eager_gradients, _), (loss, gradients, precision) = (_loss_and_gradients(request, m) for m in ("off", "on"))
    apart = differences(eager_gradients, gradients)
    worst = max(apart, key=apart.__getitem__)
    return {"precision": precision, "loss": abs(loss / eager - 1), "gradient": apart[worst], "parameter": worst}


def _loss_and_gradients(request: dict[str, Any], mode: str) -> tuple[float, dict[str, Tensor], str]:
    run, machine, workload = asked(request, compile=mode)
    arm = TimedArm(run, machine, workload)
    loss = accumulate_gradients(arm.objective, run, 1, machine=machine, world=World()).item()
    named = {name: each.grad for name, each in arm.objective.model.named_parameters()}
    return loss, {name: each.to_dense() for name, each in named.items() if each is not None}, machine.precision


SMALLEST_NORM = 1e-30  # divides where a gradient is zero


def differences(expected: dict[str, Tensor], found: dict[str, Tensor]) -> dict[str, float]:
    """Of each parameter: the norm of the difference of two gradients, as a share of the norm of the first."""
    if expected.keys() != found.keys():
        raise UserError(f"only one of the two has a gradient of {', '.join(sorted(expected.keys() ^ found.keys()))}")
    norms = {name: float(each.double().norm()) for name, each in expected.items()}
    apart = {name: float((found[name].double() - each.double()).norm()) for name, each in expected.items()}
    strange = [name for name in expected if not math.isfinite(apart[name])]
    if strange:
        raise UserError(f"the gradient of {', '.join(strange)} is not finite")
    return {name: apart[name] / max(norms[name], SMALLEST_NORM) for name in expected}


# ---- Memory --------------------------------------------------------------------------------------------------------


def memory(request: dict[str, Any]) -> dict[str, Any]:
    """The peak of two steps on a GPU, and what it has."""
    run, machine, workload = asked(request)
    torch.cuda.reset_peak_memory_stats()
    arm = TimedArm(run, machine, workload)
    for _ in range(2):
        arm.step()
    return {
        "peak_bytes": torch.cuda.max_memory_allocated(),
        "total_bytes": torch.cuda.get_device_properties(machine.device).total_memory,
        "machine": str(machine),
    }


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
