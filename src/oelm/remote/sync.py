"""Code and data to the other side: what git tracks as it stands here, and the token folders asked for.

Files that an earlier sync brought and git no longer tracks go away there; nothing else over there is touched.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from oelm.errors import UserError
from oelm.remote.connection import NO_RSYNC, ask
from oelm.remote.copying import Copied, send
from oelm.remote.hosts import Server, check_text
from oelm.study.declaration import study_file


def project_root() -> Path:
    """The repository we stand in."""
    return Path(_git("rev-parse", "--show-toplevel").removesuffix("\n"))


def inside_project(path: str | Path, root: Path, *, what: str) -> str:
    """A path here as it will be called there: relative to the project."""
    absolute = Path(os.path.abspath(path))  # not resolved: data/x may be a link to a large disk
    if not absolute.is_relative_to(root) or absolute == root:
        raise UserError(f"{what} {str(path)!r}: is not in the project {root}; only what is in it has a place there")
    return check_text(absolute.relative_to(root).as_posix(), what=what)


def tracked_files(root: Path) -> list[str]:
    """What git tracks, as far as it is there now."""
    listed = _git("ls-files", "-z", "--cached", folder=root).split("\0")
    return [name for name in listed if name and os.path.lexists(root / name) and not (root / name).is_dir()]


def data_folders(data: list[str]) -> list[str]:
    """Folders of token files to send, as they are called in the project."""
    root = project_root()
    names = [inside_project(folder, root, what="--data") for folder in data]
    for folder in data:
        if not Path(folder).is_dir():
            raise UserError(f"--data {folder}: no such folder here; make it with `oelm prepare`")
        if not any(Path(folder).glob("*.bin")):
            raise UserError(f"--data {folder}: holds no prepared data (.bin files); make it with `oelm prepare`")
    return names


def refuse_untracked(study: str) -> None:
    """What git does not track is not sent."""
    root, file = project_root(), study_file(study)
    if inside_project(file, root, what="study") not in tracked_files(root):
        raise UserError(f"{file}: git does not track it, so it is not sent; `git add` it, then `sync`")


def sync(server: Server, folders: list[str], *, say: Callable[[str], None]) -> Copied:
    """Bring code and data over. Safe to repeat; a cut one goes on where it stopped."""
    root = project_root()
    there = ask(server, "prepare", folders=folders)
    if not there["rsync"]:
        raise UserError(f"{server.name}: {NO_RSYNC}")
    names = tracked_files(root)
    code = send(server, root, there["folder"], "-ltE", "--checksum", names=names)
    removed = ask(server, "synced", files=names, **_commit(root))["removed"]
    gone = f", {removed} removed that are no longer tracked" if removed else ""
    say(f"code: {code} sent of {len(names)} tracked files{gone}")
    for study in there["controllers"] if code.files or removed else ():
        say(f"{study} is being run there: runs that start from now on use the new code, and its report names it")
    total = code
    for folder in folders:
        copied = send(server, root / folder, f"{there['folder']}/{folder}", "-rtL")
        say(f"{folder}: {copied} sent")
        total += copied
    say(f"{server.name}:{there['folder']} is up to date")
    return total


def _commit(root: Path) -> dict[str, str | bool | None]:
    """What a run over there stores as its commit, where there is no git to ask."""
    try:
        commit = _git("rev-parse", "HEAD", folder=root).strip()
    except UserError:  # nothing committed yet
        commit = None
    return {"commit": commit, "dirty": bool(_git("status", "--porcelain", "--untracked-files=no", folder=root))}


def _git(*arguments: str, folder: Path | None = None) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, timeout=60, check=True)
    except FileNotFoundError as error:
        raise UserError("git is not installed here; sync sends what git tracks") from error
    except subprocess.SubprocessError as error:
        raise UserError(
            "not in a git repository; sync sends what git tracks: git init, git add, and call again"
        ) from error
    return os.fsdecode(done.stdout)
