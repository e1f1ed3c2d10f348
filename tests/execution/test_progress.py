"""What is counted and estimated of a study while it runs."""

from dataclasses import replace

import pytest

from oelm.execution.controller import ActiveRun
from oelm.execution.costs import START_SECONDS
from oelm.execution.local import LocalHandle
from oelm.execution.progress import counted, left_over, seconds_left
from oelm.run.directory import RunDirectory
from oelm.storage.ownership import Process
from oelm.study.plan import planned
from stored_runs import small_study, store_study


@pytest.fixture
def half_done(tmp_path):
    """Five arms, two seeds of one second a run; the first seed is finished, one run of the second has begun."""
    study = small_study(seeds=[0, 1])
    shelf = store_study(
        study, tmp_path, lambda arm, seed, stage, point: 3.0 if seed == 0 else None, step_seconds=1 / 40
    )
    plan = planned(study, shelf)
    directory = RunDirectory(tmp_path / "begun")
    directory.path.mkdir()
    directory.append_metrics({"step": 20, "seconds": 0.5, "train_loss": 3.0})
    waiting = [run for run in plan.runs if run.stored is None]
    return plan, [ActiveRun(waiting[0], LocalHandle(directory, Process.current(), (0,)))]


def test_active_runs_count_as_running(half_done):
    plan, active = half_done
    assert counted(plan) == "final 5/10 finished (5 missing)"
    assert counted(plan, active) == "final 5/10 finished (4 missing, 1 running)"


def test_active_runs_in_a_queue_count_as_queued(half_done):
    plan, (run,) = half_done

    class Waiting(LocalHandle):
        is_waiting = True

    waiting = ActiveRun(run.planned, Waiting(run.directory, Process.current(), ()))
    assert counted(plan, [waiting]) == "final 5/10 finished (4 missing, 1 queued)"


def test_the_estimate_is_what_the_running_ones_need_and_the_others_at_their_pace_after_their_start(half_done):
    plan, active = half_done
    seconds = 0.5 + 4 * (START_SECONDS + 1.0)
    assert left_over(plan, active, units=1) == pytest.approx(seconds, rel=0.01)
    assert left_over(plan, active, units=2) == pytest.approx(seconds / 2, rel=0.01)


def test_runs_that_cannot_be_planned_yet_are_estimated_beside_those_that_nobody_needs(half_done):
    """An arm whose values are not chosen has no runs in the plan; another needs no second seed."""
    plan, _ = half_done
    later, decided = list(plan.study.arms)[-2:]
    final = [replace(run, need="never") if run.arm == decided and run.seed else run for run in plan.final]
    partly = replace(plan, final=[run for run in final if run.arm != later])
    assert len(partly.saved) == 1
    seconds = (3 + 2) * (START_SECONDS + 1.0)
    assert seconds_left(partly, [], units=1) == pytest.approx(seconds, rel=0.01)
