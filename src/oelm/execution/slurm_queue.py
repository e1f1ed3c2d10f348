"""What Slurm says: one look at this user's jobs for all runs of a study, and the programs' refusals in a line."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from oelm.machine.errors import UserError
from oelm.storage.files import open_own

FOLDER = "slurm"  # of a study: its arrays, and what Slurm itself had to say
ANSWER_SECONDS = 120.0
FIRST_LOOK_SECONDS, LAST_LOOK_SECONDS = 1.0, 10.0  # between two looks at the queue: short after a change
MOST_SILENCE_SECONDS = 600.0  # of a controller that answered before
USUAL_ARRAY = 1001  # Slurm's own default of MaxArraySize
ENDED = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
}  # fmt: skip
WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD"}


# ---- The queue -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SlurmJob:
    """One task of an array, as the queue shows it."""

    number: str  # as scancel wants it: ARRAY_TASK; empty: submitted, and not listed yet
    state: str
    reason: str

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    def __str__(self) -> str:
        numbered = f", job {self.number}" if self.number else ""
        if self.state != "PENDING" or self.reason in ("", "None"):
            return f"{self.state}{numbered}"
        stuck = next((advice for pattern, advice in STUCK if re.search(pattern, self.reason)), None)
        return f"{self.state} ({self.reason}{f': {stuck}' if stuck else ''}){numbered}"


# Reasons for waiting that time alone does not mend, and what does.
STUCK = (
    (r"^Partition(Config|NodeLimit)|^BadConstraints", "no node offers that: `oelm stop`, then request less"),
    (r"^PartitionTimeLimit", "the partition allows less time: `oelm stop`, then request less"),
    (r"[Hh]eld", "release it with `scontrol release`"),
    (r"^Invalid(Account|QOS)", "`oelm stop`, then choose another account"),
)


class Queue:
    """This user's jobs by array and task. One look serves all runs, and looks are far between when nothing happens."""

    def __init__(self, study_folder: Path) -> None:
        self._folder = study_folder
        self._jobs: dict[tuple[str, int | None], SlurmJob] = {}
        self._last_states: dict[tuple[str, int | None], str] = {}
        self._submitted: set[str] = set()  # arrays that no answer can list yet
        self._looked: float | None = None  # None: look at once
        self._answered: float | None = None
        self._pause = FIRST_LOOK_SECONDS
        self.silence: UserError | None = None  # of the last look

    def job(self, name: str, task: int) -> SlurmJob | None:
        """A UserError while nothing is known that could be believed."""
        if self._looked is None or time.monotonic() - self._looked >= self._pause:
            self._look()
        # What was known before a silence is believed for a while.
        is_believed = self._answered is not None and time.monotonic() - self._answered <= MOST_SILENCE_SECONDS
        if self.silence is not None and not is_believed:
            raise self.silence
        if name in self._submitted:
            return SlurmJob("", "PENDING", "submitted, not listed yet")
        return self._jobs.get((name, task)) or self._jobs.get((name, None))

    def last_seen(self, name: str, task: int) -> str | None:
        """The state of a job when it was last listed."""
        return self._last_states.get((name, task))

    def note_submitted(self, name: str) -> None:
        """sbatch has accepted an array: that too is an answer."""
        self._submitted.add(name)
        self._answered = time.monotonic()
        self.look_soon()

    def look_soon(self) -> None:
        """Something has changed."""
        self._looked, self._pause = None, FIRST_LOOK_SECONDS

    def _look(self) -> None:
        wait_for_a_submission(self._folder)
        try:
            found = _listed()
        except UserError as error:
            self.silence, self._pause = error, LAST_LOOK_SECONDS
            return
        finally:
            self._looked = time.monotonic()  # from its end: a silent cluster may take longer than the pause
        self._answered, self.silence = self._looked, None
        self._pause = FIRST_LOOK_SECONDS if found != self._jobs else min(self._pause * 1.5, LAST_LOOK_SECONDS)
        self._jobs = found
        self._submitted.clear()
        self._last_states.update({key: job.state for key, job in found.items()})


def _listed() -> dict[tuple[str, int | None], SlurmJob]:
    """None is for all tasks of an array that are not listed one by one."""
    lines = asked("squeue", f"--user={os.getuid()}", "--states=all", "--array", "--noheader", "--format=%F|%K|%T|%r|%j")
    found: dict[tuple[str, int | None], SlurmJob] = {}
    for line in lines.splitlines():
        array, task, state, reason, name = (*line.split("|", 4), "", "", "", "")[:5]
        if task.isdecimal():
            found[name, int(task)] = SlurmJob(f"{array}_{task}", state, reason)
        else:  # an array that was cancelled before any task began
            found[name, None] = SlurmJob(array, state, reason)
    return found


