"""What a check finds, and where it looks: the machine, the study's own sizes, a scratch folder. No torch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from oelm.core.config import Settings
from oelm.execution.engine import several_processes
from oelm.machine.system import lacking_to_compile
from oelm.storage.files import read_object, write_json


def compiled_on_a_gpu(kind: str) -> str:
    """How `execution.compile` is set: on a GPU every run that lasts is compiled, where that is possible; a processor is
    spared the minutes."""
    return "on" if kind == "cuda" and lacking_to_compile(kind) is None else "off"


State = Literal["pass", "fail", "skipped"]


@dataclass(frozen=True)
class Outcome:
    """How a check ended, why, and the numbers behind it."""

    state: State
    said: str
    facts: dict[str, Any] = field(default_factory=dict)


class CheckFailed(Exception):
    """A part of a check did not do what it had to; the text says what."""


@dataclass(frozen=True)
class Here:
    """What every check is given. `gpus` are names for CUDA_VISIBLE_DEVICES; none: the processor is checked."""

    folder: Path
    gpus: tuple[str, ...]
    variables: dict[str, str]  # of every child's environment
    measured: Settings  # what is timed and weighed: the study's baseline, or the default of this kind of machine
    results: dict[str, Any] = field(default_factory=dict)  # of parts that several checks share

    @property
    def kind(self) -> str:
        return "cuda" if self.gpus else "cpu"

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What several checks need, made for the first of them. What failed fails for the others too."""
        if name not in self.results:
            try:
                self.results[name] = make()
            except CheckFailed as error:
                self.results[name] = error
        found = self.results[name]
        if isinstance(found, CheckFailed):
            raise found
        return found


IN_CHILD = "oelm.execution.checking.in_child"
CHILD_SECONDS = 300.0
LEAVING_SECONDS = 40.0  # for whatever was asked to end; torchrun kills its workers after 30


def answer_of(
    task: str, request: dict[str, Any], *, here: Here, processes: int = 1, seconds: float = CHILD_SECONDS
) -> dict[str, Any]:
    """What a task of in_child.py answers; of several processes, what the first one does."""
    folder = here.folder / f"{task}-{len(list(here.folder.iterdir()))}"
    folder.mkdir()
    answer = folder / "answer.json"
    write_json(folder / "request.json", request | {"answer": str(answer)})
    command = [sys.executable, *several_processes(processes), "-m", IN_CHILD, task, str(folder / "request.json")]
    code, words = finished(command, log=folder / "output.txt", here=here, seconds=seconds)
    if code or not answer.exists():
        raise CheckFailed(words or f"the process ended with {_ending(code)}")
    return read_object(answer)


def finished(command: list[str], *, log: Path, here: Here, seconds: float = CHILD_SECONDS) -> tuple[int, str]:
    """Run a command to its end: its code, and the last line it printed."""
    with started(command, log=log, here=here) as process:
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise CheckFailed(f"no end within {seconds:.0f} s, so it was stopped") from error
        finally:
            stop(process)
    return code, last_line(log)


def started(command: list[str], *, log: Path, here: Here) -> subprocess.Popen[bytes]:
    """What it prints goes to a file: nobody has to read it for it to go on."""
    with log.open("wb") as output:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=os.environ | here.variables
        )


def stop(process: subprocess.Popen[bytes]) -> None:
    """torchrun ends its workers when it is asked to, not when it is killed."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(LEAVING_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


COMPLAINT = "oelm: "
# The last line of a traceback, of whichever process; torchrun adds one of its own, and a summary that ends in a rule.
EXCEPTION = re.compile(r"(\[rank\d+\]: *)?([A-Za-z_]\w*\.)*\w*(Error|Exception)(:|$)")
OF_TORCHRUN = "ChildFailedError"


def last_line(log: Path) -> str:
    """What went wrong, in one line: ours, else what was raised first, else the last that was printed."""
    text = log.read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if any(map(str.isalnum, line))]
    complaints = [line for line in lines if line.startswith(COMPLAINT)]
    raised = [line for line in lines if EXCEPTION.match(line) and OF_TORCHRUN not in line]
    return (complaints[-1:] or raised[:1] or lines[-1:] or [""])[0].removeprefix(COMPLAINT)[:400]


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
