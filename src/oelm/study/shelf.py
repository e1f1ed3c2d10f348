"""The run directories of a study, found by what they computed, not by what they are called.

A result brought from elsewhere, renamed, or stored by an older format counts all the same: its config is migrated and
compared with the config a run is planned with.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from oelm.core.config import ResolvedRun, facts_of, fingerprint
from oelm.core.measures import LOSS, MEASURES
from oelm.core.solving import Criterion, Solved, solved
from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory, run_directories
from oelm.run.sealing import Ended, end_of, read_config
from oelm.storage.files import Damaged, Unreadable, missing
from oelm.storage.metric_records import Record
from oelm.storage.ownership import Process, owner_of, time_of
from oelm.storage.schemas import Environment, Parameters, Pulled, State, Status, Stored, read_record
from oelm.study.bench import Bench, stored_bench

PULLED_FILE = "pulled.json"  # which servers' runs these are, and which of them had a controller at work then
StoredState = State | Literal["damaged"]
_PREFERENCE: dict[StoredState, int] = {
    "finished": 0, "diverged": 1, "running": 2, "interrupted": 3, "failed": 4, "queued": 5, "damaged": 6,
}  # fmt: skip


@dataclass(frozen=True)
class StoredRun:
    """A run directory as it stands: what it computes, and how far it has come."""

    directory: RunDirectory
    run: ResolvedRun
    state: StoredState
    status: dict[str, Any]
    ended: Ended | None = None
    damage: str | None = None  # file and reason; nothing of a damaged run is part of a number
    remarks: tuple[str, ...] = ()  # files that are damaged, and that nothing depends on

    @property
    def name(self) -> str:
        return self.directory.path.name

    @property
    def arm(self) -> str:
        """As the study called it that made the folder, else as the run is labelled."""
        named = re.fullmatch(r"(.+?)-s\d+(-d\d+)?-[0-9a-f]{10}", self.name)
        return named[1] if named else self.run.arm

    @property
    def error(self) -> str | None:
        """Why it is not finished, where something is known."""
        return self.damage or (self.ended.error if self.ended else self.status.get("error"))

    @property
    def has_started(self) -> bool:
        return self.state != "queued" or self.directory.holds_work()

    @property
    def started(self) -> datetime.datetime | None:
        """For the first time. Of a run that has ended only its seal says it; None where nothing does."""
        return time_of(self.ended.started if self.ended else self.status.get("started"))

    @property
    def is_sealed(self) -> bool:
        return self.ended is not None and self.ended.sealed

    @property
    def result(self) -> dict[str, Any] | None:
        """The final numbers; None unless the run is finished."""
        return self.ended.result if self.ended else None

    @property
    def numbers(self) -> dict[str, float]:
        """What it reports: equal for two runs of one computation on one kind of machine."""
        result = self.result
        if result is None:
            return {}
        others = (each for each in MEASURES.values() if each is not LOSS and each.value_of(result) is not None)
        return {"val_loss": result["val_loss"], **{each.shown_key: result[each.shown_key] for each in others}}

    @cached_property
    def computation(self) -> str:
        """Its identity but for its data."""
        return computation(self.run)

    @cached_property
    def environment(self) -> dict[str, Any]:
        return self.ended.environment if self.ended else _record_or_empty(self.directory.environment_file, Environment)

    @cached_property
    def parameters(self) -> dict[str, Any]:
        return self.ended.parameters if self.ended else _record_or_empty(self.directory.parameters_file, Parameters)

    @property
    def predictions(self) -> dict[str, Any]:
        """Of the reported split, where the run classifies."""
        return self.ended.predictions if self.ended else {}

    @cached_property
    def validations(self) -> list[Record]:
        """Of a run that has ended: its validation records by step, read once."""
        return [record for record in self.directory.metrics() if "val_loss" in record] if self.ended else []

    def solved(self, criterion: Criterion) -> Solved | None:
        """Where it solved its probe; None: it did not, or has not finished."""
        if self.result is None:
            return None
        return solved(criterion, self.result, self.validations, steps=self.run.training.steps)

    @property
    def data_digest(self) -> str | None:
        return self.environment.get("data_digest")


ReadStored = Callable[[Path], StoredRun]


class Shelf:
    """All stored runs under one folder, by their computation."""

    def __init__(self, folder: Path, *, paths: list[Path] | None = None, read: ReadStored | None = None) -> None:
        """Of these directories, or else of all that the folder holds. Whoever reads again and again may remember what
        has not changed: `read` stands in for `read_stored`."""
        self.folder = folder
        self._paths, self._read = paths, read or read_stored
        self.unreadable: list[str] = []  # a line for each file that is not what was stored
        self.lost: list[RunDirectory] = []  # runs that started, and whose config cannot be read
        self._by_path = {stored.directory.path: stored for stored in self._found()}
        self._by_computation: dict[str, list[StoredRun]] = {}
        for stored in self.runs:
            self._by_computation.setdefault(stored.computation, []).append(stored)

    @cached_property
    def runs(self) -> list[StoredRun]:
        """The furthest first."""
        return sorted(self._by_path.values(), key=_rank)

    def reread(self, path: Path) -> None:
        """Take note of what has become of one directory, and of no other."""
        before = self._by_path.pop(path, None)
        if before is not None:
            self._by_computation[before.computation].remove(before)
        self.__dict__.pop("runs", None)
        try:
            stored = self._read(path)
        except (OSError, UserError):
            return  # named when all are read
        self._by_path[path] = stored
        alike = self._by_computation.setdefault(stored.computation, [])
        alike.append(stored)
        alike.sort(key=_rank)

    def _found(self) -> list[StoredRun]:
        found, listed = [], self._paths
        if listed is None:
            listed = run_directories(self.folder, unlisted=lambda damage: self.unreadable.append(str(damage)))
        for path in listed:
            try:
                stored = self._read(path)
            except (OSError, UserError) as error:
                self.unreadable.extend(str(error).splitlines())
                if isinstance(error, Unreadable) or RunDirectory(path).has_traces():
                    self.lost.append(RunDirectory(path))
                continue
            found.append(stored)
            self.unreadable.extend(stored.remarks)
        return found

    @property
    def damaged(self) -> list[StoredRun]:
        return [stored for stored in self.runs if stored.state == "damaged"]

    @property
    def damage_lines(self) -> list[str]:
        """File and reason of everything here that is not what was stored."""
        return [*self.unreadable, *(stored.damage or "" for stored in self.damaged)]

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What the data says of the model; where the data itself is not at hand, the stored runs know it."""
        return self.facts_from(None)

    def facts_from(self, data_digest: str | None) -> dict[str, Any]:
        """The same of the data with this digest, as far as a run was made from them."""
        own = (stored.run.model for stored in self.runs if data_digest and stored.data_digest == data_digest)
        model = next(own, next((stored.run.model for stored in self.runs), None))
        return facts_of(model) if model else {}

    @property
    def data_digests(self) -> list[str]:
        """Of all data that runs here were made from."""
        return sorted({stored.data_digest for stored in self.runs if stored.data_digest})

    def computed(self, identity: str, *, data_digest: str | None = None) -> StoredRun | None:
        """The stored run of an identity that `computation` gives; with a digest, only one made from that data."""
        for stored in self._by_computation.get(identity, []):
            if data_digest is None or stored.data_digest in (None, data_digest):
                return stored
        return None

    def bench(self) -> Bench | Damaged | None:
        """What `oelm bench` measured for this study, or what is wrong with its file; None: it was never measured."""
        return stored_bench(self.folder)


