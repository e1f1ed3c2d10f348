"""The looks that were taken at a study's claims, as choices.json keeps them, and the seeds that each arm still needs.

A look is taken once, when every run that it needs has ended, and it binds: what it decided stays decided, whatever
becomes of its runs. What a look says beyond that (p-values, intervals) is the analysis' own, kept here as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator, model_validator

from oelm.machine.errors import UserError
from oelm.run.directory import flat
from oelm.storage.files import Damaged
from oelm.storage.schemas import Amount, Part, Stored, checked
from oelm.study.claims.reasons import REASONS
from oelm.study.decisions import (
    CHOICES_FILE,
    Decision,
    add_decisions,
    change_of,
    identity_of,
    new_decision,
    read_decisions,
    run_used,
)
from oelm.study.declaration import Hypothesis, Study, used_keys
from oelm.study.remarks import Remark, difference_text, differences, sentence, some
from oelm.study.scaled import arms_compared, arms_of_scale

if TYPE_CHECKING:
    from oelm.study.plan import PlannedRun

LOOK = "look"  # a kind of decision: the subject is the number of the look


class StoredDifference(Stored):
    """As the analysis has it, of the pairs of a look."""

    seeds: list[Amount]
    differences: list[float]
    mean: float | None
    standard_deviation: float | None
    low: float | None
    high: float | None


class StoredSigns(Stored):
    """The same of a sign test."""

    ahead: list[Amount]
    behind: list[Amount]
    tied: list[Amount]
    neither: list[Amount]
    p: Part
    p_opposite: Part


class StoredRates(Stored):
    """The allowance for the rates of its arms, or why there was none."""

    code: str
    facts: dict[str, int | list[str]]
    arms: dict[str, float]
    below: float
    above: float


Fact = int | float | None | list[int] | list[str] | dict[str, list[int]]


class StoredVerdict(Stored):
    """What a claim keeps of its verdict; the rest is found anew."""

    outcome: Literal["supported", "refuted", "undecided"]
    reason: str
    facts: dict[str, Fact]
    difference: StoredDifference | None
    margin: float | None
    lower_bound: float | None
    upper_bound: float | None
    p: Part | None
    p_adjusted: Part | None
    sign_flip_p: Part | None
    sign_test: StoredSigns | None
    sequential_p: Part | None  # the smallest so far
    refutation_p: Part | None = None
    rates: StoredRates | None = None  # None also up to version 0.5.0, where no verdict had an allowance

    @field_validator("facts")
    @classmethod
    def _without_what_is_no_longer_said(cls, facts: dict[str, Fact]) -> dict[str, Fact]:
        """Up to version 0.5.0, looks also guessed from their own pairs how many more would decide."""
        return {name: value for name, value in facts.items() if name != "seeds_needed"}

    @model_validator(mode="after")
    def _says_what_its_reason_needs(self) -> StoredVerdict:
        """Lists and tables of seeds only where a sentence expects them."""
        expected = REASONS[self.reason].facts if self.reason in REASONS else None
        plain = {name for name, value in self.facts.items() if isinstance(value, int | float)}
        of_seeds = {"treatment", "control", "arms", "reported"}
        if expected is None or set(self.facts) != set(expected) or not set(self.facts) - of_seeds <= plain:
            raise ValueError("the facts are not those of its reason")
        return self


class LookedAt(Stored):
    """One claim at a look."""

    is_settled: bool  # whether it asks for no further seeds
    verdict: StoredVerdict

    @property
    def sequential_p(self) -> float | None:
        return self.verdict.sequential_p


class TakenLook(Stored):
    """What a decision of the kind `look` decided."""

    look: Amount = Field(ge=1)
    seeds: list[Amount]
    claims: dict[str, LookedAt]  # those that were open


@dataclass(frozen=True)
class Look:
    number: int  # from 1 on
    seeds: list[int]
    claims: dict[str, LookedAt]
    made: str | None = None  # when it was stored; None: it is what the runs say now
    runs_then: int = 0  # that go beyond it and had started when it was stored


@dataclass(frozen=True)
class KeptLooks:
    looks: tuple[Look, ...] = ()
    decisions: tuple[Decision, ...] = ()
    remarks: tuple[Remark, ...] = ()
    blocked: str | None = None  # why no run may be started


def kept_looks(study: Study, folder: Path, *, data_digest: str | None) -> KeptLooks:
    """The looks that choices.json holds for this study, from the first on. With a digest, only those at that data."""
    if not study.looks and not has_looks(folder):
        return KeptLooks()
    try:
        decisions = [each for each in read_decisions(folder) if each.kind == LOOK]
        looks = [_look(folder / CHOICES_FILE, each, study, number) for number, each in enumerate(decisions, start=1)]
    except UserError as error:
        return _blocked(("choices_damaged", {"line": str(error)}))
    changed = _once(
        text for each in decisions for text in (*_declared_otherwise(study, each), *each.made_from_other(data_digest))
    )
    if changed:
        facts = {"file": str(folder / CHOICES_FILE), "made": decisions[0].made, "differences": some(changed)}
        return _blocked(("looks_other_declaration", facts))
    late = [each for each in looks if each.runs_then]
    remarks: list[Remark] = [
        ("look_stored_late", {"look": each.number, "made": each.made, "runs": each.runs_then}) for each in late
    ]
    return KeptLooks(tuple(looks), tuple(decisions), tuple(remarks))


def has_looks(folder: Path) -> bool:
    """Of a study that had some: what was seen by then is not unseen."""
    try:
        return any(each.kind == LOOK for each in read_decisions(folder))
    except UserError:  # said where choices are read
        return False


def _blocked(remark: Remark) -> KeptLooks:
    return KeptLooks(remarks=(remark,), blocked=sentence(*remark))


def _look(file: Path, decision: Decision, study: Study, number: int) -> Look:
    taken = TakenLook.model_validate(checked(file, decision.decided, TakenLook))
    if not _declared_otherwise(study, decision):
        claims = {each.name for each in study.paired_claims}
        seeds = study.seeds[: study.looks[number - 1]] if number <= len(study.looks) else None
        if taken.look != number or taken.seeds != seeds or not set(taken.claims) <= claims:
            raise Damaged(file, f"look {number} is not one of this study")
    return Look(taken.look, taken.seeds, taken.claims, decision.made, decision.final_runs_then)


def _declared_otherwise(study: Study, decision: Decision) -> list[str]:
    then, current = decision.declaration, look_declaration(study)
    unheard = {_OF_SCALE} - then.keys()  # a key that looks were not always stored with
    return [difference_text(*each) for each in differences(then, current, beside=_NO_LONGER | unheard)]


def against_runs(kept: KeptLooks, runs: list[PlannedRun], folder: Path) -> KeptLooks:
    """The same with what became of the runs that were looked at. If the study now plans others, nothing may start."""
    if not kept.decisions:
        return kept
    now = {identity_of(run, data_digest=kept.decisions[0].data_digest): run for run in runs}
    changes, others = [], []
    for used in (each for decision in kept.decisions for each in decision.runs):
        if used.fingerprint not in now:
            others.append(used.name)
        elif (change := change_of(used, now[used.fingerprint])) is not None:
            changes.append(change)
    if others:
        facts = {"file": str(folder / CHOICES_FILE), "made": kept.decisions[0].made, "names": some(_once(others))}
        return _blocked(("looks_other_runs", facts))
    if not changes:
        return kept
    remark = "look_runs_changed", {"made": kept.decisions[0].made, "changes": some(_once(changes))}
    return replace(kept, remarks=(*kept.remarks, remark))


def _once(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


# What of a claim is words, and changes nothing about its test.
_WORDS = {"name", "claim", "varies", "fails_when", "explained"}
_OF_SCALE = "confirmatory_claims_about_scale"
_NO_LONGER = {"futility"}  # a key of versions up to 0.5.0: whether a look gave up claims; what it settled stays settled


def look_declaration(study: Study) -> dict[str, Any]:
    """All of a study that decides how it is looked at, by dotted keys. Of claims about scale, a look counts how many
    there are in the family."""
    claims = {each.name: used_keys(each.model_dump(mode="json", exclude=_WORDS)) for each in study.paired_claims}
    of_scale = [each.name for each in study.family if each.evidence == "scale" and each.confirmatory]
    keys = {"looks": study.looks, "seeds": study.seeds, "hypotheses": claims}
    return flat(keys | ({_OF_SCALE: of_scale} if study.sizes else {}))


# ---- Seeds that are needed -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SeedsOfArm:
    """How many of the declared seeds an arm needs, as the looks stand."""

    needed: int
    decided_at: int | None = None  # the look that decided the last of its claims; None: more may be needed later


def seeds_of_arm(study: Study, looks: tuple[Look, ...], arm: str) -> SeedsOfArm:
    """An arm without a claim that looks decide needs them all, and so does one of a claim about scale, which compares
    whole sizes: nothing decides it early.
    """
    claims = [each.name for each in study.paired_claims if arm in arms_of(study, [each])]
    if not study.looks or not claims or arm in arms_of_scale(study):
        return SeedsOfArm(len(study.seeds))
    at = settled_at(looks)
    if all(name in at for name in claims):
        last = max(at[name] for name in claims)
        return SeedsOfArm(study.looks[last - 1], last)
    return SeedsOfArm(study.looks[min(len(looks), len(study.looks) - 1)])


def open_claims(study: Study, looks: tuple[Look, ...]) -> list[Hypothesis]:
    settled = settled_at(looks)
    return [each for each in study.paired_claims if each.name not in settled]


def arms_of(study: Study, claims: Iterable[Hypothesis]) -> set[str]:
    return {arm for each in claims for pair in arms_compared(study, each) for arm in pair}


def settled_at(looks: tuple[Look, ...]) -> dict[str, int]:
    """By claim, the number of the look that settled it."""
    return {name: look.number for look in looks for name, each in look.claims.items() if each.is_settled}


# ---- Storing -------------------------------------------------------------------------------------------------------


def store_look(
    study: Study, look: Look, folder: Path, runs: list[PlannedRun], *, data_digest: str | None, runs_then: int
) -> None:
    """Write a look down, with the runs that it used. For the owner of the study's lock."""
    taken = TakenLook(look=look.number, seeds=look.seeds, claims=look.claims)
    used = {"runs": [run_used(run) for run in runs], "data_digest": data_digest, "final_runs_then": runs_then}
    add_decisions(folder, [new_decision(LOOK, str(look.number), look_declaration(study), taken, **used)])
