"""What a reader of a study should know besides its verdicts, as codes with facts (see findings.NOTES)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, TypeVar

from oelm.analysis.arm_summaries import ArmRuns, is_finished, value_of
from oelm.analysis.findings import ArmSummary, McNemar, Verdict
from oelm.analysis.floors import floor_of, is_beyond, learnt_little
from oelm.analysis.hypotheses import bounds_of, mean_of_all_pairs
from oelm.analysis.statistics import mcnemar_p
from oelm.core.config import ResolvedRun
from oelm.core.floors import Floor
from oelm.core.measures import Measure
from oelm.core.sources import SOURCE_DIGEST, differ, scheme_of
from oelm.run.directory import COMPARED_ENVIRONMENT
from oelm.storage.files import Damaged
from oelm.study.bench import Bench
from oelm.study.bench_fit import remarks_on
from oelm.study.claims.kinds import FAMILY, LEAST_PAIRS, MEASURED, OF_DIFFERENCES
from oelm.study.claims.reservations import RESERVATIONS
from oelm.study.confounds import recorded
from oelm.study.declaration import Study
from oelm.study.departures import Departures
from oelm.study.doubts import doubts, strays
from oelm.study.plan import Plan, PlannedRun, paired
from oelm.study.remarks import difference_text, kinds_text, some
from oelm.study.scaled import arms_compared, is_carried, sized_arms
from oelm.study.shelf import Shelf

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
        *([("few_seeds", {"seeds": len(study.seeds)})] if len(study.seeds) < LEAST_PAIRS else []),
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


# ---- What limits each verdict (study/claims/reservations.py); one function for each that there is --------------------

MUCH_SEEN = 0.01  # of the reported text: less than this recurs in any text, phrase by phrase
Reserved = tuple[str, dict[str, Any]]
AnyVerdict = TypeVar("AnyVerdict", bound=Verdict)


def with_reservations(
    plan: Plan, departures: Departures, arms: Mapping[str, ArmSummary], verdict: AnyVerdict
) -> AnyVerdict:
    """In the order of the table: what weighs most comes first."""
    of_plan = _on_the_declared_plan(plan, departures, verdict)
    of_runs = [
        *_on_controls(plan, arms, verdict),
        *_on_later_pairs(plan, arms, verdict),
        *_on_carried_rates(plan, verdict),
    ]
    of_its_place = [] if verdict.hypothesis.confirmatory else [("exploratory", dict[str, Any]())]
    found = [*of_runs, *of_its_place, *of_plan]
    order = list(RESERVATIONS)
    return replace(verdict, reservations=sorted(found, key=lambda each: order.index(each[0])))


def _on_controls(plan: Plan, arms: Mapping[str, ArmSummary], verdict: Verdict) -> Iterator[Reserved]:
    """Of the controls of a claim about quality; one that has learnt nothing takes the verdict away."""
    claim = verdict.hypothesis
    controls = [arms[control] for _, control in arms_compared(plan.study, claim)]
    seen = max((each.floor.seen_in_train or 0.0 for each in controls if each.floor), default=0.0)
    if claim.evidence in MEASURED and seen >= MUCH_SEEN:
        yield "seen_in_train", {"share": seen}
    if claim.evidence not in MEASURED or verdict.reason == "nothing_learnt":
        return
    if facts := learnt_little(claim, controls, plan.study.seeds):
        yield "learnt_little", facts
    if unknown := [each.arm for each in controls if each.floor is None and each.quality.costs]:
        yield "floor_unknown", {"arms": unknown}


def _on_later_pairs(plan: Plan, arms: Mapping[str, ArmSummary], verdict: Verdict) -> Iterator[Reserved]:
    """A look that decided binds, whatever came after it; where that points the other way, the reader is told."""
    claim, look = verdict.hypothesis, verdict.look
    if look is None or claim.evidence not in OF_DIFFERENCES or verdict.regardless not in ("supported", "refuted"):
        return
    now = mean_of_all_pairs(claim, plan, arms)
    if now is None or now[0] <= look.seeds:
        return
    pairs, mean = now
    if bounds_of(claim).contain(mean, mean) != (verdict.regardless == "supported"):
        yield "later_pairs", {"looked": look.seeds, "pairs": pairs, "difference": claim.quality.shown_difference(mean)}


def _on_carried_rates(plan: Plan, verdict: Verdict) -> Iterator[Reserved]:
    """Sizes at which it compares arms that were not tuned there."""
    claim, sized = verdict.hypothesis, sized_arms(plan.study)
    arms = [arm for pair in arms_compared(plan.study, claim) for arm in pair if claim.evidence in FAMILY]
    sizes = list(dict.fromkeys(sized[arm].size for arm in arms if arm in sized))
    if carried := [size for size in sizes if is_carried(plan.study, size)]:
        yield "carried_rates", {"sizes": carried}


def _on_the_declared_plan(plan: Plan, departures: Departures, verdict: Verdict) -> Iterator[Reserved]:
    claim, study = verdict.hypothesis, plan.study
    if changes := departures.changes_for(claim, study):
        yield "changed", {"changes": some([difference_text(*each) for each in changes])}
    if elsewhere := departures.elsewhere_for(claim, study):
        yield "results_elsewhere", {"runs": elsewhere.total(), "differences": kinds_text(elsewhere)}
    if arms := departures.chosen_late_for(claim, study):
        yield "chosen_late", {"arms": arms}
    if not departures.is_registered:
        yield "not_registered", {}


# ---- Two arms example by example -------------------------------------------------------------------------------------

Problems = dict[str, list[int]]  # code of a note -> seeds


def with_examples(plan: Plan, verdict: Verdict) -> tuple[Verdict, list[tuple[str, dict[str, Any]]]]:
    """The verdict with its pairs compared example by example, and notes on those that cannot be."""
    hypothesis = verdict.hypothesis
    measure = hypothesis.quality
    if not measure.from_predictions or hypothesis.evidence in ("scale", "contrast"):
        return verdict, []
    treatment, control = (
        [run for run in plan.by_arm[arm] if is_finished(run, measure)]
        for arm in (hypothesis.treatment, hypothesis.control)
    )
    found, problems = [], Problems()
    for one, other in paired(treatment, control):
        compared = _compared(one, other)
        if isinstance(compared, str):
            problems.setdefault(compared, []).append(one.seed)
        else:
            found.append(compared)
    notes = [(code, {"hypothesis": hypothesis.name, "seeds": seeds}) for code, seeds in problems.items()]
    return replace(verdict, mcnemar=found), notes


def _compared(treatment: PlannedRun, control: PlannedRun) -> McNemar | str:
    """The table of one pair; the code of a note where there can be none."""
    one, other = _predictions(treatment), _predictions(control)
    if one is None or other is None:
        return "predictions_missing"
    if (one.get("split"), one["labels"]) != (other.get("split"), other["labels"]):
        return "predictions_unlike"
    right = [0, 0, 0, 0]  # both wrong, only the control, only the treatment, both right
    for label, ours, theirs in zip(one["labels"], one["predicted"], other["predicted"], strict=True):
        right[2 * (ours == label) + (theirs == label)] += 1
    return McNemar(
        treatment.seed,
        right[3],
        right[2],
        right[1],
        right[0],
        mcnemar_p(right[2], right[1]),
    )


def _predictions(run: PlannedRun) -> dict[str, Any] | None:
    """None where an older run stored none."""
    return (run.stored.predictions or None) if run.stored else None
