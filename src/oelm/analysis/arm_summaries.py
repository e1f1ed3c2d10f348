"""One arm of a study in numbers: its parameters from the config, its results from the finished runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from statistics import fmean
from typing import Any

from oelm.analysis.findings import (
    ArmSummary,
    Curve,
    Heads,
    PairedDifference,
    ProbeSummary,
    Quality,
    Reached,
    SolvedSeeds,
)
from oelm.analysis.floors import floor_of
from oelm.analysis.speed import SpeedOf
from oelm.analysis.spending import interval_level
from oelm.analysis.statistics import paired_difference, standard_deviation
from oelm.core.accounting import parts, totals, training_flops, training_flops_per_token
from oelm.core.arm_words import described
from oelm.core.config import ResolvedRun, as_far_as_known
from oelm.core.logarithms import exponential
from oelm.core.measures import LOSS, Measure
from oelm.core.probes.probe import is_probe, probe_of
from oelm.core.solving import by_difficulty
from oelm.data.prepared import name_here
from oelm.models.heads.kinds import KINDS
from oelm.run.directory import RunDirectory
from oelm.storage.metric_records import HeadTables, Record, strongest_head
from oelm.study.declaration import Study
from oelm.study.one_run import settings_for
from oelm.study.plan import Plan, PlannedRun
from oelm.study.shelf import StoredRun


@dataclass(frozen=True)
class ArmRuns:
    """The final runs of an arm."""

    arm: str
    run: ResolvedRun  # of the first seed, whether it is stored or not
    planned: list[PlannedRun]
    measure: Measure  # of the study

    @cached_property
    def finished(self) -> list[PlannedRun]:
        """By seed, so that no result depends on the order of the runs."""
        ordered = sorted(self.planned, key=lambda run: run.seed)
        return [run for run in ordered if is_finished(run, self.measure)]

    @cached_property
    def ended(self) -> dict[int, StoredRun]:
        """By seed, the runs that have finished or diverged."""
        ended = [*self.finished, *(run for run in self.planned if run.state == "diverged")]
        return {run.seed: run.stored for run in sorted(ended, key=lambda run: run.seed) if run.stored}

    @cached_property
    def losses(self) -> dict[int, float]:
        return self.values_of(LOSS)

    def values_of(self, measure: Measure) -> dict[int, float]:
        """By seed, of those that have this value."""
        found = {run.seed: value_of(run, measure) for run in self.finished}
        return {seed: value for seed, value in found.items() if value is not None}

    @property
    def directories(self) -> list[RunDirectory]:
        """By seed."""
        return [run.stored.directory for run in self.finished if run.stored]

    def records(self, target_loss: float | None) -> list[list[Record]]:
        """By seed. Curves need the steps that all runs share, so what the shortest file keeps, the others keep too."""
        found: dict[RunDirectory, list[Record]] = {}
        steps: set[int] = set()
        for directory in sorted(self.directories, key=RunDirectory.metrics_bytes):
            found[directory] = directory.metrics(target_loss=target_loss, also=steps)
            steps = steps or {record["step"] for record in found[directory]}
        return [found[directory] for directory in self.directories]

    def results(self, name: str) -> list[Any]:
        """One entry of every finished run's result, where it is recorded."""
        found = [run.stored.result.get(name) for run in self.finished if run.stored and run.stored.result]
        return [value for value in found if value is not None]


def is_finished(run: PlannedRun, measure: Measure) -> bool:
    """With every number that counts: the loss, and what the study compares."""
    return run.state == "finished" and all(value_of(run, each) is not None for each in (LOSS, measure))


def value_of(run: PlannedRun, measure: Measure) -> float | None:
    return measure.value_of(run.stored.result) if run.stored and run.stored.result else None


def runs_by_arm(study: Study, plan: Plan) -> dict[str, ArmRuns] | None:
    """None where nothing says how large the models are: the data is not here, and no run is stored."""
    found: dict[str, ArmRuns] = {}
    for arm in study.arms:
        planned = plan.by_arm[arm]
        declared = None if planned else settings_for(study, arm, seed=study.seeds[0]).run
        example = planned[0].run if declared is None else as_far_as_known(declared, plan.facts)
        if not isinstance(example, ResolvedRun):
            return None
        found[arm] = ArmRuns(arm, example, planned, study.measure)
    return found


def target_perplexity(study: Study, baseline: ArmRuns) -> float | None:
    """So much above the perplexity of the baseline's mean loss; None where the measure has no target."""
    if not study.measure.has_target or not baseline.losses:
        return None
    reference = exponential(fmean(baseline.losses.values()))
    return reference * (1 + study.target_percent / 100) if math.isfinite(reference) else None


COUNTED = ("role", "layer", "total", "trainable", "frozen", "implied")  # of a part


