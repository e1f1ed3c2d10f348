"""What a reader of a study should know besides its verdicts, as codes with facts (see findings.NOTES)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from oelm.analysis.arm_summaries import ArmRuns, is_finished, value_of
from oelm.analysis.findings import ArmSummary
from oelm.analysis.floors import floor_of, is_beyond
from oelm.core.config import ResolvedRun
from oelm.core.floors import Floor
from oelm.core.measures import Measure
from oelm.core.sources import SOURCE_DIGEST, differ, scheme_of
from oelm.run.directory import COMPARED_ENVIRONMENT
from oelm.storage.files import Damaged
from oelm.study.bench import Bench
from oelm.study.bench_fit import remarks_on
from oelm.study.claims.kinds import LEAST_PAIRS
from oelm.study.confounds import recorded
from oelm.study.declaration import Study
from oelm.study.doubts import doubts
from oelm.study.plan import Plan, PlannedRun
from oelm.study.shelf import Shelf
from oelm.study.strays import strays

Note = tuple[str, dict[str, Any]]


def notes(
    study: Study,
    plan: Plan,
    shelf: Shelf,
    runs: dict[str, ArmRuns],
    arms: dict[str, ArmSummary],
    bench: Bench | Damaged | None,
) -> list[Note]:
    return [
        *_on_tuning(study, plan, runs),
        *_on_the_floor(plan, arms, study.measure),
        *_on_seeds(study),
        *_on_environments(runs),
        *_on_bench(bench, runs),
        *remarks_on(bench, study),
        *plan.remarks,
        *_on_unstored_choices(plan),
        *strays(plan, shelf),
        *doubts(plan),
        *(("damaged", {"line": stored.damage}) for stored in shelf.damaged),
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
        if choice.not_fitted is not None:
            yield f"not_fitted_{choice.not_fitted}", {"arm": arm, "value": choice.best[0][1] if choice.best else None}


def _on_unstored_choices(plan: Plan) -> Iterator[Note]:
    """Values that runs went by before they were written down."""
    begun = {run.arm for run in plan.final if run.has_begun}
    unstored = [arm for arm, choice in plan.choices.items() if choice.made is None and arm in begun]
    if unstored:
        yield "choices_not_stored", {"names": unstored}


def _on_the_floor(plan: Plan, arms: dict[str, ArmSummary], measure: Measure) -> Iterator[Note]:
    """Models that learnt nothing: a value chosen among such is chosen by noise."""
    for arm, choice in plan.choices.items():
        tuned = [run for run in plan.last_round if run.arm == arm and run.point == choice.best_tried]
        found = [value for run in tuned if is_finished(run, measure) and (value := value_of(run, measure)) is not None]
        if tuned and isinstance(example := tuned[0].run, ResolvedRun):
            floor = floor_of(tuned, example, measure, digest=plan.digests.get(example.data))
            yield from _below(floor, arm, found, measure, "tuning_at_floor")
    for arm, each in arms.items():
        yield from _below(each.floor, arm, list(each.quality.values.values()), measure, "at_floor")


def _below(floor: Floor | None, arm: str, values: Sequence[float], measure: Measure, code: str) -> Iterator[Note]:
    if floor is None or not values:
        return
    if not is_beyond(floor.learnt_nothing, floor, [measure.cost(value) for value in values], measure):
        yield code, {"arm": arm, "reached": fmean(values), "floor": floor.learnt_nothing}


def _on_seeds(study: Study) -> Iterator[Note]:
    if len(study.seeds) < LEAST_PAIRS:
        yield "few_seeds", {"seeds": len(study.seeds)}


def _on_environments(runs: dict[str, ArmRuns]) -> Iterator[Note]:
    finished = [run for arm in runs.values() for run in arm.finished]
    environments = [run.stored.environment for run in finished if run.stored]
    unknown = sum(not environment for environment in environments)
    if unknown:
        yield "not_recorded", {"runs": unknown}
    known = [recorded(run.stored) for run in finished if run.stored and run.stored.environment]
    for key in COMPARED_ENVIRONMENT:
        if differ(key, known):
            yield "mixed_environment", {"key": key, "values": sorted({environment[key] for environment in known})}
    schemes = sorted({scheme_of(environment) for environment in known})
    if len(schemes) > 1:
        yield "sources_not_comparable", {"schemes": schemes}
    uncommitted = sum(bool(environment.get("dirty")) for environment in environments)
    if uncommitted:
        yield "uncommitted_sources", {"runs": uncommitted}


def _on_bench(bench: Bench | Damaged | None, runs: dict[str, ArmRuns]) -> Iterator[Note]:
    if isinstance(bench, Damaged):
        yield "unreadable", {"line": str(bench)}
    if not isinstance(bench, Bench):
        return
    yield from _on_sources_of(bench, [run for arm in runs.values() for run in arm.finished])
    disturbed = bench.blocks - len(bench.quiet)
    if disturbed:
        yield "bench_disturbed", {"disturbed": disturbed, "blocks": bench.blocks}
    if not bench.rebuilt:
        yield "bench_not_rebuilt", {}


def _on_sources_of(bench: Bench, finished: list[PlannedRun]) -> Iterator[Note]:
    """Whether the bench timed what the runs were computed with."""
    environments = [run.stored.environment for run in finished if run.stored]
    digests = {(scheme_of(each), each[SOURCE_DIGEST]) for each in environments if each.get(SOURCE_DIGEST)}
    if not bench.source_digest or not digests or (bench.source_scheme, bench.source_digest) in digests:
        return
    comparable = sorted(digest for scheme, digest in digests if scheme == bench.source_scheme)
    if comparable:
        yield "bench_of_other_sources", {"bench": bench.source_digest, "runs": comparable}
    else:
        schemes = sorted({scheme for scheme, _ in digests})
        yield "bench_sources_not_comparable", {"bench": bench.source_scheme, "runs": schemes}
