"""What there is to show: studies, archives of them, and single runs, each under the name that an address may use.

A name of an address is looked up among those that were found here; nothing else of it reaches the file system. What is
a link out of the folder is named and not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from oelm.machine.errors import UserError
from oelm.machine.visible import visible
from oelm.run.directory import TUNING_FOLDER, RunDirectory
from oelm.study.archives import ENDING, is_archive, place_in_archive, runs_folder

SINGLE = ""  # the name under which the single runs are kept, which no folder has
_ANY = RunDirectory(Path())
_OF_RUNS = {path.name for path in (_ANY.config_file, _ANY.status_file, _ANY.seal_file, _ANY.result_file)}
_WATCHED = _OF_RUNS | {
    path.name for path in (_ANY.metrics_file, _ANY.environment_file, _ANY.parameters_file, _ANY.predictions_file)
}

# Of the files of a run: name, inode, size, when its content changed and when anything of it did, which no `touch` sets.
Signature = tuple[tuple[str, int, int, int, int], ...]


@dataclass(frozen=True)
class RunPlace:
    id: str  # as addresses have it: STUDY/RUN, STUDY/tuning/RUN, or RUN
    path: Path
    stage: str  # final, tuning or single
    within: str  # the folder that no link in it may leave
    signature: Signature = ()
    is_unpacked: bool = False  # from an archive, which does not say when its files changed

    @property
    def directory(self) -> RunDirectory:
        return RunDirectory(self.path)

    @property
    def changed(self) -> float:
        """When a file of it last changed, in seconds since the epoch."""
        return 0.0 if self.is_unpacked else max((entry[3] for entry in self.signature), default=0) / 1e9


@dataclass(frozen=True)
class StudyPlace:
    """A folder of runs, or an archive of one."""

    name: str
    path: Path
    source: str  # of its declaration: a name, a file, or an archive that has it

    @property
    def is_archive(self) -> bool:
        """Which never changes."""
        return place_in_archive(self.path) is not None

    def folder(self) -> Path:
        """The folder itself; of an archive, one with what it contains."""
        return runs_folder(self.path)


@dataclass
class Found:
    """The content of a folder, and what of it was left out, a line each."""

    studies: dict[str, StudyPlace] = field(default_factory=dict)
    runs: dict[str, RunPlace] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def found_in(root: Path) -> Found:
    """Studies and single runs directly in a folder; nothing where there is no folder."""
    found = Found()
    real = os.path.realpath(root)
    for entry in _entries(root, found.left_out):
        path = root / entry.name
        if _leaves(entry, real):
            found.left_out.append(_is_left_out(path))
        elif os.path.isdir(entry):
            run = _run_at(path, real, visible(entry.name), "single", found.left_out)
            if run is not None:
                found.runs[run.id] = run
            elif not _is_run(path) and _holds_runs(path):
                name = visible(entry.name)
                found.studies[name] = StudyPlace(name, path, entry.name)
        elif entry.name.endswith(ENDING):
            try:
                is_one = is_archive(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                found.left_out.append(f"{path}: cannot be read ({error.strerror})")
                continue
            if is_one:
                name = visible(entry.name.removesuffix(ENDING))
                found.studies.setdefault(name, StudyPlace(name, path, str(path)))
    return found


def runs_of(study: StudyPlace) -> Found:
    """The runs in a study's folder, then those of its grid."""
    found = Found()
    try:
        folder = study.folder()
    except (UserError, OSError) as error:
        found.left_out.append(str(error))
        return found
    real = os.path.realpath(folder)
    for stage, place, prefix in (("final", folder, ""), ("tuning", folder / TUNING_FOLDER, f"{TUNING_FOLDER}/")):
        if stage == "tuning" and not _stays(place, real):
            found.left_out.append(_is_left_out(place))
            continue
        for entry in _entries(place, found.left_out):
            if _leaves(entry, real):
                found.left_out.append(_is_left_out(place / entry.name))
            elif os.path.isdir(entry):
                id = f"{study.name}/{prefix}{visible(entry.name)}"
                run = _run_at(place / entry.name, real, id, stage, found.left_out)
                if run is not None:
                    found.runs[run.id] = replace(run, is_unpacked=True) if folder != study.path else run
    return found


def refuse_links_out(folder: Path, names: Iterable[str]) -> None:
    """UserError where one of these files of a folder is a link that leaves it."""
    real = os.path.realpath(folder)
    for path in (folder / name for name in names):
        if path.is_symlink() and not _stays(path, real):
            raise UserError(_is_left_out(path))


def looked_at_again(run: RunPlace) -> RunPlace | None:
    """The same run with what its files are now; None where it is gone."""
    found = _run_at(run.path, run.within, run.id, run.stage, [])
    return found and replace(found, is_unpacked=run.is_unpacked)


def _entries(folder: Path, left_out: list[str]) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    except OSError as error:
        left_out.append(_is_unlisted(folder, error))
        return
    yield from (entry for entry in listed if not entry.name.startswith("."))


def _leaves(entry: os.DirEntry[str], real: str) -> bool:
    return entry.is_symlink() and not _stays(entry.path, real)


def _stays(path: str | Path, real: str) -> bool:
    return os.path.realpath(path).startswith(f"{real}{os.sep}")


def _is_unlisted(folder: Path, error: OSError) -> str:
    return f"{folder}: cannot be listed ({error.strerror})"


def _is_left_out(path: Path) -> str:
    return f"{path}: is a link out of the folder, and is not read"


def _run_at(path: Path, real: str, id: str, stage: str, left_out: list[str]) -> RunPlace | None:
    """The run in a folder, if it is one; one with a link out of the folder in it is named and left out."""
    try:
        with os.scandir(path) as entries:
            listed = list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        left_out.append(_is_unlisted(path, error))
        return None
    if _OF_RUNS.isdisjoint(entry.name for entry in listed):
        return None
    signature = []
    for entry in listed:
        if _leaves(entry, real):
            left_out.append(f"{path / entry.name}: is a link out of the folder, so the run {path.name} is not shown")
            return None
        if entry.name in _WATCHED:
            try:
                found = entry.stat()
            except OSError:
                continue
            signature.append((entry.name, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
    return RunPlace(id, path, stage, real, tuple(sorted(signature)))


def _holds_runs(folder: Path) -> bool:
    places = (folder, folder / TUNING_FOLDER)
    return any(_is_run(place / entry.name) for place in places for entry in _entries(place, []))


def _is_run(folder: Path) -> bool:
    """Whether or not it can be shown."""
    try:
        return not _OF_RUNS.isdisjoint(os.listdir(folder))
    except OSError:
        return False
