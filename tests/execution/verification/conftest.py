"""Tiny runs, trained once: their losses are real, and every test has copies to change."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from oelm.run.training.run import train
from small_runs import REPOSITORY, quiet_execution, small_run, torchrun

PROCESSES = 3  # of a batch of 5: shares of different size, and an order of summation that shows


@pytest.fixture(scope="session")
def trained(tmp_path_factory, token_folder) -> dict[str, Path]:
    """By what is special: the reported set is the curve's; weights rest, by a schedule too; other arithmetic."""
    root = tmp_path_factory.mktemp("verified")
    sets = {"steps": 12, "validation_sequences": 6}
    runs = {
        "plain": (small_run("trained", data=token_folder, final_validation_sequences=11, **sets), {}),
        "curve": (small_run("trained", data=token_folder, final_validation_sequences=6, **sets), {}),
        "frozen": (small_run("frozen_half", data=token_folder, final_validation_sequences=9, **sets), {}),
        "scheduled": (
            small_run("late_unfreeze", data=token_folder, final_validation_sequences=9, **sets),
            {"precision": "bfloat16", "micro_batch_size": 3, "threads": 2},
        ),
    }
    for name, (run, execution) in runs.items():
        train(run, quiet_execution(**execution), out=root / name)
    return {name: root / name for name in runs}


@pytest.fixture(scope="session")
def by_several(tmp_path_factory, token_folder) -> Path:
    """A run of several processes."""
    out = tmp_path_factory.mktemp("several")
    script = str(REPOSITORY / "tests" / "train_many.py")
    done = torchrun(script, str(token_folder), str(out), "float32", "trained", processes=PROCESSES)
    assert done.returncode == 0, done.stderr
    return out / "trained"


@pytest.fixture
def copy_of(trained, tmp_path) -> Callable[[str], Path]:
    """A copy of a run that a test may change."""
    return lambda name, to="run": Path(shutil.copytree(trained[name], tmp_path / to))
