"""One run's reported loss once more: the model of its last checkpoint over the same held-out data, as it was computed.

Not best/, which may be of another step. Accuracy and predictions come with the loss where the run classifies.
"""

from __future__ import annotations

import contextlib
import gc
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from oelm.core.config import ResolvedRun
from oelm.core.measures import LOSS, MEASURES, POINTS, Measure
from oelm.core.model.freezing import Watch
from oelm.data.folders import Data, check_digests
from oelm.execution.verification.machine import (
    OTHER_PREDICTIONS,
    TOLERANCE,
    Recorded,
    differences,
    nearest_machine,
    recorded,
)
from oelm.execution.verification.processes import Processes
from oelm.execution.verification.testimony import check_parameters, check_progress, check_sealed_checkpoint
from oelm.execution.verification.verdict import RunVerdict
from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory, check_whole, checkpoint_step
from oelm.run.sealing import Ended, end_of, read_config
from oelm.run.training.assembly import Parts, assembled
from oelm.run.training.checkpoint import MODEL_FILE, load_weights, read_state
from oelm.run.training.device import Machine, prepare_process
from oelm.run.training.objective import Objective, Validation
from oelm.run.training.records import parameters_record
from oelm.run.training.run import run_with_data
from oelm.storage.files import Damaged


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
    _load(parts, case.checkpoint, same_kind=case.same_kind)
    objective, _, schedule = parts
    check_parameters(directory, ended.parameters, parameters_record(objective, case.machine))
    schedule.apply(objective.model, case.run.training.steps)  # a compiled block has a graph of its own for what moves
    return _reported_look(objective, processes)


def _load(parts: Parts, checkpoint: Path, *, same_kind: bool) -> None:
    """The stored weights, with the proof that what had to rest is what the seeds gave (in the same bits only on one
    kind of machine) and what the run noted of it.
    """
    objective, _, schedule = parts
    step, noted = checkpoint_step(checkpoint), read_state(checkpoint)["digests"]
    start = Watch.begin(schedule, objective.model, 0)
    load_weights(objective.model, checkpoint / MODEL_FILE)
    if same_kind:
        start.check(objective.model, step)
    Watch(schedule, step, noted).check(objective.model, step)


def _reported_look(objective: Objective, processes: Processes) -> Validation:
    """As the driver takes it: where both sets are one, the last look of the curve is the reported one."""
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
    for measure in _beside_the_loss(result):
        stored, now = result[measure.shown_key], seen.result.get(measure.shown_key)
        of_answers = OTHER_PREDICTIONS[precision] if said.other_machine and measure.scale is POINTS else 0.0
        if not isinstance(now, int | float) or not math.isclose(
            stored, now, rel_tol=said.tolerance, abs_tol=of_answers
        ):
            raise Different(f"{measure.shown_key} is {stored} in the result, {now} recomputed")
        same = same and stored == now
    others = 0
    if seen.predictions is not None:
        others = _other_predictions(directory.predictions_file, ended.predictions, seen.predictions)
        examples = len(seen.predictions["labels"])
        if others > (max(1, math.ceil(OTHER_PREDICTIONS[precision] * examples)) if said.other_machine else 0):
            raise Different(f"{directory.predictions_file}: {others} of {examples} predictions differ")
    return same and not others


def _beside_the_loss(result: dict[str, Any]) -> list[Measure]:
    """What the result has to be compared by, but for what follows from the loss or from the predictions."""
    others = (each for each in MEASURES.values() if each is not LOSS and not each.from_predictions)
    return [each for each in others if each.value_of(result) is not None]


def _other_predictions(file: Path, stored: dict[str, Any], seen: dict[str, Any]) -> int:
    """How many examples were labelled otherwise than they are now."""
    if not stored:
        raise Damaged(file, "missing")
    for key in ("split", "labels"):
        if stored.get(key) != seen[key]:
            raise Different(f"{file}: {key} of other data than these")
    return sum(one != other for one, other in zip(stored["predicted"], seen["predicted"], strict=True))
