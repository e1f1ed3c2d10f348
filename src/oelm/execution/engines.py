"""The engines that there are, one row each. Light, because `oelm run --help` reads it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oelm.machine.errors import UserError

if TYPE_CHECKING:
    from oelm.execution.engine import Engine


@dataclass(frozen=True)
class EngineRow:
    """What the command line shows of an engine, and where its class is."""

    source: str  # module:class
    title: str  # what messages call it
    wishes: str | None = None  # the help of its own option --NAME KEY=VALUE; None: it has none
    example: str | None = None  # of that option


ENGINES = {
    "local": EngineRow("oelm.execution.local:LocalEngine", "this machine"),
    "slurm": EngineRow(
        "oelm.execution.slurm:SlurmEngine",
        "Slurm",
        wishes="Resources to request: partition, time, gpus, account, cpus, memory, constraint, nodes, save_seconds, "
        "restarts, options; repeatable. The section `slurm` of the study takes the same keys.",
        example="--slurm partition=gpu --slurm time=8:00:00 --slurm gpus=1",
    ),
}
DEFAULT = "local"  # also of runs that were started by hand


def engine_named(name: str, folder: Path) -> Engine:
    """A fresh one for a study's folder."""
    if name not in ENGINES:
        raise UserError(f"--on {name}: no such engine; known engines: {', '.join(ENGINES)}")
    module, _, kind = ENGINES[name].source.partition(":")
    engine: Engine = getattr(importlib.import_module(module), kind)(folder)
    return engine
