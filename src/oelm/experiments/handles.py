"""The handle of a run, whichever kind of place it was started in; and all the handles of a study."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from oelm.errors import UserError
from oelm.experiments import slots, slurm
from oelm.experiments.slots import Handle, LocalHandle
from oelm.experiments.slurm import SlurmHandle
from oelm.experiments.slurm_queue import Queue
from oelm.files import read_json
from oelm.run_directory import RunDirectory
from oelm.study.shelf import TUNING_FOLDER

LOCK_FILE = "controller.lock"  # of a study: one controller works on it at a time


def stored_handle(directory: RunDirectory) -> dict[str, Any]:
    try:
        stored = read_json(directory.handle_file)
    except (OSError, UserError):
        return {}
    return stored if isinstance(stored, dict) else {}


def found(directory: RunDirectory, queue: Queue) -> Handle | None:
    """Whoever works on a run, or waits in a queue to do so: started by an earlier controller, or by hand."""
    stored = stored_handle(directory)
    if stored.get("kind") == slurm.KIND:
        try:
            in_queue = slurm.living(directory, stored, queue)
        except UserError as error:
            raise UserError(
                f"{directory.path}: was given to Slurm, which cannot be asked whether it still has it ({error}); "
                f"only if that cluster is gone for good, delete {directory.handle_file.name} there"
            ) from error
        if in_queue is not None:
            return in_queue
    return slots.living(directory, stored)


def living_runs(folder: Path) -> list[LocalHandle]:
    """What was started under a study's folder on this machine and still runs."""
    handles = (slots.living(directory, stored_handle(directory)) for directory in _directories(folder))
    return [handle for handle in handles if handle is not None]


def everything_alive(folder: Path, queue: Queue) -> tuple[list[Handle], list[UserError]]:
    """The same, and what a cluster has of it; and for which runs it could not be asked."""
    handles, unknown = [], []
    for directory in _directories(folder):
        try:
            handle = found(directory, queue)
        except UserError as error:
            if (directory.status() or {}).get("state") not in ("finished", "diverged"):
                unknown.append(error)
            continue
        if handle is not None:
            handles.append(handle)
    return handles, unknown


def cancel(handles: Iterable[Handle]) -> None:
    """Ask all of them to save and end."""
    handles = list(handles)
    slurm.cancel(handle for handle in handles if isinstance(handle, SlurmHandle))
    for handle in handles:
        if not isinstance(handle, SlurmHandle):
            handle.cancel()


def _directories(folder: Path) -> list[RunDirectory]:
    name = RunDirectory(folder).config_file.name
    files = [*folder.glob(f"*/{name}"), *folder.glob(f"{TUNING_FOLDER}/*/{name}")]
    return [RunDirectory(file.parent) for file in sorted(files)]
