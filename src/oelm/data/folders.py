"""The data a run names: text as one stream of tokens or a probe for a GPT, labelled sentences for an encoder."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from oelm.core.config import Encoder, Run
from oelm.core.probes.probe import is_probe
from oelm.data import sentences, tokens
from oelm.data.probes import ProbeData, open_probe
from oelm.data.remembered import remember, remembered, seen_now
from oelm.data.sentences import SentenceData, open_sentences
from oelm.data.tokens import TokenData, open_tokens
from oelm.machine.errors import UserError
from oelm.storage.files import sha256_of

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
