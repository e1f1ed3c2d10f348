"""Processes that a warm command starts as new Pythons, forked from it instead: it has torch already.

Each still is a process of its own, with its own variables, standard streams, signals and exit code; but it leaves
without the end of a Python of its own. So a fault of each kind is also put into ranks that torchrun starts itself
(tests/faults, `cold`), and what imports everything itself is in the tests of warm starts, of Slurm and of servers.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from warm import executed

# A Python with torch needs as long to end. Meanwhile others say why they end too, and torchrun does not stop them.
ENDING_SECONDS = 0.5
GIVEN = inspect.signature(subprocess.Popen._execute_child)


class ForkedPython(subprocess.Popen):
    """`python -m MODULE WORDS` or `python SCRIPT WORDS`, as a fork."""

    def _execute_child(self, *given: Any) -> None:
        named = GIVEN.bind(self, *given).arguments
        pipes = [named[each] for each in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _work(named, streams=(pipes[0], pipes[3], pipes[5]))
        self._child_created = True
        self._close_pipe_fds(*pipes)


class ForkedParts(ForkedPython):
    """What a controller starts besides runs; every other process as ever."""

    def _execute_child(self, *given: Any) -> None:
        words = [str(word) for word in GIVEN.bind(self, *given).arguments["args"]]
        forks = words[1:2] == ["-m"] and words[2] in ("oelm.execution.warm_server", "oelm.execution.timing.probe")
        (super() if forks else super(ForkedPython, self))._execute_child(*given)


def fork_ranks() -> None:
    """Of torchrun, which this process is going to be."""
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

    subprocess_handler.Popen = ForkedPython


def fork_parts() -> None:
    subprocess.Popen = ForkedParts


def _work(named: dict[str, Any], streams: tuple[int, int, int]) -> NoReturn:
    code = 1
    try:
        for target, source in enumerate(streams):
            if source != -1:
                os.dup2(source, target)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        if named["start_new_session"]:
            os.setsid()
        _forget_signals()
        if named["env"] is not None:
            os.environ.clear()
            os.environ.update(named["env"])
        if named["cwd"] is not None:
            os.chdir(named["cwd"])
        if "RANK" in os.environ:
            Path("/proc/self/comm").write_text(f"rank {os.environ['RANK']}")
        sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
        sys.orig_argv = [str(word) for word in named["args"]]
        words = [word for word in sys.orig_argv[1:] if word != "-u"]
        if words[0] == "-m":
            words = ["oelm.__main__" if words[1] == "oelm" else words[1], *words[2:]]
        code = executed(words[0], words[1:])
        if code and "RANK" in os.environ:
            time.sleep(ENDING_SECONDS)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _forget_signals() -> None:
    """A new program begins without the handlers of the old one."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def ranks_of(agent: int) -> dict[int, int]:
    """rank -> pid of the live ranks of a torchrun."""
    found = {}
    for child in Path(f"/proc/{agent}/task/{agent}/children").read_text().split():
        with contextlib.suppress(OSError):
            rank = _rank_of(Path("/proc", child))
            if rank is not None:
                found[rank] = int(child)
    return found


def _rank_of(process: Path) -> int | None:
    """By the name of a fork, or the variables that a new program was given."""
    name, _, rank = (process / "comm").read_text().strip().partition(" ")
    if name == "rank":
        return int(rank)
    given = [word for word in (process / "environ").read_bytes().split(b"\0") if word.startswith(b"RANK=")]
    return int(given[0].removeprefix(b"RANK=")) if given else None
