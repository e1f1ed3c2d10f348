"""A process that has imported what a run imports, and forks runs from itself: the other end of warm_starts.py.

It computes nothing, opens no file and ends with its controller. What it forks is `python -m oelm train ...` in a
session of its own, with nothing of this process but its modules, its environment and its working folder.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import importlib.util
import json
import os
import runpy
import socket
import sys
import threading
from typing import Any

from oelm.core.sources import source_digest
from oelm.machine.system import show_command, threads_here
from oelm.storage.ownership import START_VARIABLE

# By name, as the command that a cold start executes is. No more than every run imports anyway, the last of them for its
# first gradient; and not numpy.random, which draws a seed when it is imported.
PRELOADED = ("torch", "oelm.cli", "oelm.run.training.run", "torch.fx.experimental.symbolic_shapes")
READY, GO = b"ready", b"go"
MOST_BYTES = 2**17  # of a request: two paths and a few words


def main() -> None:
    control = socket.socket(fileno=0)
    show_command(sys.orig_argv[:3])
    gc.disable()  # what is imported stays: to look for what can be freed would take a fifth of the time
    for name in PRELOADED:
        importlib.import_module(name)
    source_digest()  # remembered: of the sources as imported
    gc.freeze()  # a run's collector would copy every page that it looks at
    gc.enable()
    if _has_threads():
        return  # a lock that one of them holds would be held for ever in what is forked
    run = _forked(control)
    if run is not None:
        control.detach()  # its number is the standard input's, which is another one from here on
        _become(**run)


def _has_threads() -> bool:
    """After a first fork, for which numerical libraries end theirs."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return threads_here() > 1


def _forked(control: socket.socket) -> dict[str, Any] | None:
    """In the process of a run, what it is to become; in this one, None when the controller is gone."""
    try:
        control.send(READY)
        while True:
            message, descriptors, _, _ = socket.recv_fds(control, MOST_BYTES, 2)
            if not message:
                return None
            request = json.loads(message)
            if "ended" in request:
                control.send(json.dumps(_end_of(request["ended"])).encode())
                continue
            if _fork() == 0:
                return {**request, "output": descriptors[0], "link": descriptors[1]}
            for descriptor in descriptors:
                os.close(descriptor)
    except OSError:
        return None


def _fork() -> int | None:
    """None: there is no process to be had, and the controller reads an end instead of a number."""
    try:
        return os.fork()
    except OSError:
        return None


def _end_of(pid: int) -> dict[str, Any]:
    """Of a run that was forked here: kept by the kernel until it is asked for."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return {"alive": False, "code": None}
    return {"alive": not ended, "code": os.waitstatus_to_exitcode(status) if ended else None}


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
    if not _is_released(link):  # the controller died, or has started the run in another way
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


def _is_released(link: int) -> bool:
    with socket.socket(fileno=link) as controller:
        try:
            controller.sendall(str(os.getpid()).encode())
            return controller.recv(len(GO)) == GO
        except OSError:
            return False


if __name__ == "__main__":
    main()
