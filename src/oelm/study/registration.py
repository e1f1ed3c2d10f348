"""The declaration of a study, written down before its runs start: registration.json beside them.

Nothing in it is ever replaced: registering again adds an entry. Its times, and those of the runs, are what the clocks
of the machines said that wrote them; it shows what changed afterwards, not that nobody forged it. When a run started is
said by its seal, never by the dates of its files: a copy has others.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

import oelm
from oelm.errors import UserError
from oelm.files import Damaged, ensure_writable, write_sealed
from oelm.ownership import now, time_of
from oelm.run_directory import flat, run_directories
from oelm.schemas import Amount, Stored, read_sealed_record
from oelm.sources import commit_and_changes
from oelm.study.decisions import read_decisions
from oelm.study.declaration import Study, declared_tree, study_digest, tree_digest
from oelm.study.remarks import difference_text, sentence, some
from oelm.study.shelf import Shelf

REGISTRATION_FILE = "registration.json"
FORMAT_VERSION = 1
# Undated: a run does not say when it started. After a choice: before every run here, but not before what they decided.
Standing = Literal["none", "damaged", "waiting", "before", "after", "after_undated", "after_choice", "undated"]


class RegistrationEntry(Stored):
    registered: str  # UTC
    digest: str
    commit: str | None
    dirty: bool
    oelm: str
    runs_then: Amount  # that had started
    declaration: dict[str, Any]

    @property
    def time(self) -> datetime.datetime:
        return datetime.datetime.fromisoformat(self.registered).astimezone(datetime.UTC)

    @field_validator("registered")
    @classmethod
    def _is_a_time(cls, text: str) -> str:
        if time_of(text) is None:
            raise ValueError("is not a time with its zone")
        return text


class Registrations(Stored):
    """registration.json"""

    format_version: int
    registrations: list[RegistrationEntry] = Field(min_length=1)


@dataclass(frozen=True)
class Registration:
    """What the file says of a study and its runs."""

    standing: Standing
    entry: RegistrationEntry | None = None  # the last before any run started, or else the first
    problem: str | None = None  # of a damaged file
    runs: int = 0  # that have started
    early: int = 0  # of them, before the registration
    undated: int = 0  # of them, nobody knows when
    first: str | None = None  # when the first of them started
    chosen: str | None = None  # when the first choice was made from them
    changes: tuple[tuple[str, Any, Any], ...] = ()  # key, registered, now
    later: tuple[RegistrationEntry, ...] = ()

    def line(self) -> str:
        """For a terminal."""
        if self.entry is None:
            return sentence(f"registration.{self.standing}", {"line": self.problem})
        parts = [sentence(f"registration.{self.standing}", self.facts(self.entry))]
        changed = "changed" if self.changes else "unchanged"
        parts.append(sentence(f"registration.{changed}", {"changes": self.changes_text()}))
        if self.later:
            parts.append(sentence("registration.later", {"times": ", ".join(each.registered for each in self.later)}))
        return "; ".join(parts)

    def facts(self, entry: RegistrationEntry) -> dict[str, Any]:
        known = {key: getattr(self, key) for key in ("first", "early", "runs", "undated", "chosen")}
        return {"registered": entry.registered, **known}

    def changes_text(self) -> str:
        return some([difference_text(*each) for each in self.changes])

    def as_json(self) -> dict[str, Any]:
        if self.entry is None:
            return {"standing": self.standing} | ({"problem": self.problem} if self.problem else {})
        return {
            "standing": self.standing,
            **self.entry.model_dump(mode="json", exclude={"declaration"}),
            "runs": self.runs,
            "runs_before": self.early,
            "runs_undated": self.undated,
            "first_run_started": self.first,
            "first_choice": self.chosen,
            "changes": [{"key": key, "registered": then, "now": current} for key, then, current in self.changes],
            "later": [each.model_dump(mode="json", exclude={"declaration"}) for each in self.later],
        }


# ---- Reading -------------------------------------------------------------------------------------------------------


def registration_of(study: Study, shelf: Shelf) -> Registration:
    """How the runs stand to what was registered, and what of the declaration has changed since."""
    try:
        entries = _read(shelf.folder)
    except UserError as error:
        return Registration("damaged", problem=str(error))
    if not entries:
        return Registration("none")
    in_time = [each for each in entries if not each.runs_then]
    entry = in_time[-1] if in_time else entries[0]
    begun, chosen = _begun(shelf), _first_choice(shelf.folder)
    times = sorted(time for time in begun if time)
    early = max(entry.runs_then, sum(time < entry.time for time in times))
    found = Registration(
        standing="waiting",
        entry=entry,
        runs=max(early, len(begun)),
        early=early,
        undated=len(begun) - len(times),
        first=times[0].isoformat() if times else None,
        chosen=chosen.isoformat() if chosen else None,
        changes=tuple(changes(entry.declaration, declared_tree(study))),
        later=tuple(entries[entries.index(entry) + 1 :]),
    )
    return replace(found, standing=_standing(found, entry.time, first=times[0] if times else None, chosen=chosen))


def _standing(
    found: Registration,
    registered: datetime.datetime,
    *,
    first: datetime.datetime | None,
    chosen: datetime.datetime | None,
) -> Standing:
    if found.early:
        return "after" if first is not None and first <= registered else "after_undated"
    if chosen is not None and chosen < registered:
        return "after_choice"
    if found.undated:
        return "undated"
    return "before" if found.runs else "waiting"


def _begun(shelf: Shelf) -> list[datetime.datetime | None]:
    """When each run that has started did so; None where that is not known."""
    return [*(run.started for run in shelf.runs if run.has_started), *(None for _ in shelf.lost)]


def _first_choice(folder: Path) -> datetime.datetime | None:
    """When values were first chosen from runs; a file that cannot be read is named by whoever plans by it."""
    try:
        made = [time_of(each.made) for each in read_decisions(folder)]
    except UserError:
        return None
    return min(filter(None, made), default=None)


def _read(folder: Path) -> list[RegistrationEntry]:
    file = folder / REGISTRATION_FILE
    try:
        tree = read_sealed_record(file, Registrations, newest=FORMAT_VERSION)
    except FileNotFoundError:
        return []
    entries = Registrations.model_validate(tree).registrations
    if any(each.digest != tree_digest(each.declaration) for each in entries):
        raise Damaged(file, "a digest is not that of its declaration")
    return entries


def changes(then: dict[str, Any], current: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Dotted keys of two declarations whose values differ. Hypotheses go by their names; a whole arm or hypothesis that
    one of the two lacks is one entry.
    """
    one, other = _named(then), _named(current)
    for section in _SECTIONS:
        for name in [*one[section], *other[section]]:
            if (name in one[section]) != (name in other[section]):
                yield f"{section}.{name}", one[section].pop(name, None), other[section].pop(name, None)
    one, other = flat(one), flat(other)
    for key in dict.fromkeys([*one, *other]):
        if one.get(key) != other.get(key):
            yield key, one.get(key), other.get(key)


