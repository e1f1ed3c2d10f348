"""The machine a run was made on, as far as this one can be it, and in what the two are not of one kind.

On one kind of machine the same weights and data give the same bits. What makes another kind is what environment.json
tells: nothing else is known of a machine that is not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from oelm.core.config import STEP_EXECUTION, Encoder, Execution, ResolvedRun
from oelm.core.sources import SOURCE_DIGEST, differ
from oelm.machine.errors import UserError
from oelm.run.directory import BEFORE_IT_WAS_RECORDED, RunDirectory, flat
from oelm.run.training.device import Machine, resolve_machine
from oelm.run.training.provenance import environment, not_comparable
from oelm.storage.files import Damaged

# Of the loss, where bits may differ: ten times and more what other threads, micro-batches and compilers were seen to
# change, with room for processors that were not seen.
TOLERANCE = {"float64": 1e-11, "float32": 1e-5, "bfloat16": 1e-3}
# Of the predictions, at least one: an example whose two best labels are nearly even falls to either side.
OTHER_PREDICTIONS = {"float64": 0.0, "float32": 0.01, "bfloat16": 0.05}

# What is given up first where this machine cannot do as the recorded one did.
_INSTEAD: dict[str, Any] = {"threads": None, "compile": "off", "device": "auto"}
_COMPARED = (
    "processor", "device", "gpu", "precision", "compile", "threads", "micro_batch_size", "deterministic", "tf32",
    "versions.torch", SOURCE_DIGEST,
)  # fmt: skip


@dataclass(frozen=True)
class Recorded:
    """What environment.json says of how a run was computed."""

    execution: Execution
    world_size: int
    data_digest: str
    everything: dict[str, Any]


def recorded(directory: RunDirectory, tree: dict[str, Any]) -> Recorded:
    """With the types it was written with, or Damaged."""
    tree = BEFORE_IT_WAS_RECORDED | tree
    settings: dict[str, Any] = {key: tree.get(key) for key in STEP_EXECUTION if key != "compile"}
    compiled, world_size, digest = tree.get("compile"), tree.get("world_size"), tree.get("data_digest")
    try:
        execution = Execution(**settings, compile="on" if compiled else "off")
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        raise Damaged(directory.environment_file, f"{key} is {str(settings.get(key))[:80]!r}") from error
    if not isinstance(compiled, bool) or type(world_size) is not int or world_size < 1 or not isinstance(digest, str):
        raise Damaged(directory.environment_file, "does not say compile, world_size and data_digest")
    return Recorded(execution, world_size, digest, tree)


def nearest_machine(was: Recorded, run: ResolvedRun) -> Machine:
    """As recorded; where this machine cannot do that, with what it has."""
    kind = was.execution.device.partition(":")[0]  # any card of one kind will do
    wanted = was.execution.model_copy(update={"device": kind})
    for key, instead in _INSTEAD.items():
        try:
            return resolve_machine(wanted, run, local_rank=0, world_size=was.world_size)[0]
        except UserError:
            wanted = wanted.model_copy(update={key: instead})
    return resolve_machine(wanted, run, local_rank=0, world_size=was.world_size)[0]


def differences(was: Recorded, machine: Machine, run: ResolvedRun) -> tuple[str, ...]:
    """One phrase for each thing that makes this another kind of machine; none: every bit must be the same."""
    before = flat(was.everything)
    now = flat(environment(machine, world_size=was.world_size, data_digest=was.data_digest))
    compared = (*_COMPARED, "versions.transformers") if isinstance(run.model, Encoder) else _COMPARED
    found = [_phrase(key, before.get(key), now.get(key)) for key in compared if not _same(key, before, now)]
    found += not_comparable(before, now)
    if not was.execution.deterministic:
        found.append("execution.deterministic was false")
    if machine.kind != "cpu":
        found.append("the model of a GPU is not recorded")
    return tuple(found)


def _same(key: str, before: dict[str, Any], now: dict[str, Any]) -> bool:
    if key == "device":
        return str(before.get(key)).partition(":")[0] == str(now.get(key)).partition(":")[0]
    return not differ(key, (before, now))


def _phrase(key: str, before: Any, now: Any) -> str:
    if key == SOURCE_DIGEST:
        return f"sources differ from those of the run ({key})"
    return f"{key.removeprefix('versions.')} {before} then, {now} now"
