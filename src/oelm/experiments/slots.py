"""Where runs execute: what every kind of place can do, and this machine's kind: groups of cores, or GPUs.

A started run outlives its controller. Its handle lies in the run directory: whoever comes later can tell whether it
still lives, and nothing is started twice. The other kind is slurm.py.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from oelm.config import Settings, stored_form
from oelm.errors import UserError
from oelm.experiments.gpus import gpus_to_use, visible_alone
from oelm.files import write_json_unflushed
from oelm.ownership import Process, now
from oelm.run_directory import START_VARIABLE, RunDirectory
from oelm.settings import written_out
from oelm.study.declaration import Study

# ---- Every kind ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """A run to be started."""

    directory: RunDirectory
    settings: Settings
    processes: int
    is_new: bool  # nothing readable is there

    def prepare(self) -> None:
        """Write what the run needs to start, and what tells others that it was wanted. A thousand runs are prepared
        in seconds, because nothing is flushed to the disk: lost, it is written again.
        """
        self.directory.path.mkdir(parents=True, exist_ok=True)
        if self.is_new:
            write_json_unflushed(self.directory.config_file, stored_form(self.settings.run))
            self.directory.write_queued(steps=self.settings.run.training.steps)
        write_json_unflushed(self.directory.settings_file, written_out(self.settings))


class Handle(Protocol):
    """A started run; rebuilt from the run directory by whoever comes later."""

    @property
    def directory(self) -> RunDirectory: ...
    @property
    def units(self) -> tuple[int, ...]:
        """Of this machine, that it occupies."""
        ...

    @property
    def place(self) -> str:
        """Where it is, in words."""
        ...

    @property
    def is_waiting(self) -> bool:
        """Started, but in a queue."""
        ...

    @property
    def stays(self) -> bool:
        """Whether a Ctrl-C of the controller leaves it alone."""
        ...

    def is_alive(self) -> bool: ...
    @property
    def exit_code(self) -> int | None:
        """None: not known; below zero: killed by a signal."""
        ...

    @property
    def end(self) -> str:
        """How it ended, for one that wrote no word itself."""
        ...

    @property
    def was_cancelled(self) -> bool:
        """Taken out of a queue by somebody."""
        ...

    def wrote(self, status: dict[str, Any]) -> bool:
        """Whether a run's status holds the words of this very start, not of one before or beside it."""
        ...

    def cancel(self) -> None:
        """Ask it to save and stop."""
        ...


class Slots(Protocol):
    """A kind of place where runs execute."""

    def refuse_what_never_fits(self, study: Study) -> None: ...
    def submit(self, wanted: Iterable[Wanted], active: list[Handle]) -> Iterator[Handle]:
        """Start, in order, those that fit beside the active ones."""
        ...


# ---- This machine --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unit:
    """One share of the machine: `gpu` None is a group of cores."""

    number: int
    gpu: str | None

    def __str__(self) -> str:
        return f"cpu {self.number}" if self.gpu is None else f"gpu {self.gpu}"


@dataclass(frozen=True)
class LocalHandle:
    """A process of this machine."""

    directory: RunDirectory
    process: Process
    units: tuple[int, ...]
    names: tuple[str, ...] = ()  # of the units
    child: subprocess.Popen[bytes] | None = None  # None: started by an earlier controller
    start: str | None = None  # its name; None: started by hand

    is_waiting = False
    stays = False
    was_cancelled = False

    @property
    def place(self) -> str:
        return ", ".join(self.names) or f"pid {self.process.pid}"

    def is_alive(self) -> bool:
        if self.child is not None:
            return self.child.poll() is None
        return self.process.is_alive_here() is True

    @property
    def exit_code(self) -> int | None:
        return self.child.poll() if self.child is not None else None

    @property
    def end(self) -> str:
        code = self.exit_code
        return f"killed by signal {-code}" if code else "gone without a word"

    def wrote(self, status: dict[str, Any]) -> bool:
        return status.get("start") == self.start if self.start else status.get("pid") == self.process.pid

    def cancel(self) -> None:
        """Ask the run to save and stop, torchrun's workers too. Only a live process of this very machine is asked."""
        if not self.process.is_alive_here():
            return
        pid = self.process.pid
        with contextlib.suppress(ProcessLookupError):
            leads_a_group = os.getpgid(pid) == pid  # one started by hand may belong to somebody else's
            os.killpg(pid, signal.SIGTERM) if leads_a_group else os.kill(pid, signal.SIGTERM)


