"""What the operating system tells of processes, processors, memory and compilers, and where it tells nothing.

Linux says it in /proc, macOS by its own commands. Whatever is not there is None, or the nearest thing that every system
has: nobody else has to ask which system this is.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import itertools
import mmap
import os
import platform
import re
import select
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable
from pathlib import Path

from oelm.machine.errors import UserError

PROC = Path("/proc")
CGROUP_MEMORY = Path("/sys/fs/cgroup/memory.max")
ASKING_SECONDS = 10.0
NEEDED_FOR_COMMANDS = ("fcntl", "resource", "pwd")  # which Python has on Linux and macOS
WITHOUT_COMMANDS = ("oelm.apply", "oelm.load", "oelm.FreezeCallback", "oelm.diagnose", "oelm.arm", "oelm.build")


def refuse_systems_without_locks() -> None:
    """For the command: which parts of Python are missing on this system, and what can be done there."""
    missing = [name for name in NEEDED_FOR_COMMANDS if not _is_there(name)]
    if missing:
        raise UserError(
            f"{platform.system()}: the command needs Python's {', '.join(missing)} (locks, limits, users), which Linux "
            "and macOS have; on Windows use it inside WSL. What works here is `import oelm` in Python: "
            f"{', '.join(WITHOUT_COMMANDS)} (docs/systems.md)"
        )


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # named in sys.modules as what cannot be imported
        return False


# ---- Processes -----------------------------------------------------------------------------------------------------


def boot_id() -> str:
    """The same until the machine starts again; empty where no system tells."""
    try:
        return (PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
    except OSError:
        return _answer("sysctl", "-n", "kern.bootsessionuuid") or ""


def process_started(pid: int) -> str | None:
    """When a live process began, in the system's own words; None if there is none (or it is a zombie)."""
    if not PROC.is_dir():
        return _started_by_ps(pid)
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def _started_by_ps(pid: int) -> str | None:
    if shutil.which("ps") is None:
        return "at some time" if process_exists(pid) else None
    state, *began = (_answer("ps", "-p", str(pid), "-o", "stat=", "-o", "lstart=") or "").split() or [""]
    return None if not state or state.startswith("Z") else " ".join(began)


def process_exists(pid: int) -> bool:
    """Whether a process of this machine has this number now."""
    if pid < 1:  # to the kernel these name groups of processes
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def rest_until_one_ends(pids: Iterable[int], seconds: float) -> bool:
    """Sleep, but not past the end of any of these processes; whether one has ended. A system that does not wake us for
    that has us sleep for the whole time.
    """
    if not hasattr(os, "pidfd_open"):
        time.sleep(seconds)
        return False
    ends = select.poll()
    with contextlib.ExitStack() as opened:
        for pid in pids:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                return True
            except OSError:  # an older kernel, or no descriptors left
                continue
            opened.callback(os.close, descriptor)
            ends.register(descriptor, select.POLLIN)
        return bool(ends.poll(1000 * seconds))


def threads_here() -> int:
    """Of this process, those of libraries too; 1 where the system does not say."""
    try:
        return len(os.listdir(PROC / "self" / "task"))
    except OSError:
        return 1


def inherited() -> tuple[object, ...]:
    """What others can change of this process, and a process that it starts would have: its priority, cores, limits."""
    import resource  # which is not everywhere

    limits = [getattr(resource, name) for name in sorted(vars(resource)) if name.startswith("RLIMIT_")]
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return os.getpriority(os.PRIO_PROCESS, 0), cores, [resource.getrlimit(limit) for limit in limits]


