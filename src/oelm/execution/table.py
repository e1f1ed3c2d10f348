"""What a person sees of a study that runs: the live table of `oelm run`, one row a run, or its plain lines.

Only running runs are read again and again, and only the end of their metrics.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

from oelm.execution.controller import ActiveRun, View
from oelm.execution.progress import counted, left_over, progress_of, still_in_words, still_since
from oelm.machine.durations import duration
from oelm.machine.visible import visible
from oelm.study.plan import Plan

PLAIN_SECONDS = 30.0  # between lines where there is no terminal
LIVE_SECONDS = 1.0
MOST_ROWS = 40


@contextlib.contextmanager
def watching(*, units: int | None) -> Iterator[View]:
    """A live table in a terminal, plain lines elsewhere."""
    if not sys.stdout.isatty():
        yield PlainLines(units)
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(highlight=False), auto_refresh=False, transient=True) as live:
        yield LiveTable(live, units)


class PlainLines:
    def __init__(self, units: int | None) -> None:
        self._units, self._last = units, time.monotonic()

    def say(self, line: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {visible(line)}", flush=True)

    def show(self, plan: Plan, active: list[ActiveRun]) -> None:
        if time.monotonic() - self._last < PLAIN_SECONDS:
            return
        self._last = time.monotonic()
        self.say(f"{counted(plan, active)}; ETA {duration(left_over(plan, active, units=self._units))}")
        for run in active[:MOST_ROWS]:
            self.say("  " + _running_line(run))


def _running_line(run: ActiveRun) -> str:
    if run.handle.is_waiting:
        return f"{run.planned.title}: {run.handle.place}"
    progress = progress_of(run.directory, run.planned.run.training.steps)
    loss = "-" if progress.train_loss is None else f"{progress.train_loss:.4f}"
    since = still_since(run.directory, progress.steps)
    left = f"ETA {duration(progress.seconds_left)}" if since is None else still_in_words(since)
    return f"{run.planned.title}: step {progress.step}/{progress.steps}, loss {loss}, {left}"


class LiveTable:
    def __init__(self, live: Any, units: int | None) -> None:
        self._live, self._units, self._last = live, units, 0.0

    def say(self, line: str) -> None:
        self._live.console.print(f"{time.strftime('%H:%M:%S')} {visible(line)}", markup=False)

    def show(self, plan: Plan, active: list[ActiveRun]) -> None:
        if time.monotonic() - self._last < LIVE_SECONDS:
            return
        self._last = time.monotonic()
        self._live.update(self._table(plan, active), refresh=True)

    def _table(self, plan: Plan, active: list[ActiveRun]) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False)
        for column in ("run", "step", "", "loss", "ETA"):
            table.add_column(column, justify="left" if column in ("run", "") else "right")
        for run in active[:MOST_ROWS]:
            progress = progress_of(run.directory, run.planned.run.training.steps)
            since = None if run.handle.is_waiting else still_since(run.directory, progress.steps)
            table.add_row(
                Text(run.planned.title + (visible(f"  {run.handle.place}") if run.handle.is_waiting else "")),
                f"{progress.step}/{progress.steps}",
                ProgressBar(total=progress.steps, completed=progress.step, width=24),
                "-" if progress.train_loss is None else f"{progress.train_loss:.4f}",
                duration(progress.seconds_left) if since is None else still_in_words(since),
            )
        eta = duration(left_over(plan, active, units=self._units))
        return Group(Text(f"{plan.study.name}: {counted(plan, active)}; ETA {eta}"), table)
