"""Taking the looks of a study as its runs end: when one is due, what it decides, and what to say of it."""

from __future__ import annotations

import importlib

from oelm.machine.plurals import number_of
from oelm.study.decisions import CHOICES_FILE
from oelm.study.declaration import Study
from oelm.study.kept_looks import LookedAt, arms_of, open_claims, store_look
from oelm.study.plan import Plan, PlannedRun
from oelm.study.shelf import Shelf


def check_libraries(study: Study) -> None:
    """Before anything runs, and not only when the first look is due: a look needs the libraries of a report."""
    if study.looks:
        importlib.import_module("oelm.analysis.distributions")


def is_due(plan: Plan) -> bool:
    """Whether every run that the next look needs has ended. Nothing is due where every claim is settled."""
    arms = arms_of(plan.study, open_claims(plan.study, plan.looks))
    if not arms or len(plan.looks) == len(plan.study.looks) or not all(map(plan.has_values, arms)):
        return False
    return all(run.has_ended for run in _used_by_next(plan))


def _used_by_next(plan: Plan) -> list[PlannedRun]:
    """The runs of the seeds of the next look, in arms with open claims. Other claims about such an arm, those about
    scale, may need further seeds of it; the look does not wait for them."""
    study = plan.study
    arms, seeds = arms_of(study, open_claims(study, plan.looks)), study.seeds[: study.looks[len(plan.looks)]]
    return [run for run in plan.final if run.arm in arms and run.seed in seeds]


def take_look(plan: Plan, shelf: Shelf, *, data_digest: str) -> list[str]:
    """Look at the open claims, store what was found, and return what to say; nothing where runs lack a number that a
    claim needs. For the owner of the study's lock."""
    from oelm.analysis.summary import look_at  # which needs scipy

    look = look_at(plan, shelf)
    if look is None:
        return []
    arms = arms_of(plan.study, open_claims(plan.study, plan.looks))
    begun = sum(run.has_begun for run in plan.final if run.arm in arms and run.need == "after_a_look")
    store_look(plan.study, look, shelf.folder, _used_by_next(plan), data_digest=data_digest, runs_then=begun)
    name = look_name(plan, look.number)
    is_last = look.number == len(plan.study.looks)
    found = [
        f"{name}: {claim}: " + (_settled(each) if each.is_settled or is_last else f"{each.verdict.outcome}, still open")
        for claim, each in look.claims.items()
    ]
    return [*found, f"{name}, at {number_of(len(look.seeds), 'seed')}: stored in {shelf.folder / CHOICES_FILE}"]


def _settled(claim: LookedAt) -> str:
    """A claim may be settled without being decided: given up, or with a run that diverged."""
    given_up = claim.is_settled and claim.verdict.outcome == "undecided"
    return claim.verdict.outcome + (", no further seeds" if given_up else "")


def look_name(plan: Plan, number: int) -> str:
    return f"look {number} of {len(plan.study.looks)}"


# ---- For readers ---------------------------------------------------------------------------------------------------


def why_unstarted(plan: Plan, run: PlannedRun) -> str | None:
    """Of a run that is not to be started now, in words; None: it is, or has been."""
    match run.state:
        case "not_needed":
            return f"not needed after {look_name(plan, plan.seeds_of(run.arm).decided_at or 0)}"
        case "waiting":
            return f"waiting for {look_name(plan, len(plan.looks) + 1)}"
    return None


def look_lines(plan: Plan) -> list[str]:
    """What the stored looks decided, and what the next one needs."""
    study = plan.study
    if not study.looks:
        return []
    lines = []
    for look in plan.looks:
        found = [f"{name} {_settled(each)}" for name, each in look.claims.items() if each.is_settled]
        decided = "; ".join(found) or "nothing decided"
        lines.append(f"{look_name(plan, look.number)}, at {number_of(len(look.seeds), 'seed')}: {decided}")
    still_open = open_claims(study, plan.looks)
    if not still_open:
        return [*lines, f"no claim is open; final runs not needed: {len(plan.saved)}"]
    names = ", ".join(each.name for each in still_open)
    if len(plan.looks) == len(study.looks):
        return [*lines, f"all looks were taken; undecided: {names}"]
    arms, seeds = arms_of(plan.study, still_open), study.looks[len(plan.looks)]
    ended = sum(run.has_ended for run in _used_by_next(plan))
    following = look_name(plan, len(plan.looks) + 1)
    needed, at_most = len(arms) * seeds - ended, len(arms) * (len(study.seeds) - seeds)
    needs = f"needs {number_of(needed, 'run')}" if needed else "has all its runs: `oelm run` takes it"
    follow = f", at most {number_of(at_most, 'run')} after it" if at_most else ", none after it"
    return [*lines, f"next: {following}, at {seeds} seeds, {needs}{follow}; open: {names}"]
