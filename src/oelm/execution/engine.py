"""What an engine is: a way to execute the runs of a study, such as the processes of this machine or a cluster's queue.

It is one file and one row of ENGINES (engines.py). Whatever shows, starts or stops runs knows only what stands here.
A started run outlives its controller: its handle is stored in the run directory, where whoever comes later finds it.

A run writes the name of its start into its status, which tells its words from those of a start before it: an engine
executes the `Start` that `Wanted.prepare` gives it, and stores the name. Settings of its own in a study's file are one
field of Study (study/declaration.py), which _NOT_DECLARED there names too.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from oelm.core.config import Settings, stored_form
from oelm.core.settings import written_out
from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory
from oelm.storage.files import make_folders, write_json_unflushed
from oelm.storage.ownership import START_VARIABLE, owner_of
from oelm.storage.schemas import Stored
from oelm.study.declaration import Study
from oelm.study.plan import PlannedRun

# What `oelm stop` sends to a controller, which may then say that its runs are stopped too.
STOP_SIGNAL = getattr(signal, "SIGUSR1", signal.SIGTERM)

# ---- A run to be started -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """A run to be started, and where."""

    directory: RunDirectory
    planned: PlannedRun

    @property
    def settings(self) -> Settings:
        return self.planned.settings

    @property
    def processes(self) -> int:
        return self.planned.processes

    def prepare(self) -> Start:
        """Write what the run needs to start, and what tells others that it was wanted. A thousand runs are prepared
        in seconds, because nothing is flushed to the disk: lost, it is written again.
        """
        if not self.directory.path.parent.exists():
            make_folders(self.directory.path.parent)  # once in a study; its runs flush their own
        self.directory.path.mkdir(exist_ok=True)
        if self.planned.stored is None:  # nothing readable is there
            write_json_unflushed(self.directory.config_file, stored_form(self.planned.resolved_run))
            self.directory.write_queued(steps=self.settings.run.training.steps)
        write_json_unflushed(self.directory.settings_file, written_out(self.settings))
        return Start(secrets.token_hex(6), train_command(self.directory, processes=self.processes))

    def hand_over(self, kind: str, **stored: Any) -> None:
        """Store the handle by which whoever comes later finds the run with its engine, and nobody starts it twice."""
        write_json_unflushed(self.directory.handle_file, {"kind": kind, **stored})


@dataclass(frozen=True)
class Start:
    """One start of a run, to be executed with its environment, or by its line where that is another process's."""

    name: str  # of Handle.start
    command: list[str]

    @property
    def environment(self) -> dict[str, str]:
        """This process's own, with the name."""
        return {**os.environ, START_VARIABLE: self.name}

    @property
    def line(self) -> str:
        """For any shell."""
        return shlex.join(["env", f"{START_VARIABLE}={self.name}", *self.command])


def withdraw(directory: RunDirectory) -> None:
    """Take back what was prepared for a run that no engine has: if it never began, it is missing again."""
    directory.handle_file.unlink(missing_ok=True)
    has_begun = (
        (directory.status() or {}).get("state") != "queued"
        or directory.holds_work()
        or owner_of(directory.lock_file) is not None
        or (directory.output_file.exists() and directory.output_file.stat().st_size > 0)
    )
    if has_begun:
        return
    for file in (directory.config_file, directory.settings_file, directory.status_file, directory.output_file):
        file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # somebody put something there
        directory.path.rmdir()


def train_command(directory: RunDirectory, *, processes: int) -> list[str]:
    """Exactly what is executed."""
    return [
        sys.executable, *several_processes(processes), "-m", "oelm", "train", str(directory.settings_file),
        "--out", str(directory.path),
    ]  # fmt: skip


def several_processes(count: int) -> list[str]:
    """What Python is told before `-m MODULE` for so many processes. Standalone rendezvous takes a free port each time,
    so that ports never collide."""
    return ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)] if count > 1 else []


# ---- A run that was started ----------------------------------------------------------------------------------------


class Handle(Protocol):
    """A started run; rebuilt from the run directory by whoever comes later."""

    directory: RunDirectory
    kind: ClassVar[str]  # of its engine

    @property
    def start(self) -> str | None:
        """The name of this start, which the run writes into its status."""
        ...

    @property
    def place(self) -> str:
        """Where it is, in words."""
        ...

    def is_alive(self) -> bool: ...

    # An engine says these where it knows more.

    @property
    def pid(self) -> int | None:
        """Of the process of this machine with which it ends; None: there is none, and it has to be asked."""
        return None

    @property
    def is_waiting(self) -> bool:
        """Started, but in a queue."""
        return False

    @property
    def exit_code(self) -> int | None:
        """None: not known; below zero: killed by a signal."""
        return None

    @property
    def end(self) -> str:
        """How it ended, for one that said nothing itself."""
        return "ended without a message"

    @property
    def was_cancelled(self) -> bool:
        """Taken out of a queue by somebody."""
        return False

    def wrote(self, status: dict[str, Any]) -> bool:
        """Whether a run's status was written by this very start, not by one before or beside it."""
        return status.get("start") == self.start


# ---- Engines -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """What the command line says of the place."""

    slots: int | None = None  # runs at a time
    gpus: str | None = None  # of this machine
    wishes: tuple[str, ...] = ()  # KEY=VALUE of the engine's own option
    probe_seconds: float = 300.0

    def refuse_what_is_not_taken(self, engine: Engine) -> None:
        """An option that an engine would pass over in silence."""
        for option in ("slots", "gpus"):
            if getattr(self, option) is not None and option not in engine.takes:
                raise UserError(f"--{option}: is not for --on {engine.kind}; leave it out")


class Engine(Protocol):
    """One for a study's folder and a command: it may keep what its handles share, such as a queue's last answer."""

    kind: ClassVar[str]  # its name in ENGINES and in the handles that it stores
    has_queue: ClassVar[bool] = False  # where started runs wait, and stay when their controller is stopped
    takes: ClassVar[tuple[str, ...]] = ()  # of "slots" and "gpus", what its slots() goes by; the rest is refused
    shape: ClassVar[type[Stored]]  # of what its handles store, beside `kind`; found() is given nothing else
    folder: Path  # of the study's runs

    def slots(self, study: Study, given: Given, *, say: Callable[[str], None]) -> Slots:
        """Ready to start runs of a study, or a UserError for what can never be started."""
        ...

    def found(self, directory: RunDirectory, stored: dict[str, Any]) -> Handle | None:
        """The living run of a stored handle. A UserError: there is no telling, because the engine does not answer."""
        ...

    def cancel(self, handles: Sequence[Any]) -> None:
        """Ask handles of this engine to save and stop, and take those that wait out of the queue."""
        ...

    def silence(self) -> str | None:
        """Why it does not answer now, while what it said before is still believed."""
        return None


class Slots(Protocol):
    """An engine that is ready to start the runs of one study."""

    engine: Engine

    @property
    def at_a_time(self) -> int | None:
        """How many runs; None: as many as it has room for."""
        return None

    def submit(self, wanted: Iterable[Wanted], active: list[Handle]) -> Iterator[Handle]:
        """Start, in order, those that fit beside the active ones."""
        ...

    def forecast(self, now: list[Wanted], later: list[Wanted]) -> list[str]:
        """What would be started now, and what would follow when tuning has chosen; nothing is written."""
        ...

    def close(self) -> None:
        """Give back what only starting needs; runs go on."""
        return None
