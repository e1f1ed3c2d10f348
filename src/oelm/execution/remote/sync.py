"""Code and data to the other side: what git tracks as it stands here, without archives of results and reports, and the
token folders asked for.

What is there is a copy: a tracked file that was changed over there is replaced, and one that an earlier sync brought
and git no longer tracks goes away. Nothing else over there is touched.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from oelm.execution.remote.connection import NO_RSYNC, ask
from oelm.execution.remote.copying import send
from oelm.execution.remote.hosts import Server, check_text
from oelm.execution.remote.project import commit_of, project_root, sent_digests, tracked_files
from oelm.machine.errors import UserError
from oelm.storage.files import DATA_MEMORY
from oelm.study.catalogue import PACKAGED, study_file
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
    if registered:
        _send_registration(server, registered, there["folder"], say)
    say(f"{server.name}:{there['folder']} is up to date")


def _send_registration(server: Server, runs: Path, project: str, say: Callable[[str], None]) -> None:
    """One that is there already stays: nothing that was registered is replaced."""
    names = [REGISTRATION_FILE]
    copied = send(
        server, runs.absolute(), f"{project}/{runs.as_posix()}", "-t", "--ignore-existing", names=names
    )  # fmt: skip
    say(f"{runs / REGISTRATION_FILE}: " + ("sent" if copied.files else "not sent, because one exists there"))
