"""`python -m oelm.execution.timing.probe SETTINGS.json`: real steps and a validation batch, then a line of JSON.

Run it through `probed` of execution/costs.py: in a process of its own, peak memory is the run's and torch stays out.
"""

from __future__ import annotations

import json
import sys
import time
from statistics import median
from typing import Any

from oelm.core.config import Settings, resolved
from oelm.core.settings import load_settings
from oelm.execution.timing.workload import TimedArm, workload_of
from oelm.machine.errors import UserError
from oelm.machine.exhaustion import what_ran_out
from oelm.run.training.checkpoint import stored_bytes
from oelm.run.training.device import Machine, prepare_process, resolve_machine
from oelm.run.training.memory import memory_line
from oelm.run.training.optimizer import optimizer_state
from oelm.run.training.records import peak_memory_bytes

WARMUP_STEPS = 2  # the first compiles and allocates, the second finds everything in place
LEAST_STEPS, MOST_STEPS, SECONDS = 3, 30, 5.0


def measurements(settings: Settings) -> dict[str, Any]:
    """What a run of these settings costs on this machine."""
    workload = workload_of(settings.run)
    run = resolved(settings.run, workload.facts)
    machine, _ = resolve_machine(settings.execution, run, local_rank=0, world_size=1)
    prepare_process(machine)
    one_batch = run.training.model_copy(update={"validation_sequences": machine.micro_batch_size})
    arm = TimedArm(run.model_copy(update={"training": one_batch}), machine, workload)
    warmup_seconds = sum(arm.step() for _ in range(WARMUP_STEPS))
    taken, model, began = list[float](), arm.objective.model, time.monotonic()
    while len(taken) < LEAST_STEPS or (len(taken) < MOST_STEPS and time.monotonic() - began < SECONDS):
        taken.append(arm.step())
    return {
        "seconds_per_step": median(taken),
        "steps_taken": len(taken),
        "warmup_seconds": warmup_seconds,
        "validation_seconds_per_sequence": _validation_seconds(arm, machine),
        "held_out": arm.objective.held_out,
        "peak_memory_bytes": peak_memory_bytes(machine),
        "checkpoint_bytes": stored_bytes(model.state_dict()) + stored_bytes(optimizer_state(arm.optimizer, model)),
        "memory": memory_line(run, machine),
        "data": workload.description,
        **machine.as_json(),
    }


def _validation_seconds(arm: TimedArm, machine: Machine) -> float:
    """Of one sequence, from the second of two equal batches."""
    began = time.perf_counter()
    for _ in range(2):
        machine.synchronize()
        began = time.perf_counter()
        arm.objective.validation()
    machine.synchronize()
    return (time.perf_counter() - began) / min(machine.micro_batch_size, arm.objective.held_out)


def main() -> None:
    try:
        found = measurements(load_settings(sys.argv[1]))
    except UserError as error:
        sys.exit(str(error))
    except Exception as error:
        line = what_ran_out(error)
        if line is None:
            raise
        sys.exit(line)
    print(json.dumps(found, allow_nan=False), flush=True)


if __name__ == "__main__":
    main()