_SECTIONS = ("arms", "hypotheses")


def _named(tree: dict[str, Any]) -> dict[str, Any]:
    claims, arms = tree.get("hypotheses"), tree.get("arms")
    claims = claims if isinstance(claims, list) else []
    by_name = {str(each.get("name")): each for each in claims if isinstance(each, dict)}
    return tree | {"hypotheses": by_name, "arms": dict(arms) if isinstance(arms, dict) else {}}


# ---- Registering ---------------------------------------------------------------------------------------------------


def is_open(folder: Path) -> bool:
    """Whether nothing is registered, and nothing has run that it would come too late for."""
    return not run_directories(folder) and not os.path.lexists(folder / REGISTRATION_FILE)


def register(study: Study, folder: Path) -> str:
    """Add what is declared now to the registrations, unless it is the last of them. Returns what to say."""
    entries, file = _read(folder), folder / REGISTRATION_FILE
    digest = study_digest(study)
    if entries and entries[-1].digest == digest:
        return f"{study.name}: already registered at {entries[-1].registered}, and unchanged since ({file})"
    entry = RegistrationEntry(
        registered=now(),
        digest=digest,
        **commit_and_changes(),
        oelm=oelm.__version__,
        runs_then=len(_begun(Shelf(folder))),
        declaration=declared_tree(study),
    )
    ensure_writable(folder, option="--runs")
    tree = [each.model_dump(mode="json") for each in (*entries, entry)]
    write_sealed(file, {"format_version": FORMAT_VERSION, "registrations": tree})
    return f"{study.name}: registered at {entry.registered}{_how(entries, entry)} ({file})"


def _how(before: list[RegistrationEntry], entry: RegistrationEntry) -> str:
    found = [difference_text(*each) for each in changes(before[-1].declaration, entry.declaration)] if before else []
    changed = f"; changed since {before[-1].registered}: {some(found)}" if before else ""
    if entry.runs_then:
        return f", after runs had started ({entry.runs_then}); the report says so{changed}"
    return f", before any run started{changed}"
