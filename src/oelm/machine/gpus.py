"""The GPUs of a shared machine: who uses which, by NVML, and which ones a study takes.

NVML is asked in a process of its own (nvml.py): a driver in trouble hangs. A slice of a divided GPU (MIG) is named by
the user.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pwd
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from oelm.machine.errors import UserError
from oelm.machine.installation import install_command
from oelm.machine.system import PROC, visible_gpus

QUERY_SECONDS = 20.0
FREE_MIB = 500  # a desktop or the driver itself holds less; a training process more
# One of these is there wherever NVIDIA's driver is, under WSL too.
DRIVER_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/usr/lib/wsl/lib/libnvidia-ml.so.1")


@dataclass(frozen=True)
class GpuProcess:
    pid: int
    user: str
    used_mib: int


@dataclass(frozen=True)
class Gpu:
    index: str  # or the name of a slice
    name: str
    used_mib: int
    total_mib: int
    processes: tuple[GpuProcess, ...] = ()
    uuid: str = ""
    is_divided: bool = False

    @property
    def why_busy(self) -> str | None:
        """None: free."""
        if self.is_divided:
            return "divided into slices (MIG); name one with --gpus MIG-..."
        if not self.processes and self.used_mib <= FREE_MIB:
            return None
        users = ", ".join(f"{process.user} (pid {process.pid})" for process in self.processes)
        memory = f"{self.used_mib / 1024:.1f} of {self.total_mib / 1024:.1f} GiB in use"
        return f"{users}; {memory}" if users else memory


# ---- Who uses which ------------------------------------------------------------------------------------------------


def gpus_here() -> list[Gpu]:
    """The GPUs of this machine. Where NVML does not answer, nobody knows which are free: every run would land on the
    first, whoever uses it.
    """
    try:
        return _listed()
    except _NoAnswer as reason:
        if not any(os.path.exists(file) for file in DRIVER_FILES):
            return []
        raise UserError(
            f"NVIDIA's driver is here, but {reason}, so it is unknown which GPUs are free; fix that, list the GPUs to "
            "use in CUDA_VISIBLE_DEVICES, or set execution.device: cpu"
        ) from reason


class _NoAnswer(Exception):
    """Why NVML says nothing."""


def _listed() -> list[Gpu]:
    if importlib.util.find_spec("pynvml") is None:
        raise _NoAnswer(f"NVML for Python is not installed ({install_command('gpu')})")
    process = subprocess.Popen(
        [sys.executable, "-m", "oelm.machine.nvml"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=QUERY_SECONDS)
    except subprocess.TimeoutExpired as error:  # where the kernel holds it, it cannot even end
        with contextlib.suppress(OSError):
            os.killpg(process.pid, 9)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
        raise _NoAnswer(f"NVML did not answer within {QUERY_SECONDS:g} s") from error
    if process.returncode:
        complaint = (errors.strip() or f"exit code {process.returncode}").splitlines()[-1]
        raise _NoAnswer(f"NVML fails: {complaint}")
    return [
        Gpu(**entry, processes=tuple(GpuProcess(pid, user_of_process(pid), used) for pid, used in processes))
        for entry in json.loads(output.splitlines()[-1])
        for processes in [entry.pop("processes")]
    ]


def user_of_process(pid: int) -> str:
    """Who runs a process; in a container the tool names processes that cannot be seen from inside."""
    try:
        number = (PROC / str(pid)).stat().st_uid
        return pwd.getpwuid(number).pw_name
    except OSError:
        return "somebody"
    except KeyError:
        return f"user {number}"


def without(gpu: Gpu, ours: set[int]) -> Gpu:
    """The GPU as it would be without our own runs, their workers included: these are accounted for elsewhere."""
    own = [process for process in gpu.processes if ours & _with_ancestors(process.pid)]
    others = tuple(process for process in gpu.processes if process not in own)
    used = max(0, gpu.used_mib - sum(process.used_mib for process in own))
    # What a context holds beyond its process's own share goes with the process.
    return replace(gpu, processes=others, used_mib=0 if own and not others and used <= 2 * FREE_MIB else used)


def _with_ancestors(pid: int) -> set[int]:
    found: set[int] = set()
    with contextlib.suppress(OSError, ValueError, IndexError):
        while pid > 1 and pid not in found:
            found.add(pid)
            pid = int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    return found


# ---- Which ones to take --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chosen:
    """A GPU to run on: `number` stays the same whichever others are busy, `name` is for CUDA_VISIBLE_DEVICES.

    `by_bus`: its name is a number in the order of the bus, or a UUID; otherwise it is the environment's own.
    """

    number: int
    name: str
    by_bus: bool = True


def gpus_to_use(
    wanted: str | None, *, most: int | None = None, ours: Iterable[int] = (), say: Callable[[str], None]
) -> list[Chosen]:
    """The GPUs a study may use: those asked for, those CUDA_VISIBLE_DEVICES names, otherwise the free ones.

    Says which are taken, and which are not and why. Empty: this machine has none.
    """
    names = visible_gpus()
    if wanted is None and names is not None:
        listed = [Chosen(number, name, by_bus=False) for number, name in enumerate(names)]
        listed = listed[: _at_most(most, len(names))]
        for gpu in listed:
            say(f"gpu {gpu.name}: used, listed in CUDA_VISIBLE_DEVICES")
        return listed
    own = set(ours)
    here = [without(gpu, own) for gpu in gpus_here()]
    usable = _asked_for(wanted, here) if wanted is not None else [gpu for gpu in here if gpu.why_busy is None]
    if here and not usable:
        reasons = "; ".join(f"{gpu.index}: {gpu.why_busy}" for gpu in here)
        raise UserError(f"every GPU is busy ({reasons}); wait, or choose some anyway with --gpus")
    taken = usable[: _at_most(most, len(usable))]
    for each in here:
        say(f"gpu {each.index}: {_decision(each, taken=each in taken, usable=each in usable)}")
    known = [*here, *(gpu for gpu in taken if gpu not in here)]
    return [Chosen(known.index(gpu), gpu.index) for gpu in taken]


def _at_most(most: int | None, count: int) -> int | None:
    if most is not None and 0 < count < most:
        raise UserError(f"--slots {most}: only {count} GPUs are available")
    return most


def _decision(gpu: Gpu, *, taken: bool, usable: bool) -> str:
    if taken:
        return f"used, although busy: {gpu.why_busy}" if gpu.why_busy else "used"
    if usable:
        return "skipped, more than the requested slots"
    return f"skipped, busy: {gpu.why_busy}" if gpu.why_busy else "skipped, not requested"


def visible_alone(names: list[str], *, by_bus: bool = True) -> dict[str, str]:
    """What a process that shall see these GPUs alone has in its environment; `by_bus` as Chosen says it.

    Without names it sees none, whatever `auto` would choose.
    """
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if by_bus else {}
    return order | {"CUDA_VISIBLE_DEVICES": ",".join(names)}


def _asked_for(wanted: str, here: list[Gpu]) -> list[Gpu]:
    """By their numbers, or by UUIDs or how those begin; a slice by its UUID alone."""
    named = [_named(name, wanted, here) for name in dict.fromkeys(part.strip() for part in wanted.split(","))]
    return list(dict.fromkeys(named))


def _named(name: str, wanted: str, here: list[Gpu]) -> Gpu:
    by_index = {gpu.index: gpu for gpu in here}
    if name in by_index:
        return by_index[name]
    if name.startswith("MIG-"):
        return Gpu(name, "a slice", 0, 0)
    beginning = [gpu for gpu in here if gpu.uuid.startswith(name)] if name.startswith("GPU-") else []
    if len(beginning) == 1:
        return beginning[0]
    if beginning:
        raise UserError(f"--gpus {wanted}: {name!r} begins the UUIDs of {len(beginning)} GPUs; give more of it")
    shown = f"has {', '.join(by_index)}" if by_index else "shows none (nvidia-smi lists them)"
    raise UserError(f"--gpus {wanted}: {name!r} is not a GPU of this machine, which {shown}")
