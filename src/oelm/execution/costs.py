"""What runs would cost on this machine: parameters, time, memory, disk.

A probe takes a few real steps of each model in a child process, so that the estimate is of this machine. Runs that
differ only in their length, rate or seed share one.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oelm.core.accounting import totals, training_flops
from oelm.core.config import ResolvedRun, Settings
from oelm.core.settings import written_out
from oelm.execution.engine import Wanted, train_command
from oelm.machine.durations import duration
from oelm.machine.errors import UserError
from oelm.machine.exhaustion import mebibytes
from oelm.machine.plurals import number_of
from oelm.storage.files import write_json
from oelm.study.plan import PlannedRun

PROBE = "oelm.execution.timing.probe"


def probed(
    settings: Settings, *, timeout: float, processes: int = 1, variables: dict[str, str] | None = None
) -> dict[str, Any]:
    """Seconds a step, memory and disk of one run, measured in a child; `processes` share the batch among them.

    `variables` go into the child's environment: they say which GPU it may see.
    """
    with tempfile.TemporaryDirectory(prefix="oelm-probe-") as folder:
        file = Path(folder) / "settings.json"
        tree = written_out(settings)
        tree["training"]["batch_size"] = -(-settings.run.training.batch_size // processes)  # one process's part
        write_json(file, tree)
        try:
            done = subprocess.run(
                [sys.executable, "-m", PROBE, str(file)],
                capture_output=True, text=True, timeout=timeout, check=False, env=os.environ | (variables or {}),
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise UserError(f"the probe took longer than {timeout:g} s and was stopped; no estimate") from error
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise UserError(f"probe of {settings.run.arm}: {reason[0].removeprefix(f'{file}: ')}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


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
    problems, probes = list[str](), dict[str, dict[str, Any]]()
    alike: dict[str, list[PlannedRun]] = {}
    for each in (*now, *later) if now else ():
        alike.setdefault(_pace(each.planned), []).append(each.planned)
    for pace, (run, *others) in alike.items():  # on the first of the study's units; a failed one leaves times open
        try:
            probes[pace] = probed(run.settings, timeout=timeout, processes=run.processes, variables=variables)
        except UserError as error:
            names = ", ".join(dict.fromkeys(each.arm for each in (run, *others)))
            problems.append(f"no estimate for {names}: {error}")
    forecasts, after = ([_forecast(run, probes.get(_pace(run.planned))) for run in runs] for runs in (now, later))
    lines = [*(line for forecast in forecasts for line in _lines(forecast)), *problems]
    if not forecasts:
        return [*lines, *([""] if lines else []), "nothing to start now"]
    lines = [*lines, "", f"{number_of(len(forecasts), 'run')} to start now: {_cost(forecasts, slots=slots)}"]
    if after:
        lines.append(f"{after_tuning(len(after))}: {_cost(after, slots=slots)}")
        lines.append(f"total: {_cost(forecasts, after, slots=slots)}; an extended grid takes more")
    return lines


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
        seconds=_seconds_of(run, probe) if probe else None,
        memory_bytes=probe["peak_memory_bytes"] if probe else None,
        memory_line=probe.get("memory") if probe else None,
        disk_bytes=kept * checkpoint + counts.weight_bytes,
    )


def _seconds_of(run: ResolvedRun, probe: dict[str, Any]) -> float:
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
    time = "unknown" if forecast.seconds is None else f"about {duration(forecast.seconds)}"
    peak = f", process {mebibytes(forecast.memory_bytes)}" if forecast.memory_bytes else ""
    return [
        f"{run.title} ({run.state})",
        f"  {shlex.join(train_command(forecast.wanted.directory, processes=run.processes))}",
        f"  parameters {counts.total:,} total, {counts.trainable:,} trainable, {counts.frozen:,} frozen;"
        f" weights, gradients and moments {memory}{peak}",
        *([f"  {forecast.memory_line}"] if forecast.memory_line else []),
        f"  {training_flops(config) / 1e12:,.2f} TFLOP, time {time}, disk up to {mebibytes(forecast.disk_bytes)}",
    ]


def after_tuning(runs: int) -> str:
    return f"then {number_of(runs, 'final run')}, with the values that tuning chooses"


def _cost(*stages: list[Forecast], slots: int) -> str:
    """Of stages, each of which begins when the one before is done."""
    times: list[float] = []
    for stage in stages:  # never done before the longest one, however many slots there are
        known = [(run.seconds, run.planned.processes) for run in stage if run.seconds is not None]
        shared = sum(seconds * processes for seconds, processes in known) / slots
        times.append(max([shared, *(seconds for seconds, _ in known)]))
    is_known = all(forecast.seconds is not None for stage in stages for forecast in stage)
    disk = mebibytes(sum(forecast.disk_bytes for stage in stages for forecast in stage))
    time = f"about {duration(sum(times))}" if is_known else "time unknown"
    return f"{time} on {number_of(slots, 'slot')}, disk up to {disk}"
