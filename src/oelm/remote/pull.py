"""Results to this side while runs go on: each run directory here is one that a reader could have met over there.

A run writes its status last, so its status is copied first: one that says `finished` has everything else whole. The
rest follows into a folder apart, and is put in place run by run, the status last again. Runs of this machine's own
are never touched: they have a lock file, which is not copied.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from oelm.errors import UserError
from oelm.experiments.detached import LOG_FILE
from oelm.files import TEMPORARY_PREFIX, ensure_writable, write_json
from oelm.ownership import Owned, now, owning
from oelm.remote.connection import ask
from oelm.remote.copying import PARTIAL, Copied, receive
from oelm.remote.hosts import Server
from oelm.run_directory import Damaged, RunDirectory, check_whole
from oelm.study.shelf import BENCH_FILE, ELSEWHERE_FILE, TUNING_FOLDER

STAGING = ".pulling"
LOCK = "lock"
_RUN = RunDirectory(Path())
STATUS = _RUN.status_file.name
SMALL = [
    file.name
    for file in (
        _RUN.config_file, _RUN.settings_file, _RUN.environment_file, _RUN.parameters_file, _RUN.metrics_file,
        _RUN.timing_file, _RUN.result_file, _RUN.predictions_file, _RUN.log_file, _RUN.output_file,
    )
]  # fmt: skip
OF_STUDY = [BENCH_FILE, LOG_FILE]
LARGE = [_RUN.best.name, _RUN.checkpoints.name]
_NOT_OURS = [
    "--prune-empty-dirs", f"--exclude=/{STAGING}/", f"--exclude={PARTIAL}/", f"--exclude={TEMPORARY_PREFIX}*",
]  # fmt: skip
_EVERY_RUN = ["--include=/*/", f"--include=/{TUNING_FOLDER}/*/"]


def pull(server: Server, folder: Path, *, checkpoints: bool, say: Callable[[str], None]) -> Copied:
    """Bring the runs of a study's folder here, into the folder of the same name."""
    found = ask(server, "place", inner=folder.as_posix())
    there = found["path"]
    ensure_writable(folder, option="--runs")
    staging = folder / STAGING
    staging.mkdir(exist_ok=True)
    try:
        with owning(staging / LOCK):
            _note_elsewhere(folder, server, found["controller"])
            copied = _small_files(server, there, folder, staging / "small", say)
            if checkpoints:
                copied += _checkpoints(server, there, folder, staging / "large", say)
            shutil.rmtree(staging, ignore_errors=True)
    except Owned as error:
        raise UserError(f"{folder}: another pull is at work there ({error}); wait for it") from error
    return copied


def _note_elsewhere(folder: Path, server: Server, controller: int | None) -> None:
    """As long as it is being run there, it is not started here as well."""
    if controller is None:
        (folder / ELSEWHERE_FILE).unlink(missing_ok=True)
    else:
        write_json(folder / ELSEWHERE_FILE, {"server": server.name, "pid": controller, "seen": now()})


# ---- Small files ---------------------------------------------------------------------------------------------------


def _small_files(server: Server, there: str, folder: Path, staging: Path, say: Callable[[str], None]) -> Copied:
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    beside = f"--compare-dest={folder.absolute()}"
    copied = Copied()
    for names, more in (([STATUS], ["--checksum"]), ([*SMALL, *OF_STUDY], [])):
        copied += receive(
            server, there, staging, beside, *more, *_NOT_OURS, *_EVERY_RUN,
            *(f"--include={name}" for name in names), "--exclude=*",
        )  # fmt: skip
    for file in staging.iterdir():
        if file.is_file():
            os.replace(file, folder / file.name)
    runs = list(_runs_in(staging))
    for run in runs:
        target = folder / run.relative_to(staging)
        if RunDirectory(target).lock_file.exists():
            say(f"{target}: was run on this machine; kept as it is")
        else:
            _put_in_place(run, target)
    say(f"{folder}: {copied} new, in {len(runs)} runs")
    return copied


def _runs_in(staging: Path) -> Iterator[Path]:
    for path in sorted(staging.glob("*/")):
        if path.name == TUNING_FOLDER:
            yield from sorted(path.glob("*/"))
        elif path.name != PARTIAL:
            yield path


def _put_in_place(run: Path, target: Path) -> None:
    """A new run appears at once; a known one file by file, its status last."""
    shutil.rmtree(run / PARTIAL, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        os.rename(run, target)
        return
    for file in sorted(run.iterdir(), key=lambda file: file.name == STATUS):
        os.replace(file, target / file.name)


# ---- Checkpoints ---------------------------------------------------------------------------------------------------


def _checkpoints(server: Server, there: str, folder: Path, staging: Path, say: Callable[[str], None]) -> Copied:
    """Best models and whole checkpoints. One that was pruned there while it came is left out."""
    staging.mkdir(exist_ok=True)  # what a cut pull left is used; what is here already is linked, not sent
    copied = receive(
        server, there, staging, f"--link-dest={folder.absolute()}", *_NOT_OURS, *_EVERY_RUN,
        *(f"--include=/{place}{name}/***" for name in LARGE for place in ("*/", f"{TUNING_FOLDER}/*/")), "--exclude=*",
    )  # fmt: skip
    for run in _runs_in(staging):
        target = RunDirectory(folder / run.relative_to(staging))
        if target.lock_file.exists() or not target.config_file.exists():
            continue
        _replace_files(run / target.best.name, target.best)
        for step in sorted((run / target.checkpoints.name).glob("step-*")):
            _replace_checkpoint(step, target.checkpoints / step.name, say)
    say(f"{folder}: {copied} of checkpoints and best models")
    return copied


def _replace_files(source: Path, target: Path) -> None:
    for file in sorted(source.iterdir()) if source.is_dir() else []:
        if file.is_file():
            target.mkdir(parents=True, exist_ok=True)
            os.replace(file, target / file.name)


def _replace_checkpoint(source: Path, target: Path, say: Callable[[str], None]) -> None:
    if _same_files(source, target):
        return
    try:
        check_whole(source)
    except Damaged as error:
        say(f"{target}: left out, not whole ({error})")
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    os.rename(source, target)


def _same_files(one: Path, other: Path) -> bool:
    """Whether two folders hold the very same files, linked."""
    names = [file.name for file in one.iterdir()]
    return bool(names) and all((other / name).exists() and (one / name).samefile(other / name) for name in names)
