"""What a path on the command line cannot be, whatever the verb: mistyped, in an archive, a folder of other folders."""

from __future__ import annotations

import shlex
from pathlib import Path

from oelm.machine.errors import UserError


def refuse_if_in_archive(path: Path, verb: str) -> None:
    """For the verbs that want what an archive leaves out."""
    from oelm.study.archives import place_in_archive

    place = place_in_archive(path)
    if place is not None:
        raise UserError(f"{place.archive}: is an archive, without the weights and logs that `oelm {verb}` needs")


def refuse_if_no_folder(path: Path) -> None:
    """For --runs where nothing is created: a mistyped folder must not pass for an empty one."""
    if not path.is_dir():
        raise UserError(f"--runs {path}: no such folder")


def refuse_if_runs_are_below(folder: Path, study: str) -> None:
    """For --runs with a study where nothing is created: the folder of all studies is not that of one."""
    from oelm.run.directory import run_directories

    below = folder / study
    if run_directories(below) and not run_directories(folder):
        raise UserError(f"--runs {folder}: its runs are in {below}; use --runs {shlex.quote(str(below))}")


def refuse_if_no_data(path: Path) -> None:
    """For --data where it is optional: a mistyped folder must not pass for one that is gone."""
    if not path.is_dir():
        raise UserError(f"--data {path}: no such folder")
    if not any((path / name).is_file() for name in ("manifest.json", "train.bin")):
        raise UserError(f"--data {path}: contains no prepared data; `oelm prepare` creates it")
