"""A Slurm cluster as an engine: arrays of jobs for the runs that are wanted, found again by their names.

The order of writing is what makes a submission safe to repeat. First the array's file (task -> run directory), then a
handle in every run directory, which names the array and the task, then sbatch. Killed anywhere between, the next
controller looks the names up in the queue: what is not there was never submitted.
"""

from __future__ import annotations

import secrets
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from oelm.execution.costs import after_tuning
from oelm.execution.engine import Engine, Given, Handle, Slots, Wanted, withdraw
from oelm.execution.slurm_queue import FOLDER, LATER, WAITING, Queue, Refused, SlurmJob, asked, largest_array, submit
from oelm.execution.slurm_task import start_of
from oelm.machine.errors import UserError
from oelm.machine.plurals import number_of
from oelm.run.directory import RunDirectory
from oelm.storage.files import refuse_link, write_json
from oelm.storage.ownership import now
from oelm.storage.schemas import SlurmSlot
from oelm.study.declaration import Study
from oelm.study.slurm_request import OPTIONS, SlurmRequest, changed

SCRIPT = Path(__file__).with_name("slurm_task.sh")
TASK_MODULE = "oelm.execution.slurm_task"
MOST_CANCELLED = 1000  # by one scancel: a command line has a limit
PROGRAMS = ("sbatch", "squeue", "scancel", "scontrol")
KIND = "slurm"


# ---- Handles -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SlurmHandle(Handle):
    """One task of an array, in the queue or on a node."""

    directory: RunDirectory
    name: str  # of the array
    task: int
    queue: Queue = field(repr=False, compare=False)

    kind = KIND

    @property
    def job(self) -> SlurmJob | None:
        return self.queue.job(self.name, self.task)

    @property
    def place(self) -> str:
        return f"Slurm: {self.job or 'no longer in the queue'}"

    def is_alive(self) -> bool:
        job = self.job
        return job is not None and not job.has_ended

    @property
    def is_waiting(self) -> bool:
        job = self.job
        return job is not None and job.state in WAITING

    @property
    def exit_code(self) -> int | None:
        """Slurm's list has none, but knows that one failed by itself; unless it was at work: then it was killed."""
        job, status = self.job, self.directory.status() or {}
        was_at_work = self.wrote(status) and status.get("state") == "running"
        return 1 if job is not None and job.state == "FAILED" and not was_at_work else None

    @property
    def end(self) -> str:
        return f"ended by Slurm: {self.job}" if self.job else "no longer in Slurm's queue"

    @property
    def was_cancelled(self) -> bool:
        """Slurm forgets at once a task that is cancelled before it began."""
        job, status = self.job, self.directory.status() or {}
        if job is None:
            return self.queue.last_seen(self.name, self.task) in WAITING and not self.wrote(status)
        return job.state == "CANCELLED"

    @property
    def start(self) -> str:
        return start_of(self.name, self.task)


# ---- The engine ----------------------------------------------------------------------------------------------------


class SlurmEngine(Engine):
    """This user's jobs on the cluster whose login node this is."""

    kind = KIND
    has_queue = True
    takes = ("slots", "gpus")  # the latter to say what to give instead
    shape = SlurmSlot

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.queue = Queue(folder)

    def slots(self, study: Study, given: Given, *, say: Callable[[str], None]) -> SlurmSlots:
        if given.gpus is not None:
            raise UserError("--gpus: chooses GPUs of this machine; on Slurm set their number with --slurm gpus=1")
        request = changed(study.slurm, list(given.wishes))
        for program in PROGRAMS:
            if shutil.which(program) is None:
                asked(program)  # which refuses
        for arm, entry in study.arms.items():
            if entry.processes % request.nodes:
                raise UserError(
                    f"arms.{arm}: {entry.processes} processes cannot be spread evenly over slurm.nodes "
                    f"{request.nodes}; use a multiple of it with --processes or processes"
                )
        return SlurmSlots(self, study, request, given.slots)

    def found(self, directory: RunDirectory, stored: dict[str, Any]) -> SlurmHandle | None:
        """The job that an earlier controller submitted for a run, if it is still in the queue."""
        handle = SlurmHandle(directory, stored["name"], stored["task"], self.queue)
        return handle if handle.is_alive() else None

    def cancel(self, handles: Sequence[SlurmHandle]) -> None:
        """Out of the queue; those that run are asked to save, and killed after the cluster's KillWait."""
        numbers = [job.number for handle in handles if (job := handle.job) and job.number]
        for first in range(0, len(numbers), MOST_CANCELLED):
            asked("scancel", *numbers[first : first + MOST_CANCELLED])
        self.queue.look_soon()

    def silence(self) -> str | None:
        return None if self.queue.silence is None else str(self.queue.silence).removesuffix(f"; {LATER}")


