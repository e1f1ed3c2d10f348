"""Warm starts: runs forked from a process that has torch imported, which is most of what a short run waits for.

A run started so is what a cold start makes of it: a session, a log and an end of its own. Whatever stands in the way of
that (another system, a process that does not answer) makes starts cold, which is always right and only slower. A run
begins when its handle is stored: a controller killed before that leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, BinaryIO

from oelm.core.sources import PACKAGE
from oelm.execution.warm_server import GO, MOST_BYTES, READY
from oelm.machine.system import inherited
from oelm.storage.ownership import START_VARIABLE, Process

IMPORTING_SECONDS = 120.0  # on a busy machine
ANSWER_SECONDS = 20.0
ROOM_FOR_COMMAND = 4000  # in the arguments of the process, where `ps` reads them; the kernel shows a page
SERVER = "oelm.execution.warm_server"
LIBRARIES = ("torch", "numpy")


class NoAnswer(Exception):
    """The process that forks is gone, or does not answer."""


class WarmStarts:
    """Of one controller. The process that forks is started when a run first needs it, and anew when the sources, the
    environment or our priority are others than those that it has: each run has what a cold start would have had.
    """

    def __init__(self) -> None:
        self._server: Server | None = None
        self._retired: list[Server] = []  # whose runs are not ended
        self._possible = sys.platform == "linux"  # macOS's own libraries do not survive a fork

    def get_ready(self, environment: dict[str, str]) -> None:
        """Wait until the next run can be forked, or it is known that none can."""
        if not self._possible:
            return
        self._retire_another_kind(environment)
        for server in [server for server in self._retired if not server.has_runs()]:
            server.close()
            self._retired.remove(server)
        try:
            self._server = self._server or Server(environment)
            self._server.wait_until_ready()
        except (NoAnswer, OSError):
            self._give_up()
            return
        self._retire_another_kind(environment)  # edited while it was importing: this start is cold, the next is not

    def _retire_another_kind(self, environment: dict[str, str]) -> None:
        if self._server is not None and self._server.looks != _looks(environment):
            self._retired.append(self._server)
            self._server = None

    def begun(self, command: list[str], environment: dict[str, str], output: BinaryIO) -> WarmRun | None:
        """A run that waits to be released; None: to be started cold."""
        if self._server is None or command[:3] != [sys.executable, "-m", "oelm"]:
            return None
        try:
            return self._server.fork(command, environment[START_VARIABLE], output)
        except NoAnswer:
            self._give_up()
            return None

    def _give_up(self) -> None:
        """What failed once is not tried again by this controller."""
        self._possible = False
        self.close()

    def close(self) -> None:
        """Runs go on; how they end is not known any more, as of those that another controller started."""
        for server in [*self._retired, *([self._server] if self._server else [])]:
            server.close()
        self._retired, self._server = [], None


class Server:
    """The process that forks, seen from its controller. It ends when its socket's other end does."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.looks = _looks(environment)  # before it imports anything
        self._runs: list[WarmRun] = []
        self._is_ready = False
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", SERVER, " " * ROOM_FOR_COMMAND],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=environment,
            )

    def wait_until_ready(self) -> None:
        if not self._is_ready:
            self._control.settimeout(IMPORTING_SECONDS)
            if self._received() != READY:
                raise NoAnswer
            self._is_ready = True

    def fork(self, command: list[str], start: str, output: BinaryIO) -> WarmRun:
        ours, theirs = socket.socketpair()
        ours.settimeout(ANSWER_SECONDS)
        request = json.dumps({"command": command, "start": start}).encode()
        try:
            with theirs:
                socket.send_fds(self._control, [request], [output.fileno(), theirs.fileno()])
            number = ours.recv(32)
        except OSError as error:
            ours.close()
            raise NoAnswer from error
        if not number:
            ours.close()
            raise NoAnswer
        run = WarmRun(Process.of(int(number)), self, ours)
        self._runs.append(run)
        return run

    def end_of(self, pid: int) -> dict[str, Any]:
        try:
            self._control.settimeout(ANSWER_SECONDS)
            self._control.send(json.dumps({"ended": pid}).encode())
            answer: dict[str, Any] = json.loads(self._received())
        except (OSError, NoAnswer) as error:
            self.close()  # a late answer would be taken for that to the next question
            raise NoAnswer from error
        return answer

    def _received(self) -> bytes:
        try:
            message = self._control.recv(MOST_BYTES)
        except OSError as error:
            raise NoAnswer from error
        if not message:
            raise NoAnswer
        return message

    def has_runs(self) -> bool:
        return any(run.is_alive() for run in self._runs)

    def close(self) -> None:
        self._control.close()
        self.process.kill()  # it may be importing still; it has nothing to lose
        self.process.wait()


@dataclass
class WarmRun:
    """A forked run; its end is known by the process that forked it, while that lives."""

    process: Process
    server: Server
    link: socket.socket
    _end: dict[str, Any] | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def exit_code(self) -> int | None:
        """None too if nobody is left who was told."""
        return None if self.is_alive() or self._end is None else self._end["code"]

    def is_alive(self) -> bool:
        """Until its last thread has ended, as far as that can be known."""
        if self._end is not None or self.process.is_alive_here():
            return self._end is None
        try:
            answer = self.server.end_of(self.pid)
        except NoAnswer:
            answer = {"alive": False, "code": None}
        if not answer["alive"]:
            self._end = answer
        return self._end is None

    def release(self) -> None:
        with self.link, contextlib.suppress(OSError):  # killed meanwhile
            self.link.sendall(GO)


def _looks(environment: dict[str, str]) -> tuple[object, ...]:
    """Of a process that was started now: what it would import (every module of ours by its file, the libraries by the
    folder that they are installed in), its environment, and what else it would have from us.
    """
    found = [PathFinder.find_spec(name) for name in LIBRARIES]
    folders = {Path(spec.origin).parents[1] for spec in found if spec is not None and spec.origin is not None}
    files = [Path(folder, name) for folder, _, names in os.walk(PACKAGE) for name in names if name.endswith(".py")]
    return environment, inherited(), *(_look(path) for path in sorted([*folders, *files]))


def _look(path: Path) -> tuple[str, int, int] | None:
    """By what every change to a file changes; None: it has just been taken away."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return str(path), stat.st_ino, stat.st_ctime_ns