def run_elsewhere(folder: Path) -> list[dict[str, str]]:
    """Servers on which the study was being run when its results were brought here: server, pid and when seen."""
    file = folder / PULLED_FILE
    return list(read_record(file, Pulled).get("at_work", {}).values()) if file.exists() else []


def _rank(stored: StoredRun) -> tuple[int, str]:
    return _PREFERENCE[stored.state], stored.name


def computation(run: ResolvedRun) -> str:
    """The identity of a run but for its data."""
    return fingerprint(run, data_digest="")


def read_stored(path: Path) -> StoredRun:
    """A run as its files say it is. Damaged or another UserError where its config cannot be read."""
    directory = RunDirectory(path)
    try:
        run = read_config(directory).run
    except FileNotFoundError as error:
        raise missing(directory.config_file) from error
    status = directory.status() or {}
    state: StoredState = status.get("state") or "queued"
    # A process that died without a word, and a run that finished and lost its result, are taken up again.
    unended: StoredState = "interrupted" if state in ("running", "finished") else state
    stored = StoredRun(directory, run, unended, status, remarks=tuple(_remarks(directory)))
    is_sealed = os.path.lexists(directory.seal_file)  # the last thing but one that a run writes: its status comes after
    if state == "running" and not is_sealed and not is_dead(directory, status):
        return replace(stored, state="running")
    try:
        ended = end_of(directory)
    except Damaged as damage:
        return replace(stored, state="damaged", damage=str(damage))
    return replace(stored, state=ended.state, ended=ended) if ended else stored


def _remarks(directory: RunDirectory) -> Iterator[str]:
    try:
        read_record(directory.status_file, Status)
    except Damaged as damage:
        yield str(damage)
    except OSError:
        return


def is_dead(directory: RunDirectory, status: dict[str, Any]) -> bool:
    """Another host's process is judged by its lock, which is not there where a run was brought from another machine."""
    alive = Process.stored(status).is_alive_here()
    return alive is False or (alive is None and directory.lock_file.exists() and owner_of(directory.lock_file) is None)


def _record_or_empty(path: Path, shape: type[Stored]) -> dict[str, Any]:
    """Of a run that has not ended, whose next start writes the file anew."""
    try:
        return read_record(path, shape)
    except (OSError, Damaged):
        return {}
