"""Where a study no longer is what was declared before its first final run, and which of its claims that touches.

Read from what is stored: the registrations against the declaration now, results that the study has no place for, and
when values were chosen. Somebody who deletes what is stored leaves no trace of it (docs/studies.md lists how).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from oelm.study.claims.kinds import FAMILY, KINDS, PAIRED
from oelm.study.declaration import Hypothesis, Study
from oelm.study.doubts import results_elsewhere
from oelm.study.plan import Plan
from oelm.study.registration import IN_TIME, Registration, changes, registration_of
from oelm.study.remarks import Differences
from oelm.study.scaled import arms_compared
from oelm.study.shelf import Shelf

# Keys whose change alters what a claim's runs, seeds or levels are, by the claims that it alters.
_OF_RUNS = ("seeds", "draws", "tuning")  # claims that runs decide; draws were a key up to 0.5.0, like futility
_OF_LOOKS = ("looks", "futility")  # claims that pairs decide
_OF_SIZES = ("sizes", "main_size")
_EXECUTION = "base.execution."  # where runs execute is not what they are
_PROCESSES = "processes"  # the same of an arm

Change = tuple[str, Any, Any]  # key, as declared before the first final run, and now or at some time since


@dataclass(frozen=True)
class Departures:
    registration: Registration
    changed: list[Change]
    elsewhere: list[tuple[frozenset[str], Differences]]  # of results: the arms they may be of, and what differs
    chosen_late: list[str]  # arms whose values were not stored before their final runs

    @property
    def is_registered(self) -> bool:
        return self.registration.standing in IN_TIME

    def changes_for(self, claim: Hypothesis, study: Study) -> list[Change]:
        return [each for each in self.changed if _touches(each, claim, study)]

    def elsewhere_for(self, claim: Hypothesis, study: Study) -> Counter[Differences]:
        """What differs of results that belong to an arm of the claim, and how many there are of each kind."""
        arms = _arms_of(claim, study)
        return Counter(differences for of, differences in self.elsewhere if of & arms and _is_decided_by_runs(claim))

    def chosen_late_for(self, claim: Hypothesis, study: Study) -> list[str]:
        arms = _arms_of(claim, study)
        return [arm for arm in self.chosen_late if arm in arms and _is_decided_by_runs(claim)]


def departures_of(plan: Plan, shelf: Shelf) -> Departures:
    registration = registration_of(plan.study, shelf)
    begun = {run.arm for run in plan.final if run.has_begun}
    late = [arm for arm, each in plan.choices.items() if arm in begun and (each.made is None or each.final_runs_then)]
    return Departures(registration, _changed(registration), list(results_elsewhere(plan, shelf)), late)


def _changed(registration: Registration) -> list[Change]:
    """Also what was declared otherwise for a while."""
    entry, found = registration.entry, list[Change]()
    if entry is not None and registration.runs:
        in_between = (each for other in registration.later for each in changes(entry.declaration, other.declaration))
        for each in (*registration.changes, *in_between):
            found += [] if each in found else [each]
    return found


def _arms_of(claim: Hypothesis, study: Study) -> set[str]:
    """The arms that it compares, at every size that it is about."""
    return {arm for pair in arms_compared(study, claim) for arm in pair}


def _is_decided_by_runs(claim: Hypothesis) -> bool:
    return claim.evidence not in ("parameters", "speed")


def _touches(change: Change, claim: Hypothesis, study: Study) -> bool:
    key, then, now = change
    section, _, rest = key.partition(".")
    match section:
        case "scope":  # like the label of an arm: a verdict is read by it
            return True
        case "base":
            return not key.startswith(_EXECUTION)
        case "arms":
            arm = next((arm for arm in _arms_of(claim, study) if rest == arm or rest.startswith(f"{arm}.")), None)
            return arm is not None and rest != f"{arm}.{_PROCESSES}"
        case "hypotheses":
            is_own = rest == claim.name or rest.startswith(f"{claim.name}.")
            return is_own or (claim.confirmatory and claim in study.family and _leaves_the_family(key, then, now))
    if section in _OF_LOOKS:
        return claim.evidence in PAIRED
    return (section in _OF_RUNS and _is_decided_by_runs(claim)) or (section in _OF_SIZES and claim.evidence == "scale")


def _leaves_the_family(key: str, then: Any, now: Any) -> bool:
    """Then the others are corrected for fewer claims."""
    if isinstance(then, dict) and now is None:
        return bool(then.get("confirmatory", True)) and KINDS[then["kind"]].evidence in FAMILY
    return key.endswith((".confirmatory", ".kind"))
