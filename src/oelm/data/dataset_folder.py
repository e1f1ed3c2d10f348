"""The folder of a dataset, whole or absent.

Everything is written into a folder `.partial-<pid>-<name>` beside the target, which takes its final name when it is
whole. Whatever kills a preparation leaves no dataset, never half of one; the next preparation removes the remains.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oelm.data import sentences
from oelm.data.tokens import SPLITS, TOKENIZER_FOLDER, file_name, open_tokens
from oelm.errors import UserError
from oelm.files import DATA_MEMORY, TEMPORARY_PREFIX, fsync_folder, new_folder, temporary_name
from oelm.prepared import MANIFEST, read_manifest
from oelm.system import lock, process_exists

REPLACED = "replaced-"
OPENERS = {"text": open_tokens, sentences.KIND: sentences.open_sentences}
OUR_FILES = {
    MANIFEST,
    DATA_MEMORY,
    TOKENIZER_FOLDER,
    *(file_name(split) for split in SPLITS),
    *(sentences.column_file(split, column) for split in SPLITS for column in sentences.COLUMNS),
}


def existing_dataset(out: Path, settings: dict[str, Any], *, force: bool, kind: str = "text") -> dict[str, Any] | None:
    """The manifest of what lies in `out` if that is what is asked for; None if `out` is free to be written."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: is a file; --out takes a folder")
    if os.path.ismount(out):
        raise UserError(f"{out}: is a mount point, which cannot be replaced as a whole; choose a folder inside it")
    contents = {entry.name for entry in out.iterdir()} if out.exists() else set()
    if not contents:
        return None
    if MANIFEST not in contents or (force and contents - OUR_FILES):
        example = min(contents - OUR_FILES, default=MANIFEST)
        raise UserError(
            f"{out}: contains files that are not prepared data ({example}); choose another folder with --out"
        )
    if force:
        return None
    manifest = read_manifest(out)
    there_kind, there = manifest.get("kind", "text"), manifest.get("settings", {})
    if there_kind != kind:
        raise UserError(f"{out}: contains prepared {there_kind}, not {kind}; choose another --out or add --force")
    different = [
        f"{key} is {_said(there.get(key))}, not {_said(value)}"
        for key, value in settings.items()
        if there.get(key) != value
    ]
    if there.get("source") != settings.get("source"):
        different.append("a file counts as different when its name, size or modification time differs")
    if different:
        raise UserError(
            f"{out}: contains another dataset ({'; '.join(different)}); choose another --out or add --force"
        )
    OPENERS[kind](out)  # finds a file that was cut short since
    return manifest


def _said(value: Any) -> Any:
    return "the default" if value is None else value


@contextlib.contextmanager
def partial_folder(out: Path) -> Iterator[Path]:
    """A locked folder beside `out` that is gone at the end, unless it was published or the process was killed."""
    remove_remains(out)
    folder = new_folder(temporary_name(out))
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: the process id alone has to do
            lock(descriptor)
        yield folder
    finally:
        os.close(descriptor)
        shutil.rmtree(folder, ignore_errors=True)


def remove_remains(out: Path) -> None:
    """Delete what killed preparations of `out` left; refuse if one is still at work."""
    pattern = re.compile(rf"{re.escape(TEMPORARY_PREFIX)}(\d+)-(?:{REPLACED})?{re.escape(out.name)}")
    for entry in sorted(out.parent.iterdir()):
        found = pattern.fullmatch(entry.name)
        if found is None or not entry.is_dir():
            continue
        if is_at_work(entry, int(found[1])):
            raise UserError(f"{out}: is being prepared by process {found[1]} ({entry.name}); wait for it or stop it")
        shutil.rmtree(entry, ignore_errors=True)


def is_at_work(folder: Path, process: int) -> bool:
    """A process id may have been reused, or belong to another container: the lock decides, if it can be asked."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        lock(descriptor)
    except BlockingIOError:
        return True
    except OSError:
        return process != os.getpid() and process_exists(process)
    finally:
        os.close(descriptor)
    return False


def publish(folder: Path, out: Path) -> None:
    """Give the whole folder its final name; what --force replaces steps aside first and is deleted after.

    Killed between the two renames, there is neither the old nor the new dataset: the next preparation makes it.
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
