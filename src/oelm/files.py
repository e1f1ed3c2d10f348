"""Files that are either whole or absent: write to a temporary name, fsync, rename, fsync the folder.

A reader never sees a half-written file under its final name, whatever kills the writer.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from oelm.errors import UserError

TEMPORARY_PREFIX = ".partial-"
RUNS = Path("runs")  # the folder of all runs, unless a command is told another


def temporary_name(path: Path) -> Path:
    """A name beside `path` that no reader takes for a finished file."""
    return path.with_name(f"{TEMPORARY_PREFIX}{os.getpid()}-{path.name}")


def writer_is_alive(temporary: Path) -> bool:
    """Whether another live process of this machine has the number in a temporary name."""
    number = temporary.name.removeprefix(TEMPORARY_PREFIX).partition("-")[0]
    return number != str(os.getpid()) and Path(f"/proc/{number}").exists()


def fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish(temporary: Path, path: Path) -> None:
    """Give a completely written file its final name, durably."""
    with open(temporary, "rb") as stream:
        os.fsync(stream.fileno())
    os.replace(temporary, path)
    fsync_folder(path.parent)


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file for writing; it takes the name `path` only if the block ends well."""
    temporary = temporary_name(path)
    try:
        with open(temporary, "wb") as stream:
            yield stream
        publish(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_bytes(path: Path, content: bytes) -> None:
    with atomic_file(path) as stream:
        stream.write(content)


def write_json(path: Path, value: Any, *, indent: int | None = 2) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    write_bytes(path, (text + "\n").encode())


def write_json_unflushed(path: Path, value: Any) -> None:
    """Whole or absent to every reader, but a power failure may lose it: for what is then simply written again."""
    temporary = temporary_name(path)
    temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not readable as JSON ({error})") from error


def sha256_of(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def ensure_writable(folder: Path, *, option: str = "--out") -> None:
    """Make `folder` and prove it by writing: permission bits do not bind root, a read-only mount does."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:  # without a name: nothing is left whatever happens
            probe.write(b"probe")
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "make room" if full else f"choose another folder with {option}"
        raise UserError(f"{folder}: cannot write there ({error.strerror}); {advice}") from error


@contextlib.contextmanager
def explaining_a_full_disk(folder: Path, *, needed_bytes: int) -> Iterator[None]:
    """Turn 'no space left' into what is needed and what there is."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free_bytes = shutil.disk_usage(folder).free
        raise UserError(
            f"{folder}: disk full: needs {mebibytes(needed_bytes)}, has {mebibytes(free_bytes)}; "
            "make room and give the same command again"
        ) from error


def mebibytes(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"
