"""How far a study is: the states of its runs counted, the steps of one, the time until all are done."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oelm.core.config import Training
from oelm.execution.costs import START_SECONDS
from oelm.machine.plurals import number_of
from oelm.run.directory import RunDirectory
from oelm.study.kept_choices import decided_line
from oelm.study.one_run import settings_for
from oelm.study.plan import Plan, PlannedRun

if TYPE_CHECKING:
    from oelm.execution.controller import ActiveRun

STILL_SECONDS = 600.0  # a process starts, reads its data and may compile


@dataclass(frozen=True)
class RunProgress:
    step: int
    steps: int
    train_loss: float | None
    seconds_left: float | None

    @property
    def share(self) -> float:
        return self.step / self.steps


def progress_of(directory: RunDirectory, steps: int) -> RunProgress:
    record = directory.last_metrics() or {}
    step, seconds = record.get("step", 0), record.get("seconds")
    left = (steps - step) * seconds / step if step and seconds else None
    return RunProgress(step, steps, record.get("train_loss"), left)


def still_since(directory: RunDirectory, steps: int) -> float | None:
    """When a run that counts as running last wrote anything, as seconds since the epoch, if that is too long ago: its
    process may hang while its lock still has a heartbeat.
    """
    signs = directory.metrics_file, directory.status_file, directory.handle_file  # the last: started, and not yet there
    moved = max((sign.stat().st_mtime for sign in signs if sign.exists()), default=None)
    record = directory.last_metrics() or {}
    a_twentieth = record.get("seconds", 0.0) / record["step"] * steps / 20 if record.get("step") else 0.0
    if moved is None or time.time() - moved <= max(STILL_SECONDS, a_twentieth):
        return None
    return moved


def still_in_words(since: float) -> str:
    return f"no progress since {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(since))}"


def counted(plan: Plan, active: Sequence[ActiveRun] = ()) -> str:
    """How many runs of each stage are in which state; the active ones run or queue, whatever the plan saw last."""
    now = {(run.planned.stage, run.planned.title): "queued" if run.handle.is_waiting else "running" for run in active}
    parts = []
    for stage, runs, expected in (
        ("tuning", plan.tuning, len(plan.tuning)),
        ("final", plan.final, plan.expected_final_runs),
    ):
        if not expected:
            continue
        states = Counter(now.get((run.stage, run.title), run.state) for run in runs)
        saved = states.pop("not_needed", 0)
        states["missing"] += expected + saved - len(runs)
        done = states.pop("finished", 0)
        others = ", ".join(f"{count} {state}" for state, count in sorted(states.items()) if count)
        not_needed = f", {saved} not needed" if saved else ""
        parts.append(f"{stage} {done}/{expected} finished" + (f" ({others})" if others else "") + not_needed)
    return "; ".join(parts)


def round_lines(plan: Plan) -> list[str]:
    """Of halving: what each round that is over dropped, and what is to come."""
    tuning = plan.study.tuning
    if tuning is None or tuning.method != "halving":
        return []
    lines = [f"{done.arm}: {decided_line(done)}" for done in plan.rounds]
    reached = 1 + max((done.number for done in plan.rounds), default=0)
    left = len(tuning.rounds) - reached
    if left and not plan.is_tuned:
        most = left * sum(run.budget == tuning.rounds[reached - 1] for run in plan.tuning)
        lines.append(
            f"tuning: round {reached} of {len(tuning.rounds)}; later rounds have at most {number_of(most, 'run')}, "
            "which no estimate of time includes"
        )
    return lines


Underway = Sequence[tuple[PlannedRun, RunProgress]]


def left_over(plan: Plan, active: list[ActiveRun], *, units: int | None) -> float | None:
    """Seconds until the plan as known is done. Without a number of units, as many as run now."""
    units = units or sum(not run.handle.is_waiting for run in active)
    underway = [(run.planned, progress_of(run.directory, run.planned.run.training.steps)) for run in active]
    return seconds_left(plan, underway, units=units)


def seconds_left(plan: Plan, underway: Underway, *, units: int) -> float | None:
    """What the running ones still need, and the others at their pace, each after its start."""
    # Seconds for one sequence of one step, over what has been seen.
    finished = [run for run in plan.runs if run.stored and run.stored.result]
    taken: float = sum(run.stored.result["training_seconds"] for run in finished if run.stored and run.stored.result)
    done: float = sum(_work(run.run.training) for run in finished)
    for run, each in underway:
        if each.seconds_left is not None:
            taken += each.seconds_left * each.step / max(1, each.steps - each.step)
            done += _work(run.run.training) * each.share
    if not done:
        return None
    pace = taken / done
    running = {(run.stage, run.title) for run, _ in underway}
    to_run = [run for run in plan.runs if run.loss is None and run.state != "not_needed"]
    waiting = [_work(run.run.training) for run in to_run if (run.stage, run.title) not in running]
    final = settings_for(plan.study, plan.study.baseline, seed=plan.study.seeds[0]).run.training
    unplanned = [_work(final)] * (plan.expected_final_runs + len(plan.saved) - len(plan.final))
    to_come = [START_SECONDS + pace * work for work in waiting + unplanned]
    seconds = sum(each.seconds_left or 0 for _, each in underway) + sum(to_come)
    return seconds / max(1, min(units, len(underway) + len(waiting) + len(unplanned)))


def _work(training: Training) -> float:
    return training.steps * training.batch_size
