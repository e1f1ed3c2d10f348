"""One run as a row of the table. Of a run that has ended every number is checked against its seal, and remembered as
long as no file of it changes: a thousand runs are checked in seconds, and then looked at in a fraction of one.

What is unchecked has no number yet; what is damaged has none.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from oelm.core.measures import MEASURES
from oelm.execution.progress import progress_of
from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory
from oelm.show.board.places import RunPlace, Signature
from oelm.storage.files import read_object
from oelm.study.shelf import StoredRun, is_dead, read_stored

Row = dict[str, Any]  # as JSON: a row of the table of runs
ENDED = ("finished", "diverged")
UNCHECKED = "unchecked"  # it has ended, and nobody has compared its files with its seal yet
WITHOUT_NUMBERS = (UNCHECKED, "damaged")
SETTLED = (*ENDED, "damaged")  # which stay so as long as no file changes
MEASURED = ("val_loss", *dict.fromkeys(measure.shown_key for measure in MEASURES.values()))

Checked = StoredRun | OSError | UserError  # a run as its files say, or why they say nothing


class Remembered:
    """Stored runs that were read and checked, each as long as its files stay what they are. For several threads."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[Signature, Checked]] = {}

    def known(self, place: RunPlace) -> Checked | None:
        signature, found = self._known.get(place.path, (None, None))
        return found if signature == place.signature else None

    def check(self, place: RunPlace) -> Checked:
        """Read again, unless it stays as it was."""
        found = self.known(place)
        if isinstance(found, StoredRun) and found.state in SETTLED:
            return found
        try:
            found = read_stored(place.path)
        except (OSError, UserError) as error:
            found = error
        self._known[place.path] = place.signature, found
        return found

    def forget_all_but(self, paths: Collection[Path]) -> None:
        for gone in self._known.keys() - paths:
            self._known.pop(gone, None)


def row_of(place: RunPlace, remembered: Remembered, *, may_check: bool) -> Row:
    """Everything that the table shows of it."""
    directory = place.directory
    try:
        config = read_object(directory.config_file)
    except (OSError, UserError):
        config = {}
    seeds, training = _part(config, "seeds"), _part(config, "training")
    row: Row = {
        "id": place.id,
        "run": place.id.rpartition("/")[2],
        "stage": place.stage,
        "arm": _text(config.get("arm")),
        "seed": seeds.get("weights") if isinstance(seeds.get("weights"), int) else None,
        "state": UNCHECKED,
        "step": None,
        "steps": training.get("steps") if isinstance(training.get("steps"), int) else None,
        "seconds_left": None,
        "changed": place.changed,
        "error": None,
        **dict.fromkeys(MEASURED),
    }
    try:
        state, error = _state_before_the_end(directory)
        if state is not None:
            return row | {"state": state, "error": error} | _progress_in(directory, state, row["steps"])
    except OSError as error:  # a folder that one may not look into, or a disk that does not answer
        return row | {"state": "damaged", "error": f"{place.path}: cannot be read ({error.strerror})"}
    checked = remembered.check(place) if may_check else remembered.known(place)
    return row if checked is None else row | _as_checked(checked, row["steps"])


def _state_before_the_end(directory: RunDirectory) -> tuple[str | None, str | None]:
    """As study/shelf.py says it, and the error; no state where the run says that it has ended, or has no config."""
    status = directory.status() or {}
    state: str | None = status.get("state")
    if _is_there(directory.seal_file):
        return None, None
    if state == "running":
        return ("interrupted" if is_dead(directory, status) else "running"), _text(status.get("error"))
    if state in ENDED or not _is_there(directory.config_file) or (state is None and _is_there(directory.result_file)):
        return None, None
    return state or "queued", _text(status.get("error"))


def _is_there(path: Path) -> bool:
    """Whatever it is; OSError where one may not look."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True


def _as_checked(checked: Checked, steps: int | None) -> Row:
    if not isinstance(checked, StoredRun):
        return {"state": "damaged", "error": str(checked)}
    known: Row = {"state": checked.state, "error": checked.error}
    if checked.state in ENDED:
        result = checked.result or {}
        return known | {name: _number(result.get(name)) for name in MEASURED} | {"step": result.get("steps", steps)}
    return known | ({} if checked.damage else _progress_in(checked.directory, checked.state, steps))


def _progress_in(directory: RunDirectory, state: str, steps: int | None) -> Row:
    """How far a run is that has not ended."""
    found = progress_of(directory, steps or 0)
    last = directory.last_metrics("val_loss") or {}
    return {
        "step": found.step,
        "seconds_left": max(0.0, found.seconds_left) if found.seconds_left and state == "running" else None,
        "val_loss": _number(last.get("val_loss")),
        "accuracy": _number(last.get("accuracy")),
    }


def _part(tree: dict[str, Any], key: str) -> dict[str, Any]:
    part = tree.get(key)
    return part if isinstance(part, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) else None
