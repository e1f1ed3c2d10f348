"""`oelm run --dry-run`: what would be started, what it would cost, what confounds it. Only a probe is started.

The probe takes a few real steps of each arm in a child process, so that the estimate is this machine's.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oelm.accounting import totals, training_flops
from oelm.config import Run
from oelm.errors import UserError
from oelm.experiments.controller import data_facts
from oelm.experiments.slots import Unit, train_command
from oelm.experiments.table import counted, duration
from oelm.files import mebibytes
from oelm.study.confounds import confounds
from oelm.study.declaration import Study
from oelm.study.plan import Plan, PlannedRun, Planner
from oelm.study.shelf import Shelf
from oelm.timing.probing import probed

START_SECONDS = 6.0  # a process until its first step: imports, data checks


@dataclass(frozen=True)
class Forecast:
    """One run that would be started."""

    planned: PlannedRun
    command: list[str]
    seconds: float | None  # None: the probe failed
    memory_bytes: int | None
    disk_bytes: int


def dry_run(study: Study, folder: Path, *, units: list[Unit], groups: list[str] | None, timeout: float) -> list[str]:
    """The lines to print."""
    facts = data_facts(study)
    planner = Planner(study, facts.model, facts.digest)
    plan = planner.plan(Shelf(folder))
    todo = [run for run in plan.runs if run.loss is None and (groups is None or run.arm in groups)]
    problems: list[str] = []
    probes = _probes(todo, timeout, problems)
    forecasts = [_forecast(run, folder, facts.digest, probes.get(run.arm)) for run in todo]
    lines = [f"study {study.name}: {counted(plan)}", f"slots: {', '.join(str(unit) for unit in units)}", ""]
    for forecast in forecasts:
        lines += _lines(forecast)
    later = [
        _forecast(run, folder, facts.digest, probes.get(run.arm))
        for run in planner.final_at_base(plan)
        if groups is None or run.arm in groups
    ]
    lines += [*problems, "", *_totals(forecasts, later, units), "", *confound_lines(study, plan)]
    return [*lines, "nothing was started"]


def _probes(todo: list[PlannedRun], timeout: float, problems: list[str]) -> dict[str, dict[str, Any]]:
    """One probe for each arm; a failed one is said and leaves its times open."""
    found = {}
    for arm in dict.fromkeys(run.arm for run in todo):
        run = next(each for each in todo if each.arm == arm)
        try:
            found[arm] = probed(run.settings, timeout=timeout, processes=run.processes)
        except UserError as error:
            problems.append(f"no estimate for {arm}: {error}")
    return found


def _forecast(run: PlannedRun, folder: Path, digest: str, probe: dict[str, Any] | None) -> Forecast:
    directory = run.directory(folder, data_digest=digest)
    counts = totals(run.run.model)
    checkpoint = probe["checkpoint_bytes"] if probe else counts.weight_bytes + counts.optimizer_bytes
    kept = run.settings.execution.keep_checkpoints + 1  # one more while a new one is written
    return Forecast(
        planned=run,
        command=train_command(directory, processes=run.processes),
        seconds=seconds_of(run.run, probe) if probe else None,
        memory_bytes=probe["peak_memory_bytes"] if probe else None,
        disk_bytes=kept * checkpoint + counts.weight_bytes,
    )


def seconds_of(run: Run, probe: dict[str, Any]) -> float:
    """Start, steps and validations of one run at the probe's pace."""
    training = run.training
    assert training.validate_every is not None
    assert training.validation_sequences is not None
    assert training.final_validation_sequences is not None
    validations = -(-training.steps // training.validate_every)
    final = min(training.final_validation_sequences, probe["held_out"])
    sequences = validations * min(training.validation_sequences, probe["held_out"]) + final
    stepping = training.steps * probe["seconds_per_step"] + sequences * probe["validation_seconds_per_sequence"]
    return START_SECONDS + probe["warmup_seconds"] + stepping


def _lines(forecast: Forecast) -> list[str]:
    run, counts = forecast.planned, totals(forecast.planned.run.model)
    memory = mebibytes(counts.weight_bytes + counts.gradient_bytes + counts.optimizer_bytes)
    peak = f", process {mebibytes(forecast.memory_bytes)}" if forecast.memory_bytes else ""
    return [
        f"{run.title} ({run.state})",
        f"  {shlex.join(forecast.command)}",
        f"  parameters {counts.total:,} total, {counts.trainable:,} trainable, {counts.frozen:,} frozen;"
        f" weights, gradients and moments {memory}{peak}",
        f"  {training_flops(run.run) / 1e12:,.2f} TFLOP, time about {duration(forecast.seconds)},"
        f" disk up to {mebibytes(forecast.disk_bytes)}",
    ]


def _totals(forecasts: list[Forecast], later: list[Forecast], units: list[Unit]) -> list[str]:
    if not forecasts:
        return ["nothing is missing that could be started now"]
    lines = [f"{len(forecasts)} runs to start now: {_cost(forecasts, units)}"]
    if later:
        lines.append(f"then {len(later)} final runs, with the values that tuning chooses: {_cost(later, units)}")
        lines.append(f"in all: {_cost([*forecasts, *later], units)}; an extended grid takes more")
    return lines


def _cost(forecasts: list[Forecast], units: list[Unit]) -> str:
    known = [forecast.seconds * forecast.planned.processes for forecast in forecasts if forecast.seconds is not None]
    disk = mebibytes(sum(forecast.disk_bytes for forecast in forecasts))
    time = f"about {duration(sum(known) / len(units))}" if len(known) == len(forecasts) else "time unknown"
    return f"{time} on {len(units)} slots, disk up to {disk}"


def confound_lines(study: Study, plan: Plan) -> list[str]:
    """Every difference between the arms of a hypothesis that is not its declared treatment."""
    lines = []
    for name, found in confounds(study, plan).items():
        for each in found:
            explained = f" (explained: {each.explained})" if each.explained else ""
            lines.append(f"confound in {name}: {each.key} is {each.treatment} / {each.control}{explained}")
    return lines or ["confounds: none found"]
