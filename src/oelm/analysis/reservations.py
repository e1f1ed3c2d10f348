"""What limits each verdict, as codes with facts (see oelm.claims.reservations); one function for each that there is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

from oelm.analysis.findings import Verdict
from oelm.claims.reservations import RESERVATIONS
from oelm.study.plan import Plan

Reserved = tuple[str, dict[str, Any]]
AnyVerdict = TypeVar("AnyVerdict", bound=Verdict)


def with_reservations(plan: Plan, verdict: AnyVerdict) -> AnyVerdict:
    """In the order of the table: what weighs most comes first."""
    found = [*_on_its_place(plan, verdict)]
    order = list(RESERVATIONS)
    return replace(verdict, reservations=sorted(found, key=lambda each: order.index(each[0])))


def _on_its_place(plan: Plan, verdict: Verdict) -> Iterator[Reserved]:
    if not verdict.hypothesis.confirmatory:
        yield "exploratory", {}
