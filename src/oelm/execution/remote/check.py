"""`oelm remote HOST check`: what a study needs over there, one line each, and what to do about what is missing."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from typing import Any

from oelm.execution.remote.connection import ask, no_program
from oelm.execution.remote.hosts import Server
from oelm.machine.gpus import Gpu, GpuProcess

PROBE_SECONDS = 100
NEEDED_BYTES = 2**30
OLDEST_PYTHON = (3, 11)
NO_PYTHON = "no Python to import it"
GPU_TOOL = "nvidia-smi"  # it comes with the driver; nothing of oelm need be there
GPU_QUERIES = (
    ("--query-gpu=index,uuid,memory.used,memory.total,name", "--format=csv,noheader,nounits"),
    ("--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits"),
)


@dataclass(frozen=True)
class Line:
    """One fact; `advice` is what to do, where something is missing."""

    what: str
    fact: str
    advice: str | None = None

    def __str__(self) -> str:
        state = "ok" if self.advice is None else "missing"
        return f"{state:8} {self.what:8} {self.fact}" + (f": {self.advice}" if self.advice else "")


def check(server: Server) -> list[Line]:
    """Everything, in the order in which it has to be put right."""
    if shutil.which("rsync") is None:
        raise no_program("rsync", "rsync")
    facts = ask(
        server,
        "facts",
        seconds=PROBE_SECONDS + 60,
        probe_seconds=PROBE_SECONDS,
        gpu_tool=GPU_TOOL,
        gpu_queries=[list(query) for query in GPU_QUERIES],
    )
    found, free, version = facts["probe"], facts["free_bytes"], re.search(r"version (\S+)", facts["rsync"])
    no_rsync = None if facts["rsync"] else "install it, or ask the administrator: apt-get install rsync"
    return [
        Line("ssh", f"{server.destination} answers"),
        _folder(facts),
        Line("disk", f"{free / 2**30:.1f} GiB free", "less than 1 GiB; make room" if free < NEEDED_BYTES else None),
        Line("rsync", version[1] if version else facts["rsync"] or "not installed", no_rsync),
        _python(facts["python"], found, server),
        _oelm(facts, found, server),
        Line("torch", f"{found['torch']}, sees {found['cuda']} GPUs")
        if "torch" in found
        else Line("torch", found.get("torch_error", NO_PYTHON), _setting_up(server)),
        *_gpus(facts),
        *(Line("runs", f"{study} is running there") for study in facts["controllers"]),
    ]


def _folder(facts: dict[str, Any]) -> Line:
    if not facts["is_writable"]:
        return Line("folder", facts["folder"], "cannot write there; choose another `folder` in remotes.yaml")
    if facts["is_foreign"]:
        return Line("folder", facts["folder"], "contains files of another project; choose another `folder`")
    return Line("folder", facts["folder"] + ("" if facts["is_there"] else " (sync creates it)"))


def _setting_up(server: Server) -> str:
    return f"on the server, in {server.folder}: python3 -m venv .venv && .venv/bin/pip install -c constraints.txt -e ."


def _python(python: str, found: dict[str, Any], server: Server) -> Line:
    if "error" in found:
        return Line(
            "python",
            f"{python}: {found['error']}",
            f"choose another `python` in remotes.yaml, or {_setting_up(server)}",
        )
    version = found["version"]
    numbers = tuple(int(part) for part in version.split(".")[:2])
    advice = "oelm needs 3.11 or later; choose another `python` in remotes.yaml" if numbers < OLDEST_PYTHON else None
    return Line("python", f"{version} ({found['executable']})", advice)


def _oelm(facts: dict[str, Any], found: dict[str, Any], server: Server) -> Line:
    if not facts["has_code"]:  # another one that is installed is not this project
        return Line("oelm", "not there yet", f"oelm remote {server.name} sync")
    if "oelm" in found:
        return Line("oelm", found["oelm"])
    return Line("oelm", found.get("oelm_error", NO_PYTHON), _setting_up(server))


def _gpus(facts: dict[str, Any]) -> list[Line]:
    listing, processes = (  # what the tool printed; a name may have commas
        [[field.strip() for field in line.split(",", 4)] for line in text.splitlines()] for text in facts["gpus"]
    )
    if not listing:
        return [Line("gpus", "none: runs use the cores")]
    lines = []
    for index, uuid, used, total, name in (row for row in listing if len(row) == 5):
        own = (each for each in processes if len(each) == 3 and each[0] == uuid and each[1].isdecimal())
        users = tuple(GpuProcess(int(pid), facts["users"].get(pid, "somebody"), _number(mib)) for _, pid, mib in own)
        busy = Gpu(index, name, _number(used), _number(total), users).why_busy
        lines.append(Line(f"gpu {index}", f"{name}: {f'busy: {busy}' if busy else 'free'}"))
    return lines


def _number(text: str) -> int:
    """A field that the tool does not know (`[N/A]`) counts as nothing."""
    return int(text) if text.isdecimal() else 0
