"""The results of a study as one file: a compressed zip that any program opens, with a sealed list of what is in it.

The last member, archive.json, lists the others with size and SHA-256, under a seal. A reader goes by that list alone:
how much there is and where it leads is checked before anything is written, and every byte against its digest.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import hashlib
import io
import os
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from oelm.machine.errors import UserError
from oelm.machine.exhaustion import mebibytes
from oelm.machine.visible import json_text, show_as
from oelm.run.directory import check_name
from oelm.storage.files import MOST_BYTES, Damaged, atomic_file, explaining_a_full_disk, remove_remainders, sealed
from oelm.storage.schemas import ArchiveList, read_sealed_record

LIST = "archive.json"
FORMAT_VERSION = 1
ENDING = ".zip"  # runs.zip stands for a folder runs that is not there
MOST_FILES = 50_000
MOST_FOLDERS = 2  # above a file: tuning/RUN
MOST_CHARACTERS = 500  # of a name
MOST_ARCHIVE_BYTES = 2**32 - 1  # what is in it, and the file itself
BLOCK_BYTES = 4096  # that the smallest file or folder takes on a disk
PIECE_BYTES = 2**20
END_MARK, END_BYTES = b"PK\5\6", 22  # of a zip without a comment

# What zipfile raises of one that is broken.
BROKEN_ZIP = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, KeyError, ValueError, RuntimeError)


# ---- Writing -------------------------------------------------------------------------------------------------------


def write_archive(path: Path, files: dict[str, Path], *, study: str) -> dict[str, Any]:
    """Files by their names in the archive. Returns the list that was written, with its seal."""
    if len(files) >= MOST_FILES:
        raise UserError(f"{path}: {len(files)} files, but an archive takes at most {MOST_FILES}")
    for name in files:
        _check_name(name)
    size = sum(file.stat().st_size for file in files.values())
    if size > MOST_ARCHIVE_BYTES - MOST_BYTES:
        raise UserError(
            f"{path}: {mebibytes(size)} of results, but an archive takes at most {mebibytes(MOST_ARCHIVE_BYTES)}"
        )
    listed = {}
    remove_remainders(path)
    with (
        explaining_a_full_disk(path.parent, needed_bytes=size),
        atomic_file(path) as stream,
        zipfile.ZipFile(stream, "w") as archive,
    ):
        for name in sorted(files):
            with open(files[name], "rb") as source:
                listed[name] = _append(archive, name, source)
        listing = sealed({"format_version": FORMAT_VERSION, "study": study, "files": listed})
        _append(archive, LIST, io.BytesIO((json_text(listing) + "\n").encode()))
    return listing


def _append(archive: zipfile.ZipFile, name: str, source: BinaryIO) -> dict[str, Any]:
    """Its entry in the list. No date and no owner: equal content has equal bytes."""
    info = zipfile.ZipInfo(name)
    info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, (stat.S_IFREG | 0o644) << 16
    digest, size = hashlib.sha256(), 0
    with archive.open(info, "w") as member:
        while piece := source.read(PIECE_BYTES):
            digest.update(piece)
            size += len(piece)
            member.write(piece)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _check_name(name: str) -> None:
    """A file of a study or of one of its runs: no way out of the folder, nothing that a shell could misread."""
    parts = name.split("/")
    if len(parts) > MOST_FOLDERS + 1 or len(name) > MOST_CHARACTERS or name == LIST:
        raise UserError(f"name {name[:80]!r}: not a file of a study or of a run")
    for part in parts:
        check_name(part)


# ---- Reading -------------------------------------------------------------------------------------------------------


def unpack(archive: Path, folder: Path) -> dict[str, Any]:
    """Everything an archive holds into an empty folder, checked; returns its list. Damaged if anything is not as its
    list says; then what lies in the folder is worth nothing.
    """
    with _opened(archive) as opened:
        with explaining_a_full_disk(folder):
            listing = _listing(archive, opened, folder)
        # A disk gives whole blocks to each file, and at least one to each folder.
        folders = {parent for name in listing["files"] for parent in PurePosixPath(name).parents}
        blocks = sum(-(-entry["bytes"] // BLOCK_BYTES) for entry in listing["files"].values())
        needed = BLOCK_BYTES * (len(folders) + blocks)
        if shutil.disk_usage(folder).free < needed:
            raise UserError(
                f"{archive}: needs {mebibytes(needed)} in {folder.parent}; choose another folder with TMPDIR"
            )
        with explaining_a_full_disk(folder, needed_bytes=needed):
            for name, entry in listing["files"].items():
                digest = hashlib.sha256()
                with _new_file(archive, name, folder / name) as target, opened.open(name) as member:
                    while piece := member.read(PIECE_BYTES):  # no more than the size that its entry claims
                        digest.update(piece)
                        target.write(piece)
                if digest.hexdigest() != entry["sha256"]:
                    raise Damaged(archive, f"{name[:80]!r} is not what {LIST} says")
    return listing


@contextlib.contextmanager
def _opened(archive: Path) -> Iterator[zipfile.ZipFile]:
    """Neither a pipe nor a device: they would hold a reader up. Whatever zipfile says of a broken one is one line."""
    descriptor = os.open(archive, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Damaged(archive, "not a regular file")
        if status.st_size > MOST_ARCHIVE_BYTES:
            raise Damaged(archive, f"larger than {mebibytes(MOST_ARCHIVE_BYTES)}")
        try:
            with zipfile.ZipFile(stream) as opened:
                yield opened
        except (*BROKEN_ZIP, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.EINVAL:  # a place before the file's beginning
                raise
            raise Damaged(archive, f"cut short, or not an archive written by `oelm archive` ({error})") from error


def _listing(archive: Path, opened: zipfile.ZipFile, folder: Path) -> dict[str, Any]:
    """The sealed list, if the archive has just the files that it names, and all of them may be written."""
    members = opened.infolist()
    if not 1 <= len(members) <= MOST_FILES:
        raise Damaged(archive, f"{len(members)} files, at most {MOST_FILES} are read")
    if members[-1].filename != LIST or members[-1].file_size > MOST_BYTES:
        raise Damaged(archive, f"{LIST} is not its last file")
    if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
        raise Damaged(archive, "compressed in a way that `oelm archive` does not use")
    with opened.open(members[-1]) as stream:
        (folder / LIST).write_bytes(stream.read(MOST_BYTES))
    try:
        listing = read_sealed_record(folder / LIST, ArchiveList, newest=FORMAT_VERSION)
        for name in listing["files"]:
            _check_name(name)
    except Damaged as damage:
        raise Damaged(archive, f"{LIST}: {damage.reason}") from damage
    except UserError as error:  # of a newer version, or a name
        raise Damaged(archive, str(error).replace(f"{folder / LIST}: ", "")) from error
    if sorted(member.filename for member in members[:-1]) != sorted(listing["files"]):
        raise Damaged(archive, f"its files are not those that {LIST} names")
    if any(member.file_size != listing["files"][member.filename]["bytes"] for member in members[:-1]):
        raise Damaged(archive, f"its files are not as large as {LIST} says")
    return listing


def _new_file(archive: Path, name: str, path: Path) -> BinaryIO:
    """A file in the place of a folder, two names that a disk takes for one, or one too long for it: not unpacked."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "xb")
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG):
            raise
        raise Damaged(archive, f"{name[:80]!r} cannot be a file here ({error.strerror})") from error


