"""What limits each verdict, as codes with facts (study/claims/reservations.py); one function for each that there is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from oelm.analysis.findings import ArmSummary, Verdict
from oelm.analysis.floors import learnt_little
from oelm.analysis.hypotheses import bounds_of, mean_of_all_pairs
from oelm.study.claims.kinds import FAMILY, MEASURED, OF_DIFFERENCES
from oelm.study.claims.reservations import RESERVATIONS
from oelm.study.departures import Departures
from oelm.study.plan import Plan
from oelm.study.remarks import difference_text, kinds_text, some
from oelm.study.scaled import arms_compared, is_carried, sized_arms

MUCH_SEEN = 0.01  # of the reported text: less than this recurs in any text, phrase by phrase
Reserved = tuple[str, dict[str, Any]]
AnyVerdict = TypeVar("AnyVerdict", bound=Verdict)


def with_reservations(
    plan: Plan, departures: Departures, arms: Mapping[str, ArmSummary], verdict: AnyVerdict
) -> AnyVerdict:
    """In the order of the table: what weighs most comes first."""
    of_plan = _on_the_declared_plan(plan, departures, verdict)
    of_runs = [
        *_on_the_floor(plan, arms, verdict),
        *_on_later_pairs(plan, arms, verdict),
        *_on_carried_rates(plan, verdict),
    ]
    found = [*of_runs, *_on_its_place(plan, verdict), *of_plan]
    order = list(RESERVATIONS)
    return replace(verdict, reservations=sorted(found, key=lambda each: order.index(each[0])))


def _on_its_place(plan: Plan, verdict: Verdict) -> Iterator[Reserved]:
    if not verdict.hypothesis.confirmatory:
        yield "exploratory", {}


def _on_the_floor(plan: Plan, arms: Mapping[str, ArmSummary], verdict: Verdict) -> Iterator[Reserved]:
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
