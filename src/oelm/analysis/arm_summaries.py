"""One arm of a study in numbers: its parameters from the config, its results from the finished runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from oelm.accounting import parts, totals, training_flops, training_flops_per_token
from oelm.analysis.curves import Record, mean_curve, reached, with_value
from oelm.analysis.findings import ArmSummary, Ratio
from oelm.analysis.statistics import paired_difference, standard_deviation
from oelm.arms import described
from oelm.config import Encoder, Run, resolved
from oelm.study.declaration import Study, settings_for
from oelm.study.plan import Plan, PlannedRun
from oelm.study.shelf import Shelf


@dataclass(frozen=True)
class ArmRuns:
    """The final runs of an arm; metric files are read once."""

    arm: str
    run: Run  # of the first seed, whether it is stored or not
    planned: list[PlannedRun]

    @cached_property
    def finished(self) -> list[PlannedRun]:
        """By seed, so that no result depends on the order of the runs."""
        return sorted((run for run in self.planned if is_finished(run)), key=lambda run: run.seed)

    @cached_property
    def losses(self) -> dict[int, float]:
        return {run.seed: run.loss for run in self.finished if run.loss is not None}

    @cached_property
    def accuracies(self) -> dict[int, float]:
        """Empty unless the runs classify."""
        found = {run.seed: accuracy_of(run) for run in self.finished}
        return {seed: accuracy for seed, accuracy in found.items() if accuracy is not None}

    @cached_property
    def records(self) -> list[list[Record]]:
        return [run.stored.directory.metrics() for run in self.finished if run.stored]

    def results(self, name: str) -> list[Any]:
        """One entry of every finished run's result, where it is recorded."""
        found = [run.stored.result.get(name) for run in self.finished if run.stored and run.stored.result]
        return [value for value in found if value is not None]


def is_finished(run: PlannedRun) -> bool:
    """With every number that counts."""
    classified = not isinstance(run.run.model, Encoder) or accuracy_of(run) is not None
    return run.state == "finished" and run.loss is not None and classified


def accuracy_of(run: PlannedRun) -> float | None:
    accuracy = (run.stored.result or {}).get("accuracy") if run.stored else None
    return float(accuracy) if isinstance(accuracy, int | float) and 0 <= accuracy <= 1 else None


def runs_by_arm(study: Study, plan: Plan, shelf: Shelf) -> dict[str, ArmRuns]:
    return {arm: ArmRuns(arm, _example(study, plan, shelf, arm), plan.by_arm[arm]) for arm in study.arms}


def _example(study: Study, plan: Plan, shelf: Shelf, arm: str) -> Run:
    if plan.by_arm[arm]:
        return plan.by_arm[arm][0].run
    return resolved(settings_for(study, arm, seed=study.seeds[0]).run, shelf.facts)


def target_perplexity(study: Study, baseline: ArmRuns) -> float | None:
    """So much above the perplexity of the baseline's mean loss; None where the runs classify."""
    if study.classifies:
        return None
    reference = perplexity(fmean(baseline.losses.values())) if baseline.losses else None
    return None if reference is None else reference * (1 + study.target_percent / 100)


def perplexity(loss: float) -> float | None:
    """None where a float has no room for it."""
    return math.exp(loss) if loss < 700 else None


def arm_summary(
    plan: Plan,
    runs: ArmRuns,
    baseline: ArmRuns,
    *,
    target: float | None,
    ratio_of: Callable[[str, str], Ratio | None],
) -> ArmSummary:
    counted, losses = totals(runs.run.model), list(runs.losses.values())
    training, choice = runs.run.training, plan.choices.get(runs.arm)
    is_baseline = runs.arm == baseline.arm
    flops_per_token = training_flops_per_token(runs.run.model)
    return ArmSummary(
        arm=runs.arm,
        spec=described(runs.run.model.attention),
        total=counted.total,
        trainable=counted.trainable,
        frozen=counted.frozen,
        parts=[asdict(part) | {"trainable": part.trainable} for part in parts(runs.run.model)],
        learning_rate=_learning_rate(plan, runs),
        values=choice.values if choice else {},
        losses=runs.losses,
        states=_states(plan, runs),
        mean_loss=fmean(losses) if losses else None,
        standard_deviation=standard_deviation(losses),
        difference=None if is_baseline else paired_difference(runs.losses, baseline.losses),
        tokens=round(training.steps * training.batch_size * runs.run.model.tokens_per_example),
        flops=training_flops(runs.run),
        seconds_per_step=_mean(runs.results("mean_step_seconds")),
        training_seconds=sum(seconds) if (seconds := runs.results("training_seconds")) else None,
        ratio=None if is_baseline else ratio_of(runs.arm, baseline.arm),
        peak_memory_bytes=max(runs.results("peak_memory_bytes"), default=None),
        weight_bytes=counted.weight_bytes,
        gradient_bytes=counted.gradient_bytes,
        optimizer_bytes=counted.optimizer_bytes,
        validation_curve=mean_curve(runs.records, "val_loss"),
        training_curve=mean_curve(runs.records, "train_loss"),
        learning_rate_curve=_learning_rate_curve(runs.records),
        reached=reached(runs.records, math.log(target), flops_per_token=flops_per_token) if target else None,
        **(_of_classification(runs, baseline) if plan.study.classifies else {}),
    )


def _of_classification(runs: ArmRuns, baseline: ArmRuns) -> dict[str, Any]:
    examples, training = set(runs.results("examples")), runs.run.training
    errors, reference = ({seed: 1 - value for seed, value in each.accuracies.items()} for each in (runs, baseline))
    return {
        "batch_size": training.batch_size,
        "training_examples": training.steps * training.batch_size,
        "accuracies": runs.accuracies,
        "accuracy": _mean(list(runs.accuracies.values())),
        "accuracy_deviation": standard_deviation(list(runs.accuracies.values())),
        "examples": examples.pop() if len(examples) == 1 else None,
        "error_difference": None if runs.arm == baseline.arm else paired_difference(errors, reference),
        "accuracy_curve": mean_curve(runs.records, "accuracy"),
    }


def _learning_rate(plan: Plan, runs: ArmRuns) -> float | None:
    """None while it is being tuned, or where no point of the grid was stable."""
    if plan.study.learning_rate_is_tuned and not runs.planned:
        return None
    return runs.run.training.learning_rate


def _states(plan: Plan, runs: ArmRuns) -> dict[str, list[int]]:
    """Every seed the study asks for, by the state of its run."""
    by_seed = {
        run.seed: "failed" if run.state == "finished" and not is_finished(run) else run.state for run in runs.planned
    }
    states: dict[str, list[int]] = {}
    for seed in sorted(plan.study.seeds):
        states.setdefault(by_seed.get(seed, "missing"), []).append(seed)
    return states


def _learning_rate_curve(records: Sequence[Sequence[Record]]) -> list[tuple[int, float]]:
    """Of the first seed: the schedule is the same for all."""
    first = with_value(records[0], "learning_rate") if records else []
    return [(record["step"], record["learning_rate"]) for record in first]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
