"""All handles of a study, whichever engine they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from oelm.errors import UserError
from oelm.experiments.engine import Engine, Handle
from oelm.experiments.engines import DEFAULT, ENGINES, engine_named
from oelm.files import Damaged
from oelm.run_directory import RunDirectory, run_directories
from oelm.schemas import Slot, read_record

LOCK_FILE = "controller.lock"  # of a study: one controller works on it at a time


class Unanswered(UserError):
    """An engine cannot be asked whether it still has a run."""

    def __init__(self, directory: RunDirectory, title: str, reason: str) -> None:
        super().__init__(
            f"{directory.path}: was given to {title}, which cannot be asked whether it still has it ({reason}); if "
            f"it is certainly gone, delete {directory.handle_file.name} there"
        )
        self.title, self.reason = title, reason


class StudyEngines:
    """Every engine for one study's folder, each made when one of its runs is met."""

    def __init__(self, folder: Path, *known: Engine) -> None:
        self._folder = folder
        self._engines = {engine.kind: engine for engine in known}
        self._silent: set[str] = set()  # kinds

    def of(self, kind: str) -> Engine:
        if kind not in self._engines:
            self._engines[kind] = engine_named(kind, self._folder)
        return self._engines[kind]

    def found(self, directory: RunDirectory) -> Handle | None:
        """Whoever works on a run, or waits in a queue to do so: started by an earlier controller, or by hand."""
        stored = stored_handle(directory)
        kind = stored.get("kind") or DEFAULT
        if kind not in ENGINES:
            raise Unanswered(directory, repr(kind), "this version of oelm has no such engine")
        if kind != DEFAULT:
            engine = self.of(kind)
            try:
                handle = engine.found(directory, stored)
            except UserError as error:
                raise Unanswered(directory, engine.title, str(error)) from error
            if handle is not None:
                return handle
        return self.of(DEFAULT).found(directory, stored)

    def everything_alive(self) -> tuple[list[Handle], list[Unanswered]]:
        """What was started in the folder and goes on; and for which runs that is unknown."""
        handles, unknown = [], []
        for directory in map(RunDirectory, run_directories(self._folder)):
            try:
                handle = self.found(directory)
            except Unanswered as error:
                if (directory.status() or {}).get("state") not in ("finished", "diverged"):
                    unknown.append(error)
                continue
            if handle is not None:
                handles.append(handle)
        return handles, unknown

    def cancel(self, handles: Iterable[Handle]) -> None:
        """Ask all of them to save and end."""
        by_kind: dict[str, list[Handle]] = {}
        for handle in handles:
            by_kind.setdefault(handle.kind, []).append(handle)
        for kind, alike in by_kind.items():
            self.of(kind).cancel(alike)

    def news(self) -> Iterator[str]:
        """A line when an engine falls silent, and one when it answers again."""
        for kind, engine in self._engines.items():
            silence = engine.silence()
            if silence is not None and kind not in self._silent:
                self._silent.add(kind)
                yield f"{engine.title} does not answer ({silence}); trying again, its runs continue"
            elif silence is None and kind in self._silent:
                self._silent.remove(kind)
                yield f"{engine.title} answers again"


def stored_handle(directory: RunDirectory) -> dict[str, Any]:
    """Empty where there is none, or a damaged one, which the shelf names: the lock keeps a second process out."""
    try:
        return read_record(directory.handle_file, Slot)
    except (OSError, Damaged):
        return {}
