"""The verbs of `oelm remote` as functions: run, status, logs and stop, by oelm itself on the other side."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oelm.core.config import Settings
from oelm.core.probes.probe import is_probe
from oelm.execution.remote.connection import EndedCommand, ask, relay
from oelm.execution.remote.hosts import Server, check_text
from oelm.execution.remote.project import project_root, sent_digests
from oelm.execution.remote.sync import inside_project
from oelm.machine.errors import UserError
from oelm.machine.plurals import number_of
from oelm.storage.files import RUNS
from oelm.study.archives import refuse_archive
from oelm.study.declaration import Study, study_digest
from oelm.study.one_run import settings_for
from oelm.study.reading import load_study


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
    if ended.code == 0:
        _say_what_was_not_sent(server, say)
    return ended


def _say_what_was_not_sent(server: Server, say: Callable[[str], None]) -> None:
    """What runs there is what was sent, whatever has become of it here."""
    unsent = ask(server, "unsent", files=sent_digests(project_root()))
    if unsent["count"]:
        are = "has changed since it was sent" if unsent["count"] == 1 else "have changed since they were sent"
        say(
            f"note: {number_of(unsent['count'], 'tracked file')} {are} ({unsent['names']}); the runs there use what "
            f"was sent, `oelm remote {server.name} sync` sends the current files"
        )


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
