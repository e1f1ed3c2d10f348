"""The experiment trackers that a run can write to, and how each is begun. A further one is a row here and an extra.

All of them write to this machine only, unless the user's own environment says otherwise. Their libraries are imported
when they are begun.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from oelm.machine.errors import UserError
from oelm.machine.installation import install_command


@dataclass(frozen=True)
class Tracked:
    """A run as a tracker is told of it."""

    name: str  # of the run
    project: str  # its study, or the folder that it lies in
    config: Mapping[str, Any]  # settings by their dotted keys
    folder: Path  # that the tracker may write into
    step: int = 0  # from which a run that was interrupted goes on


class Sink(Protocol):
    """An open tracker of one run."""

    def log(self, numbers: Mapping[str, float], step: int) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Tracker:
    module: str
    begin: Callable[[Any, Tracked], Sink]  # given the module
    environment: tuple[tuple[str, str], ...] = ()  # set before the import, unless the user has


def begun(name: str, run: Tracked) -> Sink:
    tracker = TRACKERS[name]
    for variable, value in tracker.environment:
        if not os.environ.get(variable):
            os.environ[variable] = value
    try:
        module = importlib.import_module(tracker.module)
    except ImportError as error:
        raise UserError(f"{name} is not installed: {install_command(name)}") from error
    return tracker.begin(module, run)


def numbers_in(record: Mapping[str, Any]) -> dict[str, float]:
    """What of a record a tracker can draw: its numbers, those by name under NAME/KEY."""
    found: dict[str, float] = {}
    for key, value in record.items():
        if key != "step" and isinstance(value, int | float) and not isinstance(value, bool):
            found[key] = value
        elif isinstance(value, Mapping):
            found |= {f"{key}/{inner}": number for inner, number in numbers_in(value).items()}
    return found


# ---- TensorBoard ---------------------------------------------------------------------------------------------------


class _TensorBoard:
    """Event files, written by the library itself: torch is not needed for it. A run that goes on from a checkpoint,
    or begins anew, records the steps after that once more; what its earlier files have of them is declared void."""

    def __init__(self, module: Any, run: Tracked) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._writer = module.EventFileWriter(str(run.folder))
        begun_again = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._writer.add_event(self._event(wall_time=time.time(), step=run.step + 1, session_log=begun_again))

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        values = [self._summary.Value(tag=key, simple_value=value) for key, value in numbers.items()]
        self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=self._summary(value=values)))

    def close(self) -> None:
        self._writer.close()


# ---- Weights & Biases, Trackio -------------------------------------------------------------------------------------


class _BegunRun:
    """What both libraries call a run."""

    def __init__(self, module: Any, run: Tracked, **options: Any) -> None:
        self._run = module.init(project=run.project, name=run.name, config=dict(run.config), **options)

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        self._run.finish()


def _weights_and_biases(module: Any, run: Tracked) -> Sink:
    """Offline unless WANDB_MODE says otherwise; `wandb sync` uploads what was written."""
    run.folder.mkdir(parents=True, exist_ok=True)
    settings = module.Settings(
        silent=True, console="off", disable_code=True, disable_git=True, x_disable_stats=True, save_code=False
    )
    return _BegunRun(module, run, dir=str(run.folder), reinit="create_new", settings=settings)


def _trackio(module: Any, run: Tracked) -> Sink:
    """Into Trackio's own local database (TRACKIO_DIR), which `trackio show` reads."""
    return _BegunRun(module, run, embed=False, auto_log_gpu=False, auto_log_cpu=False)


TRACKERS: dict[str, Tracker] = {
    "tensorboard": Tracker("tensorboard.summary.writer.event_file_writer", _TensorBoard),
    "wandb": Tracker("wandb", _weights_and_biases, (("WANDB_MODE", "offline"), ("WANDB_ERROR_REPORTING", "false"))),
    "trackio": Tracker("trackio", _trackio),
}