def arm_summary(
    plan: Plan,
    runs: ArmRuns,
    baseline: ArmRuns,
    *,
    target: float | None,
    speed_of: SpeedOf,
    with_curves: bool = True,
) -> ArmSummary:
    """Without curves the metric files stay unread, unless heads were scored in them: no verdict needs more."""
    counted, losses = totals(runs.run.model), list(runs.losses.values())
    training, choice = runs.run.training, plan.choices.get(runs.arm)
    is_baseline = runs.arm == baseline.arm
    flops_per_token = training_flops_per_token(runs.run.model)
    target_loss = math.log(target) if target else None
    directories = runs.directories
    is_read = with_curves or any(first.last_head_scores() for first in directories[:1])
    records = runs.records(target_loss) if is_read else [[] for _ in directories]
    return ArmSummary(
        arm=runs.arm,
        spec=described(runs.run.model),
        total=counted.total,
        trainable=counted.trainable,
        frozen=counted.frozen,
        implied=counted.implied,
        parts=[{name: getattr(part, name) for name in COUNTED} for part in parts(runs.run.model)],
        # None while it is being tuned, or where no point of the grid was stable.
        learning_rate=None if plan.study.learning_rate_is_tuned and not runs.planned else training.learning_rate,
        values=choice.values if choice else {},
        losses=runs.losses,
        states=_states(plan, runs),
        mean_loss=fmean(losses) if losses else None,
        standard_deviation=standard_deviation(losses),
        difference=None if is_baseline else _difference(plan.study, runs.losses, baseline.losses),
        data=_name_of_data(plan, runs.run.data),
        tokens=round(training.steps * training.batch_size * runs.run.model.tokens_per_example),
        flops=training_flops(runs.run),
        seconds_per_step=_mean(runs.results("mean_step_seconds")),
        training_seconds=sum(seconds) if (seconds := runs.results("training_seconds")) else None,
        ratio=None if is_baseline else speed_of(runs.arm, baseline.arm).ratio,
        peak_memory_bytes=max(runs.results("peak_memory_bytes"), default=None),
        weight_bytes=counted.weight_bytes,
        gradient_bytes=counted.gradient_bytes,
        optimizer_bytes=counted.optimizer_bytes,
        validation_curve=mean_curve(records, "val_loss"),
        training_curve=mean_curve(records, "train_loss"),
        learning_rate_curve=[
            (record["step"], record["learning_rate"])
            for record in (with_value(records[0], "learning_rate") if records else [])  # the same for all seeds
        ],
        reached=reached(records, target_loss, flops_per_token=flops_per_token) if target_loss is not None else None,
        quality=_quality(plan.study, runs, baseline, records),
        floor=floor_of(runs.finished, runs.run, runs.measure, digest=plan.digests.get(runs.run.data)),
        probe=_probe(plan.study, runs) if plan.study.probes else None,
        heads=heads_of(list(zip(directories, records, strict=True))),
        **(_of_examples(runs) if plan.study.fine_tunes else {}),
    )


def _name_of_data(plan: Plan, data: str) -> str:
    """As the runs noted it from the manifest; before there are any, as the manifest says it here. Runs of before it was
    noted have the name of the folder alone."""
    if is_probe(data):
        return probe_of(data).name
    stored = [run.stored for run in plan.runs if run.run.data == data and run.stored and run.stored.data_digest]
    noted = next((name for run in stored if (name := run.environment.get("data_name"))), None)
    return noted or (None if stored else name_here(Path(data))) or PurePath(data).name


def _difference(study: Study, one: dict[int, float], other: dict[int, float]) -> PairedDifference:
    """With an interval that holds at every look, where the study has looks."""
    return paired_difference(one, other, level=interval_level(study.looks, len(one.keys() & other.keys())))


def _quality(study: Study, runs: ArmRuns, baseline: ArmRuns, records: Sequence[Sequence[Record]]) -> Quality:
    measure = runs.measure
    values = runs.values_of(measure)
    costs, reference = (
        {seed: measure.cost(value) for seed, value in each.values_of(measure).items()} for each in (runs, baseline)
    )
    return Quality(
        values=values,
        costs=costs,
        mean=_mean(list(values.values())),
        standard_deviation=standard_deviation(list(values.values())),
        difference=None if runs.arm == baseline.arm else _difference(study, costs, reference),
        curve=mean_curve(records, measure.record_key) if measure.record_key else None,
    )


