"""A study's controller that goes on without whoever started it: started in a session of its own, found by its lock,
stopped together with its runs. Two starts at once are one: the second finds the lock taken.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from oelm.execution.engine import STOP_SIGNAL, withdraw
from oelm.execution.handles import LOCK_FILE, StudyEngines
from oelm.machine.errors import UserError
from oelm.machine.plurals import number_of
from oelm.storage.files import append_to, ensure_writable
from oelm.storage.ownership import Owner, owner_of

LOG_FILE = "controller.log"
POLL_SECONDS = 0.1
START_SECONDS = 90.0
SILENT_SECONDS = 10.0  # a controller that reads a large folder, or has a slow machine, takes as long for its first line
AT_ONCE_SECONDS = 1.0  # one that ends so soon after it is told of by its own words
STOP_SECONDS = 600.0  # a large checkpoint on a slow disk takes its time


def at_work(folder: Path) -> Owner | None:
    """The controller that holds a study's lock."""
    return owner_of(folder / LOCK_FILE)


def start_detached(arguments: list[str], folder: Path, *, say: Callable[[str], None]) -> int:
    """Start a controller of `folder` by the arguments for Python; its exit code where it ends at once, otherwise 0."""
    ensure_writable(folder, option="--runs")
    there = at_work(folder)
    if there is not None:
        say(f"already running ({there}); nothing was started")
        return 0
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored here, it would be ignored there
    log = folder / LOG_FILE
    with append_to(log) as output:
        before = output.tell()
        child = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    began = time.monotonic()
    while (waited := time.monotonic() - began) < START_SECONDS:
        code, there = child.poll(), at_work(folder)
        is_there = code is None and there is not None and there.process.pid == child.pid
        if is_there and (waited > SILENT_SECONDS or log.stat().st_size > before):
            with contextlib.suppress(subprocess.TimeoutExpired):  # of a finished study nothing is left to be done
                return _ended_at_once(child.wait(AT_ONCE_SECONDS), log, before, at_work(folder), say)
            say(f"started ({there}); it keeps running when you disconnect; its log is {log}")
            return 0
        if code is not None:
            return _ended_at_once(code, log, before, there, say)
        time.sleep(POLL_SECONDS)
    say(f"starting (pid {child.pid}); its log is {log}")
    return 0


def _ended_at_once(code: int, log: Path, before: int, there: Owner | None, say: Callable[[str], None]) -> int:
    if code and there is not None:
        say(f"already running ({there}); nothing was started")
        return 0
    with open(log, encoding="utf-8", errors="replace") as stream:
        stream.seek(before)
        lines = [line for line in stream.read().splitlines() if line.strip()]
    if code == 0:
        for line in lines[-5:]:
            say(line)
        return 0
    raise UserError("\n".join(line.removeprefix("oelm: ") for line in lines[-3:]) or f"ended with code {code}")


def stop(folder: Path, *, say: Callable[[str], None]) -> None:
    """End the controller of this machine, then ask every run to save and end, in a queue too; wait for them. Runs that
    had not begun are missing again.

    The controller goes first and by the signal that leaves its runs alone: it would start the next ones.
    """
    there = at_work(folder)
    if there is not None and there.process.is_alive_here() is None:
        raise UserError(f"{folder}: the controller is running elsewhere ({there}); stop it there")
    if there is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(there.process.pid, STOP_SIGNAL)
        _wait(folder, lambda: not there.process.is_alive_here())
    engines = StudyEngines(folder)
    runs, unknown = engines.everything_alive()
    if there is None and not runs and not unknown:
        say(f"{folder}: nothing is running")
        return
    for run in runs:
        say(f"{run.directory.path.name}: stopping ({run.place})")
    waiting = [run for run in runs if run.is_waiting]
    running = number_of(len(runs) - len(waiting), "run")
    say(f"{folder}: saving and stopping {running}, taking {len(waiting)} out of the queue")
    engines.cancel(runs)

    def have_ended() -> bool:
        back = [run for run in runs if run.is_alive() and run.is_waiting]
        if back:  # a job that was on its way back into the queue came through
            engines.cancel(back)
        return not any(run.is_alive() for run in runs)

    _wait(folder, have_ended)
    for run in waiting:
        withdraw(run.directory)
    if unknown:
        raise UserError(f"{unknown[0]}" + (f"; and {number_of(len(unknown) - 1, 'more run')}" if unknown[1:] else ""))
    say(f"{folder}: stopped; the same command with `run` instead of `stop` resumes")


def _wait(folder: Path, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + STOP_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise UserError(f"{folder}: still running after {STOP_SECONDS:.0f} s; see its log {folder / LOG_FILE}")
        time.sleep(POLL_SECONDS)
