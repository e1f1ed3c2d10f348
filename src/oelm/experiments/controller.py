"""The controller: it compares what a study wants with what is there, and starts what is missing.

It keeps nothing in memory that the run directories do not hold. Killed, it leaves its runs alive; started again, it
finds them. One controller works on a study at a time.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from oelm.data.folders import open_data
from oelm.errors import UserError
from oelm.experiments.handles import LOCK_FILE, found, living_runs
from oelm.experiments.slots import Handle, Slots, Unit, Wanted, units_here
from oelm.experiments.slurm_queue import Queue
from oelm.files import RUNS, ensure_writable, explaining_a_full_disk
from oelm.ownership import Owned, owning
from oelm.run_directory import RunDirectory, final_numbers
from oelm.study.declaration import Study, settings_for
from oelm.study.plan import Plan, PlannedRun, Planner
from oelm.study.shelf import PULLED_FILE, Shelf, read_stored, run_elsewhere

POLL_SECONDS = 0.5
SHORTEST_POLL_SECONDS = 0.01  # right after a start: some runs end at once
READING_SHARE = 20  # all directories are read again when that takes a twentieth of the time since
MOST_STARTS = 2  # of one run by one controller: a process killed from outside is tried once more
NEEDED_BYTES = 2**20  # of the controller's own small files


@dataclass(frozen=True)
class DataFacts:
    model: dict[str, Any]  # what it says of the model
    digest: str


def data_facts(study: Study) -> DataFacts:
    """What the study's data says about itself; a missing folder is an error that names the command to make it."""
    data = open_data(settings_for(study, study.baseline, seed=study.seeds[0]).run)
    return DataFacts(data.facts, data.digest)