def _probe(study: Study, runs: ArmRuns) -> ProbeSummary:
    results = {run.seed: run.stored.result or {} for run in runs.finished if run.stored}
    return ProbeSummary(
        validate_every=runs.run.training.validate_every,
        accuracies=runs.values_of(runs.measure),
        by_difficulty={seed: by_difficulty(result) for seed, result in results.items()},
        solving=[
            SolvedSeeds(  # a run that diverged did not solve it
                criterion=criterion,
                accuracies={seed: criterion.accuracy(run.result or {}) for seed, run in runs.ended.items()},
                solved={seed: run.solved(criterion) for seed, run in runs.ended.items()},
            )
            for criterion in study.criteria
        ],
    )


def _of_examples(runs: ArmRuns) -> dict[str, Any]:
    examples, training = set(runs.results("examples")), runs.run.training
    return {
        "batch_size": training.batch_size,
        "training_examples": training.steps * training.batch_size,
        "examples": examples.pop() if len(examples) == 1 else None,
    }


def _states(plan: Plan, runs: ArmRuns) -> dict[str, list[int]]:
    """Every seed the study asks for, by the state of its run."""
    by_seed: dict[int, str] = dict.fromkeys(sorted(plan.study.seeds), "missing")
    for run in runs.planned:
        lacks = run.state == "finished" and not is_finished(run, runs.measure)
        by_seed[run.seed] = "unmeasured" if lacks else run.state
    states: dict[str, list[int]] = {}
    for seed, state in by_seed.items():
        states.setdefault(state, []).append(seed)
    return states


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


# ---- Curves ----------------------------------------------------------------------------------------------------------

PLACE = ("step", "tokens", "seconds")


def with_value(records: Sequence[Record], name: str) -> list[Record]:
    """The records that hold a finite number of this name, and their place, by step."""
    kept = [record for record in records if all(_is_finite(record.get(key)) for key in (name, *PLACE))]
    return sorted(kept, key=lambda record: record["step"])


def mean_curve(runs: Sequence[Sequence[Record]], name: str) -> Curve | None:
    """Over the steps that all runs recorded; None if there are none."""
    by_step = [{record["step"]: record for record in with_value(records, name)} for records in runs]
    if not by_step:
        return None
    steps = sorted(set.intersection(*(set(run) for run in by_step)))
    if not steps:
        return None
    values = [[run[step][name] for run in by_step] for step in steps]
    return Curve(
        steps=steps,
        tokens=[by_step[0][step]["tokens"] for step in steps],
        seconds=[fmean(run[step]["seconds"] for run in by_step) for step in steps],
        mean=[fmean(at_step) for at_step in values],
        low=[min(at_step) for at_step in values],
        high=[max(at_step) for at_step in values],
    )


def reached(runs: Sequence[Sequence[Record]], target_loss: float, *, flops_per_token: float) -> Reached | None:
    """Where the validation curves first come down to a loss; None if none does."""
    crossings = [place for records in runs if (place := _crossing(with_value(records, "val_loss"), target_loss))]
    if not crossings:
        return None
    steps, tokens, seconds = (fmean(column) for column in zip(*crossings, strict=True))
    return Reached(len(crossings), steps, tokens, seconds, tokens * flops_per_token)


def _crossing(curve: list[Record], target_loss: float) -> tuple[float, ...] | None:
    """Step, tokens and seconds, between two records in proportion."""
    if not curve:
        return None
    if curve[0]["val_loss"] <= target_loss:
        return tuple(float(curve[0][place]) for place in PLACE)
    for before, after in itertools.pairwise(curve):
        if after["val_loss"] <= target_loss:
            part = (before["val_loss"] - target_loss) / (before["val_loss"] - after["val_loss"])
            return tuple(before[place] + part * (after[place] - before[place]) for place in PLACE)
    return None


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


# ---- Heads -----------------------------------------------------------------------------------------------------------


def heads_of(seeds: Sequence[tuple[RunDirectory, Sequence[Record]]]) -> Heads | None:
    """Over the seeds whose runs recorded scores of heads; None if there are none. Each comes with its records."""
    scored = []
    for directory, records in seeds:
        last = directory.last_head_scores()
        if last and all(with_value(records, strongest_head(kind)) for kind in KINDS):
            scored.append((records, last))
    curves = {kind: mean_curve([records for records, _ in scored], strongest_head(kind)) for kind in KINDS}
    strongest = {kind: curve for kind, curve in curves.items() if curve is not None}
    if not scored or not strongest:
        return None
    return Heads(strongest, _mean_by_rank([last for _, last in scored]), seeds=len(scored))


def _mean_by_rank(tables: Sequence[HeadTables]) -> HeadTables:
    """Of the strongest head of each layer, of the second, and so on: which head of a layer becomes one of a kind is
    chance, so that the mean of equally numbered ones would show neither.
    """
    return {
        kind: [
            [fmean(cells) for cells in zip(*(sorted(row, reverse=True) for row in rows), strict=True)]
            for rows in zip(*(each[kind] for each in tables), strict=True)
        ]
        for kind in KINDS
    }
