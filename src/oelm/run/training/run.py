"""One run: the only place where config, data, model, optimizer and run directory are put together.

It owns the directory, decides between fresh, resumed and finished, and writes down how the run ended.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from oelm.core.accounting import totals, training_flops
from oelm.core.config import EncoderRun, Execution, GptRun, ResolvedRun, Run, resolved, stored_form
from oelm.core.probes.examples import refuse_too_few
from oelm.data.folders import ProbeData, check_changes, open_data
from oelm.data.sentences import SentenceData
from oelm.data.tokens import TokenData, check_tokens
from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory, flat, folder_name
from oelm.run.sealing import Ended, can_be_ended_again, end_of, ending_files, everything, first_start, read_config
from oelm.run.training import distributed
from oelm.run.training.checkpoint import latest_whole
from oelm.run.training.device import prepare_process, resolve_machine
from oelm.run.training.driver import Driver, TrainingJob
from oelm.run.training.journal import Journal, Silent
from oelm.run.training.loop import Diverged
from oelm.run.training.memory import memory_line, refuse_what_does_not_fit
from oelm.run.training.provenance import changed_settings, environment
from oelm.run.training.signals import Interrupted
from oelm.storage.files import (
    RUNS,
    Damaged,
    Unreadable,
    ensure_writable,
    explaining_a_full_disk,
    read_object,
    write_json,
)
from oelm.storage.ownership import now
from oelm.storage.schemas import Environment, State, read_record


@dataclass(frozen=True)
class Outcome:
    """What a finished run knows about itself, as stored in experiment_result.json."""

    directory: RunDirectory
    result: dict[str, Any]
    was_finished: bool


def run_with_data(run: Run) -> tuple[GptRun, TokenData | ProbeData] | tuple[EncoderRun, SentenceData]:
    """Open the data a run names, check it, and resolve what depends on it."""
    data = open_data(run)
    if run.training.validation_split not in data.splits:
        raise UserError(
            f"training.validation_split: {run.data} has no split {run.training.validation_split}, "
            f"only {', '.join(data.splits)}"
        )
    match resolved(run, data.facts), data:
        case GptRun() as known, TokenData():
            check_tokens(data, seq_len=known.model.seq_len, vocabulary=known.model.vocabulary)
            return known, data
        case GptRun() as known, ProbeData():
            refuse_too_few(data.probe)
            return known, data
        case EncoderRun() as known, SentenceData():
            for name, value in data.facts.items():  # an encoder is as large as its weights
                if getattr(known.model, name) != value:
                    given = getattr(known.model, name)
                    raise UserError(f"model.{name}: {given}, but the encoder of {run.data} says {value}")
            return known, data
    raise TypeError(f"{run.data}: not the data of this kind of model")


def train(
    run: Run, execution: Execution | None = None, *, out: Path | str | None = None, group: str = "train"
) -> Outcome:
    """Train one arm into `out`, or go on where it stopped, or say that it is finished.

    Without `out` it goes into a folder of this computation's own, runs/GROUP/ARM-sSEED-FINGERPRINT.
    """
    job, reasons = _placed(run, execution, out, group)
    if job.world.size > run.training.batch_size:
        raise UserError(f"training.batch_size {run.training.batch_size} is less than the {job.world.size} processes")
    prepare_process(job.machine)
    limit_seconds = job.execution.step_limit_seconds
    with distributed.joined(job.world, device=job.machine.device, limit_seconds=limit_seconds) as world:
        job = replace(job, world=world)
        return _as_owner(job, reasons) if world.is_main else _as_companion(job)


def _placed(run: Run, execution: Execution | None, out: Path | str | None, group: str) -> tuple[TrainingJob, list[str]]:
    """What is to be done, where and with what, and the reasons behind each `auto`."""
    known, data = run_with_data(run)
    if out is None:
        seeds = "-".join(str(seed) for seed in dict.fromkeys(known.seeds.model_dump().values()))
        out = RUNS / group / folder_name(known, arm=known.arm, seed=seeds, data_digest=data.digest)
    execution = _as_it_began(execution or Execution(), Path(out))
    world = distributed.world_from_environment()
    machine, reasons = resolve_machine(execution, known, local_rank=world.local_rank, world_size=world.size)
    return TrainingJob(known, data, RunDirectory(Path(out)), execution, machine, world), reasons


def planned(
    run: Run, execution: Execution | None = None, *, out: Path | str | None = None, group: str = "train"
) -> list[str]:
    """What `train` would do with the same arguments, in lines; nothing is written, nothing is computed. What has no
    room here is refused as `train` refuses it."""
    job, reasons = _placed(run, execution, out, group)
    machine = job.machine
    refuse_what_does_not_fit(job.run, machine)
    counts = totals(job.run.model)
    return [
        f"{run.arm} in {job.directory.path}: {machine}",
        *reasons,
        f"parameters: {counts.total:,} total, {counts.trainable:,} trainable, {counts.frozen:,} frozen",
        f"work: {training_flops(job.run) / 1e12:,.2f} TFLOP in {job.run.training.steps:,} steps",
        memory_line(job.run, machine),
        "nothing was started",
    ]


# ---- Owning the directory ------------------------------------------------------------------------------------------

FINISHED, FRESH = "finished", "fresh"


def _as_owner(job: TrainingJob, reasons: list[str]) -> Outcome:
    """The first process: it locks, writes and reports; what happens to the run is written before it leaves."""
    directory = job.directory
    ensure_writable(directory.path)
    with directory.locked(patience_seconds=distributed.patience_seconds()):
        check_changes(job.data)
        journal = Journal(directory.log_file)
        ended = _ended_before(directory, journal)
        _refuse_another_run(directory, job.run, job.data.digest)
        if ended is not None and ended.sealed and (directory.status() or {}).get("state") != ended.state:
            directory.write_status(ended.state, **({"error": ended.error} if ended.error else {}))  # killed before it
        if ended is not None and ended.result is not None:
            job.world.broadcast_text(FINISHED)
            return Outcome(directory, ended.result, was_finished=True)
        if ended is not None:
            raise Diverged(f"{directory.path}: {ended.error}; a diverged run is not started again")
        with _end_written_down(directory), explaining_a_full_disk(directory.path):
            _write_start(job, journal)
            for reason in reasons:
                journal.say(reason)
            checkpoint = latest_whole(directory, say=journal.warn)
            job.world.broadcast_text(str(checkpoint) if checkpoint else FRESH)
            return Outcome(directory, _driven(job, journal, checkpoint), was_finished=False)


def _driven(job: TrainingJob, journal: Journal, checkpoint: Path | None) -> dict[str, Any]:
    """To the end. While a GPU has no room for a step, the run starts with half the micro-batch, on all processes: the
    result is the same."""
    while True:
        driver = Driver(job, journal)
        whole = job.machine.micro_batch_size
        if whole == 1 or driver.has_room():
            return driver.go(checkpoint)
        job = replace(job, machine=replace(job.machine, micro_batch_size=-(-whole // 2)))
        journal.warn(
            f"the GPU has no room for micro-batches of {whole}; starting with {job.machine.micro_batch_size}, "
            "which gives the same result"
        )
        del driver  # and its weights
        gc.collect()
        torch.cuda.empty_cache()
        if job.world.is_main:
            found = read_object(job.directory.environment_file)
            write_json(job.directory.environment_file, found | job.machine.as_json())


def _as_it_began(execution: Execution, folder: Path) -> Execution:
    """A run on a GPU goes on with the micro-batch it began with, whatever is free now: else its last bits change."""
    file = RunDirectory(folder).environment_file
    if execution.micro_batch_size is not None or not file.is_file():
        return execution
    with contextlib.suppress(Damaged):  # which is told where it matters
        found = read_record(file, Environment)
        if str(found.get("device")).startswith("cuda") and found.get("micro_batch_size"):
            return execution.model_copy(update={"micro_batch_size": found["micro_batch_size"]})
    return execution


def _ended_before(directory: RunDirectory, journal: Journal) -> Ended | None:
    """How the run ended, if it did. What is damaged is set aside: its end is made again from the last checkpoint where
    that is all there is to mend, else the run is made again from the start. What only cannot be read stays."""
    try:
        return end_of(directory)
    except Unreadable:
        raise
    except Damaged as damage:
        directory.refuse_foreign_files()
        if not (directory.holds_work() or directory.status_file.exists()):
            raise
        again, started = can_be_ended_again(directory), first_start(directory)
        folder = directory.set_aside(ending_files(directory) if again else everything(directory))
        journal.warn(f"{damage}; set aside in {folder}, {'ended' if again else 'run'} again")
        if started is not None:  # what was known when is not changed by making it again
            directory.write_status("interrupted", started=started)
        return None


def _as_companion(job: TrainingJob) -> Outcome:
    """Any other process: it does what the first one decided."""
    word = job.world.broadcast_text()
    if word == FINISHED:
        return Outcome(job.directory, {}, was_finished=True)
    checkpoint = None if word == FRESH else Path(word)
    return Outcome(job.directory, _driven(job, Silent(), checkpoint), was_finished=False)


def _refuse_another_run(directory: RunDirectory, run: ResolvedRun, data_digest: str) -> None:
    """A folder holds one run: a config or data that differ are shown key by key."""
    if not directory.config_file.exists():
        directory.refuse_foreign_files()
        return
    if not directory.holds_work():
        return
    before = flat(read_config(directory).run.model_dump(mode="json"))
    after = flat(run.model_dump(mode="json"))
    if directory.environment_file.exists():
        before["data digest"] = read_record(directory.environment_file, Environment).get("data_digest")
        after["data digest"] = data_digest
    lines = [
        f"{directory.path}: {key} is {before.get(key)} there and {after.get(key)} here"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key) and key not in ("arm", "data")
    ]
    if lines:
        raise UserError(
            "\n".join([*lines, "the folder contains a different run; choose another --out or undo the change"])
        )


def _write_start(job: TrainingJob, journal: Journal) -> None:
    directory, run, processes = job.directory, job.run, job.world.size
    write_json(directory.config_file, stored_form(run))
    found = environment(job.machine, world_size=processes, data_digest=job.data.digest) | job.data.provenance
    if directory.environment_file.exists():
        for line in changed_settings(read_record(directory.environment_file, Environment), found):
            journal.warn(f"{line}; the result may differ in its last bits from an uninterrupted run")
    write_json(directory.environment_file, found)
    directory.clear_leftovers()
    directory.close_torn_line()
    unknown = None if directory.holds_work() else now()  # it goes on with something, and its first start is lost
    first_start = (directory.status() or {}).get("started") or unknown
    directory.write_status("running", started=first_start, steps=run.training.steps)
    journal.say(f"{run.arm} in {directory.path}: {job.machine}, {processes} process{'es' * (processes > 1)}")


@contextlib.contextmanager
def _end_written_down(directory: RunDirectory) -> Iterator[None]:
    """Write how the run ended, whatever ends it. A full disk may refuse even that; the error is shown all the same."""

    def ended(state: State, error: BaseException) -> None:
        with contextlib.suppress(OSError):
            directory.write_status(state, error=str(error) or type(error).__name__, ended=now())

    try:
        yield
    except (Interrupted, KeyboardInterrupt) as error:
        ended("interrupted", error)
        raise
    except Diverged as error:
        ended("diverged", error)
        raise
    except BaseException as error:
        ended("failed", error)
        raise
