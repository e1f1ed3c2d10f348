"""Runs to be started, outside of any study."""

from __future__ import annotations

from pathlib import Path

from oelm.core.config import Settings
from oelm.execution.engine import Wanted
from oelm.run.directory import RunDirectory
from oelm.study.plan import PlannedRun
from small_runs import quiet_execution, small_run


def wanted_run(path: Path, *, processes: int = 1) -> Wanted:
    settings = Settings(run=small_run(), execution=quiet_execution())
    planned = PlannedRun("trained", 0, "final", (), settings, processes, stored=None)
    return Wanted(RunDirectory(path), planned)