def units_for(
    study: Study,
    slots: int | None,
    *,
    folder: Path,
    gpus: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> list[Unit]:
    """The units of this machine for runs that execute as the study says; GPUs of its own living runs are not busy."""
    execution = settings_for(study, study.baseline, seed=study.seeds[0]).execution
    ours = [handle.process.pid for handle in living_runs(folder)]
    return units_here(slots, device=execution.device, threads=execution.threads, gpus=gpus, ours=ours, say=say)


class View(Protocol):
    """Whoever watches: a live table or plain lines."""

    def say(self, line: str) -> None: ...
    def show(self, plan: Plan, active: list[ActiveRun]) -> None: ...


@dataclass(frozen=True)
class ActiveRun:
    planned: PlannedRun
    handle: Handle

    @property
    def directory(self) -> RunDirectory:
        return self.handle.directory


@dataclass
class Controller:
    """One pass over a study: from what is there to everything finished that can be."""

    study: Study
    folder: Path
    slots: Slots
    view: View
    groups: list[str] | None = None
    queue: Queue | None = None  # of a cluster where some of the runs may be
    facts: DataFacts = field(init=False)
    planner: Planner = field(init=False)
    shelf: Shelf = field(init=False)
    active: list[ActiveRun] = field(default_factory=list)
    starts: dict[Path, int] = field(default_factory=dict)
    given_up: dict[Path, str] = field(default_factory=dict)  # this pass: path -> why

    def __post_init__(self) -> None:
        self.slots.refuse_what_never_fits(self.study)
        self.facts = data_facts(self.study)
        self.planner = Planner(self.study, self.facts.model, self.facts.digest)
        self.queue = self.queue or Queue(self.folder)
        self.shelf, self._read, self._reading_seconds = Shelf(self.folder), time.monotonic(), 0.0

    @property
    def runs_option(self) -> list[str]:
        """What later commands need to find the runs."""
        return ["--runs", str(self.folder)] if self.folder != RUNS / self.study.name else []

    # -- the pass ----------------------------------------------------------------------------------------------------

    def go(self, *, waits: bool = True) -> Plan:
        """Run what is missing, to the end or only to its start. Returns the plan as it stands then."""
        ensure_writable(self.folder, option="--runs")
        refuse_what_runs_elsewhere(self.study.name, self.folder)
        with self._alone(), explaining_a_full_disk(self.folder, needed_bytes=NEEDED_BYTES):
            try:
                return self._reconcile(waits)
            except KeyboardInterrupt:
                self._stop_all()
                raise

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            with owning(self.folder / LOCK_FILE):
                yield
        except Owned as error:
            raise UserError(
                f"{self.folder}: a controller is at work on this study ({error}); `oelm status` shows its runs"
            ) from error

    def _reconcile(self, waits: bool) -> Plan:
        plan = self._afresh()
        while True:
            self._start_what_fits(plan)
            if not waits:
                return self._plan()
            if self.active:
                for run in self._ended(plan):
                    self._note_end(run)
                    self.shelf.reread(run.directory.path)
                reading_is_due = time.monotonic() - self._read > READING_SHARE * self._reading_seconds
                plan = self._afresh() if reading_is_due else self._plan()
                continue
            plan = self._afresh()  # somebody may have brought results, or started something
            if not self.active and not any(map(self._is_wanted, plan.runs)):
                return plan

    def _afresh(self) -> Plan:
        """The plan after a look at every directory, and at who works there."""
        began = time.monotonic()
        self.shelf = Shelf(self.folder)
        plan = self._plan()
        self._adopt(plan)
        self._read = time.monotonic()
        self._reading_seconds = self._read - began
        return plan

    def _plan(self) -> Plan:
        return self.planner.plan(self.shelf)

    # -- starting ----------------------------------------------------------------------------------------------------

    def _adopt(self, plan: Plan) -> None:
        """Runs that an earlier controller, or a hand, started and that still go."""
        assert self.queue is not None
        known = self._active_paths()
        for run in plan.runs:
            if run.stored is None or run.stored.directory.path in known or run.loss is not None:
                continue
            handle = found(run.stored.directory, self.queue)
            if handle is not None:
                self.active.append(ActiveRun(run, handle))
                doing = "waiting" if handle.is_waiting else "running"
                self.view.say(f"{run.title}: already {doing} ({handle.place}), found again")

    def _active_paths(self) -> set[Path]:
        return {run.directory.path for run in self.active}

    def _start_what_fits(self, plan: Plan) -> None:
        by_path: dict[Path, PlannedRun] = {}

        def wanted() -> Iterator[Wanted]:
            for run, each in self._wanted(plan):
                by_path[each.directory.path] = run
                yield each

        for handle in self.slots.submit(wanted(), [run.handle for run in self.active]):
            self._note_start(by_path[handle.directory.path], handle)

    def _wanted(self, plan: Plan) -> Iterator[tuple[PlannedRun, Wanted]]:
        active = self._active_paths()
        for run in plan.runs:
            if self._is_wanted(run) and (directory := self._directory(run)).path not in active:
                yield run, Wanted(directory, run.settings, run.processes, is_new=run.stored is None)

    def wanted(self) -> list[Wanted]:
        """What would be started now."""
        return [each for _, each in self._wanted(self._afresh())]

    def _is_wanted(self, run: PlannedRun) -> bool:
        if run.state in ("finished", "diverged") or (self.groups is not None and run.arm not in self.groups):
            return False
        return self._directory(run).path not in self.given_up

    def _directory(self, run: PlannedRun) -> RunDirectory:
        return run.directory(self.folder, data_digest=self.facts.digest)

    def _note_start(self, run: PlannedRun, handle: Handle) -> None:
        path = handle.directory.path
        self.starts[path] = self.starts.get(path, 0) + 1
        self.active.append(ActiveRun(run, handle))
        again = " again" if run.stored is not None and self.starts[path] > 1 else ""
        self.view.say(f"{run.title}: started{again} on {handle.place} in {path}")
        if run.stored is None:
            self.shelf.reread(path)

    # -- ending ------------------------------------------------------------------------------------------------------

    def _ended(self, plan: Plan) -> list[ActiveRun]:
        """Wait until at least one run has ended."""
        pause = SHORTEST_POLL_SECONDS
        while True:
            ended = [run for run in self.active if not run.handle.is_alive()]
            if ended:
                gone = {run.directory.path for run in ended}
                self.active = [run for run in self.active if run.directory.path not in gone]
                return ended
            self.view.show(plan, self.active)
            time.sleep(pause)
            pause = min(2 * pause, POLL_SECONDS)

    def _note_end(self, run: ActiveRun) -> None:
        directory, title = run.directory, run.planned.title
        try:
            stored, code = read_stored(directory.path), run.handle.exit_code
        except UserError as error:
            self._give_up(run, f"failed: {error}; delete that file and call again")
            return
        by_it = run.handle.wrote(stored.status)
        written = stored.status.get("state", "queued") if by_it else "queued"
        if stored.result is not None:
            self.view.say(f"{title}: finished, {final_numbers(stored.result)}")
        elif stored.state == "diverged":
            self.view.say(f"{title}: diverged: {stored.status.get('error')}; reported, not started again")
        elif stored.state == "running" and not by_it:  # ours found the folder taken
            self._give_up(run, "is being run by another process")
        elif run.handle.was_cancelled:
            self._give_up(run, "cancelled; the same command submits it again")
        elif written == "interrupted":
            self._give_up(run, "stopped; the same command goes on with it")
        elif written in ("queued", "running") and (code is None or code < 0):
            self._note_killed(run)
        else:
            if written != "failed":
                directory.write_status("failed", error=last_words(directory.output_file) or f"exit code {code}")
            error = (directory.status() or {}).get("error")
            self._give_up(run, f"failed: {error} (see {directory.output_file})")

    def _note_killed(self, run: ActiveRun) -> None:
        """It ended without a word: killed from outside, or found dead."""
        directory, how = run.directory, run.handle.end
        if self.starts.get(directory.path, 0) < MOST_STARTS:
            self.view.say(f"{run.planned.title}: {how}; starting it again where it stopped")
            return
        directory.write_status("failed", error=how)
        self._give_up(run, f"failed: {how}, {MOST_STARTS} times (see {directory.output_file})")

    def _give_up(self, run: ActiveRun, why: str) -> None:
        self.given_up[run.directory.path] = f"{run.planned.title}: {why}"
        self.view.say(f"{run.planned.title}: {why}")

    def _stop_all(self) -> None:
        """Ctrl-C: every run of this machine saves and stops; a second Ctrl-C leaves them to it. Queued jobs stay."""
        ours = [run for run in self.active if not run.handle.stays]
        if len(ours) < len(self.active):
            self.view.say(
                f"{len(self.active) - len(ours)} jobs stay with Slurm: the same command watches them again, "
                f"`{shlex.join(['oelm', 'stop', self.study.name, *self.runs_option])}` cancels them"
            )
        if not ours:
            return
        self.view.say(f"stopping: {len(ours)} runs save their state (Ctrl-C again leaves them to it)")
        for run in ours:
            run.handle.cancel()
        with contextlib.suppress(KeyboardInterrupt):
            while any(run.handle.is_alive() for run in ours):
                time.sleep(POLL_SECONDS)


def refuse_what_runs_elsewhere(study: str, folder: Path) -> None:
    """A study whose results were brought here while it was being run on another machine."""
    for there in run_elsewhere(folder):
        raise UserError(
            f"{folder}: is being run on {there['server']}, seen at {there['seen']}; let it end or stop it there, then "
            f"`oelm remote {there['server']} pull {study}`; or delete {folder / PULLED_FILE} to run it here as well"
        )


def last_words(output: Path) -> str | None:
    """The last line that a process printed."""
    try:
        lines = output.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return None
    return next((line.strip()[-500:] for line in reversed(lines) if line.strip()), None)