# ---- In the place of a folder --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Archived:
    """A path that lies in an archive."""

    archive: Path
    inner: PurePosixPath  # `.`: all of it


def place_in_archive(path: Path) -> Archived | None:
    """Where a path leads that is an archive, or lies in one; `runs` and whatever is below it in `runs.zip` where there
    is no folder of that name. None for every other path.
    """
    for outer in (path, *path.parents):
        if outer.is_dir():
            return None
        file = outer if outer.is_file() else outer.with_name(f"{outer.name}{ENDING}")
        if os.path.isfile(file):  # False also for a name that is too long with its ending
            inner = PurePosixPath(path.relative_to(outer).as_posix())
            return Archived(file, inner) if file.suffix == ENDING or is_archive(file) else None
    return None


def is_archive(path: Path) -> bool:
    """By its last bytes: the name of the list, and the end of a zip."""
    wanted = LIST.encode() + END_MARK
    if not path.is_file() or path.stat().st_size < len(LIST) + END_BYTES:
        return False
    with open(path, "rb") as stream:
        stream.seek(-len(LIST) - END_BYTES, os.SEEK_END)
        return stream.read(len(wanted)) == wanted


def runs_folder(path: Path) -> Path:
    """A folder of runs, or a run, to read from: the path itself, or what it leads to in an archive."""
    place = place_in_archive(path)
    if place is not None:
        status = place.archive.stat()
        found = _unpacked_as(place.archive, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
        if isinstance(found, UserError):
            raise found.with_traceback(None)
        return found / place.inner
    if path.is_file():
        raise UserError(f"{path}: is neither a folder of runs nor an archive written by `oelm archive`")
    _refuse_mistyped(path)
    return path


def refuse_archive(path: Path) -> None:
    """For whatever writes into a folder of runs."""
    place = place_in_archive(path)
    if place is not None:
        raise UserError(
            f"{place.archive}: is an archive, which is read-only; unpack it with "
            f"`python3 -m zipfile -e {place.archive} FOLDER` and give that folder"
        )
    _refuse_mistyped(path)


def _refuse_mistyped(path: Path) -> None:
    """Whoever names an archive means one: a folder of that name would be a new and empty one."""
    named = next((each for each in (path, *path.parents) if each.suffix == ENDING and not os.path.lexists(each)), None)
    if named is not None:
        raise UserError(f"{named}: no such archive")


@functools.cache
def _unpacked_as(archive: Path, signature: tuple[int, ...]) -> Path | UserError:
    """A folder that is gone when this process ends, or what is wrong with the archive, which is not unpacked again to
    find that out. Whatever is said of the folder is said of the archive.
    """
    folder = Path(tempfile.mkdtemp(prefix="oelm-archive-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        unpack(archive, folder)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, Damaged):
            return error
        raise
    show_as(folder, archive)
    return folder
