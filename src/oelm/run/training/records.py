"""What is written about a run: its progress in a checkpoint, its parameters, its result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from oelm.core.config import ResolvedRun, fingerprint
from oelm.core.model.parameters import combined_digest, counts_by_part, frozen_names, parameter_digests, summed
from oelm.machine import system
from oelm.run.training.device import Machine
from oelm.run.training.distributed import World
from oelm.run.training.objective import Objective


@dataclass
class Progress:
    """What a checkpoint remembers besides weights and moments."""

    step: int = 0
    training_seconds: float = 0.0
    validation_seconds: float = 0.0
    wall_seconds: float = 0.0
    compiling_steps: int = 0  # in which a graph was compiled: the first, after a resume, when weights thaw
    compiling_seconds: float = 0.0
    resumes: int = 0
    clipped_steps: int = 0
    loss_sum: float = 0.0  # since the last record
    loss_steps: int = 0
    clipped_since: int = 0
    last_train_loss: float | None = None
    last_val_loss: float | None = None
    best_val_loss: float | None = None
    best_step: int | None = None

    @property
    def mean_step_seconds(self) -> float:
        """Without the steps that compiled, unless there are no others."""
        steps = self.step - self.compiling_steps
        if steps <= 0:
            return self.training_seconds / self.step
        return (self.training_seconds - self.compiling_seconds) / steps


def parameters_record(objective: Objective, machine: Machine) -> dict[str, Any]:
    """Counted on the model itself, by role and layer."""
    model, counts = objective.model, counts_by_part(objective.model, objective.role_of)
    total, frozen, implied = summed(counts)
    bytes_per_weight = machine.dtype.itemsize
    digests = parameter_digests(model, frozen_names(model))
    return {
        "total": total,
        "trainable": total - frozen,
        "frozen": frozen,
        "implied": implied,
        "weight_bytes": sum(parameter.numel() * parameter.element_size() for parameter in model.parameters()),
        "gradient_bytes": (total - frozen) * bytes_per_weight,
        "optimizer_bytes": 2 * (total - frozen) * bytes_per_weight,
        "frozen_digest": combined_digest(digests) if digests else None,
        "parts": [
            {"role": role, "layer": layer, **part._asdict(), "trainable": part.total - part.frozen}
            for (role, layer), part in counts.items()
        ],
    }


def result_record(
    run: ResolvedRun,
    progress: Progress,
    *,
    machine: Machine,
    world: World,
    data_digest: str,
    tokens: int,
    val_loss: float,
    measures: dict[str, Any],
    wall_seconds: float,
    parameters: dict[str, Any],
) -> dict[str, Any]:
    """The final numbers; `measures` are the objective's own."""
    return {
        "arm": run.arm,
        "fingerprint": fingerprint(run, data_digest=data_digest),
        "seeds": run.seeds.model_dump(),
        "steps": progress.step,
        "tokens": tokens,
        "train_loss": progress.last_train_loss,
        "val_loss": val_loss,
        **measures,
        "best_val_loss": progress.best_val_loss,
        "best_step": progress.best_step,
        "validation_split": run.training.validation_split,
        "learning_rate": run.training.learning_rate,
        **{key: parameters[key] for key in ("total", "trainable", "frozen", "implied", "frozen_digest")},
        "clipped_fraction": progress.clipped_steps / progress.step,
        "training_seconds": progress.training_seconds,
        "validation_seconds": progress.validation_seconds,
        "wall_seconds": wall_seconds,
        "mean_step_seconds": progress.mean_step_seconds,
        "tokens_per_second": tokens / progress.training_seconds,
        "peak_memory_bytes": peak_memory_bytes(machine),
        "resumes": progress.resumes,
        "world_size": world.size,
        "device": machine.device,
        "precision": machine.precision,
        "compile": machine.compile,
    }


def finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None


def peak_memory_bytes(machine: Machine) -> int:
    """Of the device; on a CPU, of this process."""
    if machine.kind == "cuda":
        return torch.cuda.max_memory_allocated()
    return system.peak_memory_bytes()
