"""`oelm status` and `oelm logs`: what the run directories say now, at once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oelm.errors import UserError
from oelm.experiments.handles import stored_handle
from oelm.experiments.slurm import KIND, living
from oelm.experiments.slurm_queue import Queue
from oelm.experiments.table import counted, duration, progress_of
from oelm.run_directory import RunDirectory, final_numbers
from oelm.study.declaration import Study
from oelm.study.plan import Plan, PlannedRun, planned
from oelm.study.shelf import TUNING_FOLDER, Shelf, run_elsewhere

FOLLOW_SECONDS = 0.5


# ---- One study -----------------------------------------------------------------------------------------------------


def study_rows(study: Study, folder: Path) -> list[dict[str, Any]]:
    """One entry a run, for machines."""
    return _rows(planned(study, Shelf(folder)), folder)


def _rows(plan: Plan, folder: Path) -> list[dict[str, Any]]:
    queue = Queue(folder)
    return [_row(run, queue) for run in plan.runs]


def _row(run: PlannedRun, queue: Queue) -> dict[str, Any]:
    row = {"run": run.title, "stage": run.stage, "arm": run.arm, "seed": run.seed, "state": run.state}
    if run.stored is None:
        return row
    if run.loss is None and (waiting := _in_queue(run.stored.directory, queue)):
        row["queue"] = waiting
    progress, result = progress_of(run.stored.directory, run.run.training.steps), run.stored.result or {}
    return row | {
        "step": result.get("steps", progress.step),
        "steps": progress.steps,
        "val_loss": result.get("val_loss"),
        **{key: result[key] for key in ("perplexity", "accuracy") if key in result},
        "seconds_left": progress.seconds_left if run.state == "running" else None,
        "error": run.stored.status.get("error"),
        "path": str(run.stored.directory.path),
    }


def _in_queue(directory: RunDirectory, queue: Queue) -> str | None:
    """What Slurm says of a run that was given to it."""
    stored = stored_handle(directory)
    if stored.get("kind") != KIND:
        return None
    try:
        handle = living(directory, stored, queue)
    except UserError as error:
        return f"unknown ({error})"
    return str(handle.job) if handle else "not in the queue"


def study_status(study: Study, folder: Path) -> tuple[Plan, list[str]]:
    """The lines for one study: a table of its runs, and the counts last."""
    shelf = Shelf(folder)
    plan = planned(study, shelf)
    rows = _rows(plan, folder)
    width = max((len(row["run"]) for row in rows), default=0)
    lines = [_line(row, width) for row in rows]
    if not plan.is_tuned:
        lines.append("the final runs follow when every tuning run is finished")
    lines.extend(f"not readable: {line}" for line in shelf.unreadable)
    lines.extend(f"being run on {there['server']}, seen at {there['seen']}" for there in run_elsewhere(folder))
    return plan, [*lines, f"{study.name}: {counted(plan)}"]


def _line(row: dict[str, Any], width: int) -> str:
    parts = [f"{row['run']:{width}}  {row['state']:11}"]
    if row.get("steps"):
        parts.append(f"step {row['step']}/{row['steps']}")
    if row.get("val_loss") is not None:
        parts.append(final_numbers(row))
    if row.get("seconds_left") is not None:
        parts.append(f"ETA {duration(row['seconds_left'])}")
    if row.get("queue"):
        parts.append(f"Slurm: {row['queue']}")
    if row.get("error"):
        parts.append(str(row["error"]).splitlines()[0])
    return "  ".join(parts).rstrip()


# ---- All studies ---------------------------------------------------------------------------------------------------


def overview(root: Path) -> list[str]:
    """A line for every folder under `root` that is a run or holds some: its state, or how many are in which."""
    folders = sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    lines = [f"{stored.directory.path}: {stored.state}" for stored in Shelf(root).runs]
    for folder in folders:
        states = Counter(stored.state for stored in Shelf(folder).runs)
        if states:
            lines.append(f"{folder}: " + ", ".join(f"{count} {state}" for state, count in sorted(states.items())))
    return lines or [f"{root}: no runs there; start some with `oelm run STUDY` or `oelm train`"]


# ---- Logs ----------------------------------------------------------------------------------------------------------


def find_run(name: str, root: Path) -> RunDirectory:
    """A run by its path, or by the beginning of its folder's name under `root`."""
    path = Path(name)
    if (path / RunDirectory(path).config_file.name).is_file():
        return RunDirectory(path)
    candidates = [*root.glob("*/*/config.json"), *root.glob(f"*/{TUNING_FOLDER}/*/config.json")]
    matches = sorted({file.parent for file in candidates if file.parent.name.startswith(name)})
    exact = [match for match in matches if match.name == name]
    if len(exact or matches) == 1:
        return RunDirectory((exact or matches)[0])
    if matches:
        raise UserError(f"run {name!r}: could be {', '.join(str(match) for match in matches[:5])}; give more of it")
    raise UserError(f"run {name!r}: no such run directory, and none under {root}/ begins so (`oelm status` lists them)")


def log_lines(directory: RunDirectory, *, lines: int, follow: bool) -> Iterator[str]:
    """The end of a run's log; with `follow`, whatever comes, until the run has ended."""
    file = directory.log_file if directory.log_file.exists() else directory.output_file
    if not file.exists():
        raise UserError(f"{directory.path}: no log yet (state: {(directory.status() or {}).get('state', 'unknown')})")
    with open(file, encoding="utf-8", errors="replace") as stream:
        yield from stream.read().splitlines()[-lines:]
        while follow:
            text = stream.readline()
            if text:
                yield text.rstrip("\n")
            elif (directory.status() or {}).get("state") in ("queued", "running"):
                time.sleep(FOLLOW_SECONDS)
            else:
                return
