"""Commands of one source tree. Each is a fork of a process that has torch and that tree's oelm imported: a process of
its own, with its own folder, arguments, output and exit code, without four seconds of imports.

Run as a script this is the process that forks: side.py SOURCE SOCKET, with PYTHONPATH=SOURCE.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

MOST_SECONDS = 900  # of a command, on a busy machine
KILLED = 137  # how a command ends that was killed on purpose
PRELOADED = ("torch", "torch._dynamo", "torch.distributed", "numpy", "safetensors.torch", "transformers", "tokenizers")


class Side:
    """A source tree and where its commands work. Its process starts with the first command."""

    def __init__(self, name: str, source: Path, root: Path, python: str = sys.executable) -> None:
        self.name, self.source, self.root = name, source, root
        self.seconds = 0.0  # of processors, that its commands have taken
        self._folder = Path(tempfile.mkdtemp(prefix="oelm-side-"))
        root.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [python, str(Path(__file__).resolve()), str(source), str(self._folder / "socket")],
            env=self.environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.imported = self._process.stdout.readline().strip()
        if not self.imported.startswith(f"{source}{os.sep}"):
            raise SystemExit(f"the {name} side imports {self.imported or 'nothing'}, not {source}")

    def environment(self) -> dict[str, str]:
        """Of every command: this tree, and nothing that differs between two starts."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("OELM", "PYTHON", "COVERAGE"))}
        fixed = {
            "PYTHONPATH": str(self.source),
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "COLUMNS": "120",
            "NO_COLOR": "1",
            "TZ": "UTC",
            "HF_HUB_OFFLINE": "1",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "SOURCE_DATE_EPOCH": "1767225600",
        }
        return kept | fixed

    def run(
        self,
        arguments: Sequence[object],
        *,
        cwd: Path,
        log: str | None = None,
        script: Path | None = None,
        ranks: int = 1,
        here: bool = False,
        killed_at: str | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> int:
        """`oelm ARGUMENTS` (or a script of ours) in a folder; what it prints becomes LOG.out and LOG.err there.

        `ranks` processes of it form a group, as torchrun starts them. `here`: in the process that forks, for what it
        imports. `killed_at`: the process is killed as soon as a folder of this name has appeared, as by `kill -9`.
        """
        cwd.mkdir(parents=True, exist_ok=True)
        request = {
            "arguments": [str(word) for word in arguments],
            "cwd": str(cwd),
            "log": log and str(cwd / log),
            "script": script and str(script),
            "ranks": ranks,
            "here": here,
            "killed_at": killed_at,
            "variables": dict(variables or {}),
        }
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(MOST_SECONDS)
            connection.connect(str(self._folder / "socket"))
            connection.sendall((json.dumps(request) + "\n").encode())
            answer = connection.makefile().readline()
        if not answer:
            raise RuntimeError(f"the {self.name} side is gone during: {' '.join(request['arguments'])}")
        code, seconds = answer.split()
        self.seconds += float(seconds)
        return int(code)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        with contextlib.suppress(OSError):
            (self._folder / "socket").unlink()
            self._folder.rmdir()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


# ---- The process that forks ------------------------------------------------------------------------------------------


def serve(source: str, address: str) -> None:
    import importlib

    for name in PRELOADED:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    import oelm
    import oelm.__main__

    assert oelm.__file__ is not None
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    print(os.path.realpath(oelm.__file__) if source == os.path.realpath(source) else oelm.__file__, flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        with connection:
            request = json.loads(connection.makefile().readline())
            if request["here"]:
                with _output_to(None):
                    code = executed(request)
                _remember_sources()
                connection.sendall(f"{code} 0\n".encode())
            elif os.fork() == 0:
                listener.close()
                _keep(connection, request)


def _remember_sources() -> None:
    """The digest of the sources is kept by the process that takes it, and every run asks for it."""
    for name, module in list(sys.modules.items()):
        if name.startswith("oelm.") and hasattr(module, "source_digest"):
            with contextlib.suppress(Exception):
                module.source_digest()


def _keep(connection: socket.socket, request: dict[str, Any]) -> None:
    """Start the command, wait for its end, tell its exit code."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        port, workers = free_port() if request["ranks"] > 1 else 0, []
        for rank in range(request["ranks"]):
            worker = os.fork()
            if worker == 0:
                connection.close()
                _work(request, rank, port)
            workers.append(worker)
        codes = [_exit_code(os.waitpid(worker, 0)[1]) for worker in workers]
        code, used = max(codes), resource.getrusage(resource.RUSAGE_CHILDREN)
        connection.sendall(f"{code} {used.ru_utime + used.ru_stime:.3f}\n".encode())
    finally:
        os._exit(code)


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _work(request: dict[str, Any], rank: int, port: int) -> None:
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(request["cwd"])
        os.environ.update(request["variables"])
        if request["ranks"] > 1:
            os.environ.update(
                RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(request["ranks"]),
                LOCAL_WORLD_SIZE=str(request["ranks"]), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
            )  # fmt: skip
        log = request["log"] if rank == 0 or request["log"] is None else f"{request['log']}.rank{rank}"
        with _output_to(log):
            if request["killed_at"]:
                _die_after(request["killed_at"])
            code = executed(request)
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


@contextlib.contextmanager
def _output_to(log: str | None) -> Iterator[None]:
    """Standard streams into LOG.out and LOG.err, or nowhere; nothing to read."""
    kept = [os.dup(number) for number in range(3)]
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    opened = [
        os.open(os.devnull, os.O_RDONLY),
        os.open(f"{log}.out" if log else os.devnull, flags, 0o644),
        os.open(f"{log}.err" if log else os.devnull, flags, 0o644),
    ]
    for number, descriptor in enumerate(opened):
        os.dup2(descriptor, number)
        os.close(descriptor)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for number, descriptor in enumerate(kept):
            os.dup2(descriptor, number)
            os.close(descriptor)


def _die_after(folder: str) -> None:
    """Kill this process once something is renamed to a path that ends with this name: what follows never happens."""
    rename, replace = os.rename, os.replace

    def dying(move: Any) -> Any:
        def moved(*given: Any, **named: Any) -> None:
            move(*given, **named)
            if str(given[1]).rstrip("/").endswith(folder):
                sys.stdout.flush()
                os._exit(KILLED)

        return moved

    os.rename, os.replace = dying(rename), dying(replace)


def executed(request: dict[str, Any]) -> int:
    """The exit code of `oelm ARGUMENTS`, or of a script, in this process."""
    try:
        if request["script"]:
            sys.argv = [request["script"], *request["arguments"]]
            sys.path.insert(0, os.path.dirname(request["script"]))
            runpy.run_path(request["script"], run_name="__main__")
        else:
            sys.argv = ["oelm", *request["arguments"]]
            from oelm.__main__ import main

            main()
        return 0
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 70


if __name__ == "__main__":
    del sys.path[0]  # our own folder
    serve(sys.argv[1], sys.argv[2])
