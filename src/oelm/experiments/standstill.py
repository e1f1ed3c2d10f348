"""Whether a run that lives also moves: its process may hang while its lock still has a heartbeat.

Judged by the run's own pace, from the end of its metrics; a run that is slow throughout is not called still.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

from oelm.config import ResolvedRun
from oelm.metric_records import MOST_LINE_BYTES
from oelm.run_directory import RunDirectory

LEAST_SECONDS = 60.0
PATIENCE = 5.0  # times the usual time between two records, a validation included
FIRST_RECORD_SECONDS = 600.0  # a process starts, reads its data and may compile
TAIL_BYTES = 2 * MOST_LINE_BYTES
_KEYS = ("step", "seconds", "validation_seconds")


def still_since(directory: RunDirectory, run: ResolvedRun) -> float | None:
    """When a run that counts as running last got on, as seconds since the epoch, if that is too long ago."""
    signs = directory.metrics_file, directory.status_file, directory.handle_file  # the last: started, and not yet there
    moved = max((each for each in map(_written, signs) if each), default=None)
    if moved is None or time.time() - moved <= _expected_seconds(_last_records(directory.metrics_file), run):
        return None
    return moved


def in_words(since: float) -> str:
    return f"no progress since {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(since))}"


def _written(path: Path) -> float | None:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return None


def _expected_seconds(records: list[dict[str, Any]], run: ResolvedRun) -> float:
    """How long a run may take from one record to the next; it resumes in the time it starts in."""
    steps = sorted({record["step"] for record in records if "train_loss" in record})
    paces = [record["seconds"] / record["step"] for record in records if "seconds" in record]
    if len(steps) < 2 or not paces:
        return FIRST_RECORD_SECONDS
    looks: list[float] = [
        record["validation_seconds"] * run.training.validate_every / record["step"]
        for record in records
        if "validation_seconds" in record
    ]
    usual: float = (steps[-1] - steps[-2]) * paces[-1] + max(looks, default=0.0)
    return max(LEAST_SECONDS, PATIENCE * usual)


def _last_records(file: Path) -> list[dict[str, Any]]:
    """From the end of the file, those whose numbers are numbers."""
    try:
        with open(file, "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - TAIL_BYTES))
            lines = stream.read().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            record = json.loads(line)
            if isinstance(record, dict) and all(_is_number(record.get(key, 1)) for key in _KEYS) and record.get("step"):
                found.append(record)
    return found


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < 1e15
