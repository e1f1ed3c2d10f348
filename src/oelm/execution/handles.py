"""All handles of a study, whichever engine they belong to."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from oelm.execution.engine import Engine, Handle
from oelm.execution.engines import DEFAULT, ENGINES, engine_named
from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory, run_directories
from oelm.storage.files import Damaged
from oelm.storage.schemas import Slot, checked, read_record

LOCK_FILE = "controller.lock"  # of a study: one controller works on it at a time


class Untold(UserError):
    """There is no telling whether somebody still has a run: it is not started a second time."""

    place: str  # in place of where the run is
    line: str  # the same for all runs for which it is said once; {count} stands for how many


class Unanswered(Untold):
    """An engine cannot be asked."""

    def __init__(self, directory: RunDirectory, title: str, reason: str) -> None:
        super().__init__(
            f"{directory.path}: was given to {title}, which cannot be asked whether it still has it ({reason}); if "
            f"it is certainly gone, delete {directory.handle_file.name} there"
        )
        self.place = f"{title}: no answer"
        self.line = f"{title} does not answer, so it is unknown whether it still has {{count}} of these runs: {reason}"


class DamagedHandle(Untold):
    """A handle does not say any more who was given the run."""

    def __init__(self, damage: Damaged) -> None:
        super().__init__(
            f"{damage}; it said which process or job was given the run, so the run is not started a second time: if "
            f"`{shlex.join(['pgrep', '-f', damage.path.parent.name])}` finds no process and no queue contains a job of "
            f"it, delete the file with `{shlex.join(['rm', str(damage.path)])}` and repeat the command"
        )
        self.place = f"{damage.path.name} is damaged"
        self.line = str(self)


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
        try:
            stored, damage = stored_handle(directory), None
            kind = stored.get("kind") or DEFAULT
            if kind not in ENGINES:
                raise Unanswered(directory, repr(kind), "this version of oelm has no such engine")
            checked(directory.handle_file, stored, self.of(kind).shape)
        except Damaged as error:
            stored, kind, damage = {}, DEFAULT, error
        if kind != DEFAULT:
            try:
                handle = self.of(kind).found(directory, stored)
            except UserError as error:
                raise Unanswered(directory, ENGINES[kind].title, str(error)) from error
            if handle is not None:
                return handle
        handle = self.of(DEFAULT).found(directory, stored if kind == DEFAULT else {})
        if handle is None and damage is not None:
            raise DamagedHandle(damage)
        return handle

    def everything_alive(self) -> tuple[list[Handle], list[Untold]]:
        """What was started in the folder and goes on; and for which runs that is unknown."""
        handles, unknown = [], []
        for directory in map(RunDirectory, run_directories(self._folder)):
            try:
                handle = self.found(directory)
            except Untold as error:
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
                yield f"{ENGINES[kind].title} does not answer ({silence}); trying again, its runs continue"
            elif silence is None and kind in self._silent:
                self._silent.remove(kind)
                yield f"{ENGINES[kind].title} answers again"


def stored_handle(directory: RunDirectory) -> dict[str, Any]:
    """Empty where there is none. A link is none: no engine writes one."""
    try:
        return {} if directory.handle_file.is_symlink() else read_record(directory.handle_file, Slot)
    except FileNotFoundError:
        return {}
