"""Asking for the GPUs of a machine: NVML, else the driver's tool, else torch. Whoever does not answer is given up.

NVML and torch are asked in processes of their own: a driver in trouble hangs, and torch would start CUDA here.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from oelm.errors import UserError
from oelm.system import PROC

TOOL = "nvidia-smi"
QUERIES = (
    ("--query-gpu=index,uuid,memory.used,memory.total,name", "--format=csv,noheader,nounits"),
    ("--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits"),
)
# What older tools do not know, nor slices: the only one that lists MIG slices, and whether a GPU is divided into them.
SLICES_QUERY = ("-L",)
DIVIDED_QUERY = ("--query-gpu=index,mig.mode.current", "--format=csv,noheader")
NVML = "NVML"
TORCH = "torch"
QUERY_SECONDS = 20.0
TORCH_SECONDS = 120.0
FREE_MIB = 500  # a desktop or the driver itself holds less; a training process more
CONTEXT_MIB = 700  # at most, of a process that has only begun to use a GPU
# One of these is there wherever torch can see a GPU: NVIDIA's driver, the same under WSL, AMD's.
DEVICE_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd")


@dataclass(frozen=True)
class GpuProcess:
    pid: int
    user: str
    used_mib: int


@dataclass(frozen=True)
class Gpu:
    """A GPU, or a slice of one (MIG), which CUDA knows by its UUID alone."""

    index: str
    name: str
    used_mib: int
    total_mib: int
    processes: tuple[GpuProcess, ...] = ()
    uuid: str = ""
    is_slice: bool = False
    is_divided: bool = False  # into slices, of which there is none
    source: str = TOOL

    @property
    def why_busy(self) -> str | None:
        """None: free."""
        if self.is_divided:
            return "in MIG mode, without a slice"
        if not self.processes and self.used_mib <= FREE_MIB:
            return None
        users = ", ".join(f"{process.user} (pid {process.pid})" for process in self.processes)
        memory = f"{self.used_mib / 1024:.1f} of {self.total_mib / 1024:.1f} GiB in use"
        return f"{users}; {memory}" if users else memory


class NoAnswer(Exception):
    """One way to ask does not work here; the text says why."""


def gpus_here() -> list[Gpu]:
    """The GPUs of this machine. Those that torch sees and nobody can look into are refused: every run would land on
    the first, whoever uses it.
    """
    reasons = []
    for ask in (_by_nvml, _by_tool):
        try:
            return ask()
        except NoAnswer as reason:
            reasons.append(str(reason))
    return _by_torch(reasons[-1])


# ---- NVML ----------------------------------------------------------------------------------------------------------


def _by_nvml() -> list[Gpu]:
    if importlib.util.find_spec("pynvml") is None:
        raise NoAnswer("nvidia-ml-py is not installed")
    done = _answered([sys.executable, "-m", "oelm.experiments.nvml"], QUERY_SECONDS, NVML)
    if done.code:
        raise NoAnswer(f"{NVML} fails: {done.complaint}")
    found = [_of_nvml(entry) for entry in json.loads(done.output.splitlines()[-1])]
    if not found:
        raise NoAnswer(f"{NVML} lists none")
    return found


def _of_nvml(entry: dict[str, Any]) -> Gpu:
    processes = tuple(GpuProcess(pid, user_of_process(pid), used) for pid, used in entry.pop("processes"))
    return Gpu(**entry, processes=processes, source=NVML)


# ---- nvidia-smi ----------------------------------------------------------------------------------------------------


def _by_tool() -> list[Gpu]:
    tool = shutil.which(TOOL)
    if tool is None:
        raise NoAnswer(f"{TOOL} is not installed")
    listing, processes = (_told(tool, query) for query in QUERIES)
    found = parsed(listing, processes, user_of=user_of_process)
    if not found:
        raise NoAnswer(f"{TOOL} lists none")
    return with_slices(found, *(_told_by_newer(tool, query) for query in (SLICES_QUERY, DIVIDED_QUERY)))


def _told_by_newer(tool: str, query: tuple[str, ...]) -> str:
    try:
        return _told(tool, query)
    except NoAnswer:
        return ""


def _told(tool: str, query: tuple[str, ...]) -> str:
    done = _answered([tool, *query], QUERY_SECONDS, TOOL)
    if done.code:
        raise NoAnswer(f"{TOOL} fails: {done.complaint}")
    return done.output


def parsed(listing: str, processes: str, *, user_of: Callable[[int], str]) -> list[Gpu]:
    """GPUs from what the tool printed for QUERIES. A field it does not know (`[N/A]`) counts as nothing."""
    by_uuid: dict[str, list[GpuProcess]] = {}
    for uuid, pid, used in _rows(processes, 3):
        if pid.isdecimal():
            by_uuid.setdefault(uuid, []).append(GpuProcess(int(pid), user_of(int(pid)), _number(used)))
    return [
        Gpu(index, name, _number(used), _number(total), tuple(by_uuid.get(uuid, ())), uuid)
        for index, uuid, used, total, name in _rows(listing, 5)
    ]


def with_slices(gpus: list[Gpu], listing: str, divided: str) -> list[Gpu]:
    """The same with the slices of a divided GPU in its place, from what the tool printed for SLICES_QUERY and
    DIVIDED_QUERY. It does not say which slice a process uses: all those of a GPU in use count as busy.
    """
    without_any = {index for index, mode in _rows(divided, 2) if mode == "Enabled"}
    slices: dict[str, list[tuple[str, str, str]]] = {}
    parent = ""
    for line in listing.splitlines():
        if whole := re.match(r"GPU (\d+): ", line):
            parent = whole[1]
        elif part := re.match(r"\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[^)\s]+)\)", line):
            slices.setdefault(parent, []).append((part[1], part[2], part[3]))
    return [
        each
        for gpu in gpus
        for each in [
            Gpu(
                f"{gpu.index}:{place}", f"{gpu.name} MIG {kind}", gpu.used_mib, gpu.total_mib, gpu.processes, uuid, True
            )
            for kind, place, uuid in slices.get(gpu.index, ())
        ]
        or [replace(gpu, is_divided=gpu.index in without_any)]
    ]


def _rows(text: str, columns: int) -> list[list[str]]:
    rows = [[field.strip() for field in line.split(",", columns - 1)] for line in text.splitlines()]
    return [row for row in rows if len(row) == columns]


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


# ---- torch ---------------------------------------------------------------------------------------------------------

# A list of [name, total, used, uuid] in bytes; used and uuid are null where this torch cannot say them.
_TORCH_QUERY = """
import json, torch
found = []
for number in range(torch.cuda.device_count()):
    try:
        known = torch.cuda.get_device_properties(number)
        free, total = torch.cuda.mem_get_info(number)
        found.append([known.name, total, total - free, str(getattr(known, "uuid", ""))])
    except Exception:
        found.append(["", 0, None, ""])
