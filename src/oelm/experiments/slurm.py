"""A Slurm cluster as a kind of slot: one array of jobs for all runs that are wanted, found again by its name.

The order of writing is what makes a submission safe to repeat. First the array's file (task -> run directory), then a
handle in every run directory, which names the array and the task, then sbatch. Killed anywhere between, the next
controller looks the names up in the queue: what is not there was never submitted.
"""

from __future__ import annotations

import secrets
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oelm.errors import UserError
from oelm.experiments.slots import Handle, Wanted
from oelm.experiments.slurm_queue import FOLDER, WAITING, Job, Queue, asked, submit
from oelm.experiments.slurm_task import start_of
from oelm.files import write_json, write_json_unflushed
from oelm.ownership import now
from oelm.run_directory import RunDirectory
from oelm.study.declaration import Study
from oelm.study.slurm_request import OPTIONS, SlurmRequest

SCRIPT = Path(__file__).with_name("slurm_task.sh")
TASK_MODULE = "oelm.experiments.slurm_task"
KIND = "slurm"
MOST_TASKS = 1000  # of one array; Slurm's own default bound


# ---- Handles -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SlurmHandle:
    """One task of an array, in the queue or on a node."""

    directory: RunDirectory
    name: str  # of the array
    task: int
    queue: Queue = field(repr=False, compare=False)

    units = ()
    stays = True

    @property
    def job(self) -> Job | None:
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

    def wrote(self, status: dict[str, Any]) -> bool:
        return status.get("start") == self.start

    def cancel(self) -> None:
        cancel([self])


def living(directory: RunDirectory, stored: dict[str, Any], queue: Queue) -> SlurmHandle | None:
    """The job that an earlier controller submitted for a run, if the queue still holds it."""
    name, task = stored.get("name"), stored.get("task")
    if not isinstance(name, str) or not isinstance(task, int):
        return None
    handle = SlurmHandle(directory, name, task, queue)
    return handle if handle.is_alive() else None


def cancel(handles: Iterable[SlurmHandle]) -> None:
    """Out of the queue; those that run are asked to save, and killed after the cluster's KillWait."""
    handles = list(handles)
    numbers = [handle.job.number for handle in handles if handle.job]
    for first in range(0, len(numbers), MOST_TASKS):
        asked("scancel", *numbers[first : first + MOST_TASKS])
    for queue in {id(handle.queue): handle.queue for handle in handles}.values():
        queue.forget()


# ---- Submitting ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SlurmSlots:
    """As many runs at a time as the cluster gives; `at_most` bounds them."""

    study: Study
    folder: Path  # the study's
    request: SlurmRequest
    queue: Queue
    at_most: int | None = None

    def refuse_what_never_fits(self, study: Study) -> None:
        for program in ("sbatch", "squeue", "scancel"):
            if shutil.which(program) is None:
                asked(program)
        for arm, entry in study.arms.items():
            if entry.processes % self.request.nodes:
                raise UserError(
                    f"arms.{arm}: {entry.processes} processes cannot be spread evenly over slurm.nodes "
                    f"{self.request.nodes}; give each run a multiple of it with --processes or processes"
                )

    def submit(self, wanted: Iterable[Wanted], active: list[Handle]) -> Iterator[Handle]:
        for array in self.arrays(wanted):
            yield from self._submitted(array)

    def arrays(self, wanted: Iterable[Wanted]) -> list[list[Wanted]]:
        """Runs that ask for the same, in as few arrays as there may be."""
        alike: dict[tuple[int, int | None], list[Wanted]] = {}
        for run in wanted:
            alike.setdefault((run.processes, run.settings.execution.threads), []).append(run)
        return [
            runs[first : first + MOST_TASKS] for runs in alike.values() for first in range(0, len(runs), MOST_TASKS)
        ]

    def _submitted(self, array: list[Wanted]) -> list[Handle]:
        name = f"{self.study.name}-{secrets.token_hex(6)}"
        arguments = self.arguments(array, name)
        self._describe(array, name)
        handles = [SlurmHandle(run.directory, name, task, self.queue) for task, run in enumerate(array)]
        for run, handle in zip(array, handles, strict=True):
            run.prepare()
            stored = {"kind": KIND, "name": name, "task": handle.task, "submitted": now()}
            write_json_unflushed(run.directory.handle_file, stored)
        submit(self.folder, arguments)
        self.queue.forget()
        return handles

    def _describe(self, array: list[Wanted], name: str) -> None:
        """The array's own file: which task is which run, and how each is started."""
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
            raise UserError(f"{self.folder}: Slurm cannot write below a path with a backslash; choose another --runs")
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
            words["gpus-per-node"] = _gpus(request.gpus, times=array[0].processes // request.nodes)
        options = [f"--{flag}={value}" for flag, value in words.items()]
        task = [str(SCRIPT), sys.executable, "-m", TASK_MODULE, str(self._file(name))]
        return ["--parsable", "--requeue", *options, *request.options, *task]

    def forecast(self, wanted: list[Wanted]) -> list[str]:
        """The commands that would be given; nothing is written."""
        return [
            shlex.join(["sbatch", *self.arguments(array, f"{self.study.name}-NUMBER")]) for array in self.arrays(wanted)
        ]


def _gpus(request: str | int, *, times: int) -> str:
    kind, colon, count = str(request).rpartition(":")
    return f"{kind}{colon}{int(count) * times}"
