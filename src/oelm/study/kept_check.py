"""The check of a machine that is kept with a study: check.json in its folder of runs, by `oelm check --study`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oelm.files import Damaged
from oelm.schemas import MachineCheck, read_sealed_record

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
