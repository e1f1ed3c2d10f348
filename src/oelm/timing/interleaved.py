"""The speed of a study's arms: all of them alive in one process, stepping by turns on one device.

Only this speaks about speed; the seconds of separate runs differ by whatever else the machine was doing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from oelm.accounting import totals
from oelm.config import PROJECTIONS, Always, Never, Run, Settings, resolved
from oelm.errors import UserError
from oelm.files import ensure_writable, mebibytes, write_json
from oelm.ownership import now
from oelm.study.declaration import Study, settings_for
from oelm.study.shelf import BENCH_FILE, Shelf
from oelm.timing.ratios import half_width, interval, paired
from oelm.timing.rounds import rounds_of
from oelm.timing.workload import TimedArm, Workload, workload_of
from oelm.training.device import Machine, prepare_process, resolve_machine
from oelm.training.journal import duration
from oelm.training.provenance import environment

FORMAT_VERSION = 1
WARMUP_STEPS = 3
LEAST_ROUNDS = 10  # before the width of an interval may end the measurement
SAY_SECONDS = 5.0

Say = Callable[[str], None]
Pair = tuple[str, str]  # treatment and control


def measure(
    study: Study,
    *,
    out: Path,
    rounds: int = 40,
    steps_per_round: int = 4,
    say: Say = print,
    arms: Sequence[str] | None = None,
    until_half_width: float | None = None,
) -> dict[str, Any]:
    """Time the arms by turns and write bench.json into `out`, the study's folder of runs.

    With `until_half_width` it ends as soon as every ratio in question is known that well, for example 0.01.
    """
    names = _chosen(study, arms)
    baseline = study.baseline if study.baseline in names else names[0]
    settings = {name: settings_for(study, name, seed=study.seeds[0]) for name in names}
    ensure_writable(out, option="--runs")
    workload = workload_of(settings[baseline].run, assumed=Shelf(out).facts)
    runs = {name: resolved(each.run, workload.facts) for name, each in settings.items()}
    machine = _machine(settings[baseline], runs[baseline], say)
    notes = _notes(study, runs, workload)
    for note in notes:
        say(note)
    timed = _warmed_up(runs, machine, workload, say)
    seconds = _timed_rounds(
        timed,
        _pairs(study, names, baseline),
        rounds=rounds,
        steps_per_round=steps_per_round,
        until_half_width=until_half_width,
        say=say,
    )
    record = {
        "format_version": FORMAT_VERSION,
        "baseline": baseline,
        "arms": names,
        **environment(machine, world_size=1, data_digest=workload.digest),
        "accelerator": torch.cuda.get_device_name(machine.device) if machine.kind == "cuda" else None,
        "tokens": workload.description,
        "rounds": len(seconds[baseline]),
        "steps_per_round": steps_per_round,
        "until_half_width": until_half_width,
        "seconds": seconds,
        "notes": notes,
        "created": now(),
    }
    write_json(out / BENCH_FILE, record)
    return record


def _chosen(study: Study, arms: Sequence[str] | None) -> list[str]:
    unknown = [name for name in arms or () if name not in study.arms]
    if unknown:
        raise UserError(f"--arms: {unknown[0]!r} is not one of the arms {', '.join(study.arms)}")
    return [name for name in study.arms if not arms or name in arms]


def _machine(settings: Settings, run: Run, say: Say) -> Machine:
    """The baseline's settings for all: one device, one precision, one number of threads."""
    machine, reasons = resolve_machine(settings.execution, run, local_rank=0, world_size=1)
    prepare_process(machine)
    for reason in reasons:
        say(reason)
    return machine


def _notes(study: Study, runs: dict[str, Run], workload: Workload) -> list[str]:
    """What a reader of the numbers has to know."""
    notes = [f"tokens: {workload.description}"]
    scheduled = [name for name, run in runs.items() if _has_schedule(run)]
    if scheduled:
        notes.append(f"measured as at step 1, before their schedule changes anything: {', '.join(scheduled)}")
    several = [name for name in runs if study.arms[name].processes > 1]
    if several:
        notes.append(f"measured in one process, though the study runs them in several: {', '.join(several)}")
    return notes


def _has_schedule(run: Run) -> bool:
    moves = (getattr(run.model.attention, name).moves for name in PROJECTIONS)
    return any(not isinstance(each, Always | Never) for each in moves)


def _warmed_up(runs: dict[str, Run], machine: Machine, workload: Workload, say: Say) -> dict[str, TimedArm]:
    """Every arm built and past its first steps, which compile and make room for the optimizer's moments."""
    counts = [totals(run.model) for run in runs.values()]
    needed_bytes = sum(each.weight_bytes + each.optimizer_bytes for each in counts)
    say(f"{machine}; {len(runs)} arms in one process, {mebibytes(needed_bytes)} of weights and moments")
    timed = {}
    for name, run in runs.items():
        timed[name] = TimedArm(run, machine, workload)
        took = [timed[name].step() for _ in range(WARMUP_STEPS)]
        say(f"{name} is warm: first step {took[0]:.2f} s, then {took[-1]:.3f} s")
    return timed


def _pairs(study: Study, names: list[str], baseline: str) -> list[Pair]:
    """The ratios in question: those of the hypotheses about speed, else every arm against the baseline."""
    asked = [(each.treatment, each.control) for each in study.hypotheses if each.kind == "faster"]
    known = [pair for pair in asked if set(pair) <= set(names)]
    return known or [(name, baseline) for name in names if name != baseline]


def _timed_rounds(
    timed: dict[str, TimedArm],
    pairs: list[Pair],
    *,
    rounds: int,
    steps_per_round: int,
    until_half_width: float | None,
    say: Say,
) -> dict[str, list[float]]:
    began = said = time.monotonic()
    seconds: dict[str, list[float]] = {}
    steps = {name: arm.step for name, arm in timed.items()}
    for done, seconds in enumerate(rounds_of(steps, rounds=rounds, steps_per_round=steps_per_round), start=1):
        enough = _is_enough(seconds, pairs, done, until_half_width)
        if enough or done == rounds or time.monotonic() - said >= SAY_SECONDS:
            said = time.monotonic()
            left = 0.0 if enough else (said - began) / done * (rounds - done)
            say(f"round {done}/{rounds}{_ratio_so_far(seconds, pairs)}  ETA {duration(left)}")
        if enough:
            break
    return seconds


def _is_enough(seconds: dict[str, list[float]], pairs: list[Pair], done: int, until_half_width: float | None) -> bool:
    if until_half_width is None or done < LEAST_ROUNDS or not pairs:
        return False
    return all(half_width(paired(seconds[one], seconds[other])) <= until_half_width for one, other in pairs)


def _ratio_so_far(seconds: dict[str, list[float]], pairs: list[Pair]) -> str:
    if not pairs:
        return ""
    treatment, control = pairs[0]
    middle, low, high = interval(paired(seconds[treatment], seconds[control]))
    return f"  step, {treatment} / {control}: {middle:.3f} ({low:.3f} to {high:.3f})"
