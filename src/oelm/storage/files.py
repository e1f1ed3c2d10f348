"""Files that are either whole or absent: write to a temporary name, fsync, rename, fsync the folder.

A reader never sees a half-written file under its final name, whatever kills the writer. What is read is checked, and
has one way to be wrong: `Damaged`, which names the file. What is written is our own: nothing is written or deleted
through a link.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from oelm.machine.errors import UserError
from oelm.machine.exhaustion import mebibytes, what_ran_out
from oelm.machine.system import process_exists
from oelm.machine.visible import json_text

TEMPORARY_PREFIX = ".partial-"
RUNS = Path("runs")  # the folder of all runs, unless a command is told another
REPORT_RESULTS = "analysis_results.json"  # what makes a folder a report's
DATA_FLOORS = "floor.json"  # of prepared data: what tables of the training tokens reach; never part of its digest
DATA_MEMORY = "checked.json"  # of prepared data: which files were read whole, as this machine knows them
MOST_BYTES = 2**28  # of a JSON file: predictions of millions of examples have room
MOST_LEVELS = 40  # of nesting; ours have a few
MOST_DIGITS = 25  # of a whole number
# Without waiting for whoever writes into a pipe; of these flags Windows has only the last, and Linux all others.
FOR_READING = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
DEAD_LINK = "a link to nothing"
SEAL = "seal"  # the key of a sealed file that holds the digest of the rest


class Damaged(UserError):
    """A stored file that is not what was stored: FILE: damaged: reason."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: damaged: {reason}")
        self.path, self.reason = path, reason


class Unreadable(Damaged):
    """A file that may well be what was stored, but cannot be read now: nothing takes its place unasked."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(path, f"cannot be read ({error.strerror or error})")


def temporary_name(path: Path) -> Path:
    """A name beside `path` that no reader takes for a finished file."""
    return path.with_name(f"{TEMPORARY_PREFIX}{os.getpid()}-{path.name}")


def writer_is_alive(temporary: Path) -> bool:
    """Whether another live process of this machine has the number in a temporary name."""
    number = temporary.name.removeprefix(TEMPORARY_PREFIX).partition("-")[0]
    return number != str(os.getpid()) and number.isdecimal() and process_exists(int(number))


def remove_remainders(path: Path) -> None:
    """What writers of `path` left beside it when they were killed."""
    for entry in path.parent.iterdir() if path.parent.is_dir() else ():
        if re.fullmatch(rf"{re.escape(TEMPORARY_PREFIX)}\d+-{re.escape(path.name)}", entry.name) and not (
            writer_is_alive(entry)
        ):
            remove(entry)


def fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(folder: Path) -> None:
    """A folder and those above it, durably, also where somebody else made the last one without flushing."""
    missing = {each for each in folder.parents if not each.exists()}
    folder.mkdir(parents=True, exist_ok=True)
    for made in (folder, *missing):
        with contextlib.suppress(PermissionError):  # one may write into a folder that one may not read
            fsync_folder(made.parent)


def publish(temporary: Path, path: Path, *, lasting: bool = True) -> None:
    """Give a completely written file its final name, durably; or so that a power failure may bring back what had the
    name before, as whole as this.
    """
    with open(temporary, "rb") as stream:
        os.fsync(stream.fileno())
    os.replace(temporary, path)
    if lasting:
        fsync_folder(path.parent)


@contextlib.contextmanager
def atomic_file(path: Path, *, lasting: bool = True) -> Iterator[BinaryIO]:
    """Open a temporary file for writing; it takes the name `path` only if the block ends well."""
    temporary = temporary_name(path)
    try:
        with _new_file(temporary) as stream:
            yield stream
        publish(temporary, path, lasting=lasting)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_bytes(path: Path, content: bytes, *, lasting: bool = True) -> None:
    with atomic_file(path, lasting=lasting) as stream:
        stream.write(content)


def write_json(path: Path, value: Any, *, indent: int | None = 2, lasting: bool = True) -> None:
    write_bytes(path, (json_text(value, indent=indent) + "\n").encode(), lasting=lasting)


def write_json_unflushed(path: Path, value: Any) -> None:
    """Whole or absent to every reader, but a power failure may lose it: for what is then simply written again, or
    flushed by the caller, as a checkpoint is when it is sealed.
    """
    temporary = temporary_name(path)
    with _new_file(temporary) as stream:
        stream.write((json_text(value) + "\n").encode())
    os.replace(temporary, path)


# ---- Our own files, not what a link points to ------------------------------------------------------------------------


def _new_file(path: Path) -> BinaryIO:
    """One that was not there: what has a temporary name already is a remainder, and goes."""
    remove(path)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), "wb")


def new_folder(path: Path) -> Path:
    """The same for a folder."""
    remove(path)
    path.mkdir()
    return path


def remove(path: Path) -> None:
    """Whatever has this name; of a link the link itself, never what it points to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def refuse_link(path: Path) -> None:
    """For a folder of ours that is about to be written into or cleared."""
    if path.is_symlink():
        raise _linked(path, os.readlink(path))


