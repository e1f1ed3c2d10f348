"""The controller: it compares what a study wants with what is there, and starts what is missing.

It keeps nothing in memory that the run directories do not hold. Killed, it leaves its runs alive; started again, it
finds them. One controller works on a study at a time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from oelm.config import stored_form
from oelm.data.folders import open_data
from oelm.errors import UserError
from oelm.experiments.slots import Handle, Unit, living, submit, units_here
from oelm.files import ensure_writable, explaining_a_full_disk, write_json
from oelm.ownership import Owned, Process, owning
from oelm.run_directory import RunDirectory
from oelm.study.declaration import Study, settings_for
from oelm.study.plan import Plan, PlannedRun, planned
from oelm.study.shelf import Shelf, read_stored

POLL_SECONDS = 0.5
MOST_STARTS = 2  # of one run by one controller: a process killed from outside is tried once more
LOCK_FILE = "controller.lock"
NEEDED_BYTES = 2**20  # of the controller's own small files


@dataclass(frozen=True)
class DataFacts:
    model: dict[str, Any]  # what it says of the model
    digest: str


def data_facts(study: Study) -> DataFacts:
    """What the study's data says about itself; a missing folder is an error that names the command to make it."""
    data = open_data(settings_for(study, study.baseline, seed=study.seeds[0]).run)
    return DataFacts(data.facts, data.digest)


