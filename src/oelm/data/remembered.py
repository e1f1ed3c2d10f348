"""Which prepared files were read whole before and have not changed since: size, times and inode beside the SHA-256.

A start of a run goes by it; `oelm verify` reads everything. A memory that is missing, damaged, of other files or cannot
be written costs one more reading, and nothing else.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

from oelm.machine.errors import UserError
from oelm.storage.files import DATA_MEMORY, read_sealed, write_sealed

FORMAT_VERSION = 1
SETTLED_NANOSECONDS = 2 * 10**9  # a file may change again within one tick of the clock that its times are taken from

Seen = dict[str, dict[str, Any]]  # by file name: how it looks from outside, and its SHA-256


def seen_now(folder: Path, digests: dict[str, str]) -> Seen:
    """The files of a manifest as they are, with the digests that they should have."""
    return {name: _outside(folder / name) | {"sha256": digest} for name, digest in digests.items()}


def _outside(path: Path) -> dict[str, int]:
    """The time of change besides that of modification: a program may set back the second, not the first."""
    found = path.stat()
    return {
        "bytes": found.st_size,
        "modified_ns": found.st_mtime_ns,
        "changed_ns": found.st_ctime_ns,
        "inode": found.st_ino,
    }


def remembered(folder: Path, seen: Seen) -> set[str]:
    """Names of the files that were read whole as they are now."""
    try:
        tree = read_sealed(folder / DATA_MEMORY)
    except (OSError, UserError):
        return set()
    files = tree.get("files")
    if tree.get("format_version") != FORMAT_VERSION or not isinstance(files, dict):
        return set()
    return {name for name, entry in seen.items() if files.get(name) == entry}


def remember(folder: Path, seen: Seen) -> None:
    """After all of them were read. `seen` is of before the reading: what changed meanwhile is read again."""
    youngest = time.time_ns() - SETTLED_NANOSECONDS
    settled = {name: entry for name, entry in seen.items() if max(entry["modified_ns"], entry["changed_ns"]) < youngest}
    with contextlib.suppress(OSError, UserError):
        write_sealed(folder / DATA_MEMORY, {"format_version": FORMAT_VERSION, "files": settled})