print(json.dumps(found))
"""


def _by_torch(reason: str) -> list[Gpu]:
    """Asked where a GPU may be at all. It says how much memory is in use, not by whom."""
    if not any(os.path.exists(file) for file in DEVICE_FILES):
        return []
    variables = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    try:
        done = _answered(
            [sys.executable, "-c", _TORCH_QUERY], TORCH_SECONDS, TORCH, {**variables, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        )
    except NoAnswer as error:
        raise UserError(f"{error} whether it sees a GPU, and {reason}; set execution.device: cpu to go on") from error
    found = json.loads(done.output.splitlines()[-1]) if done.code == 0 and done.output.strip() else []
    if any(used is None for _, _, used, _ in found):
        raise UserError(
            f"torch sees {len(found)} GPUs, but {reason}, so it is unknown which are free; fix that, "
            "list the GPUs to use in CUDA_VISIBLE_DEVICES, or set execution.device: cpu"
        )
    return [
        Gpu(str(number), name, max(0, used // 2**20 - CONTEXT_MIB), total // 2**20, (), _full(uuid), source=TORCH)
        for number, (name, total, used, uuid) in enumerate(found)
    ]


def _full(uuid: str) -> str:
    return uuid if not uuid or uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


# ---- Processes -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Answer:
    code: int
    output: str
    errors: str

    @property
    def complaint(self) -> str:
        return (self.errors.strip() or self.output.strip() or f"exit code {self.code}").splitlines()[0]


def _answered(command: list[str], seconds: float, who: str, environment: dict[str, str] | None = None) -> _Answer:
    """What a command prints. One that hangs is killed and left alone: where the kernel holds it, it cannot even end."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise NoAnswer(f"{who} fails: {error}") from error
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, 9)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
        raise NoAnswer(f"{who} did not say within {seconds:g} s") from error
    return _Answer(process.returncode, output, errors)


def user_of_process(pid: int) -> str:
    """Who runs a process; in a container the tool names processes that cannot be seen from inside."""
    try:
        number = (PROC / str(pid)).stat().st_uid
        return pwd.getpwuid(number).pw_name
    except OSError:
        return "somebody"
    except KeyError:
        return f"user {number}"
