"""Ranks of torchrun that are forked from its agent, which has torch already, instead of importing it once more each.

All else is torchrun's: every rank is a process and a session of its own, with its own variables, signals and exit code.
Ranks that import everything themselves are in the tests of the controller and of Slurm.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

from warm import executed

HANDLED = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)  # by the agent; a new program would begin without


def install() -> None:
    subprocess_handler.Popen = Forked


class Forked(subprocess.Popen):
    """`python -u -m oelm WORDS` or `python -u SCRIPT WORDS`, as a fork."""

    def __init__(self, args: tuple[str, ...], *, env: dict[str, str], **options: Any) -> None:
        self._variables = env
        super().__init__(args, env=env, **options)

    def _execute_child(self, args: tuple[str, ...], *_: Any) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _work(args, self._variables)
        self._child_created = True


def _work(args: tuple[str, ...], variables: dict[str, str]) -> NoReturn:
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in HANDLED:
            signal.signal(number, signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(variables)
        Path("/proc/self/comm").write_text(f"rank {variables['RANK']}")
        sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
        _, unbuffered, *words = args
        assert unbuffered == "-u"
        program, *words = ["oelm.__main__", *words[2:]] if words[:2] == ["-m", "oelm"] else words
        code = executed(program, words)
    finally:
        os._exit(code)


def ranks_of(agent: int) -> dict[int, int]:
    """rank -> pid of the live ranks of an agent."""
    found = {}
    for child in Path(f"/proc/{agent}/task/{agent}/children").read_text().split():
        with contextlib.suppress(OSError):
            name, _, rank = Path(f"/proc/{child}/comm").read_text().strip().partition(" ")
            if name == "rank":
                found[int(rank)] = int(child)
    return found