def show_command(command: list[str]) -> None:
    """Have `ps` and `pgrep -f` show this process as another command, as far as the room of its own arguments goes; a
    system that does not say where they are goes on showing the old one.
    """
    try:
        fields = (PROC / "self" / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return
    first, end = int(fields[45]), int(fields[46])
    room = end - first - 1
    if first == 0 or room < 1:
        return
    text = os.fsencode(shlex.join(command))[: room - 1]
    # The last byte tells the kernel that this is one text, which ends at its first zero.
    ctypes.memmove(first, text.ljust(room, b"\0") + b" ", room + 1)


def lock(descriptor: int) -> None:
    """Take the kernel's lock on an open file or folder, which goes with the process; an OSError where it cannot be had,
    a BlockingIOError where another process has it.
    """
    import fcntl  # which is not everywhere

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


# ---- The machine ---------------------------------------------------------------------------------------------------


def file_behind(descriptor: int) -> str | None:
    """Where what is written there goes, if the system says so."""
    try:
        return os.readlink(PROC / f"self/fd/{descriptor}")
    except OSError:
        return None


def usable_cores() -> int:
    """Those that this process may use, where the system restricts them; else all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> int | None:
    """Of this machine, or of the part of it that a container or a job may use; None where the system does not say."""
    known = []
    with contextlib.suppress(AttributeError, OSError, ValueError):
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with contextlib.suppress(OSError, ValueError):
        known.append(int(CGROUP_MEMORY.read_text()))
    return min(known, default=None)


def mapped_bytes() -> int:
    """Address space that this process has taken already, libraries above all; 0 where the system does not say."""
    try:
        return int((PROC / "self" / "statm").read_text().split()[0]) * mmap.PAGESIZE
    except OSError:
        return 0


def peak_memory_bytes() -> int:
    """Of this process: the kernel's high-water mark, where it is told, because getrusage carries over the parent's."""
    with contextlib.suppress(OSError):
        for line in (PROC / "self" / "status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    import resource  # which is not everywhere

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def processor() -> str:
    """The CPU's model name."""
    try:
        lines = (PROC / "cpuinfo").read_text().splitlines()
    except OSError:
        return _answer("sysctl", "-n", "machdep.cpu.brand_string") or platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def gpu_driver() -> str | None:
    """The version of NVIDIA's kernel driver; None where there is none, or it does not say."""
    try:
        text = (PROC / "driver" / "nvidia" / "version").read_text()
    except OSError:
        return None
    found = re.search(r"Module\b.*?(\d+(?:\.\d+)+)", text)
    return found[1] if found else None


GPU_NAME = re.compile(r"\d+$|GPU-|MIG-")


def visible_gpus() -> list[str] | None:
    """What CUDA_VISIBLE_DEVICES shows a process, as CUDA reads it: up to the first that names no GPU, as -1 or Slurm's
    NoDevFiles do. None: it is not set."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        return None
    return list(itertools.takewhile(GPU_NAME.match, (name.strip() for name in given.split(","))))


# ---- Compilers -----------------------------------------------------------------------------------------------------


def lacking_to_compile(kind: str) -> tuple[str, str] | None:
    """What compiled code for this kind of device needs and is not here, and what to do about it."""
    return _lacking_for_triton() if kind == "cuda" else _lacking_for_cpu_code()


def _lacking_for_cpu_code() -> tuple[str, str] | None:
    found = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")
    return None if found else ("no C++ compiler", "install g++")


def _lacking_for_triton() -> tuple[str, str] | None:
    """Triton compiles the code that starts its kernels, against Python's headers, with a C compiler."""
    if importlib.util.find_spec("triton") is None:
        return "no Triton", "install it with the CUDA build of torch"
    named = os.environ.get("CC")
    if not any(shutil.which(each) for each in ([named] if named else ["gcc", "clang"])):
        return "no C compiler for Triton", "install gcc (or set CC)"
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        return "no Python.h, which Triton compiles against", "install the headers of this Python"
    return None


# ---- Commands ------------------------------------------------------------------------------------------------------


def _answer(*command: str) -> str | None:
    """What a command of the system prints, in no language and no time zone of somebody's; None if it fails."""
    environment = os.environ | {"LC_ALL": "C", "TZ": "UTC"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=ASKING_SECONDS, env=environment, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
