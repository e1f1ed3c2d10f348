"""The data a run names: text as one stream of tokens or a probe for a GPT, labelled sentences for an encoder."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from oelm.core.config import Encoder, Run
from oelm.core.probes.probe import SPLITS, Probe, is_probe, probe_of
from oelm.data import sentences, tokens
from oelm.data.sentences import SentenceData, open_sentences
from oelm.data.tokens import TokenData, open_tokens
from oelm.machine.errors import UserError
from oelm.storage.files import DATA_MEMORY, read_sealed, sha256_of, write_sealed


@dataclass(frozen=True)
class ProbeData:
    probe: Probe
    splits: tuple[str, ...] = SPLITS
    tokenizer_folder: Path | None = None

    @property
    def digest(self) -> str:
        return self.probe.digest

    @property
    def facts(self) -> dict[str, Any]:
        """What the data says of the model."""
        return {"vocabulary": self.probe.vocabulary}

    @property
    def provenance(self) -> dict[str, Any]:
        return {}


def open_probe(data: str) -> ProbeData:
    return ProbeData(probe_of(data))


DataInFiles = TokenData | SentenceData
Data = DataInFiles | ProbeData


def open_data(run: Run, *, study: Path | None = None) -> Data:
    """Map it, with sizes checked; a missing folder is an error that names the closest there is and the command to make
    it. `study` is the file that names the data."""
    if is_probe(run.data):
        return open_probe(run.data)
    opened = open_sentences if isinstance(run.model, Encoder) else open_tokens
    return opened(Path(run.data), study=study)


def check_digests(data: Data) -> None:
    """Read every file and compare it with its manifest: finds a flipped byte."""
    if not isinstance(data, ProbeData):
        _check_files(data, known=set())


def check_changes(data: Data) -> None:
    """The same of the files that changed since they were last read whole."""
    if isinstance(data, ProbeData):
        return
    seen = seen_now(data.folder, _kind(data).file_digests(data))
    known = remembered(data.folder, seen)
    _check_files(data, known=known)
    if known != seen.keys():
        remember(data.folder, seen)


def _check_files(data: DataInFiles, *, known: set[str]) -> None:
    for name, digest in _kind(data).file_digests(data).items():
        if name not in known and sha256_of(data.folder / name) != digest:
            raise UserError(f"{data.folder / name}: differs from its manifest (SHA-256); prepare it again with --force")
    _kind(data).check_combined(data)


def _kind(data: DataInFiles) -> ModuleType:
    return sentences if isinstance(data, SentenceData) else tokens


# ---- What was read whole before ------------------------------------------------------------------------------------
# A file that has not changed since, by its size, times and inode, is not read again at a start of a run; `oelm verify`
# reads everything. A memory that is missing, damaged, of other files or cannot be written costs one more reading.

FORMAT_VERSION = 1
SETTLED_NANOSECONDS = 2 * 10**9  # a file may change again within one tick of the clock that its times are taken from

Seen = dict[str, dict[str, Any]]  # by file name: how it looks from outside, and its SHA-256


def seen_now(folder: Path, digests: dict[str, str]) -> Seen:
    """The files of a manifest as they are, with the digests that they should have."""
    return {name: _outside(folder / name) | {"sha256": digest} for name, digest in digests.items()}


def _outside(path: Path) -> dict[str, int]:
    """The time of change besides that of modification: a program may set back the second, not the first."""
    found = path.stat()
    return {
        "bytes": found.st_size,
        "modified_ns": found.st_mtime_ns,
        "changed_ns": found.st_ctime_ns,
        "inode": found.st_ino,
    }


def remembered(folder: Path, seen: Seen) -> set[str]:
    """Names of the files that were read whole as they are now."""
    try:
        tree = read_sealed(folder / DATA_MEMORY)
    except (OSError, UserError):
        return set()
    files = tree.get("files")
    if tree.get("format_version") != FORMAT_VERSION or not isinstance(files, dict):
        return set()
    return {name for name, entry in seen.items() if files.get(name) == entry}


def remember(folder: Path, seen: Seen) -> None:
    """After all of them were read. `seen` is of before the reading: what changed meanwhile is read again."""
    youngest = time.time_ns() - SETTLED_NANOSECONDS
    settled = {name: entry for name, entry in seen.items() if max(entry["modified_ns"], entry["changed_ns"]) < youngest}
    with contextlib.suppress(OSError, UserError):
        write_sealed(folder / DATA_MEMORY, {"format_version": FORMAT_VERSION, "files": settled})
