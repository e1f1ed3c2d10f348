"""What limits each verdict, as codes with facts (see oelm.claims.reservations); one function for each that there is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

from oelm.analysis.findings import Verdict
from oelm.claims.kinds import FAMILY
from oelm.claims.reservations import RESERVATIONS
from oelm.study.plan import Plan
from oelm.study.scaled import arms_compared, is_carried, sized_arms

Reserved = tuple[str, dict[str, Any]]
AnyVerdict = TypeVar("AnyVerdict", bound=Verdict)


def with_reservations(plan: Plan, verdict: AnyVerdict) -> AnyVerdict:
    """In the order of the table: what weighs most comes first."""
    found = [*_on_its_place(plan, verdict), *_on_carried_rates(plan, verdict)]
    order = list(RESERVATIONS)
    return replace(verdict, reservations=sorted(found, key=lambda each: order.index(each[0])))


def _on_its_place(plan: Plan, verdict: Verdict) -> Iterator[Reserved]:
    if not verdict.hypothesis.confirmatory:
        yield "exploratory", {}


def _on_carried_rates(plan: Plan, verdict: Verdict) -> Iterator[Reserved]:
    """Sizes at which it compares arms that were not tuned there."""
    claim, sized = verdict.hypothesis, sized_arms(plan.study)
    arms = [arm for pair in arms_compared(plan.study, claim) for arm in pair if claim.evidence in FAMILY]
    sizes = list(dict.fromkeys(sized[arm].size for arm in arms if arm in sized))
    if carried := [size for size in sizes if is_carried(plan.study, size)]:
        yield "carried_rates", {"sizes": carried}
