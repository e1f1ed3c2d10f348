"""What is counted and estimated of a study while it runs."""

import pytest

from oelm.errors import UserError
from oelm.experiments.controller import ActiveRun
from oelm.experiments.local import LocalHandle, units_here
from oelm.experiments.table import counted, duration, left_over
from oelm.ownership import Process
from oelm.run_directory import RunDirectory
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


def test_the_estimate_is_what_the_running_ones_need_and_the_others_at_their_pace(half_done):
    plan, active = half_done
    assert left_over(plan, active, units=1) == pytest.approx(0.5 + 4 * 1.0, rel=0.05)
    assert left_over(plan, active, units=2) == pytest.approx((0.5 + 4 * 1.0) / 2, rel=0.05)


def test_durations_are_read_at_a_glance():
    assert [duration(each) for each in (None, 5, 65, 3725)] == ["-", "0:05", "1:05", "1:02:05"]


def test_slots_are_gpus_or_groups_of_cores(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    assert len(units_here(None, device="cpu", threads=2)) == 4
    assert len(units_here(3, device="cpu", threads=2)) == 3
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert [str(unit) for unit in units_here(None, device="auto", threads=None)] == ["gpu 2", "gpu 5"]
    assert [str(unit) for unit in units_here(1, device="auto", threads=None)] == ["gpu 2"]
    with pytest.raises(UserError, match="--slots 3: there are 2 GPUs to use"):
        units_here(3, device="auto", threads=None)
