"""The verbs of `oelm remote` as functions: sync, and run, status, logs and stop by oelm itself on the other side.

What `sync` brings is what git tracks as it stands here, without archives of results and reports, and the token folders
asked for. What is there is a copy: a tracked file that was changed over there is replaced, and one that an earlier sync
brought and git no longer tracks goes away. Nothing else over there is touched.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oelm.core.config import Settings
from oelm.core.probes.probe import is_probe
from oelm.execution.remote.connection import NO_RSYNC, EndedCommand, ask, relay, send
from oelm.execution.remote.hosts import Server, check_text
from oelm.execution.remote.project import commit_of, project_root, sent_digests, tracked_files
from oelm.machine.errors import UserError
from oelm.machine.plurals import number_of
from oelm.storage.files import DATA_MEMORY, RUNS
from oelm.study.archives import refuse_archive
from oelm.study.catalogue import PACKAGED, study_file
from oelm.study.declaration import Study, study_digest
from oelm.study.one_run import settings_for
from oelm.study.reading import load_study
from oelm.study.registration import REGISTRATION_FILE


def inside_project(path: str | Path, root: Path, *, what: str) -> str:
    """A path here as it will be called there: relative to the project."""
    absolute = Path(os.path.abspath(path))  # not resolved: data/x may be a link to a large disk
    if not absolute.is_relative_to(root) or absolute == root:
        raise UserError(f"{what} {str(path)!r}: is not in the project {root}; only files in the project can be sent")
    return check_text(absolute.relative_to(root).as_posix(), what=what)


def data_folders(data: list[str]) -> list[str]:
    """Folders of token files to send, as they are called in the project."""
    root = project_root()
    names = [inside_project(folder, root, what="--data") for folder in data]
    for folder in data:
        if not Path(folder).is_dir():
            raise UserError(f"--data {folder}: no such folder here; create it with `oelm prepare`")
        if not any(Path(folder).glob("*.bin")):
            raise UserError(f"--data {folder}: contains no prepared data (.bin files); create it with `oelm prepare`")
    return names


def refuse_untracked(study: str) -> None:
    """What git does not track is not sent."""
    root, file = project_root(), study_file(study)
    if file.parent == PACKAGED and not PACKAGED.is_relative_to(root):
        return  # it comes with oelm, there as here
    if inside_project(file, root, what="study") not in tracked_files(root):
        raise UserError(f"{file}: not tracked by git, so not sent; `git add` it, then `sync`")


def sync(
    server: Server,
    folders: list[str],
    *,
    say: Callable[[str], None],
    runs: Path | None = None,
) -> None:
    """Bring code and data over, and what is registered in a folder of runs. Safe to repeat; a cut one goes on where it
    stopped.
    """
    root = project_root()
    files = list(sent_digests(root))
    registered = runs if runs is not None and (runs / REGISTRATION_FILE).is_file() else None
    made = [*folders, *([registered.as_posix()] if registered else [])]
    there = ask(server, "prepare", folders=made, files=files)
    if not there["rsync"]:
        raise UserError(f"{server.name}: {NO_RSYNC}")
    code = send(server, root, there["folder"], "-ltE", "--checksum", names=files)
    commit = commit_of(root)
    removed = ask(server, "synced", files=files, commit=commit["commit"], dirty=commit["dirty"])["removed"]
    gone = f", {removed} removed that are no longer tracked" if removed else ""
    say(f"code: {code} sent of {len(files)} tracked files{gone}")
    for study in there["controllers"] if code.files or removed else ():
        say(f"{study} is running there: runs that start from now on use the new code, and the report says so")
    for folder in folders:
        copied = send(server, root / folder, f"{there['folder']}/{folder}", "-rtL", f"--exclude=/{DATA_MEMORY}")
        say(f"{folder}: {copied} sent")
    if registered:  # one that is there already stays: nothing that was registered is replaced
        target = f"{there['folder']}/{registered.as_posix()}"
        copied = send(server, registered.absolute(), target, "-t", "--ignore-existing", names=[REGISTRATION_FILE])
        say(f"{registered / REGISTRATION_FILE}: " + ("sent" if copied.files else "not sent, because one exists there"))
    say(f"{server.name}:{there['folder']} is up to date")


@dataclass(frozen=True)
class StudyPlace:
    """A study as the other side finds it: all paths relative to the project."""

    study: str
    folder: Path  # of its runs
    data: str
    digest: str | None = None  # None: a script makes it over there
    device: str = "auto"


def place_of(study: str, runs: Path | None = None) -> StudyPlace:
    """Checks the study here, where an error costs nothing."""
    declared = load_study(study)
    folder = inside(runs) if runs else RUNS / declared.name
    named = Path(study).is_file()
    where = inside_project(study, project_root(), what="study") if named else check_text(study, what="study")
    device = _settings_of(declared).execution.device
    return StudyPlace(where, folder, data_of(declared), study_digest(declared), device)


def data_of(study: Study) -> str:
    return str(_settings_of(study).run.data)


def _settings_of(study: Study) -> Settings:
    return settings_for(study, study.baseline, seed=study.seeds[0])


def data_here(place: StudyPlace, *, say: Callable[[str], None]) -> list[str]:
    """The folder of a study's data, if it is on this side; it may have been prepared over there."""
    if is_probe(place.data):
        return []
    path = Path(place.data)
    folder = path.parent if path.is_file() else path
    if folder.is_dir():
        return [str(folder)]
    say(f"{folder}: missing here, so not sent")
    return []


