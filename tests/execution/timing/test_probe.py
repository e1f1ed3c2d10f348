"""A probe measures in a child process; whoever asks for it loads no torch and gets one line for every failure."""

from __future__ import annotations

import sys

import pytest

from oelm.core.config import Settings
from oelm.core.settings import load_settings
from oelm.execution import costs
from oelm.execution.costs import probed
from oelm.machine.errors import UserError
from small_runs import child_environment, finished, quiet_execution, small_run


@pytest.fixture(autouse=True)
def _children_find_the_package(monkeypatch):
    for key, value in child_environment().items():
        monkeypatch.setenv(key, value)


def test_probe_measures_time_memory_and_disk(token_folder):
    run = small_run("frozen_head_orthogonal", data=token_folder)
    found = probed(Settings(run=run, execution=quiet_execution()), timeout=60)
    assert 0 < found["seconds_per_step"] < 5
    assert 0 < found["validation_seconds_per_sequence"] < found["seconds_per_step"]
    assert found["peak_memory_bytes"] > 50 * 2**20
    assert found["checkpoint_bytes"] > 100_000
    expected = {"threads": 1, "precision": "float32", "compile": False, "device": "cpu", "micro_batch_size": 4}
    assert {key: found[key] for key in expected} == expected
    assert found["data"] == str(token_folder)


def test_an_arm_written_out_by_hand_is_probed_with_its_processs_part_of_the_batch(monkeypatch):
    given = []
    monkeypatch.setattr(costs, "write_json", lambda file, tree: given.append(tree))
    monkeypatch.setattr(costs, "PROBE", "json.tool")  # which finds no such file
    settings = load_settings(preset="tiny", arm="frozen_half", assignments=["query.gain=2.0", "batch_size=4"])
    with pytest.raises(UserError, match="probe of custom"):
        probed(settings, timeout=60, processes=3)
    (tree,) = given
    assert "arm" not in tree
    assert tree["model"]["parts"]["query"]["gain"] == 2.0
    assert tree["training"]["batch_size"] == 2


def test_what_goes_wrong_in_the_child_is_one_line(token_folder):
    settings = Settings(run=small_run(data=token_folder), execution=quiet_execution(device="cuda:7"))
    with pytest.raises(UserError, match=r"^probe of trained: execution.device.*not available[^\n]*$"):
        probed(settings, timeout=60)


def test_a_probe_that_takes_too_long_is_stopped(token_folder):
    settings = Settings(run=small_run(data=token_folder), execution=quiet_execution())
    with pytest.raises(UserError, match=r"longer than 0\.05 s"):
        probed(settings, timeout=0.05)


def test_asking_loads_no_torch():
    code = "import oelm.execution.costs, oelm.execution.timing.blocks, sys; sys.exit('torch' in sys.modules)"
    assert finished([sys.executable, "-c", code]).returncode == 0
