"""One run's reported loss once more: the model of its last checkpoint over the same held-out data, as it was computed.

Not best/, which may be of another step. Accuracy and predictions come with the loss where the run classifies.
"""

from __future__ import annotations

import contextlib
import gc
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from oelm.core.config import STEP_EXECUTION, Encoder, Execution, ResolvedRun
from oelm.core.measures import LOSS, MEASURES, POINTS
from oelm.core.model.freezing import Watch
from oelm.core.parts import with_roles_of_now
from oelm.core.sources import SOURCE_DIGEST, differ
from oelm.data.folders import Data, check_digests
from oelm.execution.verification.several import RunVerdict
from oelm.machine.errors import UserError
from oelm.run.directory import BEFORE_IT_WAS_RECORDED, MANIFEST, RunDirectory, check_whole, checkpoint_step, flat
from oelm.run.sealing import Ended, end_of, read_config, read_seal
from oelm.run.training.assembly import assembled
from oelm.run.training.checkpoint import MODEL_FILE, load_weights, read_state
from oelm.run.training.device import Machine, prepare_process, resolve_machine
from oelm.run.training.distributed import World
from oelm.run.training.objective import Validation
from oelm.run.training.provenance import environment, not_comparable
from oelm.run.training.records import parameters_record
from oelm.run.training.run import run_with_data
from oelm.storage.files import Damaged, sha256_of


class Processes:
    """All processes of a run in one, one after another: the same shares of the data, added up in the same order.

    It shares as a World does; `rank` is the process whose share is being computed. gloo adds single numbers from the
    last process down to the first (seen for 2 to 5 processes); NCCL's order is not known, and a GPU is another kind of
    machine in any case.
    """

    def __init__(self, size: int) -> None:
        self.size, self.rank = size, 0
        self._heard: list[list[Tensor]] = []

    def look(self, look: Callable[[], Validation]) -> Validation:
        """What the last process sees: by then all the others' numbers are there."""
        self._heard = [[] for _ in range(self.size)]
        *others, last = range(self.size)
        for rank in others:
            self.rank = rank
            look()
        self.rank = last
        return look()

    def share(self, count: int) -> range:
        return World(rank=self.rank, size=self.size).share(count)

    def sum(self, numbers: Tensor) -> Tensor:
        """Of the processes up to this one."""
        mine = self._heard[self.rank]
        mine.append(numbers)
        return reduce(add, [heard[len(mine) - 1] for heard in reversed(self._heard[: self.rank + 1])])


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
    found = []
    for key in compared:
        then, here = before.get(key), now.get(key)
        if key == "device":
            is_same = str(then).partition(":")[0] == str(here).partition(":")[0]
        else:
            is_same = not differ(key, (before, now))
        if not is_same and key == SOURCE_DIGEST:
            found.append(f"sources differ from those of the run ({key})")
        elif not is_same:
            found.append(f"{key.removeprefix('versions.')} {then} then, {here} now")
    found += not_comparable(before, now)
    if not was.execution.deterministic:
        found.append("execution.deterministic was false")
    if machine.kind != "cpu":
        found.append("the model of a GPU is not recorded")
    return tuple(found)


class NotRecomputable(UserError):
    """Something that the loss is computed from is not here."""


class Different(UserError):
    """Recomputed, something is not what was reported."""