def refuse_without_data(server: Server, place: StudyPlace, *, say: Callable[[str], None]) -> None:
    """After a sync that had no data of the study to send: it may have been prepared over there."""
    if is_probe(place.data):
        return
    if not ask(server, "holds", inner=place.data)["holds"]:
        raise UserError(
            f"{place.data}: neither here nor on {server.name}, and the study needs it there; create it with "
            f"`oelm prepare`, here and sync again, or there"
        )
    say(f"{place.data}: already on {server.name}, and used from there")


def inside(runs: Path) -> Path:
    """A folder of runs, called the same on both sides."""
    refuse_archive(runs)
    if runs.is_absolute() or ".." in runs.parts:
        raise UserError(f"--runs {runs}: must be a folder in the project, the same here and on the server")
    return Path(check_text(runs.as_posix(), what="--runs"))


def run(server: Server, place: StudyPlace, options: list[str], *, say: Callable[[str], None]) -> EndedCommand:
    """Start `oelm run STUDY` detached. Again, it finds the one at work and starts nothing."""
    given = server.gpus is not None and place.device != "cpu" and "--gpus" not in options
    gpus = ["--gpus", ",".join(map(str, server.gpus or ()))] if given else []
    command = ["-m", "oelm", "run", "--runs", place.folder.as_posix(), *gpus, *options, "--", place.study]
    ended = start(server, command, place, say=say)
    if ended.code == 0:  # what runs there is what was sent, whatever has become of it here
        unsent = ask(server, "unsent", files=sent_digests(project_root()))
        if unsent["count"]:
            are = "has changed since it was sent" if unsent["count"] == 1 else "have changed since they were sent"
            say(
                f"note: {number_of(unsent['count'], 'tracked file')} {are} ({unsent['names']}); the runs there use "
                f"what was sent, `oelm remote {server.name} sync` sends the current files"
            )
    return ended


def start(server: Server, command: list[str], place: StudyPlace, *, say: Callable[[str], None]) -> EndedCommand:
    """Start a controller over there, by the arguments for Python, and say how to look at it."""
    for word in command:
        if any(ord(character) < 32 for character in word):
            raise UserError(f"{word!r}: may not contain control characters")
    study = place.study if place.digest else None
    ended = _there(
        server, action="start", command=command, folder=place.folder.as_posix(), study=study, digest=place.digest
    )
    if ended.code == 0:
        apart = place.folder.parent != RUNS
        named = [place.study, *(["--runs", str(place.folder)] if apart else [])]
        followed = ["--follow", *(["--runs", str(place.folder.parent)] if apart else [])]
        for verb, more in (("status", named), ("logs", followed), ("pull", named)):
            say("next: " + shlex.join(["oelm", "remote", server.name, verb, *more]))
    return ended


def status(server: Server, study: str | None, runs: Path | None) -> EndedCommand:
    if study is None:
        return _there(server, action="status", study=None)
    place = place_of(study, runs)
    return _there(server, action="status", study=place.study, folder=place.folder.as_posix())


def logs(server: Server, name: str | None, runs: Path, *, lines: int, follow: bool) -> EndedCommand:
    run = check_text(name, what="run") if name is not None else None
    root = inside(runs).as_posix()
    arguments = ["--runs", root, "--lines", str(lines), *(["--follow"] if follow else [])]
    return _there(server, action="logs", run=run, runs=root, arguments=arguments)


def stop(server: Server, study: str, runs: Path | None) -> EndedCommand:
    return _there(server, action="stop", folder=place_of(study, runs).folder.as_posix())


def check_gpu(server: Server, study: str | None) -> EndedCommand:
    """`oelm check` over there, on the GPUs that the server's entry names, or else the free ones."""
    place = place_of(study) if study is not None else None
    gpus = ["--gpus", ",".join(map(str, server.gpus))] if server.gpus is not None else []
    named = ["--study", place.study, "--runs", place.folder.as_posix()] if place else []
    return relay(server, "oelm.__main__", "check", *gpus, *named)


def _there(server: Server, **request: Any) -> EndedCommand:
    return relay(server, "oelm.execution.remote.on_server", json.dumps(request))
