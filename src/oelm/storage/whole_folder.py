"""Folders that are whole or absent: made beside their place, under a name that begins with `.partial-`.

What such a folder replaces steps aside before the new one takes its name: killed between these two renames, there is
none under that name until the next call puts the old one back. `replacing` keeps what is somebody else's in a folder;
`partial_folder` and `publish_folder` make one that is all ours.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from oelm.machine.errors import UserError
from oelm.machine.system import lock, process_exists
from oelm.storage.files import TEMPORARY_PREFIX, fsync_folder, new_folder, remove, temporary_name

ASIDE = "aside-"


@contextlib.contextmanager
def replacing(out: Path, *, ours: re.Pattern[str], mark: str) -> Iterator[Path]:
    """A new folder to write into, which takes the place of `out` when the block ends well.

    Entries of `out` whose paths in it do not match `ours` are somebody's, and stay. They are expected only in a folder
    that has the file `mark`: any other one is not ours to replace.
    """
    target = out.resolve()  # a folder reached through a link stays where it is
    _refuse_what_cannot_be_replaced(out, target)
    for entry, process in _recovered(target):
        if not _is_at_work(entry, process):
            if target.exists() and _is_folder(entry):
                _move_foreign(entry, target, ours)  # somebody's, from a replacement that was killed
            remove(entry)
    _refuse_foreign(out, ours, mark)
    folder = new_folder(temporary_name(target))
    with _locked(folder):
        try:
            yield folder
            assert not _foreign(folder, ours)
            if target.exists():
                folder.chmod(stat.S_IMODE(target.stat().st_mode))
            if (old := _take_its_place(folder, target)) is not None:
                _move_foreign(old, target, ours)
                remove(old)
        finally:
            remove(folder)


def _refuse_what_cannot_be_replaced(out: Path, target: Path) -> None:
    if target.exists() and not target.is_dir():
        raise UserError(f"{out}: is a file; choose a folder with --out")
    if os.path.ismount(target):
        raise UserError(f"{out}: is a mount point, which cannot be replaced as a whole; choose a folder inside it")
    if Path.cwd().is_relative_to(target):
        raise UserError(
            f"{out}: contains the current folder and would be replaced as a whole; choose another with --out"
        )


def _refuse_foreign(out: Path, ours: re.Pattern[str], mark: str) -> None:
    if out.is_dir() and not (out / mark).exists():
        for name in _foreign(out, ours):
            raise UserError(
                f"{out}: contains files that are not part of a report ({name}); choose another folder with --out"
            )


# ---- What is somebody's ----------------------------------------------------------------------------------------------


def _foreign(folder: Path, ours: re.Pattern[str], inner: str = "") -> list[str]:
    """By its path in the folder: what no name of ours fits, in our own inner folders too."""
    found = []
    for entry in sorted(folder.iterdir()):
        name = inner + entry.name
        if not ours.fullmatch(name):
            found.append(name)
        elif _is_folder(entry):
            found += _foreign(entry, ours, f"{name}/")
    return found


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _move_foreign(old: Path, target: Path, ours: re.Pattern[str]) -> None:
    """What the new folder has not; whole folders move as they are."""
    for name in _foreign(old, ours):
        if not os.path.lexists(target / name):
            (target / name).parent.mkdir(exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # another process was quicker
                os.replace(old / name, target / name)


def _take_its_place(folder: Path, target: Path) -> Path | None:
    """The flushed folder has the name `target`; returns what was there, which has stepped aside, or None."""
    for inner in (*filter(Path.is_dir, folder.iterdir()), folder):
        fsync_folder(inner)
    aside, replaces = _aside(target), target.exists()
    if replaces:
        os.rename(target, aside)
    try:
        os.rename(folder, target)
    except OSError:
        if replaces:
            os.rename(aside, target)
        raise
    fsync_folder(target.parent)
    return aside if replaces else None


def _aside(target: Path) -> Path:
    return target.with_name(f"{TEMPORARY_PREFIX}{os.getpid()}-{ASIDE}{target.name}")


# ---- A folder of ours alone ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def partial_folder(out: Path) -> Iterator[Path]:
    """A locked folder beside `out` that is gone at the end, unless it was published or the process was killed."""
    for entry, process in _recovered(out):
        if _is_at_work(entry, process):
            raise UserError(f"{out}: is being prepared by process {process} ({entry.name}); wait for it or stop it")
        shutil.rmtree(entry, ignore_errors=True)
    folder = new_folder(temporary_name(out))
    with _locked(folder):
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def publish_folder(folder: Path, out: Path) -> None:
    """Give the whole folder its final name; what it replaces is deleted."""
    if (old := _take_its_place(folder, out)) is not None:
        shutil.rmtree(old, ignore_errors=True)


# ---- What killed processes left --------------------------------------------------------------------------------------


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """As long as somebody works in it; the kernel's lock goes with the process, wherever the folder is renamed to."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _recovered(target: Path) -> Iterator[tuple[Path, int]]:
    """Half-made and replaced folders, each with the process that made it, after what stepped aside was put back."""
    pattern = re.compile(rf"{re.escape(TEMPORARY_PREFIX)}(\d+)-({ASIDE})?{re.escape(target.name)}")
    for entry in sorted(target.parent.iterdir()) if target.parent.exists() else []:
        if (found := pattern.fullmatch(entry.name)) is None:
            continue
        if found[2] and _is_folder(entry) and not target.exists():
            os.rename(entry, target)
        else:
            yield entry, int(found[1])


def _is_at_work(folder: Path, process: int) -> bool:
    """A process id may have been reused, or belong to another container: the lock decides, if it can be asked."""
    if not _is_folder(folder):
        return False
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        lock(descriptor)
    except BlockingIOError:
        return True
    except OSError:
        return process != os.getpid() and process_exists(process)
    finally:
        os.close(descriptor)
    return False
