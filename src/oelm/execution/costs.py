"""What runs would cost on this machine: parameters, time, memory, disk.

A probe takes a few real steps of each model in a child process, so that the estimate is of this machine. Runs that
differ only in their length, rate or seed share one.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from oelm.core.accounting import totals, training_flops
from oelm.core.config import ResolvedRun
from oelm.execution.engine import Wanted, train_command
from oelm.execution.timing.probing import probed
from oelm.machine.durations import duration
from oelm.machine.errors import UserError
from oelm.machine.exhaustion import mebibytes
from oelm.machine.plurals import number_of
from oelm.study.plan import PlannedRun

START_SECONDS = 6.0  # a process until its first step: imports, data checks


@dataclass(frozen=True)
class Forecast:
    """One run that would be started."""

    wanted: Wanted
    seconds: float | None  # None: the probe failed
    memory_bytes: int | None
    memory_line: str | None  # what was expected before anything was measured
    disk_bytes: int

    @property
    def planned(self) -> PlannedRun:
        return self.wanted.planned


def cost_lines(
    now: list[Wanted], later: list[Wanted], *, slots: int, variables: dict[str, str], timeout: float
) -> list[str]:
    """The runs to be started now, one by one, and what all cost. Probes have `variables` in their environment."""
    problems: list[str] = []
    todo = [run.planned for run in (*now, *later)] if now else []
    probes = _probes(todo, timeout, problems, variables=variables)
    forecasts, after = ([_forecast(run, probes.get(_pace(run.planned))) for run in runs] for runs in (now, later))
    lines = [*(line for forecast in forecasts for line in _lines(forecast)), *problems]
    return [*lines, *([""] if lines else []), *_totals(forecasts, after, slots)]


def _probes(
    todo: list[PlannedRun], timeout: float, problems: list[str], *, variables: dict[str, str]
) -> dict[str, dict[str, Any]]:
    """One probe for each pace, on the first of the study's units; a failed one is said and leaves its times open."""
    found, arms = dict[str, dict[str, Any]](), dict[str, list[PlannedRun]]()
    for each in todo:
        arms.setdefault(_pace(each), []).append(each)
    for pace, (run, *others) in arms.items():
        try:
            found[pace] = probed(run.settings, timeout=timeout, processes=run.processes, variables=variables)
        except UserError as error:
            names = ", ".join(dict.fromkeys(each.arm for each in (run, *others)))
            problems.append(f"no estimate for {names}: {error}")
    return found


def _pace(planned: PlannedRun) -> str:
    """What decides how long a step takes, as text: not how many there are, nor with which rate or seed."""
    run = planned.settings.run
    training = run.training.model_dump_json(include={"batch_size", "gradient_clip"})
    execution = planned.settings.execution.model_dump_json()
    return f"{planned.processes} {execution} {run.model.model_dump_json()} {run.data} {training}"


def _forecast(wanted: Wanted, probe: dict[str, Any] | None) -> Forecast:
    run = wanted.planned.resolved_run
    counts = totals(run.model)
    checkpoint = probe["checkpoint_bytes"] if probe else counts.weight_bytes + counts.optimizer_bytes
    kept = wanted.settings.execution.keep_checkpoints + 1  # one more while a new one is written
    return Forecast(
        wanted,
        seconds=seconds_of(run, probe) if probe else None,
        memory_bytes=probe["peak_memory_bytes"] if probe else None,
        memory_line=probe.get("memory") if probe else None,
        disk_bytes=kept * checkpoint + counts.weight_bytes,
    )


def seconds_of(run: ResolvedRun, probe: dict[str, Any]) -> float:
    """Start, steps and validations of one run at the probe's pace."""
    training = run.training
    validations = -(-training.steps // training.validate_every)
    final = min(training.final_validation_sequences, probe["held_out"])
    sequences = validations * min(training.validation_sequences, probe["held_out"]) + final
    stepping: float = training.steps * probe["seconds_per_step"] + sequences * probe["validation_seconds_per_sequence"]
    starting: float = START_SECONDS + probe["warmup_seconds"]
    return starting + stepping


def _lines(forecast: Forecast) -> list[str]:
    run, config = forecast.planned, forecast.planned.resolved_run
    counts = totals(config.model)
    memory = mebibytes(counts.weight_bytes + counts.gradient_bytes + counts.optimizer_bytes)
    peak = f", process {mebibytes(forecast.memory_bytes)}" if forecast.memory_bytes else ""
    return [
        f"{run.title} ({run.state})",
        f"  {shlex.join(train_command(forecast.wanted.directory, processes=run.processes))}",
        f"  parameters {counts.total:,} total, {counts.trainable:,} trainable, {counts.frozen:,} frozen;"
        f" weights, gradients and moments {memory}{peak}",
        *([f"  {forecast.memory_line}"] if forecast.memory_line else []),
        f"  {training_flops(config) / 1e12:,.2f} TFLOP, time {_about(forecast.seconds)},"
        f" disk up to {mebibytes(forecast.disk_bytes)}",
    ]


def _totals(forecasts: list[Forecast], later: list[Forecast], slots: int) -> list[str]:
    if not forecasts:
        return ["nothing to start now"]
    lines = [f"{number_of(len(forecasts), 'run')} to start now: {_cost(forecasts, slots=slots)}"]
    if later:
        lines.append(f"{after_tuning(len(later))}: {_cost(later, slots=slots)}")
        lines.append(f"total: {_cost(forecasts, later, slots=slots)}; an extended grid takes more")
    return lines


def after_tuning(runs: int) -> str:
    return f"then {number_of(runs, 'final run')}, with the values that tuning chooses"


def _cost(*stages: list[Forecast], slots: int) -> str:
    """Of stages, each of which begins when the one before is done."""
    times = [_seconds(stage, slots) for stage in stages]
    disk = mebibytes(sum(forecast.disk_bytes for stage in stages for forecast in stage))
    time = "time unknown" if None in times else f"about {duration(sum(filter(None, times)))}"
    return f"{time} on {number_of(slots, 'slot')}, disk up to {disk}"


def _seconds(forecasts: list[Forecast], slots: int) -> float | None:
    """Until all are done: never before the longest one, however many slots there are."""
    known = [(forecast.seconds, forecast.planned.processes) for forecast in forecasts if forecast.seconds is not None]
    if len(known) < len(forecasts):
        return None
    shared = sum(seconds * processes for seconds, processes in known) / slots
    return max([shared, *(seconds for seconds, _ in known)])


def _about(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"about {duration(seconds)}"
