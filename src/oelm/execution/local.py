"""This machine as an engine: runs are processes, on groups of cores or on GPUs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from oelm.execution.costs import cost_lines
from oelm.execution.engine import STOP_SIGNAL, Engine, Given, Handle, Slots, Wanted
from oelm.execution.handles import stored_handle
from oelm.execution.warm_server import UNKNOWN, WarmStarts
from oelm.machine.errors import UserError
from oelm.machine.gpus import gpus_to_use, visible_alone
from oelm.machine.system import usable_cores
from oelm.run.directory import RunDirectory, run_directories
from oelm.storage.files import Damaged, append_to
from oelm.storage.ownership import Process, now
from oelm.storage.schemas import LocalSlot, checked
from oelm.study.declaration import Study
from oelm.study.one_run import settings_for

KIND = "local"

# ---- Processes -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unit:
    """One share of the machine: `gpu` None is a group of cores."""

    number: int
    gpu: str | None
    by_bus: bool = True  # how its name is meant: gpus.Chosen says it

    def __str__(self) -> str:
        return f"cpu {self.number}" if self.gpu is None else f"gpu {self.gpu}"


class Child(Protocol):
    """A process that this controller started, of which it is told how it ended: a new Python, or a forked one."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...


@dataclass(frozen=True)
class LocalHandle(Handle):
    """A process of this machine."""

    directory: RunDirectory
    process: Process
    units: tuple[int, ...]
    names: tuple[str, ...] = ()  # of the units
    child: Child | None = None  # None: started by an earlier controller
    start: str | None = None  # None: started by hand

    kind = KIND

    @property
    def place(self) -> str:
        return ", ".join(self.names) or f"pid {self.process.pid}"

    def is_alive(self) -> bool:
        if self.child is not None:
            return self.child.poll() is None
        return self.process.is_alive_here() is True

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def exit_code(self) -> int | None:
        code = self.child.poll() if self.child is not None else None
        return None if code == UNKNOWN else code

    @property
    def end(self) -> str:
        code = self.exit_code
        return f"killed by signal {-code}" if code else super().end

    def wrote(self, status: dict[str, Any]) -> bool:
        return super().wrote(status) if self.start else status.get("pid") == self.process.pid


# ---- The engine ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LocalEngine(Engine):
    """Processes of this machine, in sessions of their own."""

    folder: Path

    kind = KIND
    takes = ("slots", "gpus")
    shape = LocalSlot

    def slots(self, study: Study, given: Given, *, say: Callable[[str], None]) -> LocalSlots:
        """For runs that execute as the study says; GPUs of its own living runs are not busy."""
        execution = settings_for(study, study.baseline, seed=study.seeds[0]).execution
        ours = [handle.process.pid for handle in self.living_runs()]
        units = units_here(
            given.slots, device=execution.device, threads=execution.threads, gpus=given.gpus, ours=ours, say=say
        )
        for arm, entry in study.arms.items():
            if entry.processes > len(units):
                raise UserError(
                    f"arms.{arm}: needs {entry.processes} slots for its processes, but there are {len(units)}"
                )
        return LocalSlots(self, units, given.probe_seconds)

    def found(self, directory: RunDirectory, stored: dict[str, Any]) -> LocalHandle | None:
        """What an earlier controller, or a person, started on this machine, if it still runs."""
        handle = LocalHandle(
            directory, Process.stored(stored), tuple(stored.get("numbers", ())), tuple(stored.get("units", ())),
            start=stored.get("start"),
        )  # fmt: skip
        if handle.is_alive():
            return handle
        status = directory.status() or {}
        by_hand = LocalHandle(directory, Process.stored(status), ())
        return by_hand if status.get("state") == "running" and by_hand.is_alive() else None

    def living_runs(self) -> list[LocalHandle]:
        """What was started in the study's folder and still runs."""
        found = []
        for directory in map(RunDirectory, run_directories(self.folder)):
            stored: dict[str, Any] = {}  # where another engine has it, or where it is damaged
            with contextlib.suppress(Damaged):
                handle = stored_handle(directory)
                if handle.get("kind") in (None, KIND):
                    stored = checked(directory.handle_file, handle, self.shape)
            found.append(self.found(directory, stored))
        return [handle for handle in found if handle is not None]

    def cancel(self, handles: Sequence[LocalHandle]) -> None:
        """Ask runs to save and stop, torchrun's workers too. Only a live process of this very machine is asked."""
        for process in (handle.process for handle in handles):
            if process.is_alive_here():
                with contextlib.suppress(ProcessLookupError):
                    leads_a_group = os.getpgid(process.pid) == process.pid  # one started by hand may be in another's
                    (os.killpg if leads_a_group else os.kill)(process.pid, signal.SIGTERM)


