"""Whether an arm has learnt anything: its mean over seeds, with its interval, against the floor of what is compared."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from oelm.analysis import statistics
from oelm.analysis.findings import ArmSummary
from oelm.core.config import ResolvedRun
from oelm.core.floors import Floor
from oelm.core.measures import Measure
from oelm.data.floor import floor_here
from oelm.study.declaration import Hypothesis
from oelm.study.plan import PlannedRun


def floor_of(runs: Sequence[PlannedRun], example: ResolvedRun, measure: Measure, *, digest: str | None) -> Floor | None:
    """As a finished run stored it; where none did, from the data with this digest, if they are here. Runs that
    are compared report the same windows or examples."""
    for run in runs:
        if run.stored is not None and run.stored.result is not None:
            digest = run.stored.data_digest or digest
            floor = measure.floor(run.stored.result, run.stored.predictions.get("labels") or [])
            if floor is not None:
                return floor
    return measure.floor(floor_here(example, digest=digest), [])


def is_beyond(level: float, floor: Floor, costs: Sequence[float], measure: Measure) -> bool:
    """Clearly: the whole 95 % interval of the mean over seeds; of one seed, its value."""
    bound = statistics.upper_end(costs)
    return bound < measure.cost(level) - floor.allowance(level)


def costs_of(hypothesis: Hypothesis, arm: ArmSummary, seeds: Sequence[int]) -> dict[int, float]:
    """By seed, of what a claim compares. Those of runs that do not report its difficulty are missing."""
    if hypothesis.difficulty is None or arm.probe is None:
        costs = arm.quality.costs
    else:
        name, reports = str(hypothesis.difficulty), arm.probe.by_difficulty
        costs = {seed: hypothesis.quality.cost(each[name]) for seed, each in reports.items() if name in each}
    return {seed: cost for seed, cost in costs.items() if seed in seeds}


Facts = dict[str, Any]


def nothing_learnt(hypothesis: Hypothesis, controls: Sequence[ArmSummary], seeds: Sequence[int]) -> Facts | None:
    """The controls of a claim that are not clearly beyond the floor: a difference from them decides nothing."""
    levels = [each.floor.learnt_nothing if each.floor else None for each in controls]
    return _not_beyond(levels, hypothesis, controls, seeds)


def learnt_little(hypothesis: Hypothesis, controls: Sequence[ArmSummary], seeds: Sequence[int]) -> Facts | None:
    """The same of the level above it."""
    levels = [each.floor.little(hypothesis.difficulty) if each.floor else None for each in controls]
    return _not_beyond(levels, hypothesis, controls, seeds)


def _not_beyond(
    levels: Sequence[float | None], hypothesis: Hypothesis, controls: Sequence[ArmSummary], seeds: Sequence[int]
) -> Facts | None:
    """Named with the value and the level of the first."""
    measure, found = hypothesis.quality, dict[str, tuple[float, float]]()
    for arm, level in zip(controls, levels, strict=True):
        costs = list(costs_of(hypothesis, arm, seeds).values())
        if costs and arm.floor and level is not None and not is_beyond(level, arm.floor, costs, measure):
            found[arm.arm] = measure.cost(fmean(costs)), level
    if not found:
        return None
    reached, level = next(iter(found.values()))
    return {"arms": list(found), "reached": reached, "floor": level}
