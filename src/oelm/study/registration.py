"""The declaration of a study, written down before its final runs start: registration.json beside them.

`oelm register` writes it before anything runs; failing that, `oelm run` does before the first final run. Nothing in it
is ever replaced: another declaration adds an entry. Its times, and those of the runs, are what the clocks of the
machines said that wrote them; it shows what changed afterwards, not that nobody forged it. When a run started is said
by its seal, never by the dates of its files: a copy has others.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

import oelm
from oelm.core.settings import with_preset
from oelm.core.sources import commit_and_changes
from oelm.machine.errors import UserError
from oelm.machine.plurals import number_of
from oelm.run.directory import flat
from oelm.storage.files import Damaged, ensure_writable, write_sealed
from oelm.storage.ownership import now, time_of
from oelm.storage.schemas import Amount, Stored, read_sealed_record
from oelm.study.decisions import TUNED_VALUES, TUNING_ROUND, Decision, read_decisions
from oelm.study.declaration import Study, declared_tree, study_digest, tree_digest
from oelm.study.kept_choices import TUNING_SPLIT
from oelm.study.kept_looks import has_looks
from oelm.study.remarks import difference_text, differences, sentence, some
from oelm.study.shelf import Shelf, StoredRun

REGISTRATION_FILE = "registration.json"
FORMAT_VERSION = 1
# Before: any run, or only any final one, because tuning had begun. Undated: a final run does not say when it started.
Standing = Literal["none", "damaged", "waiting", "before", "before_final", "after", "after_undated", "undated"]
IN_TIME: tuple[Standing, ...] = ("waiting", "before", "before_final")


class RegistrationEntry(Stored):
    registered: str  # UTC
    digest: str
    commit: str | None
    dirty: bool
    oelm: str
    runs_then: Amount  # that had started
    final_runs_then: Amount | None = None  # of them; None: of a version that did not tell them apart
    made_by: Literal["register", "run"] = "register"
    declaration: dict[str, Any]

    @property
    def time(self) -> datetime.datetime:
        return datetime.datetime.fromisoformat(self.registered).astimezone(datetime.UTC)

    @property
    def comes_late(self) -> int:
        """How many final runs had started; of all runs, where nobody told them apart."""
        return self.runs_then if self.final_runs_then is None else self.final_runs_then

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
    entry: RegistrationEntry | None = None  # the last before any final run started, or else the first
    problem: str | None = None  # of a damaged file
    runs: int = 0  # final ones that have started
    early: int = 0  # of them, before the registration
    undated: int = 0  # of them, nobody knows when
    first: str | None = None  # when the first of them started; of all runs, where none of them is early
    changes: tuple[tuple[str, Any, Any], ...] = ()  # key, registered, now
    later: tuple[RegistrationEntry, ...] = ()

    def line(self) -> str:
        """For a terminal."""
        if self.entry is None:
            return sentence(f"registration.{self.standing}", {"line": self.problem})
        changed = "changed" if self.changes else "unchanged"
        parts = [
            sentence(f"registration.{self.standing}", self.facts(self.entry)),
            sentence(f"registration.{changed}", {"changes": self.changes_text()}),
        ]
        if self.later:
            parts.append(sentence("registration.later", {"times": ", ".join(each.registered for each in self.later)}))
        return "; ".join(parts)

    def facts(self, entry: RegistrationEntry) -> dict[str, Any]:
        known = {key: getattr(self, key) for key in ("first", "early", "runs", "undated")}
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
            "changes": [{"key": key, "registered": then, "now": current} for key, then, current in self.changes],
            "later": [each.model_dump(mode="json", exclude={"declaration"}) for each in self.later],
        }


# ---- Reading -------------------------------------------------------------------------------------------------------


def registration_of(study: Study, shelf: Shelf) -> Registration:
    """How the runs stand to what was registered, and what of the declaration has changed since."""
    try:
        entries = entries_in(shelf.folder)
    except UserError as error:
        return Registration("damaged", problem=str(error))
    if not entries:
        return Registration("none")
    entry = _that_counts(entries)
    begun = _begun(shelf, is_final=partial(_is_final, study))
    times = [time for time in begun if time]
    early = max(entry.comes_late, sum(time < entry.time for time in times))
    first = min(times if early else filter(None, _begun(shelf)), default=None)
    found = Registration(
        standing="waiting",
        entry=entry,
        runs=max(early, len(begun)),
        early=early,
        undated=len(begun) - len(times),
        first=first.isoformat() if first else None,
        changes=tuple(changes(entry.declaration, declared_tree(study))),
        later=tuple(entries[entries.index(entry) + 1 :]),
    )
    return replace(found, standing=_standing(found, entry, shelf, first))


def _standing(found: Registration, entry: RegistrationEntry, shelf: Shelf, first: datetime.datetime | None) -> Standing:
    if found.early:
        return "after" if first is not None and first <= entry.time else "after_undated"
    if found.undated:
        return "undated"
    chosen = (time_of(each.made) for each in _decisions(shelf.folder))
    before = [*_begun(shelf), *filter(None, chosen)]
    if entry.runs_then or any(time is None or time < entry.time for time in before):
        return "before_final"
    return "before" if before else "waiting"


def as_it_began(study: Study, folder: Path) -> Study:
    """A study whose file says nothing of looks, or of how and from which seeds a value is chosen, goes on as it began:
    as it was registered; or, if it never was, as values were chosen; or as up to version 0.5.0 (no looks, one tuning
    seed, the lowest loss), if final runs have started."""
    if not (study.has_default_looks and study.looks) and not (study.tuning and study.default_tuning):
        return study
    try:
        entries = entries_in(folder)
    except UserError:
        entries = []
    entry = _that_counts(entries) if entries else None
    begun = entry is None and has_begun(study, Shelf(folder))
    if study.tuning and study.default_tuning:
        then = entry.declaration.get("tuning") if entry else _tuning_chosen_by(folder) or ({} if begun else None)
        study = study if then is None else study.with_tuning_as_before(then)
    if study.has_default_looks and study.looks:
        had_none = "looks" not in entry.declaration if entry else begun and not has_looks(folder)
        study = study.with_looks([], is_default=False) if had_none else study
    return study


def _tuning_chosen_by(folder: Path) -> dict[str, Any] | None:
    """What was declared of tuning when values were last chosen; None where none were."""
    made = [each.declaration for each in _decisions(folder) if each.kind in (TUNED_VALUES, TUNING_ROUND)]
    declared = {key: f"tuning.{key}" for key in ("seeds", "choose", "beyond")} if made else {}
    return {key: made[-1][dotted] for key, dotted in declared.items() if dotted in made[-1]} or None


def _decisions(folder: Path) -> list[Decision]:
    """None of a file that cannot be read, which is named by whoever plans by it."""
    try:
        return read_decisions(folder)
    except UserError:
        return []


def _that_counts(entries: list[RegistrationEntry]) -> RegistrationEntry:
    """The last before any final run started, or else the first."""
    in_time = [each for each in entries if not each.comes_late]
    return in_time[-1] if in_time else entries[0]


def has_begun(study: Study, shelf: Shelf) -> bool:
    """Whether a final run has started."""
    return bool(_begun(shelf, is_final=partial(_is_final, study)))


def _begun(shelf: Shelf, *, is_final: Callable[[StoredRun], bool] = lambda _: True) -> list[datetime.datetime | None]:
    """When each of these runs that has started did so; None where that is not known."""
    started = [run.started for run in shelf.runs if run.has_started and is_final(run)]
    return [*started, *(None for _ in shelf.lost)]


def _is_final(study: Study, stored: StoredRun) -> bool:
    """Not of tuning, of this study or of what it was before it was edited."""
    judged_alike = with_preset(study.base).get("training", {}).get("validation_split") == TUNING_SPLIT
    return stored.run.training.validation_split != TUNING_SPLIT or (study.tuning is None and judged_alike)


def entries_in(folder: Path) -> list[RegistrationEntry]:
    """The oldest first; Damaged, if the file is not what was written."""
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
    for section in ("arms", "hypotheses"):
        for name in [*one[section], *other[section]]:
            if (name in one[section]) != (name in other[section]):
                yield f"{section}.{name}", one[section].pop(name, None), other[section].pop(name, None)
    yield from differences(flat(one), flat(other))


def _named(tree: dict[str, Any]) -> dict[str, Any]:
    claims, arms = tree.get("hypotheses"), tree.get("arms")
    claims = claims if isinstance(claims, list) else []
    by_name = {str(each.get("name")): each for each in claims if isinstance(each, dict)}
    return tree | {"hypotheses": by_name, "arms": dict(arms) if isinstance(arms, dict) else {}}


# ---- Registering ---------------------------------------------------------------------------------------------------


def register(study: Study, folder: Path, *, made_by: Literal["register", "run"] = "register") -> str:
    """Add what is declared now to the registrations, unless it is the last of them. Returns what to say."""
    entries, file = entries_in(folder), folder / REGISTRATION_FILE
    digest = study_digest(study)
    if entries and entries[-1].digest == digest:
        return f"{study.name}: already registered at {entries[-1].registered}, and unchanged since ({file})"
    shelf = Shelf(folder)
    entry = RegistrationEntry(
        registered=now(),
        digest=digest,
        **commit_and_changes(),
        oelm=oelm.__version__,
        runs_then=len(_begun(shelf)),
        final_runs_then=len(_begun(shelf, is_final=partial(_is_final, study))),
        made_by=made_by,
        declaration=declared_tree(study),
    )
    ensure_writable(folder, option="--runs")
    tree = [each.model_dump(mode="json") for each in (*entries, entry)]
    write_sealed(file, {"format_version": FORMAT_VERSION, "registrations": tree})
    found = [difference_text(*each) for each in changes(entries[-1].declaration, entry.declaration)] if entries else []
    changed = f"; changed since {entries[-1].registered}: {some(found)}" if entries else ""
    how = f", before any {'final ' if entry.runs_then else ''}run started"
    if entry.final_runs_then:
        late = number_of(entry.final_runs_then, "final run")
        how = f", after {late} had started; the report says so beside the verdicts"
    return f"{study.name}: registered at {entry.registered}{how}{changed} ({file})"