class Recomputation:
    """Runs one after another; data that several of them name are read whole only once."""

    def __init__(self, *, data: Path | None = None) -> None:
        self._data = data  # in the place of what the configs name
        self._read: set[tuple[str, str]] = set()

    def verdict(self, path: Path) -> RunVerdict:
        """Whatever is wrong with one run is said of it, and stops no other."""
        directory = RunDirectory(path)
        said = RunVerdict(path, "bit-equal")
        try:
            run, ended, result = _read(directory)
            said = replace(said, reported=result["val_loss"], unsealed=not ended.sealed)
            was = recorded(directory, ended.environment)
            checkpoint = last_checkpoint(directory, run)
            if ended.sealed:
                check_sealed_checkpoint(directory, checkpoint)
            check_progress(directory, result, read_state(checkpoint)["progress"])
            run, data = self._with_data(run, was)
            machine = nearest_machine(was, run)
            other = differences(was, machine, run)
            if other:
                said = replace(said, tolerance=TOLERANCE[machine.precision], other_machine=other)
            with _freed_afterwards(machine):
                seen = _recomputed(directory, ended, _Case(run, data, machine, was, checkpoint, same_kind=not other))
            said = replace(said, recomputed=seen.loss)
            same = _same(directory, ended, result, seen, said, precision=machine.precision)
        except NotRecomputable as error:
            return replace(said, state="not recomputable", reason=_one_line(error))
        except Different as error:
            return replace(said, state="differs", reason=_one_line(error))
        except (UserError, OSError) as error:
            return replace(said, state="damaged", reason=_one_line(error))
        return replace(said, state="bit-equal" if same else "within tolerance")

    def _with_data(self, run: ResolvedRun, was: Recorded) -> tuple[ResolvedRun, Data]:
        """The run's data, proved to be those it was made with."""
        if self._data is not None:
            run = run.model_copy(update={"data": str(self._data)})
        try:
            run, data = run_with_data(run)
            if (run.data, data.digest) not in self._read:
                check_digests(data)
                self._read.add((run.data, data.digest))
        except (UserError, OSError) as error:
            raise NotRecomputable(f"data: {error}") from error
        if data.digest != was.data_digest:
            raise NotRecomputable(
                f"data: {run.data} has digest {data.digest[:10]}, the run used {was.data_digest[:10]}; "
                "give the folder of that data with --data"
            )
        return run, data


@dataclass(frozen=True)
class _Case:
    """Everything a loss is recomputed from, and with."""

    run: ResolvedRun
    data: Data
    machine: Machine
    was: Recorded
    checkpoint: Path
    same_kind: bool  # of machine


def _read(directory: RunDirectory) -> tuple[ResolvedRun, Ended, dict[str, Any]]:
    """A finished run and its result, its seal and its files checked."""
    with _newer_formats_left_alone():
        run, ended = read_config(directory).run, end_of(directory)
    if ended is None or ended.result is None:
        raise NotRecomputable("reports no loss")
    return run, ended, ended.result


@contextlib.contextmanager
def _newer_formats_left_alone() -> Iterator[None]:
    try:
        yield
    except Damaged:
        raise
    except UserError as error:
        raise NotRecomputable(str(error)) from error


def last_checkpoint(directory: RunDirectory, run: ResolvedRun) -> Path:
    """The checkpoint after the last step, whole."""
    steps, stored = run.training.steps, directory.stored_checkpoints()
    later = [folder for folder in stored if checkpoint_step(folder) > steps]
    if later:
        raise Damaged(later[0], f"is of a later step than the last, {steps}")
    folder = directory.checkpoint_folder(steps)
    if folder not in stored:
        there = f"only {stored[-1].name}" if stored else "none"
        raise NotRecomputable(f"no checkpoint of the last step, {steps} ({there} found)")
    with _newer_formats_left_alone():
        check_whole(folder)
    return folder


def _one_line(error: Exception) -> str:
    return " | ".join(str(error).splitlines()) or type(error).__name__


# ---- The computation -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _freed_afterwards(machine: Machine) -> Iterator[None]:
    """Nothing of one run, neither memory nor compiled graphs, is left to the next."""
    try:
        yield
    finally:
        gc.collect()
        if machine.compile:
            torch._dynamo.reset()
        if machine.kind == "cuda":
            torch.cuda.empty_cache()


def _recomputed(directory: RunDirectory, ended: Ended, case: _Case) -> Validation:
    prepare_process(case.machine)
    processes = Processes(case.was.world_size)
    try:
        parts = assembled(case.run, case.data, machine=case.machine, world=processes)
    except UserError as error:  # an encoder that is gone
        raise NotRecomputable(f"data: {error}") from error
    objective, _, schedule = parts
    # The stored weights, with the proof that what had to rest is what the seeds gave (in the same bits only on one kind
    # of machine) and what the run noted of it.
    step, noted = checkpoint_step(case.checkpoint), read_state(case.checkpoint)["digests"]
    start = Watch.begin(schedule, objective.model, 0)
    load_weights(objective.model, case.checkpoint / MODEL_FILE)
    if case.same_kind:
        start.check(objective.model, step)
    Watch(schedule, step, noted).check(objective.model, step)
    check_parameters(directory, ended.parameters, parameters_record(objective, case.machine))
    schedule.apply(objective.model, case.run.training.steps)  # a compiled block has a graph of its own for what moves
    # As the driver takes it: where both sets are one, the last look of the curve is the reported one.
    seen = processes.look(lambda: objective.final_validation(math.nan))
    return processes.look(objective.validation) if math.isnan(seen.loss) else seen


# ---- Reported and recomputed ---------------------------------------------------------------------------------------


