"""Folders that are whole or absent: made beside their place, under a name that begins with `.partial-`.

`partial_folder` and `publish_folder` make one that is all ours. `replacing` exchanges a folder, which may contain files
of others, with a new one in one step of the kernel (renameat2): whoever opens it finds the old one or the new one,
never some files of each. On a file system that cannot do this, the old one steps aside and the new one takes its name:
killed between these two renames, there is none under that name until the next call puts the old one back.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from oelm.errors import UserError
from oelm.files import TEMPORARY_PREFIX, fsync_folder, new_folder, remove, temporary_name
from oelm.system import lock, process_exists

ASIDE, REPLACED = "aside-", "replaced-"
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD, RENAME_EXCHANGE


@contextlib.contextmanager
def replacing(out: Path, *, ours: re.Pattern[str], mark: str) -> Iterator[Path]:
    """A new folder to write into, which takes the place of `out` when the block ends well.

    Entries of `out` whose paths in it do not match `ours` are somebody's, and stay. They are expected only in a folder
    that has the file `mark`: any other one is not ours to replace.
    """
    target = out.resolve()  # a folder reached through a link stays where it is
    _refuse_what_cannot_be_replaced(out, target)
    _recover(target, ours)
    _refuse_foreign(out, ours, mark)
    folder = new_folder(temporary_name(target))
    with _locked(folder):
        try:
            yield folder
            assert not _foreign(folder, ours)
            if target.exists():
                folder.chmod(stat.S_IMODE(target.stat().st_mode))
            _link_foreign_files(target, folder, ours)
            for inner in (*filter(Path.is_dir, folder.iterdir()), folder):
                fsync_folder(inner)
            _take_its_place(folder, target)
            fsync_folder(target.parent)
            _move_foreign(folder, target, ours, replace_files=True)
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


def _link_foreign_files(target: Path, folder: Path, ours: re.Pattern[str]) -> None:
    """Before the exchange, under both names, so that they are never missing."""
    for name in _foreign(target, ours) if target.exists() else []:
        if _is_folder(target / name):
            continue
        (folder / name).parent.mkdir(exist_ok=True)
        try:
            os.link(target / name, folder / name, follow_symlinks=False)
        except (OSError, NotImplementedError):  # a file system, or a system, without hard links
            shutil.copy2(target / name, folder / name, follow_symlinks=False)


def _move_foreign(old: Path, target: Path, ours: re.Pattern[str], *, replace_files: bool) -> None:
    """After it: whole folders, which have one name only, and files that came or changed meanwhile."""
    for name in _foreign(old, ours) if _is_folder(old) else []:
        is_there = os.path.lexists(target / name)
        if not is_there or (replace_files and not _is_folder(old / name)):
            (target / name).parent.mkdir(exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # another process was quicker
                os.replace(old / name, target / name)


# ---- The exchange ----------------------------------------------------------------------------------------------------


def _take_its_place(folder: Path, target: Path) -> None:
    """The folder has the name `target`; what was there has the folder's name, or nobody's where nothing was."""
    if not target.exists():
        os.rename(folder, target)
        return
    if _exchanged(folder, target):
        return
    aside = _aside(target)
    os.rename(target, aside)
    try:
        os.rename(folder, target)
    except OSError:
        os.rename(aside, target)
        raise
    os.rename(aside, folder)


def _exchanged(one: Path, other: Path) -> bool:
    """Whether the kernel and the file system could do it."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    if renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(other))


def _aside(target: Path) -> Path:
    return target.with_name(f"{TEMPORARY_PREFIX}{ASIDE}{target.name}")


# ---- A folder of ours alone ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def partial_folder(out: Path) -> Iterator[Path]:
    """A locked folder beside `out` that is gone at the end, unless it was published or the process was killed."""
    _remove_remains(out)
    folder = new_folder(temporary_name(out))
    with _locked(folder):
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def publish_folder(folder: Path, out: Path) -> None:
    """Give the whole folder its final name; what it replaces steps aside first and is deleted after.

    Killed between the two renames, there is neither the old nor the new folder: the next attempt makes it.
    """
    for inner in (*filter(Path.is_dir, folder.iterdir()), folder):
        fsync_folder(inner)
    aside = out.with_name(f"{TEMPORARY_PREFIX}{os.getpid()}-{REPLACED}{out.name}")
    replaces = out.exists() and any(out.iterdir())
    if replaces:
        os.rename(out, aside)
    try:
        os.rename(folder, out)
    except OSError:
        if replaces:
            os.rename(aside, out)
        raise
    fsync_folder(out.parent)
    if replaces:
        shutil.rmtree(aside, ignore_errors=True)


def _remove_remains(out: Path) -> None:
    """Delete what killed processes left of `out`; refuse if one is still at work."""
    pattern = re.compile(rf"{re.escape(TEMPORARY_PREFIX)}(\d+)-(?:{REPLACED})?{re.escape(out.name)}")
    for entry in sorted(out.parent.iterdir()):
        found = pattern.fullmatch(entry.name)
        if found is None or not entry.is_dir():
            continue
        if _is_at_work(entry, int(found[1])):
            raise UserError(f"{out}: is being prepared by process {found[1]} ({entry.name}); wait for it or stop it")
        shutil.rmtree(entry, ignore_errors=True)


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


def _recover(target: Path, ours: re.Pattern[str]) -> None:
    """Put back what stepped aside, and remove half-made folders; somebody's folders in them go back too."""
    aside = _aside(target)
    if aside.is_dir() and not target.exists():
        os.rename(aside, target)
    pattern = re.compile(rf"{re.escape(TEMPORARY_PREFIX)}(\d+)-{re.escape(target.name)}")
    for entry in target.parent.iterdir() if target.parent.exists() else []:
        found = pattern.fullmatch(entry.name)
        if not (found or entry == aside) or _is_at_work(entry, int(found[1]) if found else None):
            continue
        if target.exists():
            _move_foreign(entry, target, ours, replace_files=False)
        remove(entry)


def _is_at_work(folder: Path, process: int | None) -> bool:
    """A process id may have been reused, or belong to another container: the lock decides, if it can be asked."""
    if not _is_folder(folder):
        return False
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        lock(descriptor)
    except BlockingIOError:
        return True
    except OSError:
        return process not in (None, os.getpid()) and process_exists(process)
    finally:
        os.close(descriptor)
    return False
