"""What ran out: memory, disk, inodes, open files, a limit of the shell. One line that names it and says what to lower.

Such errors come from anywhere and in many words; here is the one place that knows them, and those of a GPU that failed.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from oelm.machine.errors import UserError
from oelm.machine.system import file_behind, mapped_bytes, memory_bytes

FEW_INODES = 32  # what failed may have cleaned up after itself
FEWEST_OPEN_FILES = 64  # with which every command can start; the usual limit is 1024
NO_MEMORY = re.compile(
    r"can't allocate memory|cannot allocate memory|not enough memory|out of memory|bad_alloc|failed to map segment|"
    r"unable to mmap|alloc[ _]failed|memory allocation",
    re.IGNORECASE,
)
# Under a limit, it is.
PERHAPS_NO_MEMORY = re.compile(
    r"could not (create|execute) a |pthread_create|system_error|error return without exception"
)
NO_THREAD = re.compile(r"can't start new thread|Resource temporarily unavailable", re.IGNORECASE)
NO_OPEN_FILE = re.compile(r"Too many open files")  # in a library's words
# Of torch, of the libraries it calls, and of NCCL where it is the device that failed and not another process.
GPU_FAULT = re.compile(
    r"(CUDA error:|Cuda failure|CUDA driver error:|Triton Error \[CUDA\]:|CUBLAS_STATUS_|CUDNN_STATUS_|"
    r"device-side assert|unhandled cuda error)[^\n]*"
)
OF_A_GPU = re.compile("cuda|cudnn|cublas", re.IGNORECASE)
WHAT_TO_LOWER = (
    "reduce memory use: micro_batch_size or the model size of a run, --workers of prepare, --slots of a study"
)


def size(count: float) -> str:
    for unit, bytes_of_it in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= bytes_of_it:
            return f"{count / bytes_of_it:.1f} {unit}"
    return f"{count:.0f} bytes"


def limit_of(what: str) -> int | None:
    """What the shell's `ulimit` says of AS, NOFILE, ... (RLIMIT_*); None: no limit, or none that this system has."""
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return None
    if not hasattr(resource, f"RLIMIT_{what}"):
        return None
    soft = resource.getrlimit(getattr(resource, f"RLIMIT_{what}"))[0]
    return None if soft == resource.RLIM_INFINITY else soft


def what_ran_out(error: BaseException, *, folder: Path | None = None, needed_bytes: int = 0) -> str | None:
    """The line for an error, or None for one of another kind. `folder` is where something was being written."""
    if isinstance(error, OSError) and error.errno in _LINES:
        named = Path(os.fsdecode(error.filename)).absolute() if isinstance(error.filename, str | bytes) else None
        return _LINES[error.errno](folder or named or Path.cwd(), needed_bytes)
    if isinstance(error, MemoryError):
        return _memory_line()
    if not isinstance(error, OSError | RuntimeError | ImportError | SystemError):
        return None
    if NO_MEMORY.search(str(error)):
        return _memory_line(of_gpu=bool(OF_A_GPU.search(str(error))))
    if PERHAPS_NO_MEMORY.search(str(error)) and limit_of("AS") is not None:
        return _memory_line()
    if NO_OPEN_FILE.search(str(error)):
        return _open_files_line(Path.cwd(), 0)
    return _threads_line() if NO_THREAD.search(str(error)) else None


def what_the_gpu_reported(error: BaseException) -> str | None:
    """The line for a fault of the device, or None for an error of another kind."""
    found = GPU_FAULT.search(str(error)) if isinstance(error, RuntimeError) else None
    if found is None or what_ran_out(error) is not None:
        return None
    return (
        f"GPU: it reported a fault ({found[0].strip()}); the same command resumes from the last checkpoint; if it "
        "happens again, see nvidia-smi and the lines with Xid in the kernel's log (dmesg)"
    )


def refuse_little_address_space(needed_bytes: int, whose: str) -> None:
    """Before a library is loaded that ends the process, where memory fails it, without a word that could be caught."""
    allowed = limit_of("AS")
    if allowed is not None and whose not in sys.modules and allowed - mapped_bytes() < needed_bytes:
        raise UserError(
            f"memory: the shell allows {size(allowed)} of address space (ulimit -v), {size(mapped_bytes())} are used, "
            f"and {whose} alone needs {size(needed_bytes)}; raise the limit"
        )


