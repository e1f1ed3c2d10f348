"""Where the originals' commands find token files: the originals write both data/tinystories and data/tiny_stories."""

from __future__ import annotations

import shlex
from pathlib import Path

from oelm.data.corpora import NAMES
from oelm.data.prepared import MANIFEST
from oelm.data.tokens import file_name
from oelm.machine.errors import UserError

SPELLINGS = {"tinystories": "tiny_stories", "tiny_stories": "tinystories"}
TRAIN = file_name("train")


def existing_data(data_path: str) -> str:
    """The path, in its own or the other spelling, where there are token files; else the command that makes them."""
    path = Path(data_path)
    if path.suffix == ".bin" and path.name != TRAIN:
        raise UserError(f"{path}: give {TRAIN} or its folder; val.bin must be next to it")
    found = found_data(data_path)
    if found is not None:
        return found
    folder = _folder(path)
    name = folder.name.replace("_", "")
    command = shlex.join(["oelm", "prepare", name if name in NAMES else "tinystories", "--out", str(folder)])
    raise UserError(f"{folder}: no prepared data there; create it with: {command}")


def found_data(data_path: str) -> str | None:
    path = Path(data_path)
    for each in (path, _spelled_otherwise(path)):
        if each is not None and any((_folder(each) / name).is_file() for name in (MANIFEST, TRAIN)):
            return data_path if each == path else str(each)
    return None


def _folder(path: Path) -> Path:
    return path.parent if path.name == TRAIN else path


def _spelled_otherwise(path: Path) -> Path | None:
    folder = _folder(path)
    if folder.name not in SPELLINGS:
        return None
    return folder.with_name(SPELLINGS[folder.name]) / path.relative_to(folder)
