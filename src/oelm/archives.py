"""The results of a study as one file: a plain zip that any program opens, and that oelm reads if it is exactly what
`write_archive` writes.

Nothing in it is compressed: nothing can unfold into more than it is, equal content has equal bytes everywhere, and git
stores a small change as one. The last member, archive.json, lists the others with size and SHA-256, under a seal.
A reader that takes one form only has nothing to be misled by: no links, no flags, no second directory of names.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import hashlib
import os
import shutil
import stat
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from oelm.errors import UserError
from oelm.exhaustion import mebibytes
from oelm.files import MOST_BYTES, Damaged, atomic_file, explaining_a_full_disk, sealed
from oelm.run_directory import check_name
from oelm.schemas import ArchiveList, read_sealed_record
from oelm.visible import json_text, show_as

LIST = "archive.json"
FORMAT_VERSION = 1
ENDING = ".zip"  # runs.zip stands for a folder runs that is not there
MOST_FILES = 50_000
MOST_FOLDERS = 2  # above a file: tuning/RUN
MOST_CHARACTERS = 500  # of a name
MOST_ARCHIVE_BYTES = 2**32 - 1  # what a zip without extensions can hold
BLOCK_BYTES = 4096  # that the smallest file or folder takes on a disk
PIECE_BYTES = 2**20

_LOCAL, _CENTRAL, _END = struct.Struct("<4s5H3L2H"), struct.Struct("<4s6H3L5H2L"), struct.Struct("<4s4H2LH")
_LOCAL_MARK, _CENTRAL_MARK, _END_MARK = b"PK\3\4", b"PK\1\2", b"PK\5\6"
_VERSION, _UNIX, _UTF8, _STORED, _TIME, _DATE = 20, 3 << 8, 0x800, 0, 0, 0x21  # of 1980-01-01
_REGULAR_FILE = (stat.S_IFREG | 0o644) << 16


@dataclass(frozen=True)
class _Member:
    name: str
    size: int  # in bytes
    checksum: int
    offset: int

    @property
    def _shared(self) -> tuple[int, ...]:
        return _UTF8, _STORED, _TIME, _DATE, self.checksum, self.size, self.size, len(self.name.encode()), 0

    def local(self) -> bytes:
        return _LOCAL.pack(_LOCAL_MARK, _VERSION, *self._shared) + self.name.encode()

    def central(self) -> bytes:
        head = _CENTRAL.pack(
            _CENTRAL_MARK, _VERSION | _UNIX, _VERSION, *self._shared, 0, 0, 0, _REGULAR_FILE, self.offset
        )
        return head + self.name.encode()


def _directory_of(members: list[_Member], offset: int) -> bytes:
    """What follows the last member."""
    central = b"".join(member.central() for member in members)
    return central + _END.pack(_END_MARK, 0, 0, len(members), len(members), len(central), offset, 0)


# ---- Writing -------------------------------------------------------------------------------------------------------


def write_archive(path: Path, files: dict[str, Path], *, study: str) -> dict[str, Any]:
    """Files by their names in the archive. Returns the list that was written, with its seal."""
    if len(files) >= MOST_FILES:
        raise UserError(f"{path}: {len(files)} files, but an archive takes at most {MOST_FILES}")
    for name in files:
        _check_name(name)
    listed = {name: _entry(file) for name, file in sorted(files.items())}
    listing = sealed({"format_version": FORMAT_VERSION, "study": study, "files": listed})
    content = (json_text(listing) + "\n").encode()
    size = sum(entry["bytes"] for entry in listed.values()) + len(content)
    if size + (len(files) + 1) * 2**10 > MOST_ARCHIVE_BYTES:
        raise UserError(
            f"{path}: {mebibytes(size)} of results, but an archive takes at most {mebibytes(MOST_ARCHIVE_BYTES)}"
        )
    with explaining_a_full_disk(path.parent, needed_bytes=size), atomic_file(path) as stream:
        members = [_append_file(stream, name, files[name], entry) for name, entry in listed.items()]
        members.append(_append(stream, LIST, [content]))
        stream.write(_directory_of(members, stream.tell()))
    return listing


def _entry(file: Path) -> dict[str, Any]:
    with open(file, "rb") as stream:
        return {"bytes": os.fstat(stream.fileno()).st_size, "sha256": hashlib.file_digest(stream, "sha256").hexdigest()}


def _append_file(stream: BinaryIO, name: str, file: Path, entry: dict[str, Any]) -> _Member:
    digest = hashlib.sha256()
    with open(file, "rb") as source:
        member = _append(stream, name, iter(lambda: source.read(PIECE_BYTES), b""), digest.update)
    if {"bytes": member.size, "sha256": digest.hexdigest()} != entry:
        raise UserError(f"{file}: changed while it was being archived; run the same command again")
    return member


def _append(stream: BinaryIO, name: str, pieces: Any, also: Callable[[bytes], Any] = len) -> _Member:
    """The header, which holds the checksum, is written when the content is known."""
    offset, checksum, size = stream.tell(), 0, 0
    stream.write(_Member(name, 0, 0, offset).local())
    for piece in pieces:
        also(piece)
        checksum, size = zlib.crc32(piece, checksum), size + len(piece)
        stream.write(piece)
    member = _Member(name, size, checksum, offset)
    stream.seek(offset)
    stream.write(member.local())
    stream.seek(0, os.SEEK_END)
    return member


def _check_name(name: str) -> None:
    """A file of a study or of one of its runs: no way out of the folder, nothing that a shell could misread."""
    parts = name.split("/")
    if len(parts) > MOST_FOLDERS + 1 or len(name) > MOST_CHARACTERS or name == LIST:
        raise UserError(f"name {name[:80]!r}: not a file of a study or of a run")
    for part in parts:
        check_name(part)


# ---- Reading -------------------------------------------------------------------------------------------------------


def unpack(archive: Path, folder: Path) -> dict[str, Any]:
    """Everything an archive holds into an empty folder, checked; returns its list. Damaged if anything is not as
    `write_archive` writes it; then what lies in the folder is worth nothing.
    """
    with _opened(archive) as stream:
        size = os.fstat(stream.fileno()).st_size
        count = _claimed_members(archive, stream, size)
        needed = size + count * BLOCK_BYTES * (1 + MOST_FOLDERS)
        if shutil.disk_usage(folder).free < needed:
            raise UserError(
                f"{archive}: needs {mebibytes(needed)} in {folder.parent}; choose another folder with TMPDIR"
            )
        with explaining_a_full_disk(folder, needed_bytes=needed):
            found = _unpacked_members(_Reader(archive, stream, size), folder, count)
    try:
        listing = read_sealed_record(folder / LIST, ArchiveList, newest=FORMAT_VERSION)
    except Damaged as damage:
        raise Damaged(archive, f"{LIST}: {damage.reason}") from damage
    except UserError as error:  # of a newer version
        raise UserError(str(error).replace(str(folder / LIST), str(archive))) from error
    if found != {name: (entry["bytes"], entry["sha256"]) for name, entry in listing["files"].items()}:
        raise Damaged(archive, f"its files are not those that {LIST} names")
    return listing


@contextlib.contextmanager
def _opened(archive: Path) -> Iterator[BinaryIO]:
    """Neither a pipe nor a device: they would hold a reader up."""
    descriptor = os.open(archive, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Damaged(archive, "not a regular file")
        yield stream


def _claimed_members(archive: Path, stream: BinaryIO, size: int) -> int:
    """How many there are, as the last bytes say: before anything is written."""
    if size > MOST_ARCHIVE_BYTES:
        raise Damaged(archive, f"larger than {mebibytes(MOST_ARCHIVE_BYTES)}")
    stream.seek(max(0, size - _END.size))
    tail = stream.read(_END.size)
    stream.seek(0)
    if len(tail) < _END.size or not tail.startswith(_END_MARK):
        raise Damaged(archive, "cut short, or not an archive written by `oelm archive`")
    count: int = _END.unpack(tail)[3]
    if not 1 <= count <= MOST_FILES:
        raise Damaged(archive, f"{count} files, at most {MOST_FILES} are read")
    return count


@dataclass(frozen=True)
class _Reader:
    """Reads ahead only what is there."""

    archive: Path
    stream: BinaryIO
    size: int

    def read(self, size: int) -> bytes:
        content = self.stream.read(size)
        if len(content) != size:
            raise Damaged(self.archive, "cut short")
        return content

    def member(self) -> _Member:
        """The next one, whose header has to be the one that we would have written."""
        offset = self.stream.tell()
        head = self.read(_LOCAL.size)
        *_, checksum, size, _, name_bytes, _ = _LOCAL.unpack(head)
        name = self.read(name_bytes)
        try:
            member = _Member(name.decode(), size, checksum, offset)
        except UnicodeDecodeError as error:
            raise Damaged(self.archive, f"a name that is not UTF-8 at byte {offset}") from error
        if member.local() != head + name:
            raise self.foreign(offset)
        if size > self.size - self.stream.tell():
            raise Damaged(self.archive, f"{member.name[:80]!r} is cut short")
        return member

    def foreign(self, offset: int) -> Damaged:
        return Damaged(self.archive, f"not as `oelm archive` writes it, from byte {offset} on")


def _unpacked_members(reader: _Reader, folder: Path, count: int) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of every file but the list, written below `folder`, one after another in the order of names."""
    members: list[_Member] = []
    found: dict[str, tuple[int, str]] = {}
    for number in range(1, count + 1):
        member = reader.member()
        _check_member(reader.archive, member, members, is_last=number == count)
        found[member.name] = member.size, _unpacked_file(reader, member, folder / member.name)
        members.append(member)
    del found[LIST]
    expected = _directory_of(members, offset := reader.stream.tell())
    if reader.stream.read(len(expected) + 1) != expected:
        raise reader.foreign(offset)
    return found


