"""One run at a glance: its state, how far it is and its numbers, as its small files say, unchecked against its seal.

A thousand runs are read so in a fraction of a second. Verdicts are not: they come from study/shelf.py, which checks.
"""

from __future__ import annotations

from typing import Any

from oelm.board.places import RunPlace
from oelm.claims.measures import MEASURES
from oelm.errors import UserError
from oelm.experiments.progress import progress_of
from oelm.files import read_object
from oelm.run_directory import RunDirectory
from oelm.sealing import end_of
from oelm.study.shelf import is_dead

Row = dict[str, Any]  # as JSON: a row of the table of runs
ENDED = ("finished", "diverged")
UNDERWAY = ("running", "queued")
MEASURED = ("val_loss", *dict.fromkeys(measure.shown_key for measure in MEASURES.values()))


def state_of(directory: RunDirectory) -> tuple[str, dict[str, Any]]:
    """As study/shelf.py says it of a run whose files are whole; and the status."""
    status = directory.status() or {}
    state: str | None = status.get("state")
    if directory.seal_file.is_file():
        sealed = _tree(directory, "seal_file").get("state")
        return (sealed if sealed in ENDED else "damaged"), status
    if state == "running":
        return ("interrupted" if is_dead(directory, status) else "running"), status
    if state in (None, "finished") and directory.result_file.is_file():  # of a format before the seal
        return "finished", status
    return ("interrupted" if state == "finished" else state or "queued"), status


def row_of(place: RunPlace) -> Row:
    """Everything that the table shows of it."""
    directory = place.directory
    config = _tree(directory, "config_file")
    seeds, training = _part(config, "seeds"), _part(config, "training")
    row: Row = {
        "id": place.id,
        "run": place.id.rpartition("/")[2],
        "stage": place.stage,
        "arm": _text(config.get("arm")),
        "seed": seeds.get("weights") if isinstance(seeds.get("weights"), int) else None,
        "state": "damaged",
        "step": None,
        "steps": training.get("steps") if isinstance(training.get("steps"), int) else None,
        "seconds_left": None,
        "changed": place.changed,
        "error": None,
        **dict.fromkeys(MEASURED),
    }
    try:
        return row | _told_in(directory, config, row)
    except OSError as error:  # a folder that one may not look into, or a disk that does not answer
        return row | {"error": f"{place.path}: cannot be read ({error.strerror})"}


def _told_in(directory: RunDirectory, config: dict[str, Any], row: Row) -> Row:
    state, status = state_of(directory)
    known: Row = {"state": state, "error": _text(status.get("error"))}
    if state in ENDED and not config:
        return {"state": "damaged", "error": _damage_of_config(directory)}
    if state in ENDED:
        result = _tree(directory, "result_file")
        numbers = {name: _number(result.get(name)) for name in MEASURED}
        return known | numbers | {"step": result.get("steps", row["steps"])}
    return known | _progress_in(directory, row | known)


def _progress_in(directory: RunDirectory, row: Row) -> Row:
    """How far a run is that has not ended."""
    found = progress_of(directory, row["steps"] or 0)
    last = directory.last_metrics("val_loss") or {}
    return {
        "step": found.step,
        "seconds_left": max(0.0, found.seconds_left) if found.seconds_left and row["state"] == "running" else None,
        "val_loss": _number(last.get("val_loss")),
        "accuracy": _number(last.get("accuracy")),
    }


def _damage_of_config(directory: RunDirectory) -> str | None:
    try:
        end_of(directory)
    except (OSError, UserError) as error:
        return str(error)
    return None


def _tree(directory: RunDirectory, name: str) -> dict[str, Any]:
    try:
        return read_object(getattr(directory, name))
    except (OSError, UserError):
        return {}


def _part(tree: dict[str, Any], key: str) -> dict[str, Any]:
    part = tree.get(key)
    return part if isinstance(part, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) else None
