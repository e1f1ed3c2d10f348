"""The controller: it compares what a study wants with what is there, and starts what is missing.

It keeps nothing in memory that the run directories do not hold. Killed, it leaves its runs alive; started again, it
finds them. One controller works on a study at a time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from oelm.core.config import ResolvedRun
from oelm.core.parts import ROLES
from oelm.data.floor import floor_of, windows_of
from oelm.data.folders import open_data
from oelm.execution.engine import STOP_SIGNAL, Handle, Slots, Wanted, withdraw
from oelm.execution.engines import ENGINES
from oelm.execution.handles import LOCK_FILE, DamagedHandle, StudyEngines
from oelm.execution.looking import check_libraries, is_due, look_lines, take_look
from oelm.execution.progress import counted, round_lines
from oelm.machine.errors import Stopped, UserError
from oelm.machine.plurals import number_of
from oelm.machine.system import rest_until_one_ends
from oelm.run.directory import RunDirectory, final_numbers
from oelm.storage.files import RUNS, ensure_writable, explaining_a_full_disk
from oelm.storage.ownership import Owned, owner_of, owning
from oelm.study.confounds import confounds
from oelm.study.decisions import CHOICES_FILE
from oelm.study.declaration import Study
from oelm.study.doubts import lines_on
from oelm.study.halving import Round
from oelm.study.kept_choices import decided_line, store_choices
from oelm.study.one_run import settings_for
from oelm.study.plan import Digests, Plan, PlannedRun, Planner, data_folders, digests_here
from oelm.study.registration import register
from oelm.study.shelf import PULLED_FILE, Shelf, read_stored, run_elsewhere
from oelm.study.tuning import Choice

POLL_SECONDS = 0.5
SHORTEST_POLL_SECONDS = 0.01  # right after a start: some runs end at once
READING_SHARE = 20  # all directories are read again when that takes a twentieth of the time since
MOST_STARTS = 2  # of one run by one controller: a process killed from outside is tried once more


@dataclass(frozen=True)
class DataFacts:
    model: dict[str, Any]  # what it says of the model
    digest: str
    digests: Digests  # with those of other data that arms may name


def data_facts(study: Study) -> DataFacts:
    """What the study's data says about itself; a missing folder is an error that names the command to make it."""
    run = settings_for(study, study.baseline, seed=study.seeds[0]).run
    data = open_data(run)
    return DataFacts(data.facts, data.digest, digests_here(data_folders(study)) | {run.data: data.digest})


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
    slots: Slots
    view: View
    arms: list[str] | None = None
    declared: Study | None = None  # where that is not how it executes here
    registers_first: bool = False  # before anything starts, and not only before the first final run
    engines: StudyEngines = field(init=False)  # some of the runs may be with another one
    facts: DataFacts = field(init=False)
    planner: Planner = field(init=False)
    shelf: Shelf = field(init=False)
    active: list[ActiveRun] = field(default_factory=list)
    starts: dict[Path, int] = field(default_factory=dict)
    given_up: dict[Path, str] = field(default_factory=dict)  # this pass: path -> why
    is_sealed: bool = False  # the declaration, in this pass

    def __post_init__(self) -> None:
        self.engines = StudyEngines(self.folder, self.slots.engine)
        self.facts = data_facts(self.study)
        self.planner = Planner(self.study, self.facts.model, self.facts.digests)
        self.shelf, self._read, self._reading_seconds = Shelf(self.folder), time.monotonic(), 0.0

    @property
    def folder(self) -> Path:
        return self.slots.engine.folder

    @property
    def runs_option(self) -> list[str]:
        """What later commands need to find the runs."""
        return ["--runs", str(self.folder)] if self.folder != RUNS / self.study.name else []

    # -- the pass ----------------------------------------------------------------------------------------------------

    def go(self, *, waits: bool = True, begun: Callable[[], None] = lambda: None) -> Plan:
        """Run what is missing, to the end or only to its start. Returns the plan as it stands then. `begun` is called
        when nothing is left that could refuse the study as a whole."""
        check_libraries(self.study)
        ensure_writable(self.folder, option="--runs")
        refuse_what_runs_elsewhere(self.study.name, self.folder)
        try:
            with owning(self.folder / LOCK_FILE), explaining_a_full_disk(self.folder):
                begun()
                try:
                    return self._reconcile(waits)
                except KeyboardInterrupt as error:
                    self._stop_all()
                    raise Stopped(f"{self.study.name}: stopped", signal.SIGINT) from error
                finally:
                    self.slots.close()
        except Owned as error:
            raise UserError(
                f"{self.folder}: a controller is already running this study ({error}); `oelm status` shows its runs"
            ) from error

    def _reconcile(self, waits: bool) -> Plan:
        if self.registers_first:
            self.view.say(register(self.declared or self.study, self.folder))
        plan = self.afresh()
        self._refuse_what_is_blocked(plan)
        for line in lines_on(plan, self.shelf):
            self.view.say(line)
        # What tables of the training tokens reach, beside the data: once, and not by every run at its end.
        to_come = (run.run for run in plan.runs if self._is_wanted(run) and isinstance(run.run, ResolvedRun))
        for each in {windows_of(run): run for run in to_come}.values():
            with contextlib.suppress(OSError, UserError):  # which the run itself will name
                floor_of(open_data(each), each)
        while True:
            plan = self._after_looks(plan)
            self._start_what_fits(plan)
            if not waits:
                return self._plan()
            if self.active:
                for run in self._ended(plan):
                    self._note_end(run)
                    self.shelf.reread(run.directory.path)
                reading_is_due = time.monotonic() - self._read > READING_SHARE * self._reading_seconds
                plan = self.afresh() if reading_is_due else self._plan()
                continue
            plan = self._after_looks(self.afresh())  # somebody may have brought results, or started something
            if not self.active and not any(map(self._is_wanted, plan.runs)):
                return plan

    def afresh(self) -> Plan:
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
        """Runs that an earlier controller, or a person, started and that are still going."""
        known = {run.directory.path for run in self.active}
        for run in plan.runs:
            if run.stored is None or run.stored.directory.path in known or run.loss is not None:
                continue
            try:
                handle = self.engines.found(run.stored.directory)
            except DamagedHandle as error:
                self._leave_out(run, run.stored.directory.path, str(error))
                continue
            if handle is not None:
                self.active.append(ActiveRun(run, handle))
                doing = "waiting" if handle.is_waiting else "running"
                self.view.say(f"{run.title}: already {doing} ({handle.place}), found again")

    def _start_what_fits(self, plan: Plan) -> None:
        self._refuse_what_is_blocked(plan)
        # Choices are stored before the first run that goes by them.
        decided: list[Round | Choice] = [*plan.rounds, *plan.choices.values()]
        if any(map(self._is_wanted, [*plan.later_rounds, *plan.final])) and not all(each.made for each in decided):
            for made in store_choices(plan, self.folder, data_digest=self.facts.digest):
                self.view.say(f"{made.arm}: {decided_line(made)}, and stored in {self.folder / CHOICES_FILE}")
        if not self.is_sealed and any(map(self._is_wanted, plan.final)):
            # The declaration is sealed before the first final run; later ones say what was changed by then.
            said = register(self.declared or self.study, self.folder, made_by="run")
            self.is_sealed = True
            if "changed since" in said:
                self.view.say(said)
        by_path: dict[Path, PlannedRun] = {}

        def wanted() -> Iterator[Wanted]:
            for each in self.wanted(plan):
                by_path[each.directory.path] = each.planned
                if self._can_be_started(each):
                    yield each

        for handle in self.slots.submit(wanted(), [run.handle for run in self.active]):
            path = handle.directory.path
            run = by_path[path]
            self.starts[path] = self.starts.get(path, 0) + 1
            if run.state == "damaged" and run.stored is not None:
                self.view.say(f"{run.title}: {run.stored.damage}; it will be run again")
            self.active.append(ActiveRun(run, handle))
            again = " again" if run.stored is not None and self.starts[path] > 1 else ""
            self.view.say(f"{run.title}: started{again} on {handle.place} in {path}")
            if run.stored is None:
                self.shelf.reread(path)

    def _refuse_what_is_blocked(self, plan: Plan) -> None:
        """Choices that are damaged, or made for another declaration, are not made again unasked; nor are looks."""
        if plan.blocked and any(self._is_wanted(run) or run.state == "waiting" for run in plan.runs):
            raise UserError(plan.blocked)

    def _after_looks(self, plan: Plan) -> Plan:
        """The plan after every look that is due: taken, and stored before the first run that goes by it."""
        while not plan.blocked and is_due(plan):
            lines = take_look(plan, self.shelf, data_digest=self.facts.digest)
            if not lines:
                break
            for line in lines:
                self.view.say(line)
            plan = self._plan()
        return plan

    def wanted(self, plan: Plan) -> Iterator[Wanted]:
        active = {run.directory.path for run in self.active}
        for run in plan.runs:
            if self._is_wanted(run) and (directory := self.directory_of(run)).path not in active:
                yield Wanted(directory, run)

    def _can_be_started(self, run: Wanted) -> bool:
        path = run.directory.path
        try:
            if path.is_dir() and not os.access(path, os.W_OK | os.X_OK):
                raise UserError(f"{path}: cannot write there ({os.strerror(errno.EACCES)})")
            run.directory.refuse_links()
        except (OSError, UserError) as error:
            self._leave_out(run.planned, path, str(error))
        return path not in self.given_up

    def _is_wanted(self, run: PlannedRun) -> bool:
        if run.has_ended or run.need != "now" or not self.is_chosen(run):
            return False
        return self.directory_of(run).path not in self.given_up

    def is_chosen(self, run: PlannedRun) -> bool:
        return self.arms is None or run.arm in self.arms

    def directory_of(self, run: PlannedRun) -> RunDirectory:
        return run.directory(self.folder, data_digest=self.facts.digest)

    # -- ending ------------------------------------------------------------------------------------------------------

    def _ended(self, plan: Plan) -> list[ActiveRun]:
        """Wait until at least one run has ended."""
        pause, woken = SHORTEST_POLL_SECONDS, False
        while True:
            ended = [run for run in self.active if not run.handle.is_alive()]
            if ended:
                gone = {run.directory.path for run in ended}
                self.active = [run for run in self.active if run.directory.path not in gone]
                return ended
            for line in self.engines.news():
                self.view.say(line)
            self.view.show(plan, self.active)
            pids = [] if woken else [pid for run in self.active if (pid := run.handle.pid) is not None]
            woken = rest_until_one_ends(pids, pause)  # woken, and none is over: then it sleeps
            pause = min(2 * pause, POLL_SECONDS)

    def _note_end(self, run: ActiveRun) -> None:
        directory, title = run.directory, run.planned.title
        try:
            stored, code = read_stored(directory.path), run.handle.exit_code
        except (OSError, UserError) as error:
            self._leave_out(
                run.planned, directory.path, f"failed: {error}; delete that file and run the same command again"
            )
            return
        by_it = run.handle.wrote(stored.status)
        written = stored.status.get("state", "queued") if by_it else "queued"
        if stored.result is not None:
            self.view.say(f"{title}: finished, {final_numbers(stored.result, self.study.measure)}")
        elif stored.state == "diverged":
            self.view.say(f"{title}: diverged: {stored.error}; reported, not started again")
        elif stored.state == "damaged" and written == "finished":
            self._leave_out(run.planned, directory.path, str(stored.damage))
        elif stored.state == "running" and not by_it:  # ours found the folder taken
            owner = owner_of(directory.lock_file)
            self._leave_out(
                run.planned, directory.path, "is being run by another process" + (f": {owner}" if owner else "")
            )
        elif run.handle.was_cancelled:
            withdraw(directory)
            self._leave_out(run.planned, directory.path, "cancelled; the same command submits it again")
        elif written == "interrupted":
            self._leave_out(run.planned, directory.path, "stopped; the same command resumes it")
        elif written in ("queued", "running") and (code is None or code < 0):  # killed from outside, or found dead
            how = run.handle.end
            if self.starts.get(directory.path, 0) < MOST_STARTS:
                self.view.say(f"{title}: {how}; starting it again where it stopped")
                return
            directory.write_status("failed", error=how)
            self._leave_out(
                run.planned, directory.path, f"failed: {how}, {MOST_STARTS} times (see {directory.output_file})"
            )
        else:
            if written != "failed":
                directory.write_status("failed", error=last_words(directory.output_file) or f"exit code {code}")
            reason = (directory.status() or {}).get("error")
            self._leave_out(run.planned, directory.path, f"failed: {reason} (see {directory.output_file})")

    def _leave_out(self, run: PlannedRun, path: Path, why: str) -> None:
        """In this pass; said once."""
        line = f"{run.title}: {why}"
        if self.given_up.get(path) != line:
            self.given_up[path] = line
            self.view.say(line)

    def _stop_all(self) -> None:
        """Ctrl-C: every run saves and stops, unless its engine has a queue, in which it stays. A second Ctrl-C leaves
        them to it.
        """
        ours = []
        staying: Counter[str] = Counter()
        for run in self.active:
            engine = self.engines.of(run.handle.kind)
            if engine.has_queue:
                staying[ENGINES[engine.kind].title] += 1
            else:
                ours.append(run.handle)
        stop = shlex.join(["oelm", "stop", self.study.name, *self.runs_option])
        for title, count in staying.items():
            self.view.say(
                f"left to {title}: {number_of(count, 'job')}; the same command watches again, `{stop}` cancels"
            )
        if not ours:
            return
        self.view.say(
            f"stopping: saving the state of {number_of(len(ours), 'run')} (Ctrl-C again: do not wait for that)"
        )
        self.engines.cancel(ours)
        with contextlib.suppress(KeyboardInterrupt):
            while any(handle.is_alive() for handle in ours):
                time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def leaving_on_terminate() -> Iterator[None]:
    """SIGTERM ends a controller and leaves its runs alive; so does `oelm stop`, which then stops them itself. A
    terminal is left as it was.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        runs = "runs that have started continue on their own"
        if number == STOP_SIGNAL:
            runs = "`oelm stop` also stops the runs that have started, which save their state first"
        raise Stopped(f"the controller was asked to stop; {runs}", signal.SIGTERM)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, STOP_SIGNAL)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def refuse_what_runs_elsewhere(study: str, folder: Path) -> None:
    """A study whose results were brought here while it was being run on another machine."""
    for there in run_elsewhere(folder):
        raise UserError(
            f"{folder}: is being run on {there['server']}, seen at {there['seen']}; let it finish or stop it there, "
            f"then `oelm remote {there['server']} pull {study}`; or delete {folder / PULLED_FILE} to run it here too"
        )


def last_words(output: Path) -> str | None:
    """The last line that a process printed."""
    try:
        lines = output.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return None
    return next((line.strip()[-500:] for line in reversed(lines) if line.strip()), None)


# ---- `oelm run --dry-run` ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Told:
    """A view that keeps what the controller says."""

    lines: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        self.lines.append(line)

    def show(self, plan: Plan, active: list[ActiveRun]) -> None: ...


def dry_run(study: Study, slots: Slots, *, arms: list[str] | None) -> list[str]:
    """The lines to print. Runs that an engine already has are named, and not counted among those to be started."""
    told = _Told()
    controller = Controller(study, slots, told, arms)
    plan = controller.afresh()
    final = filter(controller.is_chosen, controller.planner.final_at_base(plan))  # with the base's own values
    later = [Wanted(controller.directory_of(run), run) for run in final]
    return [
        f"study {study.name}: {counted(plan, controller.active)}",
        *round_lines(plan),
        *lines_on(plan, controller.shelf),
        *look_lines(plan),
        *controller.shelf.damage_lines,
        *told.lines,
        *slots.forecast([] if plan.blocked else list(controller.wanted(plan)), later),
        "",
        *confound_lines(study, plan),
        "nothing was started",
    ]


def confound_lines(study: Study, plan: Plan) -> list[str]:
    """Every difference between the arms of a hypothesis that is not its declared treatment."""
    lines = []
    for name, found in confounds(study, plan).items():
        for each in found:
            explained = f" (explained: {each.explained})" if each.explained else ""
            lines.append(f"confound in {name}: {each.key} is {each.treatment} / {each.control}{explained}")
        varied = next(claim.varies for claim in study.hypotheses if claim.name == name)
        for word in varied:
            elsewhere = [each.key for each in found if each.key in [f"{role}.{word}" for role in ROLES]]
            if elsewhere:
                say = f"  `{word}` in varies means that of queries and keys; if they belong to the question, add"
                lines.append(f"{say} {', '.join(elsewhere)}")
    return lines or ["confounds: none found"]
