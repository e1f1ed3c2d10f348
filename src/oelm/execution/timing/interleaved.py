"""The speed of a study's arms: all of them alive in one process, stepping by turns on one device, the baseline twice.

Only this speaks about speed; the seconds of separate runs differ by whatever else the machine was doing.
"""

from __future__ import annotations

import gc
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from oelm.core.accounting import as_at_first_step, step_work, totals
from oelm.core.config import ResolvedRun, resolved, stored_form
from oelm.core.moves import Always, Never
from oelm.execution.timing.blocks import Build, Step, TimedBlock, blocks_of, judged
from oelm.execution.timing.workload import TimedArm, Workload, workload_of
from oelm.machine.durations import duration
from oelm.machine.errors import UserError
from oelm.machine.exhaustion import mebibytes
from oelm.run.training.device import Machine, prepare_process, resolve_machine
from oelm.run.training.provenance import environment
from oelm.storage.files import ensure_writable, write_sealed
from oelm.storage.ownership import now
from oelm.study.bench import BENCH_FILE, FORMAT_VERSION, LEAST_BLOCKS, REJECTED_FILE, Bench, BlockRecord, bench_of
from oelm.study.bench_fit import compared, lack_of, step_execution, timed_settings
from oelm.study.declaration import Study
from oelm.study.plan import Plan, planned
from oelm.study.scaled import at_main_size
from oelm.study.shelf import Shelf

WARMUP_STEPS = 2  # the first compiles and makes room for the moments, the second finds everything in place
SAY_SECONDS = 5.0
TWIN = "the baseline again"  # no name of an arm has spaces

Say = Callable[[str], None]
Pair = tuple[str, str]  # treatment and control


def measure(
    study: Study,
    *,
    out: Path,
    rounds: int = 60,
    steps_per_round: int = 4,
    say: Say = print,
    arms: Sequence[str] | None = None,
    until_half_width: float | None = None,
    seed: int | None = None,
    replace: bool = False,
) -> dict[str, Any]:
    """Time the arms by turns and write bench.json into `out`, the study's folder of runs. Without `replace`, one that
    lacks what the stored one has is written beside it.

    A round is one block; a disturbed one does not count, and another takes its place while there are rounds left. With
    `until_half_width` it ends as soon as every ratio in question is known that well, for example 0.01.
    """
    names = _chosen(study, arms)
    baseline = study.baseline if study.baseline in names else names[0]
    ensure_writable(out, option="--runs")
    shelf = Shelf(out)
    plan = planned(study, shelf)
    settings = {name: timed_settings(plan, name) for name in names}
    workload = workload_of(settings[baseline].run, assumed=shelf.facts)
    runs = {name: resolved(each.run, workload.facts) for name, each in settings.items()}
    execution = timed_settings(plan, study.baseline).execution
    # The baseline's for all: one device, one precision, one number of threads.
    machine, reasons = resolve_machine(execution, runs[baseline], local_rank=0, world_size=1)
    prepare_process(machine)
    for reason in reasons:
        say(reason)
    seed = secrets.randbits(32) if seed is None else seed
    notes = _notes(study, runs, workload)
    for note in notes:
        say(note)
    counts = [totals(run.model) for run in (*runs.values(), runs[baseline])]
    needed_bytes = sum(each.weight_bytes + each.optimizer_bytes for each in counts)
    say(
        f"{machine}; {len(runs)} arms and {baseline} a second time as a control, in one process, "
        f"{mebibytes(needed_bytes)} of weights and moments"
    )
    blocks = blocks_of(
        _contenders(runs, baseline, machine, workload, say),
        blocks=rounds,
        steps=steps_per_round,
        threads=machine.threads,
        seed=seed,
        may_rebuild=not machine.compile,  # every new model would be compiled anew
    )
    taken, pairs = _Taken(baseline, names), _pairs(study, names, baseline)
    gc.freeze()  # what is there already: collecting old contenders before every block then takes no time
    try:
        _take(taken, blocks, pairs, rounds=rounds, until_half_width=until_half_width, say=say)
    finally:
        gc.unfreeze()
    record = {
        "format_version": FORMAT_VERSION,
        "baseline": baseline,
        "arms": names,
        **environment(machine, world_size=1, data_digest=workload.digest),
        "execution": step_execution(execution),
        "runs": {name: stored_form(run) for name, run in runs.items()},
        "accelerator": torch.cuda.get_device_name(machine.device) if machine.kind == "cuda" else None,
        "tokens": workload.description,
        "rounds": len(taken.twin),
        "steps_per_round": steps_per_round,
        "until_half_width": until_half_width,
        "seed": seed,
        "rebuilt": taken.rebuilt,
        "seconds": taken.seconds,
        "twin": taken.twin,
        "blocks": [block.model_dump() for block in taken.records],
        "work": {name: step_work(as_at_first_step(run)) for name, run in runs.items()},
        "notes": notes,
        "created": now(),
    }
    name = BENCH_FILE if replace else _place_for(record, plan, shelf, workload, say)
    write_sealed(out / name, record)
    return record


