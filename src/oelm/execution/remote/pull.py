"""Results to this side while runs go on: each run directory here is one that a reader could have met over there.

A run writes its seal last, and its status after it, so these are copied first, in the other order: a status that says
`finished` has its seal, a seal has the files that it binds. The rest follows into a folder apart, and is put in place
run by run, seal and status last again. Runs of this machine's own (they have a lock or a handle, neither of which is
copied) and of another server are never touched.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from oelm.execution.detached import LOG_FILE
from oelm.execution.handles import StudyEngines
from oelm.execution.remote.connection import PARTIAL, Copied, ask, receive
from oelm.execution.remote.hosts import Server
from oelm.machine.errors import UserError
from oelm.machine.plurals import number_of
from oelm.run.directory import MANIFEST, TUNING_FOLDER, RunDirectory
from oelm.storage.files import TEMPORARY_PREFIX, ensure_writable, new_folder, refuse_link, sha256_of, write_json
from oelm.storage.ownership import Owned, now, owner_of, owning
from oelm.storage.schemas import Pulled, read_record
from oelm.study.bench import BENCH_FILE
from oelm.study.decisions import CHOICES_FILE
from oelm.study.kept_check import CHECK_FILE
from oelm.study.registration import REGISTRATION_FILE
from oelm.study.shelf import PULLED_FILE, read_stored

STAGING = ".pulling"
LOCK = "lock"
_RUN = RunDirectory(Path())
STATUS, SEAL = _RUN.status_file.name, _RUN.seal_file.name
SMALL = [
    file.name
    for file in (
        _RUN.config_file, _RUN.settings_file, _RUN.environment_file, _RUN.parameters_file, _RUN.metrics_file,
        _RUN.timing_file, _RUN.result_file, _RUN.predictions_file, _RUN.log_file, _RUN.output_file,
    )
]  # fmt: skip
OF_STUDY = [REGISTRATION_FILE, CHOICES_FILE, BENCH_FILE, CHECK_FILE, LOG_FILE]
LARGE = [_RUN.best.name, _RUN.checkpoints.name]
_NOT_OURS = [
    "--prune-empty-dirs", f"--exclude=/{STAGING}/", f"--exclude={PARTIAL}/", f"--exclude={TEMPORARY_PREFIX}*",
]  # fmt: skip
_EVERY_RUN = ["--include=/*/", f"--include=/{TUNING_FOLDER}/*/"]


def pull(server: Server, folder: Path, *, checkpoints: bool, say: Callable[[str], None]) -> None:
    """Bring the runs of a study's folder here, into the folder of the same name."""
    there = ask(server, "place", inner=folder.as_posix())
    origin = f"{server.destination.rpartition('@')[2]}:{there['path']}"
    ensure_writable(folder, option="--runs")
    staging = folder / STAGING
    refuse_link(staging)
    staging.mkdir(exist_ok=True)
    try:
        with owning(staging / LOCK):
            notes = _Notes(folder, origin)
            notes.set_at_work(server, there)
            _small_files(server, there["path"], folder, staging / "small", notes, say)
            engines = StudyEngines(folder)
            begun = [name for name in there["finished"] if notes.is_own(name)]
            names = [name for name in begun if _rests_unfinished(RunDirectory(folder / name), engines)]
            if names:
                say(
                    f"{folder}: finished on {server.name}, but not fetched, because this machine has unfinished runs "
                    f"with the same names: {', '.join(names)}; to fetch them, move these folders away and pull again"
                )
            if checkpoints:
                _checkpoints(server, there["path"], folder, notes, say)
            shutil.rmtree(staging, ignore_errors=True)
    except Owned as error:
        raise UserError(f"{folder}: another pull is running there ({error}); wait for it") from error
    if there["controller"] is not None:
        say(f"{folder}: still running on {server.name}")
    elif there["runs"]:
        say(f"{folder}: no controller on {server.name}, but runs continue there: {', '.join(there['runs'])}")


class _Notes:
    """What the file beside the runs says: whose they are, and where the study is being run."""

    def __init__(self, folder: Path, origin: str) -> None:
        self._folder, self._origin = folder, origin
        file = folder / PULLED_FILE
        tree = read_record(file, Pulled) if file.exists() else {}
        self._runs: dict[str, str] = tree.get("runs", {})
        self._files: dict[str, Any] = tree.get("files", {})
        self._at_work: dict[str, Any] = tree.get("at_work", {})

    def set_at_work(self, server: Server, there: dict[str, Any]) -> None:
        """As long as it is being run there, by a controller or by runs that outlived theirs, it is not started here."""
        self._at_work.pop(self._origin, None)
        if there["controller"] is not None or there["runs"]:
            seen = {"server": server.name, "pid": there["controller"], "runs": there["runs"], "seen": now()}
            self._at_work[self._origin] = seen
        self._write()

    def take(self, runs: list[str], files: list[Path]) -> None:
        self._runs |= dict.fromkeys(runs, self._origin)
        self._files |= {file.name: self._note_of(file) for file in files}
        self._write()

    def kept(self) -> list[str]:
        """Runs here that are not this server's."""
        names = [run.relative_to(self._folder).as_posix() for run in _runs_in(self._folder)]
        return [name for name in names if self.is_own(name) or self._runs.get(name, self._origin) != self._origin]

    def is_own(self, run: str) -> bool:
        """Whether it was ever run here, or given to a queue here: also one that was brought before and went on here."""
        directory = RunDirectory(self._folder / run)
        return directory.lock_file.exists() or directory.handle_file.exists()

    def kept_files(self) -> list[str]:
        """The study's own files here that are not, or no longer, what this server had."""
        files = [self._folder / name for name in OF_STUDY if (self._folder / name).exists()]
        return [file.name for file in files if self._files.get(file.name) != self._note_of(file)]

    def _note_of(self, file: Path) -> dict[str, str]:
        return {"origin": self._origin, "sha256": sha256_of(file)}

    def _write(self) -> None:
        file = self._folder / PULLED_FILE
        tree = {"at_work": self._at_work, "runs": self._runs, "files": self._files}
        if not file.exists() or read_record(file, Pulled) != tree:
            write_json(file, tree)


