"""Taking the looks of a study as its runs end: when one is due, what it decides, and what to say of it."""

from __future__ import annotations

import importlib

from oelm.plurals import number_of
from oelm.study.decisions import CHOICES_FILE
from oelm.study.declaration import Study
from oelm.study.kept_looks import Look, arms_of, open_claims, store_look
from oelm.study.plan import Plan
from oelm.study.shelf import Shelf


def check_libraries(study: Study) -> None:
    """Before anything runs, and not only when the first look is due: a look needs the libraries of a report."""
    if study.looks:
        importlib.import_module("oelm.analysis.distributions")


def is_due(plan: Plan) -> bool:
    """Whether every run that the next look needs has ended. Nothing is due where every claim is settled."""
    arms = arms_of(open_claims(plan.study, plan.looks))
    if not arms or len(plan.looks) == len(plan.study.looks) or not all(map(plan.has_values, arms)):
        return False
    return all(run.has_ended for run in plan.final if run.arm in arms and run.need == "now")


def take_look(plan: Plan, shelf: Shelf, *, data_digest: str) -> list[str]:
    """Look at the open claims, store what was found, and return what to say; nothing where runs lack a number that a
    claim needs. For the owner of the study's lock."""
    from oelm.analysis.summary import look_at  # which needs scipy

    look = look_at(plan, shelf)
    if look is None:
        return []
    arms = arms_of(open_claims(plan.study, plan.looks))
    used = [run for run in plan.final if run.arm in arms and run.need == "now"]
    begun = sum(run.has_begun for run in plan.final if run.arm in arms and run.need == "after_a_look")
    store_look(plan.study, look, shelf.folder, used, data_digest=data_digest, runs_then=begun)
    return list(_lines(plan, look, shelf))


def _lines(plan: Plan, look: Look, shelf: Shelf) -> list[str]:
    name = look_name(plan, look.number)
    is_last = look.number == len(plan.study.looks)
    found = [
        f"{name}: {claim}: {each.verdict['outcome']}" + ("" if each.is_settled or is_last else ", still open")
        for claim, each in look.claims.items()
    ]
    return [*found, f"{name}, at {number_of(len(look.seeds), 'seed')}: stored in {shelf.folder / CHOICES_FILE}"]


def look_name(plan: Plan, number: int) -> str:
    return f"look {number} of {len(plan.study.looks)}"
