"""The metrics of stored runs, written to another tracker or to one CSV file: `oelm export-metrics`.

Only run directories are read. Of a stream with many thousand records the same ones are kept as for figures.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oelm.core.trackers.table import TRACKERS, Tracked, begun, numbers_in
from oelm.machine.errors import UserError
from oelm.run.directory import TUNING_FOLDER, RunDirectory, tracked
from oelm.run.sealing import end_of
from oelm.storage.files import ensure_writable, write_bytes
from oelm.storage.metric_records import Record
from oelm.study.given_results import GivenResults
from oelm.study.shelf import StoredRun

CSV = "csv"
TARGETS = (*TRACKERS, CSV)
CSV_FILE = "curves.csv"
OF_A_RUN = ("run", "stage", "arm", "seed")
CURVE_COLUMNS = (*OF_A_RUN, "step")  # before the numbers of a record


def exported(given: GivenResults, *, to: str, out: Path) -> int:
    """How many runs were written; damaged ones are left out. A tracker that fails ends it, with one line."""
    if to not in TARGETS:
        raise UserError(f"--to {to}: must be one of {', '.join(TARGETS)}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"--out {out}: exists already; choose another folder, or remove it")
    ensure_writable(out.absolute().parent, option="--out")
    if to == CSV:
        write_bytes(_made(out) / CSV_FILE, curves_csv(given).encode())
    else:
        for run in given.whole:
            _write(run, to, out, project=given.name)
    return len(given.whole)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write(stored: StoredRun, to: str, out: Path, *, project: str) -> None:
    directory, name = stored.directory, run_name(stored.directory)
    config = tracked(directory, stored.run, folder=out / name).config
    try:
        sink = begun(to, Tracked(name, project, config, out / name))
        for record in _records(stored):
            sink.log(numbers_in(record), record["step"])
        sink.close()
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:  # of somebody else's library
        reason = f"{error}".strip().partition("\n")[0] or type(error).__name__
        raise UserError(f"{to}: {reason}") from error


def _records(stored: StoredRun) -> list[Record]:
    """Of a run that has ended those that its seal binds. A notebook may have checked it hours ago; Damaged where they
    are others now."""
    records = stored.directory.metrics()
    if stored.ended is not None:
        end_of(stored.directory)
    return records


def run_name(directory: RunDirectory) -> str:
    """One for every run of a study: a run of the grid may be called as a final one."""
    return f"{TUNING_FOLDER}/{directory.path.name}" if stage_of(directory) == TUNING_FOLDER else directory.path.name


def stage_of(directory: RunDirectory) -> str:
    return TUNING_FOLDER if directory.path.parent.name == TUNING_FOLDER else "final"


def curves(given: GivenResults) -> Iterator[dict[str, Any]]:
    """One row for each record of a run that is whole: which run it is of, then its numbers."""
    for stored in given.whole:
        of_run = about(stored)
        for record in _records(stored):
            yield of_run | {"step": record["step"]} | numbers_in(record)


def about(stored: StoredRun) -> dict[str, Any]:
    """Which run it is: its arm as its study calls it."""
    directory = stored.directory
    values = (run_name(directory), stage_of(directory), stored.arm, stored.run.seeds.weights)
    return dict(zip(OF_A_RUN, values, strict=True))


def curves_csv(given: GivenResults) -> str:
    rows = list(curves(given))
    columns = dict.fromkeys(CURVE_COLUMNS) | dict.fromkeys(key for row in rows for key in row)
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()
