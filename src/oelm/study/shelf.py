"""The run directories of a study, found by what they computed, not by what they are called.

A result brought from elsewhere, renamed, or stored by an older format counts all the same: its config is migrated and
compared with the config a run is planned with.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from oelm.config import Run, facts_of, fingerprint
from oelm.errors import UserError
from oelm.files import read_json
from oelm.ownership import Process, owner_of
from oelm.run_directory import RunDirectory, State
from oelm.settings import stored_run

TUNING_FOLDER = "tuning"
BENCH_FILE = "bench.json"
PULLED_FILE = "pulled.json"  # which servers' runs these are, and which of them had a controller at work then
_PREFERENCE: dict[State, int] = {"finished": 0, "diverged": 1, "running": 2, "interrupted": 3, "failed": 4, "queued": 5}


@dataclass(frozen=True)
class StoredRun:
    """A run directory as it stands: what it computes, and how far it has come."""

    directory: RunDirectory
    run: Run
    state: State
    status: dict[str, Any]

    @property
    def name(self) -> str:
        return self.directory.path.name

    @cached_property
    def environment(self) -> dict[str, Any]:
        return _json_or_empty(self.directory.environment_file)

    @cached_property
    def parameters(self) -> dict[str, Any]:
        return _json_or_empty(self.directory.parameters_file)

    @cached_property
    def result(self) -> dict[str, Any] | None:
        """The final numbers; None unless the run is finished."""
        return _json_or_empty(self.directory.result_file) or None if self.state == "finished" else None

    @cached_property
    def predictions(self) -> dict[str, Any]:
        """Of the reported split, where the run classifies."""
        return _json_or_empty(self.directory.predictions_file)

    @property
    def data_digest(self) -> str | None:
        return self.environment.get("data_digest")


class Shelf:
    """All stored runs under one folder, by their computation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.unreadable: list[str] = []  # a line for each folder that could not be read
        self._by_path = {stored.directory.path: stored for stored in self._found()}
        self._by_computation: dict[str, list[StoredRun]] = {}
        for stored in self.runs:
            self._by_computation.setdefault(computation(stored.run), []).append(stored)

    @cached_property
    def runs(self) -> list[StoredRun]:
        """The furthest first."""
        return sorted(self._by_path.values(), key=_rank)

    def reread(self, path: Path) -> None:
        """Take note of what has become of one directory, and of no other."""
        before = self._by_path.pop(path, None)
        if before is not None:
            self._by_computation[computation(before.run)].remove(before)
        self.__dict__.pop("runs", None)
        try:
            stored = read_stored(path)
        except (OSError, UserError):
            return  # named when all are read
        self._by_path[path] = stored
        alike = self._by_computation.setdefault(computation(stored.run), [])
        alike.append(stored)
        alike.sort(key=_rank)

    def _found(self) -> list[StoredRun]:
        found = []
        for path in sorted({*self.folder.glob("*/config.json"), *self.folder.glob(f"{TUNING_FOLDER}/*/config.json")}):
            try:
                found.append(read_stored(path.parent))
            except UserError as error:
                self.unreadable.extend(str(error).splitlines())
        return found

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What the data says of the model; where the data itself is not at hand, the stored runs know it."""
        model = next((stored.run.model for stored in self.runs), None)
        return facts_of(model) if model else {}

    def computed(self, identity: str, *, data_digest: str | None = None) -> StoredRun | None:
        """The stored run of an identity that `computation` gives; with a digest, only one made from that data."""
        for stored in self._by_computation.get(identity, []):
            if data_digest is None or stored.data_digest in (None, data_digest):
                return stored
        return None

    def bench(self) -> dict[str, Any] | None:
        """What `oelm bench` measured for this study."""
        return _json_or_empty(self.folder / BENCH_FILE) or None


def run_elsewhere(folder: Path) -> list[dict[str, str]]:
    """Servers on which the study was being run when its results were brought here: server, pid and when seen."""
    return list(_json_or_empty(folder / PULLED_FILE).get("at_work", {}).values())


def _rank(stored: StoredRun) -> tuple[int, str]:
    return _PREFERENCE[stored.state], stored.name


def computation(run: Run) -> str:
    """The identity of a resolved run but for its data."""
    return fingerprint(run, data_digest="")


def read_stored(path: Path) -> StoredRun:
    directory = RunDirectory(path)
    run = stored_run(read_json(directory.config_file), name=str(directory.config_file))
    status = directory.status() or {}
    return StoredRun(directory, run, _state_of(directory, status), status)


def _state_of(directory: RunDirectory, status: dict[str, Any]) -> State:
    """What the status says, except for a process that died without a word, and for the end: a result without a status
    is a result, and a run that finished and lost its result has to be taken up again.
    """
    state = status.get("state")
    if state not in _PREFERENCE:
        return "finished" if _has_result(directory) else "queued"
    if state == "finished" and not _has_result(directory):
        return "interrupted"
    return "interrupted" if state == "running" and _is_dead(directory, status) else state


def _is_dead(directory: RunDirectory, status: dict[str, Any]) -> bool:
    """Another host's process is judged by its lock, which is not there where a run was brought from another machine."""
    alive = Process.stored(status).is_alive_here()
    return alive is False or (alive is None and directory.lock_file.exists() and owner_of(directory.lock_file) is None)


def _has_result(directory: RunDirectory) -> bool:
    return "val_loss" in _json_or_empty(directory.result_file)


def _json_or_empty(path: Path) -> dict[str, Any]:
    try:
        value = read_json(path)
    except (OSError, UserError):
        return {}
    return value if isinstance(value, dict) else {}
