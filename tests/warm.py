"""Commands in processes that have torch already: one fork each, instead of four seconds of import.

Every command still is a process of its own, with its own signals, memory and exit code, and can be killed.
Run as a script this is the server; it never computes anything itself, so its children start clean.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
PRELOADED = "torch torch._dynamo torch.distributed.run oelm.cli oelm.run.training.run oelm.run.stored_models.sampling"
LIGHT = "oelm.cli oelm.core.settings oelm.run.directory"
# What takes long in `import transformers`, without it or us, so that the order of their imports is still open.
BELOW_TRANSFORMERS = "torch torch._dynamo torch.distributed.tensor scipy.optimize"
_FORKING = f"import sys; sys.path.append({str(Path(__file__).resolve().parent)!r}); import forking; forking."
FORKED_RANKS, FORKED_PARTS = f"{_FORKING}fork_ranks()", f"{_FORKING}fork_parts()"  # patches: see there
COMPILER = "torch._inductor.compile_fx torch._inductor.codegen.cpp torch._inductor.fx_passes.post_grad"


def environment(**changes: str) -> dict[str, str]:
    """Of every process started here: this source tree, one thread."""
    paths = [str(SOURCE), os.environ.get("PYTHONPATH", "")]
    ours = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONSAFEPATH": "", "OMP_NUM_THREADS": "1"}
    return os.environ | ours | changes


@dataclass(frozen=True)
class Ended:
    """A command's end. `code` is negative if a signal ended it."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


class Running:
    """A started command: poll, signal, wait."""

    def __init__(self, pid: int, connection: socket.socket, folder: Path) -> None:
        self.pid, self._connection, self._folder = pid, connection, folder
        self._ended: Ended | None = None

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def has_ended(self) -> bool:
        if self._ended is None:
            with contextlib.suppress(TimeoutError):
                self.wait(0.001)
        return self._ended is not None

    def until(self, condition: Callable[[], object], seconds: float = 60) -> None:
        """Wait for something that the command must do before it ends."""
        wait_until(lambda: condition() or self.has_ended(), seconds)
        assert not self.has_ended(), self.wait().text

    def wait(self, seconds: float = 120) -> Ended:
        if self._ended is None:
            self._connection.settimeout(seconds)
            code = number_from(self._connection)
            self._connection.close()
            self._ended = Ended(code, self.written("out"), self.written("err"))
        return self._ended

    def written(self, stream: str) -> str:
        """Nothing, if it was killed before it had opened its files."""
        file = self._folder / stream
        return file.read_text(errors="replace") if file.exists() else ""


def number_from(connection: socket.socket) -> int:
    """The next one, and nothing of the one after it, which may be there already."""
    found = connection.recv(1)
    while not found.endswith(b"\n"):
        more = connection.recv(1)
        assert more, f"the server is gone, after {found!r}"
        found += more
    return int(found)


class WarmServer:
    """Starts commands by forking from a process that has imported torch."""

    def __init__(self, folder: Path, *, modules: str = PRELOADED, **variables: str) -> None:
        self._folder, self._address, self._count = folder, str(folder / "socket"), 0
        self._process = subprocess.Popen(
            [sys.executable, __file__, self._address, *modules.split()],
            env=environment(**variables),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout.readline() == "ready\n"

    def start(
        self,
        *arguments: object,
        cwd: Path | None = None,
        patch: str = "",
        program: str = "oelm.cli",
        terminal: str | None = None,
        variables: dict[str, str] | None = None,
    ) -> Running:
        """`oelm ARGUMENTS` (or another program's `main`, or a script) in a new process.

        `patch` is Python that runs there before; `variables` replace the environment."""
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._address)
        request = {"arguments": [str(a) for a in arguments], "cwd": str(cwd or folder), "folder": str(folder)}
        request |= {"patch": patch, "program": program, "terminal": terminal, "variables": variables}
        connection.sendall((json.dumps(request) + "\n").encode())
        return Running(number_from(connection), connection, folder)

    def run(self, *arguments: object, cwd: Path | None = None, patch: str = "", seconds: float = 120) -> Ended:
        return self.start(*arguments, cwd=cwd, patch=patch).wait(seconds)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._process.stdout.close()


@functools.cache
def shared_server(modules: str = PRELOADED) -> WarmServer:
    """One of each kind for all tests of this process; `close_shared_servers` ends them."""
    folder = Path(tempfile.mkdtemp(prefix="oelm-warm-"))
    try:
        server = WarmServer(folder, modules=modules)
    except BaseException:  # `make quick` skips what starts a process
        shutil.rmtree(folder)
        raise
    _SHARED.append((server, folder))
    return server


_SHARED: list[tuple[WarmServer, Path]] = []


def close_shared_servers() -> None:
    while _SHARED:
        server, folder = _SHARED.pop()
        server.close()
        shutil.rmtree(folder, ignore_errors=True)
    shared_server.cache_clear()


def cold(*arguments: object, cwd: Path | None = None, seconds: float = 120, **variables: str) -> Ended:
    """`python -m oelm ARGUMENTS`, as a user starts it."""
    command = [sys.executable, "-m", "oelm", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=environment(**variables), capture_output=True, timeout=seconds)
    return Ended(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


# Importing torch fails, and there is little memory.
NO_TORCH = """
import resource, sys
assert "torch" not in sys.modules
sys.modules["torch"] = None
resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))
"""


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.002)


# ---- The server ----------------------------------------------------------------------------------------------------


def serve(address: str) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are reaped by the kernel
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            keep(connection)
        connection.close()


def keep(connection: socket.socket) -> None:
    """Start the worker, tell its pid, wait for its end and tell that."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with connection.makefile() as stream:
        request = json.loads(stream.readline())
    worker = os.fork()
    if worker == 0:
        connection.close()
        work(request)
    with contextlib.suppress(OSError):  # a test that gave up has closed its end
        connection.sendall(f"{worker}\n".encode())
        _, status = os.waitpid(worker, 0)
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def work(request: dict) -> None:
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, name in enumerate(("in", "out", "err")):
            flags = os.O_RDONLY if name == "in" else os.O_WRONLY | os.O_CREAT | os.O_APPEND
            path = os.devnull if name == "in" else os.path.join(request["folder"], name)
            os.dup2(os.open(path, flags, 0o644), number)
        if request["terminal"]:
            opened = os.open(request["terminal"], os.O_RDWR)  # of a process with no terminal yet: it becomes its own
            for number in range(3):
                os.dup2(opened, number)
            os.environ["TERM"] = "xterm"
        os.chdir(request["cwd"])
        if request["variables"] is not None:
            os.environ.clear()
            os.environ.update(request["variables"])
        code = executed(request["program"], request["arguments"], patch=request["patch"])
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def executed(program: str, arguments: list[str], *, patch: str = "") -> int:
    """The exit code of a script, or of a module's `main`, in this process."""
    try:
        sys.argv = [program if program.endswith(".py") else "oelm", *arguments]
        if not program or program.endswith(".py"):
            sys.path[0] = os.path.dirname(program)
        exec(compile(patch, "patch", "exec"), {"__name__": "patch"})
        if program.endswith(".py"):
            runpy.run_path(program, run_name="__main__")
        elif program:
            importlib.import_module(program).main()
        return 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


if __name__ == "__main__":
    for module in sys.argv[2:]:
        with contextlib.suppress(ModuleNotFoundError):  # what it is needed for says so
            importlib.import_module(module)
    if "oelm.core.sources" in sys.modules:  # its digest is remembered, and every run asks for it
        sys.modules["oelm.core.sources"].source_digest()
    serve(sys.argv[1])
