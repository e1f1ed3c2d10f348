"""What lies in the folder of a dataset: the one that is asked for, another one, or nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from oelm.data import sentences
from oelm.data.prepared import MANIFEST, read_manifest
from oelm.data.tokens import SPLITS, TOKENIZER_FOLDER, file_name, open_tokens
from oelm.machine.errors import UserError
from oelm.storage.files import DATA_FLOORS, DATA_MEMORY

OPENERS = {"text": open_tokens, sentences.KIND: sentences.open_sentences}
OUR_FILES = {
    MANIFEST,
    DATA_FLOORS,
    DATA_MEMORY,
    TOKENIZER_FOLDER,
    *(file_name(split) for split in SPLITS),
    *(sentences.column_file(split, column) for split in SPLITS for column in sentences.COLUMNS),
}


def existing_dataset(out: Path, settings: dict[str, Any], *, force: bool, kind: str = "text") -> dict[str, Any] | None:
    """The manifest of what lies in `out` if that is what is asked for; None if `out` is free to be written."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: is a file; --out takes a folder")
    if os.path.ismount(out):
        raise UserError(f"{out}: is a mount point, which cannot be replaced as a whole; choose a folder inside it")
    contents = {entry.name for entry in out.iterdir()} if out.exists() else set()
    if not contents:
        return None
    if MANIFEST not in contents or (force and contents - OUR_FILES):
        example = min(contents - OUR_FILES, default=MANIFEST)
        raise UserError(
            f"{out}: contains files that are not prepared data ({example}); choose another folder with --out"
        )
    if force:
        return None
    manifest = read_manifest(out)
    there_kind, there = manifest.get("kind", "text"), manifest.get("settings", {})
    if there_kind != kind:
        raise UserError(f"{out}: contains prepared {there_kind}, not {kind}; choose another --out or add --force")
    different = [
        f"{key} is {_said(there.get(key))}, not {_said(value)}"
        for key, value in settings.items()
        if there.get(key) != value
    ]
    if there.get("source") != settings.get("source"):
        different.append("a file counts as different when its name, size or modification time differs")
    if different:
        raise UserError(
            f"{out}: contains another dataset ({'; '.join(different)}); choose another --out or add --force"
        )
    OPENERS[kind](out)  # finds a file that was cut short since
    return manifest


def _said(value: Any) -> Any:
    return "the default" if value is None else value
