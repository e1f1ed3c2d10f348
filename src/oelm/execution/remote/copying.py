"""rsync over the same ssh: incremental, resumed after a cut, whole files only under their names.

`--secluded-args` keeps paths from the shell over there; --delay-updates gives files their names at the end, together.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from oelm.execution.remote.connection import meaning, no_program, ssh_words
from oelm.execution.remote.hosts import Server
from oelm.machine.errors import UserError
from oelm.machine.exhaustion import mebibytes
from oelm.machine.plurals import number_of

PARTIAL = ".oelm-partial"  # beside a file on its way; never read as one
SILENCE_SECONDS = 60
_VANISHED = 24  # a file went away between listing and copying: a checkpoint was pruned
_ALWAYS = ("-s", "--stats", f"--partial-dir={PARTIAL}", "--delay-updates", f"--timeout={SILENCE_SECONDS}")


@dataclass(frozen=True)
class Copied:
    """What went over the wire."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: Copied) -> Copied:
        return Copied(self.files + other.files, self.bytes + other.bytes)

    def __str__(self) -> str:
        return f"{number_of(self.files, 'file')}, {mebibytes(self.bytes)}"


def send(server: Server, source: Path, folder: str, *options: str, names: list[str] | None = None) -> Copied:
    """Copy a folder's content, or the named files in it, into an existing folder over there."""
    paths = [f"{source}/", f"{server.destination}:{folder}/"]
    return _statistics(_rsync(server, options, paths, names), way="sent")


def receive(server: Server, folder: str, target: Path, *options: str) -> Copied:
    """Copy the content of a folder over there into one here. Links and devices are left out. Times are compared to
    the nanosecond: a tiny model is written twice within a second.
    """
    paths = [f"{server.destination}:{folder}/", f"{target}/"]
    return _statistics(_rsync(server, ("-rt", "--modify-window=-1", *options), paths, None), way="received")


def _rsync(server: Server, options: tuple[str, ...], paths: list[str], names: list[str] | None) -> str:
    """What it counted, in its words."""
    listed = [] if names is None else ["--from0", "--files-from=-"]
    shell = " ".join(_rsync_word(word) for word in ssh_words(server))
    try:
        done = subprocess.run(
            ["rsync", *_ALWAYS, f"--rsh={shell}", *listed, *options, "--", *paths],
            input=b"".join(os.fsencode(name) + b"\0" for name in names or ()),
            capture_output=True,
            env=os.environ | {"LC_ALL": "C"},
            check=False,
        )
    except FileNotFoundError as error:
        raise no_program("rsync", "rsync") from error
    if done.returncode not in (0, _VANISHED):
        errors = done.stderr.decode("utf-8", "replace").splitlines()
        raise UserError(f"{server.name}: {_complaint(errors, code=done.returncode)}")
    return done.stdout.decode("utf-8", "replace")


def _rsync_word(word: str) -> str:
    """Quoted as rsync splits --rsh, which is not how a shell does: a quote inside quotes is doubled."""
    return "'" + word.replace("'", "''") + "'"


def _complaint(errors: list[str], *, code: int) -> str:
    """rsync's own last line only counts them up: the first one says why."""
    told = [line for line in errors if line.strip() and not line.startswith("rsync error:")]
    return meaning(
        told[:1] if code in (11, 23) and told else errors, code=255 if code in (10, 12, 20, 30, 35) else code
    )


def _statistics(text: str, *, way: Literal["sent", "received"]) -> Copied:
    """Bytes that went over the wire: of a file that changed a little, little does."""

    def number(label: str) -> int:
        found = re.search(rf"{label}: ([\d,.]+)", text)
        return int(re.sub(r"\D", "", found[1])) if found else 0

    return Copied(number("Number of regular files transferred"), number(f"Total bytes {way}"))
