"""Warm starts: runs forked from a process that has torch imported, which is most of what a short run waits for.

A run started so is what a cold start makes of it: a session, a log and an end of its own. Whatever stands in the way of
that (another system, a process that does not answer) makes starts cold, which is always right and only slower. A run
begins when its handle is stored: a controller killed before that leaves nothing behind.

As a program, this is the process that forks. It computes nothing, opens no file and ends with its controller.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import importlib.util
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, BinaryIO

from oelm.core.sources import PACKAGE, source_digest
from oelm.machine.system import inherited, show_command, threads_here
from oelm.storage.ownership import START_VARIABLE, Process

IMPORTING_SECONDS = 120.0  # on a busy machine
ANSWER_SECONDS = 20.0
ROOM_FOR_COMMAND = 4000  # in the arguments of the process, where `ps` reads them; the kernel shows a page
SERVER = "oelm.execution.warm_server"
LIBRARIES = ("torch", "numpy")
# By name, as the command that a cold start executes is. No more than every run imports anyway, the last of them for its
# first gradient; and not numpy.random, which draws a seed when it is imported.
PRELOADED = ("torch", "oelm.cli", "oelm.run.training.run", "torch.fx.experimental.symbolic_shapes")
READY, GO = b"ready", b"go"
MOST_BYTES = 2**17  # of a request: two paths and a few words
UNKNOWN = 256  # no code that a process ends with: nobody is left who was told it


# ---- Seen from the controller --------------------------------------------------------------------------------------


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
    """The process that forks. It ends when its socket's other end does."""

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
            run = WarmRun(int(ours.recv(32)), self, ours)
        except (OSError, ValueError) as error:  # the latter: no number, because it could not fork
            ours.close()
            raise NoAnswer from error
        self._runs.append(run)
        return run

    def end_of(self, pid: int) -> int | None:
        """Its code; None while its last thread goes on."""
        try:
            self._control.settimeout(ANSWER_SECONDS)
            self._control.send(json.dumps({"ended": pid}).encode())
            code: int | None = json.loads(self._received())
        except (OSError, NoAnswer):
            self.close()  # a late answer would be taken for that to the next question
            return UNKNOWN
        return code

    def _received(self) -> bytes:
        try:
            message = self._control.recv(MOST_BYTES)
        except OSError as error:
            raise NoAnswer from error
        if not message:
            raise NoAnswer
        return message

    def has_runs(self) -> bool:
        return any(run.poll() is None for run in self._runs)

    def close(self) -> None:
        self._control.close()
        self.process.kill()  # it may be importing still; it has nothing to lose
        self.process.wait()


class WarmRun:
    """A forked run; its end is known by the process that forked it, while that lives."""

    def __init__(self, pid: int, server: Server, link: socket.socket) -> None:
        self.pid, self.server, self.link = pid, server, link
        self._process = Process.of(pid)
        self._end: int | None = None

    def poll(self) -> int | None:
        """As Popen's, or UNKNOWN."""
        if self._end is None and not self._process.is_alive_here():
            self._end = self.server.end_of(self.pid)
        return self._end

    def release(self) -> None:
        """Its handle is stored."""
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


# ---- The process that forks ----------------------------------------------------------------------------------------


def main() -> None:
    control = socket.socket(fileno=0)
    show_command(sys.orig_argv[:3])
    gc.disable()  # what is imported stays: to look for what can be freed would take a fifth of the time
    for name in PRELOADED:
        importlib.import_module(name)
    source_digest()  # remembered: of the sources as imported
    gc.freeze()  # a run's collector would copy every page that it looks at
    gc.enable()
    if os.fork() == 0:  # numerical libraries end their threads for a first fork
        os._exit(0)
    os.wait()
    if threads_here() > 1:
        return  # a lock that one of them holds would be held for ever in what is forked
    run = _forked(control)
    if run is not None:
        control.detach()  # its number is the standard input's, which is another one from here on
        _become(**run)


def _forked(control: socket.socket) -> dict[str, Any] | None:
    """In the process of a run, what it is to become; in this one, None when the controller is gone."""
    with contextlib.suppress(OSError):
        control.send(READY)
        while True:
            message, descriptors, _, _ = socket.recv_fds(control, MOST_BYTES, 2)
            if not message:
                return None
            request = json.loads(message)
            if "ended" in request:  # the kernel keeps how, until it is asked for
                ended, status = os.waitpid(request["ended"], os.WNOHANG)
                control.send(json.dumps(os.waitstatus_to_exitcode(status) if ended else None).encode())
                continue
            with contextlib.suppress(OSError):  # no process to be had: the controller reads an end instead of a number
                if os.fork() == 0:
                    return {**request, "output": descriptors[0], "link": descriptors[1]}
            for descriptor in descriptors:
                os.close(descriptor)
    return None


def _become(command: list[str], start: str, output: int, link: int) -> None:
    """Be the run of a command, as a new Python would be, once the controller has stored where it is."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(output)
    os.environ[START_VARIABLE] = start
    show_command(command)
    is_released = False
    with socket.socket(fileno=link) as controller, contextlib.suppress(OSError):
        controller.sendall(str(os.getpid()).encode())
        is_released = controller.recv(len(GO)) == GO
    if not is_released:  # the controller died, or has started the run in another way
        os._exit(0)
    module, *arguments = command[2:]  # after `python -m`
    found = importlib.util.find_spec(f"{module}.__main__")
    sys.orig_argv, sys.argv = command, [found.origin if found and found.origin else module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        _leave(end.code or 0)


def _leave(code: int) -> None:
    """End as Python does (threads, what was registered for the end, what is still to be printed), but for freeing every
    module: that would copy page after page that is shared with the process it was forked from. A file that somebody has
    left open is not flushed.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # no public name; the end of multiprocessing's forks is this too
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # full, closed or gone
        sys.exit(code)  # Python says it in its own way
    ctypes.CDLL(None).fflush(None)  # of libraries
    os._exit(code)


if __name__ == "__main__":
    main()