def _place_for(record: dict[str, Any], plan: Plan, shelf: Shelf, workload: Workload, say: Say) -> str:
    """The name of its file: what is there is replaced only where nothing is lost."""
    path, stored = shelf.folder / BENCH_FILE, shelf.bench()
    if not isinstance(stored, Bench):
        return BENCH_FILE
    if workload.digest:
        before = compared(stored, plan, facts=workload.facts, data_digests=[workload.digest])
    else:  # drawn tokens say nothing of the data
        before = compared(stored, plan, facts=shelf.facts, data_digests=[])
    lack = lack_of(bench_of(record, path), beside=before, study=plan.study)
    if lack is None:
        return BENCH_FILE
    say(f"{path} stays: this measurement {lack}; it is in {REJECTED_FILE} (--replace writes {BENCH_FILE} anyway)")
    return REJECTED_FILE


class _Taken:
    """The blocks so far."""

    def __init__(self, baseline: str, names: list[str]) -> None:
        self.baseline = baseline
        self.seconds: dict[str, list[float]] = {name: [] for name in names}
        self.twin: list[float] = []
        self.records: list[BlockRecord] = []
        self.rebuilt = True

    def add(self, block: TimedBlock) -> None:
        for name, times in self.seconds.items():
            times.append(block.seconds[name])
        self.twin.append(block.seconds[TWIN])
        self.records = judged([*self.records, block.record])
        self.rebuilt = self.rebuilt and block.built_anew

    @property
    def bench(self) -> Bench:
        disturbed = tuple(tuple(each.disturbed) for each in self.records)
        return Bench(self.baseline, self.seconds, self.twin, disturbed)


def _chosen(study: Study, arms: Sequence[str] | None) -> list[str]:
    unknown = [name for name in arms or () if name not in study.arms]
    if unknown:
        raise UserError(f"--arms: {unknown[0]!r} is not one of the arms {', '.join(study.arms)}")
    return [name for name in (study.arms if arms else at_main_size(study)) if not arms or name in arms]


def _notes(study: Study, runs: dict[str, ResolvedRun], workload: Workload) -> list[str]:
    """What a reader of the numbers has to know."""
    notes = [f"tokens: {workload.description}"]
    parts = {name: [part for _, part in run.model.parts.items()] for name, run in runs.items()}
    scheduled = [
        name for name, each in parts.items() if any(not isinstance(part.moves, Always | Never) for part in each)
    ]
    if scheduled:
        notes.append(f"measured as at step 1, before their schedule changes anything: {', '.join(scheduled)}")
    several = [name for name in runs if study.arms[name].processes > 1]
    if several:
        notes.append(f"measured in one process, although the study runs them in several: {', '.join(several)}")
    return notes


def _contenders(
    runs: dict[str, ResolvedRun], baseline: str, machine: Machine, workload: Workload, say: Say
) -> dict[str, Build]:
    """How to build each arm, and the baseline once more."""
    seen: set[str] = set()

    def building(name: str, run: ResolvedRun) -> Build:
        def build() -> Step:
            arm = TimedArm(run, machine, workload)
            took = [arm.step() for _ in range(WARMUP_STEPS)]
            if name not in seen:
                say(f"{name} is warm: first step {took[0]:.2f} s, then {took[-1]:.3f} s")
            seen.add(name)
            return arm.step

        return build

    return {name: building(name, run) for name, run in {**runs, TWIN: runs[baseline]}.items()}


def _pairs(study: Study, names: list[str], baseline: str) -> list[Pair]:
    """The ratios in question: those of the hypotheses about speed, else every arm against the baseline."""
    asked = [(each.treatment, each.control) for each in study.hypotheses if each.evidence == "speed"]
    known = [pair for pair in asked if set(pair) <= set(names)]
    return known or [(name, baseline) for name in names if name != baseline]


def _take(
    taken: _Taken,
    blocks: Iterator[TimedBlock],
    pairs: list[Pair],
    *,
    rounds: int,
    until_half_width: float | None,
    say: Say,
) -> None:
    began = said = time.monotonic()
    for done, block in enumerate(blocks, start=1):
        taken.add(block)
        bench = taken.bench
        enough = until_half_width is not None and _is_enough(bench, pairs, until_half_width)
        if enough or done == rounds or time.monotonic() - said >= SAY_SECONDS:
            said = time.monotonic()
            left = 0.0 if enough else (said - began) / done * (rounds - done)
            causes = Counter(cause for each in bench.disturbed for cause in each)
            listed = ", ".join(f"{cause} {count}" for cause, count in causes.most_common())
            disturbed = f", {bench.blocks - len(bench.quiet)} disturbed ({listed})" if causes else ""
            so_far, ratio = "", bench.ratio(*pairs[0]) if pairs else None
            if ratio is not None:
                so_far = f"  step, {' / '.join(pairs[0])}: {ratio.middle:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
            say(f"block {done}/{rounds}{disturbed}{so_far}  ETA {duration(left)}")
        if enough:
            break


def _is_enough(bench: Bench, pairs: list[Pair], until_half_width: float) -> bool:
    if len(bench.quiet) < LEAST_BLOCKS:
        return False
    ratios = [bench.ratio(*pair) for pair in pairs] or [bench.control]
    return all(ratio is not None and ratio.half_width <= until_half_width for ratio in ratios)
