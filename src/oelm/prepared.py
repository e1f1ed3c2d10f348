"""The manifest of prepared data: what it says without a look at the files that it lists. No numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oelm.errors import UserError
from oelm.files import Damaged, read_json

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
TRAIN_FILE = "train.bin"  # may be given in its folder's place


def folder_of(path: Path) -> Path:
    """The folder of data that a run names."""
    return path.parent if path.name == TRAIN_FILE else path


def read_manifest(folder: Path) -> dict[str, Any]:
    manifest = read_json(folder / MANIFEST)
    if not isinstance(manifest, dict) or not isinstance(version := manifest.get("format_version"), int):
        raise UserError(f"{folder / MANIFEST}: not the manifest of prepared data (no format_version)")
    if version > FORMAT_VERSION:
        raise UserError(
            f"{folder / MANIFEST}: format version {version} is newer than {FORMAT_VERSION}, which this oelm reads; "
            "update oelm, or prepare the data again"
        )
    if not isinstance(manifest.get("settings", {}), dict):
        raise Damaged(folder / MANIFEST, "settings are not keys and values")
    return manifest


def facts_here(path: Path) -> dict[str, Any]:
    """What prepared data says of the model; nothing where they are not here, or have no manifest that says it."""
    try:
        manifest = read_manifest(folder_of(path))
    except (OSError, UserError):
        return {}
    # Of sentences, with the sizes of their encoder; of text, its vocabulary.
    facts = manifest.get("facts", {"vocabulary": manifest.get("vocabulary")})
    return facts if isinstance(facts, dict) and all(isinstance(each, int | float) for each in facts.values()) else {}


def digest_here(path: Path) -> str | None:
    """The digest of prepared data; None where they are not here, or have no manifest that says it."""
    try:
        digest = read_manifest(folder_of(path)).get("digest")
    except (OSError, UserError):
        return None
    return digest if isinstance(digest, str) and digest else None