@dataclass(frozen=True)
class LocalSlots(Slots):
    """This machine's units; a run of several processes takes several."""

    engine: LocalEngine
    units: list[Unit]
    probe_seconds: float = Given.probe_seconds
    warm: WarmStarts | None = field(default_factory=WarmStarts)

    @property
    def at_a_time(self) -> int:
        return len(self.units)

    def close(self) -> None:
        if self.warm is not None:
            self.warm.close()

    def submit(self, wanted: Iterable[Wanted], active: list[Handle]) -> Iterator[Handle]:
        taken = {number for handle in active if isinstance(handle, LocalHandle) for number in handle.units}
        free = [unit for unit in self.units if unit.number not in taken]
        if not free:
            return
        for run in wanted:
            if len(free) < run.processes:
                return
            chosen, free = free[: run.processes], free[run.processes :]
            yield started(run, chosen, warm=self.warm)
            if not free:
                return

    def forecast(self, now: list[Wanted], later: list[Wanted]) -> list[str]:
        """With times and memory as a probe measures them on the first of the units."""
        slots = f"slots: {', '.join(str(unit) for unit in self.units)}"
        variables = environment_on(self.units[:1])
        costs = cost_lines(now, later, slots=len(self.units), variables=variables, timeout=self.probe_seconds)
        return [slots, "", *costs]


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
        return [Unit(gpu.number, gpu.name, gpu.by_bus) for gpu in chosen]
    cores = usable_cores()
    return [Unit(number, None) for number in range(slots or max(1, cores // (threads or cores)))]


def environment_on(units: list[Unit]) -> dict[str, str]:
    """What a process has in its environment to see the GPUs of its units, and no others."""
    names = [unit.gpu for unit in units if unit.gpu is not None]
    return visible_alone(names, by_bus=all(unit.by_bus for unit in units))


def started(run: Wanted, units: list[Unit], *, warm: WarmStarts | None = None) -> LocalHandle:
    """A run, now a process on some units: a session of its own, so that it outlives us."""
    variables = environment_on(units)
    if run.processes > 1 or any(unit.gpu is not None for unit in units):
        warm = None  # torchrun starts its own; and CUDA does not survive a fork
    if warm is not None:
        warm.get_ready({**os.environ, **variables})
    start = run.prepare()
    environment = start.environment | variables
    with undisturbed(), append_to(run.directory.output_file) as output:
        forked = warm.begun(start.command, environment, output) if warm is not None else None
        child: Child = forked or subprocess.Popen(
            start.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )
        numbers, names = tuple(unit.number for unit in units), tuple(str(unit) for unit in units)
        handle = LocalHandle(run.directory, Process.of(child.pid), numbers, names, child, start.name)
        own = {"units": names, "numbers": numbers, "start": start.name, "started": now()}
        run.hand_over(KIND, **handle.process.__dict__, **own)
        if forked is not None:
            forked.release()
    return handle


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that would end us wait for the end of the block: a run that was started is one that can be found."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, STOP_SIGNAL)}
    for each in before:
        signal.signal(each, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        for number in came[:1]:
            signal.raise_signal(number)
