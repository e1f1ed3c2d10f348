"""The check of a machine that is kept with a study: check.json in its folder of runs, by `oelm check --study`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oelm.machine.errors import UserError
from oelm.storage.files import Damaged
from oelm.storage.schemas import MachineCheck, read_sealed_record

CHECK_FILE = "check.json"
FORMAT_VERSION = 1


def stored_check(folder: Path) -> dict[str, Any] | Damaged | None:
    """What a study's folder holds; None: its machine was never checked."""
    try:
        return read_sealed_record(folder / CHECK_FILE, MachineCheck, newest=FORMAT_VERSION)
    except Damaged as damage:
        return damage
    except FileNotFoundError:
        return None


def results_to_keep(folder: Path, circumstances: dict[str, Any]) -> list[dict[str, Any]]:
    """What some checks, done again, leave as it is. Refused where what is stored is of other code or another machine:
    one record would then speak for both.
    """
    stored = stored_check(folder)
    if stored is None:
        return []
    if isinstance(stored, Damaged) or any(stored.get(key) != value for key, value in circumstances.items()):
        raise UserError(
            f"--only: {folder / CHECK_FILE} is damaged, or of another version, machine or model, so single results "
            "cannot replace some of it; run all checks, without --only"
        )
    results: list[dict[str, Any]] = stored["results"]
    return results