def _rests_unfinished(directory: RunDirectory, engines: StudyEngines) -> bool:
    """Whether a run here was begun, is not finished, and nobody works on it."""
    try:
        if owner_of(directory.lock_file) is not None or engines.found(directory) is not None:
            return False
    except UserError:  # an engine that does not answer may have it
        return False
    try:
        return read_stored(directory.path).state not in ("finished", "diverged")
    except (OSError, UserError):
        return True


def _without(runs: list[str], files: list[str] | None = None) -> list[str]:
    return [*(f"--exclude=/{_literal(run)}/" for run in runs), *(f"--exclude=/{file}" for file in files or ())]


def _literal(name: str) -> str:
    """For rsync, to which * ? [ are patterns, and a backslash is one only beside these."""
    return re.sub(r"([*?\[\\])", r"\\\1", name) if re.search(r"[*?\[]", name) else name


# ---- Small files ---------------------------------------------------------------------------------------------------


def _small_files(
    server: Server, there: str, folder: Path, staging: Path, notes: _Notes, say: Callable[[str], None]
) -> None:
    new_folder(staging)
    beside, kept, kept_files = f"--compare-dest={folder.absolute()}", notes.kept(), notes.kept_files()
    copied = Copied()
    for names, more in (([STATUS], ["--checksum"]), ([SEAL], ["--checksum"]), ([*SMALL, *OF_STUDY], [])):
        copied += receive(
            server, there, staging, beside, *more, *_without(kept, kept_files), *_NOT_OURS, *_EVERY_RUN,
            *(f"--include={name}" for name in names), "--exclude=*",
        )  # fmt: skip
    runs, files = list(_runs_in(staging)), [file for file in staging.iterdir() if file.is_file()]
    notes.take([run.relative_to(staging).as_posix() for run in runs], files)
    changed = sum(any(file.is_file() for file in run.iterdir()) for run in runs)
    for file in files:
        os.replace(file, folder / file.name)
    for run in runs:  # a new one appears at once; a known one file by file, its seal and its status last
        shutil.rmtree(run / PARTIAL, ignore_errors=True)
        target = folder / run.relative_to(staging)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            os.rename(run, target)
            continue
        for file in sorted(run.iterdir(), key=lambda file: (file.name == STATUS, file.name == SEAL)):
            os.replace(file, target / file.name)
    say(f"{folder}: {copied} new, {number_of(changed, 'run')} changed" if copied.files else f"{folder}: nothing new")
    if kept or kept_files:
        named = ", ".join([*kept, *kept_files])
        say(f"{folder}: left unchanged, because they belong to this machine or another server: {named}")


def _runs_in(staging: Path) -> Iterator[Path]:
    for path in sorted(staging.glob("*/")):
        if path.name == TUNING_FOLDER:
            yield from sorted(path.glob("*/"))
        elif path.name not in (PARTIAL, STAGING):
            yield path


# ---- Checkpoints ---------------------------------------------------------------------------------------------------


def _checkpoints(server: Server, there: str, folder: Path, notes: _Notes, say: Callable[[str], None]) -> None:
    """Best models and checkpoints, each file whole under its name. A checkpoint that was pruned there while it came
    lacks its manifest: nobody takes it for one, and it goes."""
    kept = notes.kept()
    runs = [name for run in _runs_in(folder) if (name := run.relative_to(folder).as_posix()) not in kept]
    for place in (folder / run / name for run in runs for name in (".", *LARGE)):
        refuse_link(place)
    copied = receive(
        server, there, folder, *_without(kept), *_NOT_OURS, f"--include=/{TUNING_FOLDER}/",
        *(f"--include=/{_literal(run)}/{more}" for run in runs for more in ("", *(f"{name}/***" for name in LARGE))),
        "--exclude=*",
    )  # fmt: skip
    for run in runs:
        for checkpoint in RunDirectory(folder / run).stored_checkpoints():
            if not (checkpoint / MANIFEST).exists():
                shutil.rmtree(checkpoint)
                say(f"{checkpoint}: left out, incomplete")
    say(f"{folder}: {copied} of checkpoints and best models")