@dataclass(frozen=True)
class LocalSlots:
    """This machine's units; a run of several processes takes several."""

    units: list[Unit]

    def refuse_what_never_fits(self, study: Study) -> None:
        for arm, entry in study.arms.items():
            if entry.processes > len(self.units):
                raise UserError(
                    f"arms.{arm}: needs {entry.processes} slots for its processes, there are {len(self.units)}"
                )

    def submit(self, wanted: Iterable[Wanted], active: list[Handle]) -> Iterator[Handle]:
        taken = {number for handle in active for number in handle.units}
        free = [unit for unit in self.units if unit.number not in taken]
        if not free:
            return
        for run in wanted:
            if len(free) < run.processes:
                return
            chosen, free = free[: run.processes], free[run.processes :]
            yield started(run, chosen)
            if not free:
                return


def units_here(
    slots: int | None,
    *,
    device: str,
    threads: int | None,
    gpus: str | None = None,
    ours: Iterable[int] = (),
    say: Callable[[str], None] = lambda line: None,
) -> list[Unit]:
    """The units of this machine: its free GPUs, or as many groups of cores as the study's threads allow."""
    if device == "cpu" and gpus is not None:
        raise UserError(f"--gpus {gpus}: the study runs on the CPU (execution.device)")
    chosen = [] if device == "cpu" else gpus_to_use(gpus, most=slots, ours=ours, say=say)
    if chosen:
        return [Unit(gpu.number, gpu.name) for gpu in chosen]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return [Unit(number, None) for number in range(slots or max(1, cores // (threads or cores)))]


def train_command(directory: RunDirectory, *, processes: int) -> list[str]:
    """Exactly what is started. Standalone rendezvous takes a free port each time, so that ports never collide."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return [
        sys.executable, *(launcher if processes > 1 else []), "-m", "oelm", "train", str(directory.settings_file),
        "--out", str(directory.path),
    ]  # fmt: skip


def started(run: Wanted, units: list[Unit]) -> LocalHandle:
    """A run, now a process on some units: a session of its own, so that it outlives us."""
    run.prepare()
    gpus = [unit.gpu for unit in units if unit.gpu is not None]
    start = secrets.token_hex(6)
    environment = os.environ | {START_VARIABLE: start} | (visible_alone(gpus) if gpus else {})
    with undisturbed(), open(run.directory.output_file, "ab") as output:
        child = subprocess.Popen(
            train_command(run.directory, processes=run.processes),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )
        numbers, names = tuple(unit.number for unit in units), tuple(str(unit) for unit in units)
        handle = LocalHandle(run.directory, Process.of(child.pid), numbers, names, child, start)
        stored = {**handle.process.__dict__, "units": names, "numbers": numbers, "start": start, "started": now()}
        write_json_unflushed(run.directory.handle_file, stored)
    return handle


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that would end us wait for the end of the block: a run that was started is one that can be found."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    for each in before:
        signal.signal(each, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        for number in came[:1]:
            signal.raise_signal(number)


def living(directory: RunDirectory, stored: dict[str, Any]) -> LocalHandle | None:
    """The run that an earlier controller, or a hand, started on this machine, if it still runs."""
    try:
        handle = LocalHandle(
            directory, Process.stored(stored), tuple(stored.get("numbers", ())), tuple(stored.get("units", ())),
            start=stored.get("start"),
        )  # fmt: skip
    except TypeError:
        handle = None
    if handle is not None and handle.is_alive():
        return handle
    status = directory.status() or {}
    by_hand = LocalHandle(directory, Process.stored(status), ())
    return by_hand if status.get("state") == "running" and by_hand.is_alive() else None