def refuse_few_open_files() -> None:
    """Before anything is imported: what fails later, inside a library, may fail without words of ours."""
    allowed = limit_of("NOFILE")
    if allowed is not None and allowed < FEWEST_OPEN_FILES:
        raise UserError(
            f"open files: the shell allows {allowed} at a time (ulimit -n), and oelm needs at least "
            f"{FEWEST_OPEN_FILES}; raise the limit and run the same command again"
        )


def why_output_is_refused(error: BaseException) -> str | None:
    """The line for an error of writing to standard output, which does not say so: a disk that is full for one file
    may have room for others. None for every other error."""
    if not isinstance(error, OSError) or error.filename is not None or error.errno not in _OUTPUT_ENDS:
        return None
    try:
        os.write(1, b"\n")
    except OSError:
        place = file_behind(1)
        return f"output: {f'{place}: ' if place else ''}cannot be written to ({error.strerror})"
    return None


def in_the_systems_words(error: Exception, path: Path) -> Exception:
    """The OSError that a library wrapped into words of its own; any other error as it is."""
    wrapped = re.search(r"\(os error (\d+)\)", str(error))
    number = int(wrapped[1]) if wrapped else errno.ENOSPC if "No space left" in str(error) else None
    return error if number is None else OSError(number, os.strerror(number), str(path))


# ---- A line for each resource --------------------------------------------------------------------------------------


def _disk_line(place: Path, needed_bytes: int) -> str:
    disk = os.statvfs(_existing(place))
    free_bytes = disk.f_bavail * disk.f_frsize
    if disk.f_files and disk.f_favail < FEW_INODES and free_bytes > needed_bytes:
        return (
            f"{place}: no inodes left: {size(free_bytes)} are free, but the disk has no room for more files (df -i); "
            "delete some there and run the same command again"
        )
    return disk_full(place, needed_bytes=needed_bytes, free_bytes=free_bytes)


def disk_full(place: Path, *, needed_bytes: int, free_bytes: int) -> str:
    """What was cut short has been removed: a need that is not known, or only roughly, is more than what is free now."""
    needs, has = mebibytes(needed_bytes), mebibytes(free_bytes)
    known = needed_bytes > free_bytes and needs != has
    room = f"needs {needs}, has {has}" if known else f"needs more than the {has} that are free"
    return f"{place}: disk full: {room}; make room and run the same command again"


def _quota_line(place: Path, needed_bytes: int) -> str:
    return f"{place}: your quota on this disk is used up; delete some of your files there or choose another disk"


def _file_size_line(place: Path, needed_bytes: int) -> str:
    limit = limit_of("FSIZE")
    if limit is None:
        return f"{place}: a file is too large for this file system; choose another disk"
    return (
        f"{place}: a file would become larger than {size(limit)}, the limit of the shell (ulimit -f); "
        "raise it and run the same command again"
    )


def _open_files_line(place: Path, needed_bytes: int) -> str:
    return (
        f"open files: this process may open {limit_of('NOFILE')} at a time and has reached that limit (ulimit -n); "
        "raise the limit and run the same command again"
    )


def _all_open_files_line(place: Path, needed_bytes: int) -> str:
    return "open files: the machine has reached its limit; close something and run the same command again"


def _memory_line(*, of_gpu: bool = False) -> str:
    limit = limit_of("AS")
    if of_gpu:
        return f"memory: the GPU has run out; {WHAT_TO_LOWER}"
    if limit is not None:
        return f"memory: the {size(limit)} that the shell allows are used up (ulimit -v); raise it, or {WHAT_TO_LOWER}"
    total = memory_bytes()
    return (
        f"memory: {'all memory' if total is None else f'the {size(total)}'} of this machine is used up; {WHAT_TO_LOWER}"
    )


def _threads_line() -> str:
    if limit_of("AS") is not None:
        return _memory_line()
    processes = limit_of("NPROC")
    allowed = "" if processes is None else f": {processes} are allowed (ulimit -u)"
    return (
        f"threads: no more can be started{allowed}; raise the limit, or lower execution.threads, --workers or --slots"
    )


_OUTPUT_ENDS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_LINES: dict[int, Callable[[Path, int], str]] = {
    errno.ENOSPC: _disk_line,
    errno.EDQUOT: _quota_line,
    errno.EFBIG: _file_size_line,
    errno.EMFILE: _open_files_line,
    errno.ENFILE: _all_open_files_line,
    errno.ENOMEM: lambda place, needed_bytes: _memory_line(),
}


def mebibytes(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"


def _existing(place: Path) -> Path:
    return next(each for each in (place, *place.parents) if each.exists())
