"""What a person sees of a study: one row a run. The live table of `oelm run`, its plain lines, and `oelm status`.

Only running runs are read again and again, and only the end of their metrics.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from oelm.experiments.controller import ActiveRun, View
from oelm.experiments.standstill import in_words, still_since
from oelm.run_directory import RunDirectory
from oelm.study.declaration import settings_for
from oelm.study.plan import Plan, PlannedRun
from oelm.visible import visible

PLAIN_SECONDS = 30.0  # between lines where there is no terminal
LIVE_SECONDS = 1.0
MOST_ROWS = 40


@dataclass(frozen=True)
class Progress:
    step: int
    steps: int
    train_loss: float | None
    seconds_left: float | None

    @property
    def share(self) -> float:
        return self.step / self.steps


def progress_of(directory: RunDirectory, steps: int) -> Progress:
    record = directory.last_metrics() or {}
    step, seconds = record.get("step", 0), record.get("seconds")
    left = (steps - step) * seconds / step if step and seconds else None
    return Progress(step, steps, record.get("train_loss"), left)


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def counted(plan: Plan, active: Sequence[ActiveRun] = ()) -> str:
    """How many runs of each stage are in which state; the active ones run or queue, whatever the plan saw last."""
    now = {(run.planned.stage, run.planned.title): _doing(run) for run in active}
    parts = []
    for stage, runs, expected in (
        ("tuning", plan.tuning, len(plan.tuning)),
        ("final", plan.final, plan.expected_final_runs),
    ):
        if not expected:
            continue
        states = Counter(now.get((run.stage, run.title), run.state) for run in runs)
        states["missing"] += expected - len(runs)
        done = states.pop("finished", 0)
        others = ", ".join(f"{count} {state}" for state, count in sorted(states.items()) if count)
        parts.append(f"{stage} {done}/{expected} finished" + (f" ({others})" if others else ""))
    return "; ".join(parts)


def _doing(run: ActiveRun) -> str:
    return "queued" if run.handle.is_waiting else "running"


def _names(active: Iterable[ActiveRun]) -> set[tuple[str, str]]:
    return {(run.planned.stage, run.planned.title) for run in active}


def left_over(plan: Plan, active: list[ActiveRun], *, units: int | None) -> float | None:
    """Seconds until the plan as known is done: what the running ones still need, and the others at their pace.

    Without a number of units, as many as run now.
    """
    units = units or sum(not run.handle.is_waiting for run in active)
    progress = [progress_of(run.directory, run.planned.run.training.steps) for run in active]
    pace = _pace([run for run in plan.runs if run.stored and run.stored.result], active, progress)
    if pace is None:
        return None
    running = _names(active)
    waiting = [_work(run) for run in plan.runs if run.loss is None and (run.stage, run.title) not in running]
    unplanned = [_final_work(plan)] * (plan.expected_final_runs - len(plan.final))
    seconds = sum(each.seconds_left or 0 for each in progress) + pace * sum(waiting + unplanned)
    return seconds / max(1, min(units, len(active) + len(waiting) + len(unplanned)))


def _work(run: PlannedRun) -> float:
    return run.run.training.steps * run.run.training.batch_size


def _final_work(plan: Plan) -> float:
    training = settings_for(plan.study, plan.study.baseline, seed=plan.study.seeds[0]).run.training
    return training.steps * training.batch_size


def _pace(finished: list[PlannedRun], active: list[ActiveRun], progress: list[Progress]) -> float | None:
    """Seconds for one sequence of one step, over what has been seen."""
    seconds = sum(run.stored.result["training_seconds"] for run in finished if run.stored and run.stored.result)
    done = sum(_work(run) for run in finished)
    for run, each in zip(active, progress, strict=True):
        if each.seconds_left is not None:
            seconds += each.seconds_left * each.step / max(1, each.steps - each.step)
            done += _work(run.planned) * each.share
    return seconds / done if done else None


# ---- Live and plain ------------------------------------------------------------------------------------------------


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
    since = still_since(run.directory, run.planned.resolved_run)
    left = f"ETA {duration(progress.seconds_left)}" if since is None else in_words(since)
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
            since = None if run.handle.is_waiting else still_since(run.directory, run.planned.resolved_run)
            table.add_row(
                Text(run.planned.title + (visible(f"  {run.handle.place}") if run.handle.is_waiting else "")),
                f"{progress.step}/{progress.steps}",
                ProgressBar(total=progress.steps, completed=progress.step, width=24),
                "-" if progress.train_loss is None else f"{progress.train_loss:.4f}",
                duration(progress.seconds_left) if since is None else in_words(since),
            )
        eta = duration(left_over(plan, active, units=self._units))
        return Group(Text(f"{plan.study.name}: {counted(plan, active)}; ETA {eta}"), table)
