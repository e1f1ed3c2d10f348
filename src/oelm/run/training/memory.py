"""Whether a run fits into memory, found before anything is allocated: weights, gradients, moments, activations.

An estimate from below, so that nothing is refused that would have run; what still runs out is named when it does.
"""

from __future__ import annotations

import os
from dataclasses import replace

import torch

from oelm.core.accounting import BYTES_PER_WEIGHT, activation_bytes, totals
from oelm.core.config import ResolvedRun
from oelm.machine.errors import UserError
from oelm.machine.exhaustion import limit_of, size
from oelm.machine.system import mapped_bytes, memory_bytes
from oelm.run.training.device import Machine

KEPT_BY_COMPILED_CODE = 0.5  # of the activations, at least; the rest is computed again


def needed_bytes(run: ResolvedRun, machine: Machine) -> dict[str, int]:
    """Of one process, by what it is for."""
    counts, wider = totals(run.model), machine.dtype.itemsize / BYTES_PER_WEIGHT
    kept = KEPT_BY_COMPILED_CODE if machine.compile else 1.0
    if machine.precision == "bfloat16":
        kept /= 2
    activations = activation_bytes(run.model, examples=machine.micro_batch_size)
    parts = {
        "weights": counts.weight_bytes,
        "gradients": counts.gradient_bytes,
        "moments": counts.optimizer_bytes,
        "activations": activations * kept,
    }
    return {name: round(count * wider) for name, count in parts.items()}


def refuse_what_does_not_fit(run: ResolvedRun, machine: Machine) -> None:
    """On a GPU with a single sequence at a time: where there is no room for more, fewer are taken (run.py)."""
    parts = needed_bytes(run, replace(machine, micro_batch_size=1) if machine.kind == "cuda" else machine)
    needed = sum(parts.values())
    for available, whose in _limits(machine):
        if needed > available:
            named = ", ".join(f"{name} {size(count)}" for name, count in parts.items())
            raise UserError(
                f"memory: this run needs at least {size(needed)} in each process ({named}), and {whose}; "
                "lower micro_batch_size, seq_len, d_model, num_layers or vocabulary"
            )


def _limits(machine: Machine) -> list[tuple[float, str]]:
    """What one process may have, and of what it is a part."""
    if machine.kind == "cuda":
        memory = torch.cuda.get_device_properties(machine.device).total_memory
        return [(memory, f"the GPU has {size(memory)}")]
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    total = memory_bytes()
    shared = f" for {processes} of them" if processes > 1 else ""
    limits = [] if total is None else [(total / processes, f"this machine has {size(total)}{shared}")]
    allowed = limit_of("AS")
    if allowed is not None:
        left = max(0, allowed - mapped_bytes())
        limits.append((left, f"of the {size(allowed)} that the shell allows (ulimit -v) {size(left)} are left"))
    return limits


def memory_line(run: ResolvedRun, machine: Machine) -> str:
    """The same for people."""
    parts = needed_bytes(run, machine)
    listed = ", ".join(f"{name} {size(count)}" for name, count in parts.items() if count)
    return f"memory: at least {size(sum(parts.values()))} ({listed})"