def open_own(path: Path, flags: int) -> int:
    """A descriptor of a regular file that has this one name, made where there is none. A log or a lock is written in
    place: through a link, or under a second name, it would be somebody else's file that changes.
    """
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP and path.is_symlink():
            raise _linked(path, os.readlink(path)) from error
        if error.errno in (errno.ENXIO, errno.EISDIR):  # a pipe that nobody reads, a folder
            raise _not_a_file(path) from error
        raise
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_nlink <= 1:
        os.set_blocking(descriptor, True)
        return descriptor
    os.close(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise _not_a_file(path)
    raise UserError(
        f"{path}: has a second name (a hard link), so writing would change another file too; replace it with a copy "
        "(cp it, then mv the copy over it) and run the same command again"
    )


def append_to(path: Path) -> BinaryIO:
    """A log of ours, opened at its end."""
    stream = os.fdopen(open_own(path, os.O_WRONLY | os.O_APPEND), "ab")
    stream.seek(0, os.SEEK_END)
    return stream


def _not_a_file(path: Path) -> UserError:
    return UserError(f"{path}: is not a regular file; move it away and run the same command again")


def _linked(path: Path, target: str) -> UserError:
    return UserError(
        f"{path}: is a symbolic link (to {target}); oelm never writes or deletes through links: remove the link, or "
        "replace it with what it points to, and run the same command again"
    )


# ---- Reading ---------------------------------------------------------------------------------------------------------


def read_json(path: Path) -> Any:
    """What a file holds as JSON, or Damaged; a missing file is a FileNotFoundError."""
    content = _read_regular(path)
    if not content.strip():
        raise Damaged(path, "empty")
    try:
        value = json.loads(content, parse_int=_whole, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:  # a wrong encoding is a ValueError too
        reason = "nested too deeply" if isinstance(error, RecursionError) else f"not JSON: {error}"
        raise Damaged(path, reason) from error
    if _levels(value) > MOST_LEVELS:
        raise Damaged(path, "nested too deeply")
    return value


def read_object(path: Path) -> dict[str, Any]:
    """As read_json, where only keys and values make sense."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise Damaged(path, f"contains {_called(value)}, not keys and values")
    return value


def _read_regular(path: Path) -> bytes:
    """A pipe, a device or a folder in a file's place must not hold a reader up."""
    with naming_the_file(path):
        descriptor = os.open(path, FOR_READING)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            raise Damaged(path, "not a regular file")
        with os.fdopen(descriptor, "rb") as stream:
            if found.st_size > MOST_BYTES:
                raise Damaged(path, f"larger than {mebibytes(MOST_BYTES)}")
            return stream.read()


@contextlib.contextmanager
def naming_the_file(path: Path) -> Iterator[None]:
    """What keeps a file from being read becomes Damaged; only one that is not there at all stays FileNotFoundError."""
    try:
        yield
    except FileNotFoundError as error:
        if path.is_symlink():
            raise Damaged(path, DEAD_LINK) from error
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Damaged(path, "a link to itself") from error
        raise Unreadable(path, error) from error


def missing(path: Path) -> Damaged:
    """For a file that has to be there."""
    return Damaged(path, DEAD_LINK if path.is_symlink() else "missing")


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:20]} is not a finite number")
    return value


def _levels(value: Any) -> int:
    levels, inner = 0, [value]
    while inner and levels <= MOST_LEVELS:
        nested = [each for each in inner if isinstance(each, dict | list)]
        inner = [part for each in nested for part in (each.values() if isinstance(each, dict) else each)]
        levels += 1
    return levels


def _called(value: Any) -> str:
    return {list: "a list", str: "text", bool: "true or false", type(None): "null"}.get(type(value), "a number")


def named_in(manifest: Path, name: Any) -> Path:
    """The file that an entry of a manifest names: one beside it. Anything else is refused before it is opened."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}", name):
        raise Damaged(manifest, f"names {str(name)[:80]!r}, which is not a file in its folder")
    path = manifest.parent / name
    if path.is_symlink() and os.path.dirname(os.path.realpath(path)) != os.path.realpath(manifest.parent):
        raise Damaged(path, "is a link to outside its folder")
    return path


# ---- Files with a seal of their own ----------------------------------------------------------------------------------


def digest_of(value: Any) -> str:
    """SHA-256 of a JSON value, whatever the order of its keys and the layout of its file."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def sealed(value: dict[str, Any]) -> dict[str, Any]:
    """With the digest of everything else in it, which shows accidents and edits, not forgery."""
    return value | {SEAL: digest_of(value)}


def write_sealed(path: Path, value: dict[str, Any]) -> None:
    write_json(path, sealed(value))


def read_sealed(path: Path) -> dict[str, Any]:
    """The content without its seal, or Damaged where it has none or another's."""
    tree = read_object(path)
    seal = tree.pop(SEAL, None)
    if seal is None:
        raise Damaged(path, "has no seal")
    if seal != digest_of(tree):
        raise Damaged(path, "changed since it was sealed")
    if not _is_text(tree):
        raise Damaged(path, "contains half a character")
    return tree


def _is_text(value: Any) -> bool:
    """Whether it can be written again: JSON may hold halves of characters, a file of ours never does."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def sha256_of(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def combined_digest(file_digests: dict[str, str]) -> str:
    """One digest over the files' digests, whatever their order."""
    lines = "".join(f"{name} {digest}\n" for name, digest in sorted(file_digests.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def ensure_writable(folder: Path, *, option: str = "--out") -> None:
    """Make `folder` and prove it by writing: permission bits do not bind root, a read-only mount does."""
    try:
        make_folders(folder)
        with tempfile.TemporaryFile(dir=folder) as probe:  # without a name: nothing is left whatever happens
            probe.write(b"probe")
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        refused = f"{folder}: cannot write there ({error.strerror}); choose another folder with {option}"
        raise UserError(what_ran_out(error, folder=folder) or refused) from error


@contextlib.contextmanager
def explaining_a_full_disk(folder: Path, *, needed_bytes: int = 0) -> Iterator[None]:
    """Turn 'no space left' into what is needed, where that is known, and what there is; and name what else may run out
    meanwhile."""
    try:
        yield
    except Exception as error:
        line = what_ran_out(error, folder=folder, needed_bytes=needed_bytes)
        if line is None:
            raise
        raise UserError(line) from error
