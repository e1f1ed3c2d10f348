"""The manifest of prepared data: what it says without a look at the files that it lists, and where data that are
missing might be. No numpy."""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from oelm.machine.errors import UserError
from oelm.storage.files import Damaged, read_json

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
TRAIN_FILE = "train.bin"  # may be given in its folder's place
OWN_TEXT = "text"  # the corpus of a manifest whose source is a file or folder of one's own
EMBEDDED = Path("data") / "stories"  # the one place where text that comes with oelm stands for missing data


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


# ---- What data are called ------------------------------------------------------------------------------------------


def name_of_data(folder: Path, manifest: dict[str, Any] | None) -> str:
    """What data say they are: a corpus or a task by its name, text of one's own by that of its file or folder. The
    folder that they lie in is called as somebody pleased; its name, with a slash, stands where nothing else is said."""
    match manifest or {}:
        case {"task": str(task), "language": str(language)}:
            return f"{task}-{language}"
        case {"task": "pairs" | "sentences", "source": {"train": {"place": str(place)}}}:
            return PurePath(place).parent.name or PurePath(place).name
        case {"task": str(name)}:
            return name
        case {"corpus": "text", "source": str(source)} if PurePath(source).name:
            return PurePath(source).name
        case {"corpus": str(name)} if name != OWN_TEXT:
            return name
    return f"{folder.resolve().name}/"


def name_here(path: Path) -> str | None:
    """The same of prepared data; None where they are not here."""
    try:
        return name_of_data(folder_of(path), read_manifest(folder_of(path)))
    except (OSError, UserError):
        return None


# ---- Data that are missing -----------------------------------------------------------------------------------------


def is_embedded(folder: Path) -> bool:
    """Whether a folder is the one that the embedded stories are prepared for."""
    return folder.parts[-2:] == EMBEDDED.parts


def missing_data(folder: Path, command: str, *, what: str = "prepared data", study: Path | None = None) -> UserError:
    """Says where it was looked, and what there is of a like name; of the data of a study, also beside its file."""
    closest = _closest(folder, [Path.cwd(), *(study.resolve().parents[:2] if study else [])])
    named = ""
    if closest is not None:
        absolute, here = Path(os.path.abspath(closest)), Path.cwd()
        from_here = absolute.relative_to(here) if absolute.is_relative_to(here) else absolute
        named = f"the closest that exists is {from_here}; "
    return UserError(
        f"{folder}: no {what} there (looked in {Path(os.path.abspath(folder))}); {named}create it with: {command}"
    )


def _closest(folder: Path, places: list[Path]) -> Path | None:
    """The same path seen from a folder above, else the prepared folder whose name is most alike."""
    same = (above / folder for place in places for above in (place, *place.parents))
    if found := next(filter(_is_prepared, same), None):
        return found
    around = dict.fromkeys([folder.parent, *(place / EMBEDDED.parent for place in places)])
    alike = {each: difflib.SequenceMatcher(None, each.name, folder.name).ratio() for each in _prepared_in(*around)}
    return max(alike, key=lambda each: alike[each], default=None)


def _prepared_in(*folders: Path) -> Iterator[Path]:
    for folder in folders:
        with contextlib.suppress(OSError):
            yield from sorted(filter(_is_prepared, folder.iterdir()))


def _is_prepared(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (MANIFEST, TRAIN_FILE))