def _same(
    directory: RunDirectory, ended: Ended, result: dict[str, Any], seen: Validation, said: RunVerdict, *, precision: str
) -> bool:
    """Whether every bit is; Different where that, or the tolerance, is not met."""
    reported: float = result["val_loss"]
    if not math.isclose(reported, seen.loss, rel_tol=said.tolerance):
        raise Different(f"apart by {abs(reported - seen.loss) / max(abs(reported), abs(seen.loss)):.2g} of it")
    for key in ("examples", "validation_tokens"):
        if key in result and result[key] != seen.result.get(key):
            raise Different(f"{key} is {result[key]} in the result, {seen.result.get(key)} recomputed")
    same = reported == seen.loss
    for measure in MEASURES.values():
        if measure is LOSS or measure.from_predictions or measure.value_of(result) is None:
            continue  # it follows from the loss or from the predictions
        stored, now = result[measure.shown_key], seen.result.get(measure.shown_key)
        of_answers = OTHER_PREDICTIONS[precision] if said.other_machine and measure.scale is POINTS else 0.0
        if not isinstance(now, int | float) or not math.isclose(
            stored, now, rel_tol=said.tolerance, abs_tol=of_answers
        ):
            raise Different(f"{measure.shown_key} is {stored} in the result, {now} recomputed")
        same = same and stored == now
    others, file, labelled = 0, directory.predictions_file, ended.predictions
    if seen.predictions is not None:
        if not labelled:
            raise Damaged(file, "missing")
        for key in ("split", "labels"):
            if labelled.get(key) != seen.predictions[key]:
                raise Different(f"{file}: {key} of other data than these")
        pairs = zip(labelled["predicted"], seen.predictions["predicted"], strict=True)
        others = sum(one != other for one, other in pairs)
        examples = len(seen.predictions["labels"])
        if others > (max(1, math.ceil(OTHER_PREDICTIONS[precision] * examples)) if said.other_machine else 0):
            raise Different(f"{file}: {others} of {examples} predictions differ")
    return same and not others


# ---- What a run says of itself in several places --------------------------------------------------------------------
# `sealing.end_of` has compared result, config, metrics and predictions; here the last checkpoint is heard too.

_SAME = {"steps": "step", "train_loss": "last_train_loss", "best_val_loss": "best_val_loss", "best_step": "best_step"}


def check_sealed_checkpoint(directory: RunDirectory, checkpoint: Path) -> None:
    """The seal binds the manifest of the last checkpoint, which binds its files."""
    sealed = read_seal(directory)["checkpoint"]
    if sealed is None or sealed["name"] != checkpoint.name:
        raise Damaged(directory.seal_file, f"is not a seal over {checkpoint.name}")
    if sha256_of(checkpoint / MANIFEST) != sealed["manifest_sha256"]:
        raise Damaged(checkpoint / MANIFEST, "changed since the run was sealed")


def check_progress(directory: RunDirectory, result: dict[str, Any], progress: dict[str, Any]) -> None:
    """The last checkpoint was written after the last step, the result soon after it."""
    file = directory.result_file
    for key, stored in _SAME.items():
        if result.get(key) != progress[stored]:
            raise Damaged(file, f"{key} is {result.get(key)!r}, but the last checkpoint says {progress[stored]!r}")
    said, clipped = result.get("clipped_fraction"), progress["clipped_steps"] / progress["step"]
    if said is None or not math.isclose(said, clipped, rel_tol=1e-12):
        raise Damaged(file, f"clipped_fraction is {said!r}, but the last checkpoint says {clipped}")
    for key in ("train_loss", "val_loss"):
        record, value = directory.last_metrics(key) or {}, progress[f"last_{key}"]
        if (record.get("step"), record.get(key)) != (progress["step"], value):
            raise Damaged(
                directory.metrics_file,
                f"ends with {key} {record.get(key)!r} at step {record.get('step')!r}, but the last checkpoint says "
                f"{value!r} at step {progress['step']}",
            )


def check_parameters(directory: RunDirectory, stored: dict[str, Any], counted: dict[str, Any]) -> None:
    """What is stored of the parameters is what the checkpoint's model has, to the digest of its frozen weights."""
    stored = stored | {"parts": with_roles_of_now(stored.get("parts", []))}
    for key in sorted(stored.keys() & counted.keys()):
        if stored[key] != counted[key]:
            raise Damaged(directory.parameters_file, f"{key} is not that of the last checkpoint")
