"""What a reader of a study should know besides its verdicts, as codes with facts (see findings.NOTES)."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any

from oelm.analysis.arm_summaries import ArmRuns, accuracy_of, is_finished
from oelm.analysis.statistics import LEAST_PAIRS, accuracy_standard_error
from oelm.config import Encoder
from oelm.run_directory import COMPARED_ENVIRONMENT
from oelm.study.confounds import recorded
from oelm.study.declaration import Study
from oelm.study.plan import Plan, PlannedRun
from oelm.study.shelf import Shelf

Note = tuple[str, dict[str, Any]]


def notes(study: Study, plan: Plan, shelf: Shelf, runs: dict[str, ArmRuns]) -> list[Note]:
    return [
        *_on_tuning(study, plan, runs),
        *(_on_chance(plan, runs) if study.classifies else ()),
        *_on_seeds(study),
        *_on_environments(runs),
        *_on_bench(shelf, runs),
        *(("unreadable", {"line": line}) for line in shelf.unreadable),
    ]


def _on_tuning(study: Study, plan: Plan, runs: dict[str, ArmRuns]) -> Iterator[Note]:
    rates = {arm.run.training.learning_rate for arm in runs.values()}
    if not study.learning_rate_is_tuned and len(rates) == 1:
        yield "fixed_learning_rate", {"learning_rate": rates.pop()}
    for arm, choice in plan.choices.items():
        if choice.best is None:
            yield "all_points_diverged", {"arm": arm}
        for key in choice.edges:
            yield "edge_optimum", {"arm": arm, "key": key, "value": choice.values[key]}


def _on_chance(plan: Plan, runs: dict[str, ArmRuns]) -> Iterator[Note]:
    """Classifiers that learnt nothing: a value chosen among such is chosen by noise."""
    for arm, choice in plan.choices.items():
        chosen = [run for run in plan.tuning if run.arm == arm and run.point == choice.best and is_finished(run)]
        if chosen and all(map(_is_at_chance, chosen)):
            yield "tuning_at_chance", {"arm": arm, "accuracy": fmean(accuracy_of(run) or 0.0 for run in chosen)}
    for arm, each in runs.items():
        if each.finished and all(map(_is_at_chance, each.finished)):
            yield "at_chance", {"arm": arm, "accuracy": fmean(each.accuracies.values())}


def _is_at_chance(run: PlannedRun) -> bool:
    """Not above always naming the commonest label by two standard errors."""
    assert run.stored is not None
    assert isinstance(run.run.model, Encoder)
    labels, examples = run.stored.predictions.get("labels"), (run.stored.result or {}).get("examples")
    if isinstance(labels, list) and labels:
        chance, examples = max(map(labels.count, set(labels))) / len(labels), len(labels)
    else:
        chance = 1 / (run.run.model.labels or 1)
    return bool(examples) and (accuracy_of(run) or 0.0) < chance + 2 * accuracy_standard_error(chance, examples)


def _on_seeds(study: Study) -> Iterator[Note]:
    if len(study.seeds) < LEAST_PAIRS:
        yield "few_seeds", {"seeds": len(study.seeds)}


def _on_environments(runs: dict[str, ArmRuns]) -> Iterator[Note]:
    finished = [run for arm in runs.values() for run in arm.finished]
    environments = [run.stored.environment for run in finished if run.stored]
    unknown = sum(not environment for environment in environments)
    if unknown:
        yield "not_recorded", {"runs": unknown}
    known = [recorded(run) for run in finished if run.stored and run.stored.environment]
    for key in COMPARED_ENVIRONMENT:
        values = sorted({environment[key] for environment in known})
        if len(values) > 1:
            yield "mixed_environment", {"key": key, "values": values}
    uncommitted = sum(bool(environment.get("dirty")) for environment in environments)
    if uncommitted:
        yield "uncommitted_sources", {"runs": uncommitted}


def _on_bench(shelf: Shelf, runs: dict[str, ArmRuns]) -> Iterator[Note]:
    measured = (shelf.bench() or {}).get("source_digest")
    computed = sorted(
        {
            run.stored.environment["source_digest"]
            for arm in runs.values()
            for run in arm.finished
            if run.stored and run.stored.environment.get("source_digest")
        }
    )
    if measured and computed and measured not in computed:
        yield "bench_of_other_sources", {"bench": measured, "runs": computed}
