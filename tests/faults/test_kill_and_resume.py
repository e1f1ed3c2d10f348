"""K1, K2, K3: a killed run, started again with the same command, ends as if nothing had happened."""

from __future__ import annotations

import json
import signal

import pytest
from patches import DIE_AT_STEP, DIE_BEFORE_PRUNING, DIE_INSIDE_A_SAVE
from runs import (
    assert_equal_runs,
    everything_stored,
    leftovers,
    newest,
    state,
    steps_recorded,
    training,
    whole_steps,
)

from oelm.run.directory import check_whole
from warm import cold

# ---- K1: at any step -----------------------------------------------------------------------------------------------


def test_resumed_run_equals_uninterrupted_run(server, data, reference, tmp_path):
    """Killed twice from outside, resumed by a cold `python -m oelm`: every tensor and every recorded loss is equal."""
    command = training(tmp_path / "run", data)
    for step in (9, 24):
        running = server.start(*command)
        running.until(lambda step=step: steps_recorded(tmp_path / "run") >= step)
        running.send(signal.SIGKILL)
        assert running.wait().code == -signal.SIGKILL
    ended = cold(*command)
    assert ended.code == 0, ended.text
    assert "resuming from step" in ended.out
    assert "warning" not in ended.text
    assert_equal_runs(tmp_path / "run", reference)


@pytest.mark.parametrize(
    ("arm", "changes"),
    [
        ("frozen_half", {"precision": "bfloat16", "micro_batch_size": 3}),
        ("progressive_unfreeze", {}),
        ("train_then_freeze", {}),
        ("frozen_embedding", {"model__tied": "false"}),
        *(pytest.param(arm, {}, marks=pytest.mark.trial) for arm in ("every_n", "frozen_up", "reservoir")),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else value,
)
def test_resumed_run_equals_uninterrupted_run_for_every_kind_of_run(server, data, tmp_path, arm, changes):
    changes = {"training.steps": 20} | changes  # schedules turn before and after step 7, where it resumes
    whole, killed = (training(tmp_path / name, data, arm=arm, **changes) for name in ("whole", "killed"))
    assert server.run(*whole).code == 0
    assert server.run(*killed, patch=DIE_AT_STEP.format(step=13)).code == -signal.SIGKILL
    assert server.run(*killed).code == 0
    assert_equal_runs(tmp_path / "killed", tmp_path / "whole")


def test_a_changed_setting_is_warned_of(server, data, stopped):
    chosen = json.loads((stopped / "environment.json").read_text())["precision"]  # as this processor is good at
    other = "float32" if chosen == "bfloat16" else "bfloat16"
    ended = server.run(*training(stopped, data, precision=other, micro_batch_size=2))
    assert ended.code == 0
    for line in (f"precision: {chosen} before, {other} now", "micro_batch_size: 4 before, 2 now"):
        assert f"warning: {line}; the result may differ in its last bits" in ended.out


def test_a_run_killed_after_its_last_checkpoint_only_writes_its_result(server, data, reference, tmp_path):
    die = "import os, oelm.run.training.driver as d; d.result_record = lambda *_, **__: os.kill(os.getpid(), 9)"
    command = training(tmp_path / "run", data)
    assert server.run(*command, patch=die).code == -signal.SIGKILL
    assert state(tmp_path / "run") == "running"
    assert server.run(*command).code == 0
    assert_equal_runs(tmp_path / "run", reference)


def test_a_finished_run_is_not_started_again(server, data, reference):
    before = everything_stored(reference)
    ended = server.run(*training(reference, data))
    assert ended.code == 0
    assert "this run is finished" in ended.out
    assert everything_stored(reference) == before


# ---- K2, K3: inside a checkpoint save ------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.trial)])
def test_a_kill_at_any_moment_of_a_save_leaves_the_old_or_the_new_checkpoint(server, data, tmp_path, every):
    """With keep_checkpoints=1 the save at step 14 also removes step 7: nothing else could stand in for a torn one."""
    changes = {"training.steps": 16, "keep_checkpoints": 1}
    uninterrupted = server.run(*training(tmp_path / "whole", data, **changes), patch=DIE_INSIDE_A_SAVE.format(moment=0))
    moments = int(uninterrupted.out.split("moments ")[1].split()[0])
    assert moments > 15
    for moment in range(1, moments + 1, every):
        run = tmp_path / f"killed-{moment}"
        command = training(run, data, **changes)
        killed = server.run(*command, patch=DIE_INSIDE_A_SAVE.format(moment=moment))
        assert killed.code == -signal.SIGKILL, moment
        check_whole(newest(run))
        assert newest(run).name in ("step-000007", "step-000014"), moment
        resumed = server.run(*command)
        assert resumed.code == 0, (moment, resumed.text)
        assert "resuming from step" in resumed.out
        assert_equal_runs(run, tmp_path / "whole")
        assert whole_steps(run) == [16], moment


def test_a_kill_between_publishing_and_pruning_leaves_one_more_checkpoint_which_goes_later(
    server, data, reference, tmp_path
):
    command = training(tmp_path / "run", data)
    assert server.run(*command, patch=DIE_BEFORE_PRUNING).code == -signal.SIGKILL
    assert whole_steps(tmp_path / "run") == [7, 14, 21]
    resumed = server.run(*command)
    assert "resuming from step 21" in resumed.out
    assert whole_steps(tmp_path / "run") == [35, 40]
    assert_equal_runs(tmp_path / "run", reference)


@pytest.mark.parametrize("module", ["oelm.run.training.checkpoint", "oelm.storage.files"], ids=["best model", "config"])
def test_a_kill_while_another_file_is_written_leaves_nothing_behind(server, data, reference, tmp_path, module):
    die = f"import os, {module} as module; module.publish = lambda *_, **__: os.kill(os.getpid(), 9)"
    command = training(tmp_path / "run", data)
    assert server.run(*command, patch=die).code == -signal.SIGKILL
    assert leftovers(tmp_path / "run") != []
    assert server.run(*command).code == 0
    assert_equal_runs(tmp_path / "run", reference)


def test_an_old_checkpoint_that_cannot_be_removed_does_not_stop_the_run(server, data, reference, stopped, mounted):
    """Something is mounted in it, or a reader on a network disk still has it open."""
    held = mounted("size=1m", stopped / "checkpoints" / "step-000021" / "held")
    ended = server.run(*training(stopped, data))
    assert ended.code == 0, ended.text
    assert held.is_dir()
    assert everything_stored(stopped) == everything_stored(reference)


def test_stored_weights_are_as_readable_as_other_files(reference):
    """Whoever may read a run's metrics may read its model."""
    modes = {path.stat().st_mode & 0o777 for path in reference.rglob("*") if path.is_file()}
    assert modes == {(reference / "metrics.jsonl").stat().st_mode & 0o777}