def units_for(study: Study, slots: int | None) -> list[Unit]:
    """The units of this machine for runs that execute as the study says."""
    execution = settings_for(study, study.baseline, seed=study.seeds[0]).execution
    return units_here(slots, device=execution.device, threads=execution.threads)


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
    units: list[Unit]
    view: View
    groups: list[str] | None = None
    facts: DataFacts = field(init=False)
    active: list[ActiveRun] = field(default_factory=list)
    starts: dict[Path, int] = field(default_factory=dict)
    given_up: dict[Path, str] = field(default_factory=dict)  # this pass: path -> why

    def __post_init__(self) -> None:
        self.facts = data_facts(self.study)
        for arm, entry in self.study.arms.items():
            if entry.processes > len(self.units):
                raise UserError(
                    f"arms.{arm}: needs {entry.processes} slots for its processes, there are {len(self.units)}"
                )

    # -- the pass ----------------------------------------------------------------------------------------------------

    def go(self) -> Plan:
        """Run what is missing. Returns the plan as it stands at the end."""
        ensure_writable(self.folder, option="--runs")
        with self._alone(), explaining_a_full_disk(self.folder, needed_bytes=NEEDED_BYTES):
            try:
                return self._reconcile()
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

    def _reconcile(self) -> Plan:
        plan = self._plan()
        while True:
            self._adopt(plan)
            self._start_what_fits(plan)
            if not self.active:
                return plan
            for run in self._ended(plan):
                self._note_end(run)
            plan = self._plan()

    def _plan(self) -> Plan:
        shelf = Shelf(self.folder)
        return planned(self.study, shelf, facts=self.facts.model, data_digest=self.facts.digest)

    # -- starting ----------------------------------------------------------------------------------------------------

    def _adopt(self, plan: Plan) -> None:
        """Runs that an earlier controller, or a hand, started and that still go."""
        known = {run.directory.path for run in self.active}
        for run in plan.runs:
            if run.stored is None or run.stored.directory.path in known or run.loss is not None:
                continue
            directory = run.stored.directory
            handle = living(directory) or _by_hand(directory)
            if handle is not None:
                self.active.append(ActiveRun(run, handle))
                self.view.say(f"{run.title}: already running (pid {handle.process.pid}), found again")

    def _start_what_fits(self, plan: Plan) -> None:
        for run in plan.runs:
            if not self._is_wanted(run):
                continue
            free = self._free_units()
            if len(free) < run.processes:
                return
            self._start(run, free[: run.processes])

    def _is_wanted(self, run: PlannedRun) -> bool:
        if run.state in ("finished", "diverged") or (self.groups is not None and run.arm not in self.groups):
            return False
        path = self._directory(run).path
        return path not in self.given_up and path not in {active.directory.path for active in self.active}

    def _free_units(self) -> list[Unit]:
        taken = {number for run in self.active for number in run.handle.units}
        return [unit for unit in self.units if unit.number not in taken]

    def _directory(self, run: PlannedRun) -> RunDirectory:
        return run.directory(self.folder, data_digest=self.facts.digest)

    def _start(self, run: PlannedRun, units: list[Unit]) -> None:
        directory = self._directory(run)
        path = directory.path
        path.mkdir(parents=True, exist_ok=True)
        if run.stored is None:  # nothing readable there
            write_json(directory.config_file, stored_form(run.run))
            directory.write_status("queued", steps=run.run.training.steps)
        self.starts[path] = self.starts.get(path, 0) + 1
        handle = submit(directory, run.settings, processes=run.processes, units=units)
        self.active.append(ActiveRun(run, handle))
        again = " again" if run.stored is not None and self.starts[path] > 1 else ""
        self.view.say(f"{run.title}: started{again} on {', '.join(str(unit) for unit in units)} in {path}")

    # -- ending ------------------------------------------------------------------------------------------------------

    def _ended(self, plan: Plan) -> list[ActiveRun]:
        """Wait until at least one run has ended."""
        while True:
            ended = [run for run in self.active if not run.handle.is_alive()]
            if ended:
                self.active = [run for run in self.active if run not in ended]
                return ended
            self.view.show(plan, self.active)
            time.sleep(POLL_SECONDS)

    def _note_end(self, run: ActiveRun) -> None:
        directory, title = run.directory, run.planned.title
        try:
            stored, code = read_stored(directory.path), run.handle.exit_code
        except UserError as error:
            self._give_up(run, f"failed: {error}; delete that file and call again")
            return
        written = stored.status.get("state", "queued")  # by the run itself
        if stored.state == "finished":
            self.view.say(f"{title}: finished, validation loss {(stored.result or {}).get('val_loss', 0):.4f}")
        elif stored.state == "diverged":
            self.view.say(f"{title}: diverged: {stored.status.get('error')}; reported, not started again")
        elif stored.state == "running":  # ours found the folder taken
            self._give_up(run, "is being run by another process")
        elif written == "interrupted":
            self._give_up(run, "stopped; the same command goes on with it")
        elif written in ("queued", "running") and (code is None or code < 0):
            self._note_killed(run, code)
        else:
            if written != "failed":
                directory.write_status("failed", error=last_words(directory) or f"exit code {code}")
            error = (directory.status() or {}).get("error")
            self._give_up(run, f"failed: {error} (see {directory.output_file})")

    def _note_killed(self, run: ActiveRun, code: int | None) -> None:
        """It ended without a word: killed from outside, or found dead."""
        directory = run.directory
        how = f"killed by signal {-code}" if code else "gone without a word"
        if self.starts.get(directory.path, 0) < MOST_STARTS:
            self.view.say(f"{run.planned.title}: {how}; starting it again where it stopped")
            return
        directory.write_status("failed", error=how)
        self._give_up(run, f"failed: {how}, {MOST_STARTS} times (see {directory.output_file})")

    def _give_up(self, run: ActiveRun, why: str) -> None:
        self.given_up[run.directory.path] = f"{run.planned.title}: {why}"
        self.view.say(f"{run.planned.title}: {why}")

    def _stop_all(self) -> None:
        """Ctrl-C: every run saves and stops; a second Ctrl-C leaves them to it."""
        self.view.say(f"stopping: {len(self.active)} runs save their state (Ctrl-C again leaves them to it)")
        for run in self.active:
            run.handle.cancel()
        with contextlib.suppress(KeyboardInterrupt):
            while any(run.handle.is_alive() for run in self.active):
                time.sleep(POLL_SECONDS)


def _by_hand(directory: RunDirectory) -> Handle | None:
    """A run whose own status names a live process of this machine: started by hand."""
    status = directory.status() or {}
    process = Process.stored(status)
    if status.get("state") == "running" and process.is_alive_here():
        return Handle(directory, process, ())
    return None


def last_words(directory: RunDirectory) -> str | None:
    """The last line a process printed, for a status that it could not write itself."""
    try:
        lines = directory.output_file.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return None
    return next((line.strip()[-500:] for line in reversed(lines) if line.strip()), None)
