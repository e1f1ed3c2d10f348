"""Which files of a study's folder are its results: what numbers are taken from, what was declared, chosen, measured.

No weights and no logs: `oelm report` and `oelm status` say of an archive what they say of the folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory, run_directories
from oelm.run.sealing import everything
from oelm.storage.files import Damaged, ensure_writable
from oelm.study.archives import is_archive, write_archive
from oelm.study.bench import BENCH_FILE, stored_bench
from oelm.study.catalogue import ENDING
from oelm.study.decisions import CHOICES_FILE, read_decisions
from oelm.study.kept_check import CHECK_FILE, stored_check
from oelm.study.registration import REGISTRATION_FILE, entries_in
from oelm.study.shelf import Shelf

# Besides the runs: each file by its name, with what reads it, and returns or raises Damaged if its seal does not fit.
OF_STUDY: dict[str, Callable[[Path], Any]] = {
    REGISTRATION_FILE: entries_in,
    CHOICES_FILE: read_decisions,
    BENCH_FILE: stored_bench,
    CHECK_FILE: stored_check,
}


def stored_beside_runs(folder: Path) -> dict[str, str | None]:
    """Which of these files a folder holds, each with what is wrong with it."""
    found: dict[str, str | None] = {}
    for name, read in OF_STUDY.items():
        if os.path.lexists(folder / name):
            try:
                content = read(folder)
            except (OSError, UserError) as error:
                content = error
            found[name] = str(content) if isinstance(content, Exception) else None
    return found


def archive(
    study: str, folder: Path, to: Path, *, declaration: Path | None = None, force: bool = False
) -> dict[str, Any]:
    """Write the results in a folder of runs into one file, with the study's own, and return its list. Equal results
    give equal bytes."""
    if to.is_dir():
        raise UserError(f"--to {to}: is a folder; give a file, for example {to / study}.zip")
    if to.exists() and not is_archive(to):
        raise UserError(f"--to {to}: this file was not written by `oelm archive`; choose another name")
    if to.exists() and not force:
        raise UserError(f"--to {to}: is already there; choose another name, or add --force to replace it")
    shelf = Shelf(folder)
    if not shelf.runs and not shelf.unreadable:
        raise UserError(f"{folder}: no runs there")
    running = [stored.name for stored in shelf.runs if stored.state == "running"]
    if running:
        raise UserError(f"{folder}: {running[0]} is running; archive the study after it has finished or been stopped")
    if shelf.lost:
        raise UserError("\n".join(shelf.unreadable) + "\nan archive would leave it out; restore it, or run it again")
    ensure_writable(to.absolute().parent, option="--to")
    files = {file.relative_to(folder).as_posix(): file for file in result_files(folder)}
    declared = {f"{study}{ENDING}": declaration} if declaration is not None else {}
    return write_archive(to, files | declared, study=study)


def result_files(folder: Path) -> Iterator[Path]:
    """All of them: what is there and cannot be packed is an error, not a gap."""
    of_runs = (path for run in run_directories(folder) for path in everything(RunDirectory(run)))
    for path in (*(folder / name for name in OF_STUDY), *of_runs):
        if not os.path.lexists(path) or path.is_dir():
            continue
        if path.is_symlink():
            raise UserError(
                f"{path}: is a link, but an archive contains only the study's own files; replace it with a copy"
            )
        if not path.is_file() or not os.access(path, os.R_OK):
            raise Damaged(path, "cannot be read")
        yield path
