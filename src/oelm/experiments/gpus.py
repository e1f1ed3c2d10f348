"""The GPUs of a shared machine: who uses which, which are free, and which ones a study takes.

The driver's own tool says it: `nvidia-smi`. What it prints for QUERIES is parsed here, wherever it was printed.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from oelm.errors import UserError
from oelm.system import PROC

TOOL = "nvidia-smi"
QUERIES = (
    ("--query-gpu=index,uuid,memory.used,memory.total,name", "--format=csv,noheader,nounits"),
    ("--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits"),
)
QUERY_SECONDS = 20.0
FREE_MIB = 500  # a desktop or the driver itself holds less; a training process more
# One of these is there wherever torch can see a GPU: NVIDIA's driver, the same under WSL, AMD's.
DEVICE_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd")
TORCH_SECONDS = 120.0


@dataclass(frozen=True)
class GpuProcess:
    pid: int
    user: str
    used_mib: int


@dataclass(frozen=True)
class Gpu:
    index: str
    name: str
    used_mib: int
    total_mib: int
    processes: tuple[GpuProcess, ...] = ()

    @property
    def why_busy(self) -> str | None:
        """None: free."""
        if not self.processes and self.used_mib <= FREE_MIB:
            return None
        users = ", ".join(f"{process.user} (pid {process.pid})" for process in self.processes)
        memory = f"{self.used_mib / 1024:.1f} of {self.total_mib / 1024:.1f} GiB in use"
        return f"{users}; {memory}" if users else memory


@dataclass(frozen=True)
class Chosen:
    """A GPU to run on: `number` stays the same whichever others are busy, `name` is for CUDA_VISIBLE_DEVICES."""

    number: int
    name: str


# ---- Who uses which ------------------------------------------------------------------------------------------------


def parsed(listing: str, processes: str, *, user_of: Callable[[int], str]) -> list[Gpu]:
    """GPUs from what the tool printed for QUERIES. A field it does not know (`[N/A]`) counts as nothing."""
    by_uuid: dict[str, list[GpuProcess]] = {}
    for uuid, pid, used in _rows(processes, 3):
        if pid.isdecimal():
            by_uuid.setdefault(uuid, []).append(GpuProcess(int(pid), user_of(int(pid)), _number(used)))
    return [
        Gpu(index, name, _number(used), _number(total), tuple(by_uuid.get(uuid, ())))
        for index, uuid, used, total, name in _rows(listing, 5)
    ]


def _rows(text: str, columns: int) -> list[list[str]]:
    rows = [[field.strip() for field in line.split(",", columns - 1)] for line in text.splitlines()]
    return [row for row in rows if len(row) == columns]


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def gpus_here() -> list[Gpu]:
    """The GPUs of this machine. Those that torch sees and the driver's tool does not show are refused: every run would
    land on the first, whoever uses it.
    """
    tool = shutil.which(TOOL)
    if tool is None:
        return _none(f"{TOOL} is not installed")
    try:
        listing, processes = (
            subprocess.run([tool, *query], capture_output=True, text=True, timeout=QUERY_SECONDS, check=True).stdout
            for query in QUERIES
        )
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip() or error.stdout.strip() or f"exit code {error.returncode}").splitlines()[0]
        return _none(f"{TOOL} fails: {said}")
    except (OSError, subprocess.SubprocessError) as error:
        return _none(f"{TOOL} fails: {error}")
    return parsed(listing, processes, user_of=user_of_process) or _none(f"{TOOL} lists none")


def _none(reason: str) -> list[Gpu]:
    """No GPUs, unless torch sees some all the same."""
    count = _seen_by_torch() if any(os.path.exists(file) for file in DEVICE_FILES) else 0
    if count:
        raise UserError(
            f"torch sees {count} GPUs, but {reason}, so it is unknown which are free; fix that, "
            "list the GPUs to use in CUDA_VISIBLE_DEVICES, or set execution.device: cpu"
        )
    return []


def _seen_by_torch() -> int:
    """Asked in a process of its own, which shares no torch and no GPU with this one."""
    command = [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TORCH_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise UserError(f"torch did not say within {TORCH_SECONDS:g} s whether it sees a GPU: {error}") from error
    words = done.stdout.split()
    return int(words[-1]) if done.returncode == 0 and words and words[-1].isdecimal() else 0


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


def gpus_to_use(
    wanted: str | None, *, most: int | None = None, ours: Iterable[int] = (), say: Callable[[str], None]
) -> list[Chosen]:
    """The GPUs a study may use: those asked for, those CUDA_VISIBLE_DEVICES names, otherwise the free ones.

    Says which are taken, and which are not and why. Empty: this machine has none.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None and visible is not None:
        names = [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
        return [Chosen(number, name) for number, name in enumerate(names)][: _at_most(most, len(names))]
    own = set(ours)
    here = [without(gpu, own) for gpu in gpus_here()]
    usable = _asked_for(wanted, here) if wanted is not None else [gpu for gpu in here if gpu.why_busy is None]
    if here and not usable:
        reasons = "; ".join(f"{gpu.index}: {gpu.why_busy}" for gpu in here)
        raise UserError(f"every GPU is busy ({reasons}); wait, or choose some anyway with --gpus")
    taken = usable[: _at_most(most, len(usable))]
    for gpu in here:
        say(f"gpu {gpu.index}: {_decision(gpu, taken=gpu in taken, usable=gpu in usable)}")
    return [Chosen(here.index(gpu), gpu.index) for gpu in taken]


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


def visible_alone(names: list[str]) -> dict[str, str]:
    """What a process that shall see these GPUs alone has in its environment, numbered as the driver's tool does.

    Without names it sees none, whatever `auto` would choose.
    """
    order = {} if "CUDA_VISIBLE_DEVICES" in os.environ else {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return order | {"CUDA_VISIBLE_DEVICES": ",".join(names)}


def _asked_for(wanted: str, here: list[Gpu]) -> list[Gpu]:
    by_index = {gpu.index: gpu for gpu in here}
    names = list(dict.fromkeys(part.strip() for part in wanted.split(",")))
    for name in names:
        if name not in by_index:
            shown = f"has {', '.join(by_index)}" if by_index else f"shows none ({TOOL} lists them)"
            raise UserError(f"--gpus {wanted}: {name!r} is not a GPU of this machine, which {shown}")
    return [by_index[name] for name in names]