# ---- Submitting ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SlurmSlots(Slots):
    """As many runs at a time as the cluster gives; `at_most` bounds those of one array."""

    engine: SlurmEngine
    study: Study
    request: SlurmRequest
    at_most: int | None = None

    @property
    def at_a_time(self) -> int | None:
        return self.at_most

    @property
    def folder(self) -> Path:
        return self.engine.folder

    @cached_property
    def largest_array(self) -> int:
        return largest_array()

    def submit(self, wanted: Iterable[Wanted], active: list[Handle]) -> Iterator[Handle]:
        for array in self.arrays(wanted):
            name = f"{self.study.name}-{secrets.token_hex(6)}"
            arguments = self.arguments(array, name)
            self._describe(array, name)
            handles = self._prepared(array, name)
            try:
                submit(self.folder, arguments)
            except Refused:
                self._withdraw(array, name)
                raise
            self.engine.queue.note_submitted(name)
            yield from handles

    def arrays(self, wanted: Iterable[Wanted]) -> list[list[Wanted]]:
        """Runs that ask for the same, in as few arrays as the cluster allows."""
        alike: dict[tuple[int, int | None], list[Wanted]] = {}
        for run in wanted:
            alike.setdefault((run.processes, run.settings.execution.threads), []).append(run)
        return [
            runs[first : first + self.largest_array]
            for runs in alike.values()
            for first in range(0, len(runs), self.largest_array)
        ]

    def _prepared(self, array: list[Wanted], name: str) -> list[Handle]:
        """With a handle in every run directory."""
        handles: list[Handle] = []
        try:
            for task, run in enumerate(array):
                run.prepare()
                run.hand_over(KIND, name=name, task=task, submitted=now())
                handles.append(SlurmHandle(run.directory, name, task, self.engine.queue))
        except BaseException:  # Ctrl-C too
            self._withdraw(array[: len(handles) + 1], name)
            raise
        return handles

    def _withdraw(self, array: list[Wanted], name: str) -> None:
        """Of a submission that came to nothing, nothing stays."""
        for run in array:
            withdraw(run.directory)
        self._file(name).unlink(missing_ok=True)

    def _describe(self, array: list[Wanted], name: str) -> None:
        """The array's own file: which task is which run, and how each is started."""
        refuse_link(self.folder / FOLDER)
        (self.folder / FOLDER).mkdir(parents=True, exist_ok=True)
        tree = {
            "study": self.study.name,
            "processes": array[0].processes,
            "nodes": self.request.nodes,
            "cpus": self._cpus(array),
            "restarts": self.request.restarts,
            "directories": [str(run.directory.path.resolve()) for run in array],
        }
        write_json(self._file(name), tree)

    def _file(self, name: str) -> Path:
        return (self.folder / FOLDER / f"{name}.json").resolve()

    def _cpus(self, array: list[Wanted]) -> int:
        """Of one node."""
        threads = array[0].settings.execution.threads or 1
        return self.request.cpus or threads * array[0].processes // self.request.nodes

    def arguments(self, array: list[Wanted], name: str) -> list[str]:
        """What sbatch is given: words, whatever is in them."""
        request, at_most = self.request, f"%{self.at_most}" if self.at_most else ""
        log = str((self.folder / FOLDER).resolve() / name)
        if "\\" in log:  # which would switch off the placeholder of the task's number
            raise UserError(f"{self.folder}: Slurm cannot write to a path with a backslash; choose another --runs")
        words = {
            "job-name": name,
            "array": f"0-{len(array) - 1}{at_most}",
            "chdir": str(Path.cwd()),
            "output": log.replace("%", "%%") + "-%a.log",
            "open-mode": "append",
            "signal": f"B:USR1@{request.save_seconds}",
            "nodes": str(request.nodes),
            "ntasks-per-node": "1",
            "cpus-per-task": str(self._cpus(array)),
        }
        words |= {flag: str(value) for key, flag in OPTIONS.items() if (value := getattr(request, key)) is not None}
        if request.gpus is not None:
            kind, colon, count = str(request.gpus).rpartition(":")
            words["gpus-per-node"] = f"{kind}{colon}{int(count) * (array[0].processes // request.nodes)}"
        options = [f"--{flag}={value}" for flag, value in words.items()]
        task = [str(SCRIPT), sys.executable, "-P", "-m", TASK_MODULE, str(self._file(name))]
        return ["--parsable", "--requeue", *options, *request.options, *task]

    def forecast(self, now: list[Wanted], later: list[Wanted]) -> list[str]:
        """The commands that would be given."""
        arrays = self.arrays(now)
        lines = [shlex.join(["sbatch", *self.arguments(array, f"{self.study.name}-NUMBER")]) for array in arrays]
        if not arrays:
            lines.append("nothing to submit now")
        else:
            how = "one array"
            if len(arrays) > 1:
                split = any(len(array) == self.largest_array for array in arrays)
                how = f"{len(arrays)} arrays"
                how += f" of at most {self.largest_array} runs, as this cluster allows (MaxArraySize)" if split else ""
                how += f"; --slots {self.at_most} applies to each of them" if self.at_most else ""
            lines.append(f"{number_of(len(now), 'run')} to submit now, in {how}")
        if later:
            lines.append(after_tuning(len(later)))
        return lines
