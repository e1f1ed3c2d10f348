"""The repository we stand in: where its root is, what git tracks in it, which commit it is at."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path, PurePosixPath

from oelm.execution.remote.sent_program import digest_of
from oelm.machine.errors import UserError
from oelm.storage.files import REPORT_RESULTS
from oelm.study.archives import ENDING, is_archive

REPORT_ENDINGS = (".md", ".html", ".pdf", ".png", ".svg", ".csv", ".txt", ".json")


def project_root() -> Path:
    return Path(_git("rev-parse", "--show-toplevel").removesuffix("\n"))


def tracked_files(root: Path) -> list[str]:
    """What git tracks, as far as it is there now; of a repository inside, nothing."""
    listed = _git("ls-files", "-z", "--cached", folder=root).split("\0")
    paths = ((name, root / name) for name in listed if name)
    return [name for name, path in paths if path.is_symlink() or (path.exists() and not path.is_dir())]


def sent_digests(root: Path) -> dict[str, str | None]:
    """Those of them that a server needs, each with what it holds: neither archives of results nor reports."""
    names = tracked_files(root)
    reports = {PurePosixPath(name).parent for name in names if PurePosixPath(name).name == REPORT_RESULTS}
    reports -= {PurePosixPath(".")}

    def is_for_readers(name: PurePosixPath) -> bool:
        if name.suffix in REPORT_ENDINGS and reports.intersection(name.parents):
            return True
        return name.suffix == ENDING and is_archive(root / name)

    return {name: digest_of(root / name) for name in names if not is_for_readers(PurePosixPath(name))}


def commit_of(root: Path) -> dict[str, str | bool | None]:
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
            "not in a git repository; sync sends what git tracks: git init, git add, then try again"
        ) from error
    return os.fsdecode(done.stdout)