def asked(program: str, *arguments: str) -> str:
    """What one of Slurm's programs answers, in bounded time; its refusal is one line that says what to do."""
    asking = _begun(program, arguments)
    try:
        return _answer(program, asking)
    finally:
        asking.kill()
        asking.wait()


def submit(folder: Path, arguments: list[str]) -> None:
    """Call sbatch. Whatever happens to us meanwhile, it goes on to its end, for which whoever comes next waits.

    Refused: nothing was submitted. Any other UserError: there is no telling, the next look at the queue shows it.
    """
    # sbatch itself holds the lock: when we are killed, it goes on, and whoever comes next waits for its end.
    with os.fdopen(open_own(_lock_file(folder), os.O_RDWR)) as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        _answer("sbatch", _begun("sbatch", arguments, pass_fds=(stream.fileno(),), start_new_session=True))


def largest_array() -> int:
    """How many tasks the cluster allows in one array."""
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", asked("scontrol", "show", "config"), re.MULTILINE)
    most = int(found[1]) if found else USUAL_ARRAY
    if most == 0:
        raise UserError("--on slurm: this cluster allows no job arrays (MaxArraySize is 0); ask its administrator")
    return most


def _begun(
    program: str, arguments: Iterable[str], *, pass_fds: tuple[int, ...] = (), start_new_session: bool = False
) -> subprocess.Popen[str]:
    path = shutil.which(program)
    if path is None:
        raise UserError(
            f"--on slurm: {program} is not on this machine; work on the cluster's login node, or load its Slurm module"
        )
    try:
        return subprocess.Popen(
            [path, *arguments],
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=pass_fds,
            start_new_session=start_new_session,
        )
    except OSError as error:
        raise UserError(f"{program}: {error.strerror}: {path}") from error


def _answer(program: str, asking: subprocess.Popen[str]) -> str:
    try:
        answer, complaint = asking.communicate(timeout=ANSWER_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"{program}: no answer within {ANSWER_SECONDS:.0f} s; try again later; submitted jobs are found by name"
        ) from error
    if asking.returncode != 0:
        kind = UserError if re.search(UNREACHABLE, complaint, re.IGNORECASE) else Refused
        raise kind(refusal(program, complaint))
    return answer


class Refused(UserError):
    """The cluster heard what was asked of it, and declined."""


LATER = "try again later"
UNREACHABLE = r"contact slurm|controller|timed out|resolve|slurm_load"


ADVICE = (
    (r"partition", "choose one with --slurm partition=NAME or slurm.partition in the study; `sinfo -s` lists them"),
    (r"account", "set yours with --slurm account=NAME or slurm.account; `sacctmgr show user $USER -s` lists them"),
    (r"node configuration|requested node", "request less: slurm.gpus, slurm.cpus, slurm.memory, slurm.nodes"),
    (r"time limit", "request less with --slurm time=...; `sinfo -s` shows the limits"),
    (r"feature|constraint", "change slurm.constraint; `sinfo -o %f` lists what is available"),
    (r"gres|tres", "change slurm.gpus; `sinfo -o %G` lists what is available"),
    (r"job array", "`scontrol show config` names the largest array that the cluster allows (MaxArraySize)"),
    (UNREACHABLE, LATER),
)


def refusal(program: str, words: str) -> str:
    """The last thing a program complained of, and what to do about it."""
    lines = [line.removeprefix(f"{program}: ").removeprefix("error: ").strip() for line in words.splitlines()]
    lines = [line for line in lines if line] or ["refused without a reason"]
    said = lines[-1].removeprefix("Batch job submission failed: ")
    advice = next((what for pattern, what in ADVICE if re.search(pattern, " ".join(lines), re.IGNORECASE)), None)
    return f"{program}: {said}" + (f"; {advice}" if advice else "; change the section slurm of the study")


# ---- Submissions under way -----------------------------------------------------------------------------------------


def wait_for_a_submission(folder: Path) -> None:
    """Until no sbatch of an earlier controller is under way."""
    if not _lock_file(folder).exists():
        return
    deadline = time.monotonic() + ANSWER_SECONDS
    with open(_lock_file(folder), "rb") as stream:
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    raise UserError(
                        f"{folder}: an sbatch of an earlier command is still running; wait for it, then try again"
                    ) from error
                time.sleep(0.1)


def _lock_file(folder: Path) -> Path:
    return folder / FOLDER / "submit.lock"
