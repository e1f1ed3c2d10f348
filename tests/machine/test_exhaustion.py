"""The words for what ran out; that real limits lead to them is shown in faults/test_limits.py."""

import errno
import os
from pathlib import Path

import pytest

from oelm.machine.exhaustion import disk_full, in_the_systems_words, size, what_ran_out, what_the_gpu_reported


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.EDQUOT, "Disk quota exceeded", "/tmp/file"), "/tmp/file: your quota on this disk is used up; "),
        (OSError(errno.ENFILE, "Too many open files in system"), "open files: the machine has"),
        (OSError(errno.EFBIG, "File too large", "/tmp/file"), "/tmp/file: a file is too large for this file"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "memory: the "),
        (MemoryError(), "memory: the "),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), "memory: the GPU has run out; reduce"),
        (
            RuntimeError("NCCL error: unhandled cuda error\nCuda failure 2 'out of memory'"),
            "memory: the GPU has run out",
        ),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
            "memory: the GPU has run out",
        ),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), "memory: the "),
        (RuntimeError("can't start new thread"), "threads: no more can be started"),
        (RuntimeError("unable to open file <x> in read-only mode: Too many open files (24)"), "open files: this"),
    ],
)
def test_each_resource_has_its_words(error, expected):
    line = what_ran_out(error)
    assert line.startswith(expected)
    assert "\n" not in line


@pytest.mark.parametrize(
    "error",
    [
        ValueError("out of memory"),
        OSError(errno.EACCES, "Permission denied"),
        RuntimeError("shape mismatch"),
        KeyError(1),
    ],
)
def test_other_errors_are_left_as_they_are(error):
    assert what_ran_out(error) is None


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be", "an illegal memory"),
        ("NCCL error in: x.cpp:1, unhandled cuda error\nncclUnhandledCudaError\nCuda failure 'ECC'", "unhandled cuda"),
        ("Triton Error [CUDA]: an illegal memory access was encountered", "an illegal memory"),
        ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`", "CUBLAS_STATUS_EXECUTION_FAILED"),
    ],
)
def test_a_fault_of_a_gpu_is_named_and_nothing_has_run_out(message, named):
    error = RuntimeError(message)
    line = what_the_gpu_reported(error)
    assert line.startswith("GPU: it reported a fault (")
    assert named in line
    assert "\n" not in line
    assert what_ran_out(error) is None


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("NCCL error: remote process exited or there was a network error"),
        ValueError("CUDA error: unknown"),
    ],
)
def test_what_is_no_fault_of_a_gpu_is_not_called_one(error):
    assert what_the_gpu_reported(error) is None


def test_a_folder_that_is_not_there_yet_is_judged_by_its_disk(tmp_path):
    error = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "a" / "b"))
    assert what_ran_out(error, needed_bytes=2**60).startswith(f"{tmp_path / 'a' / 'b'}: disk full: needs ")


@pytest.mark.parametrize(
    ("needed_bytes", "free_bytes", "said"),
    [
        (20 * 2**20, 3 * 2**20, "needs 20.0 MiB, has 3.0 MiB"),
        (20 * 2**20, 20 * 2**20 - 1, "needs more than the 20.0 MiB that are free"),
        (0, 0, "needs more than the 0.0 MiB that are free"),
    ],
)
def test_a_full_disk_never_has_what_is_needed(needed_bytes, free_bytes, said):
    line = disk_full(Path("x"), needed_bytes=needed_bytes, free_bytes=free_bytes)
    assert line == f"x: disk full: {said}; make room and run the same command again"


def test_a_librarys_words_for_an_error_of_the_system():
    found = in_the_systems_words(Exception("Error while serializing: I/O error: (os error 27)"), Path("x"))
    assert isinstance(found, OSError)
    assert (found.errno, found.strerror) == (errno.EFBIG, os.strerror(errno.EFBIG))
    other = Exception("no header")
    assert in_the_systems_words(other, Path("x")) is other


def test_sizes_are_read_at_a_glance():
    assert [size(count) for count in (12, 6000, 3 * 2**20, 2**34)] == ["12 bytes", "5.9 KiB", "3.0 MiB", "16.0 GiB"]
