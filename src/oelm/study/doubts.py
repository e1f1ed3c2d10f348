"""What should be known of a study's folder before its numbers are believed; of runs that count, it is found here.

Execution is no part of what a run is, so a run counts whatever it was computed with; and the config alone says which
seed a run has. Both are compared with what the finished runs recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from oelm.core.config import STEP_EXECUTION, Encoder, Seeds
from oelm.study.bench_fit import LEFT_TO_THE_MACHINE, bench_for, place_of, remarks_on
from oelm.study.plan import Plan, PlannedRun
from oelm.study.remarks import Differences, Remark, kinds_text, sentence, some
from oelm.study.shelf import Shelf, StoredRun, computation
from oelm.study.strays import strays

Losses = tuple[tuple[int, float | None, float | None], ...]  # step, of training, of validation


def lines_on(plan: Plan, shelf: Shelf) -> list[str]:
    """Everything, for a terminal."""
    on_bench = remarks_on(bench_for(plan, shelf), plan.study)
    return [sentence(*remark) for remark in (*plan.remarks, *strays(plan, shelf), *doubts(plan), *on_bench)]


def doubts(plan: Plan) -> Iterator[Remark]:
    """Of the finished runs that count."""
    finished = {run.stored.directory.path: run for run in plan.runs if run.stored and run.state == "finished"}
    yield from _on_execution(finished.values())
    yield from same_losses(run.stored for run in finished.values() if run.stored)


# ---- Execution -----------------------------------------------------------------------------------------------------


def _on_execution(runs: Iterable[PlannedRun]) -> Iterator[Remark]:
    kinds: Counter[Differences] = Counter()
    for run in runs:
        if run.stored and (found := tuple(_other_execution(run, run.stored.environment))):
            kinds[found] += 1
    if kinds:
        yield "other_execution", {"runs": kinds.total(), "differences": kinds_text(kinds)}


def _other_execution(run: PlannedRun, recorded: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """What the study leaves to the machine cannot differ."""
    for key in STEP_EXECUTION:
        declared, then = getattr(run.settings.execution, key), recorded.get(key)
        if declared in LEFT_TO_THE_MACHINE or then is None:
            continue
        if key == "compile":
            then = "on" if then else "off"
        if place_of(then) != place_of(_as_computed(run, key, declared)):
            yield f"execution.{key}", then, declared


def _as_computed(run: PlannedRun, key: str, declared: Any) -> Any:
    """A declared value as a run records it: an encoder is never compiled, and no micro-batch is larger than a batch."""
    if key == "compile" and isinstance(run.run.model, Encoder):
        return "off"
    if key == "micro_batch_size":
        return min(declared, -(-run.run.training.batch_size // run.processes))
    return declared


# ---- Seeds ---------------------------------------------------------------------------------------------------------


def same_losses(runs: Iterable[StoredRun]) -> Iterator[Remark]:
    """Finished runs that only their seeds tell apart, and that lost the same to the last bit all along."""
    alike: dict[tuple[str, str | None, float], list[StoredRun]] = {}
    for run in runs:
        if run.result is not None:
            identity = computation(run.run.model_copy(update={"seeds": Seeds()}))
            alike.setdefault((identity, run.data_digest, run.result["val_loss"]), []).append(run)
    texts = [text for group in alike.values() if len(group) > 1 for text in _doubles(group)]
    if texts:
        yield "same_losses", {"copies": some(sorted(texts))}


def _doubles(runs: list[StoredRun]) -> Iterator[str]:
    by_losses: dict[Losses, dict[str, StoredRun]] = {}
    for run in sorted(runs, key=lambda run: run.name):
        by_losses.setdefault(_losses(run), {}).setdefault(run.run.seeds.model_dump_json(), run)
    for by_seed in by_losses.values():
        if len(by_seed) > 1:
            yield ", ".join(run.name for run in by_seed.values())


def _losses(run: StoredRun) -> Losses:
    records = run.directory.metrics()
    return tuple((each["step"], each.get("train_loss"), each.get("val_loss")) for each in records)