def _check_member(archive: Path, member: _Member, before: list[_Member], *, is_last: bool) -> None:
    if is_last or member.name == LIST:
        if member.name != LIST or not is_last or member.size > MOST_BYTES:
            raise Damaged(archive, f"{LIST} is not its last file")
        return
    try:
        _check_name(member.name)
    except UserError as error:
        raise Damaged(archive, str(error)) from error
    if before and member.name <= before[-1].name:
        raise Damaged(archive, f"{member.name[:80]!r} occurs twice, or is out of order")


def _unpacked_file(reader: _Reader, member: _Member, path: Path) -> str:
    digest, checksum, left = hashlib.sha256(), 0, member.size
    with _new_file(reader.archive, member, path) as stream:
        while left:
            piece = reader.read(min(left, PIECE_BYTES))
            digest.update(piece)
            checksum = zlib.crc32(piece, checksum)
            stream.write(piece)
            left -= len(piece)
    if checksum != member.checksum:
        raise Damaged(reader.archive, f"{member.name[:80]!r} does not match its checksum")
    return digest.hexdigest()


def _new_file(archive: Path, member: _Member, path: Path) -> BinaryIO:
    """A file in the place of a folder, two names that a disk takes for one, or one too long for it: not unpacked."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "xb")
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG):
            raise
        raise Damaged(archive, f"{member.name[:80]!r} cannot be a file here ({error.strerror})") from error


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
    wanted = LIST.encode() + _END_MARK
    if not path.is_file() or path.stat().st_size < _END.size + len(LIST):
        return False
    with open(path, "rb") as stream:
        stream.seek(-_END.size - len(LIST), os.SEEK_END)
        return stream.read(len(wanted)) == wanted


def runs_folder(path: Path) -> Path:
    """A folder of runs, or a run, to read from: the path itself, or what it leads to in an archive."""
    place = place_in_archive(path)
    if place is not None:
        return _unpacked(place.archive) / place.inner
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


def _unpacked(archive: Path) -> Path:
    stat = archive.stat()
    found = _unpacked_as(archive, (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns))
    if isinstance(found, UserError):
        raise found.with_traceback(None)
    return found


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
