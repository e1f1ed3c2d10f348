"""A run that lives and does not move is shown; one that is only slow is not."""

import os
import time

import pytest

from oelm.core.config import resolved, stored_form
from oelm.execution.progress import still_in_words, still_since
from oelm.execution.status import overview
from oelm.run.directory import RunDirectory
from oelm.storage.files import write_json
from small_runs import small_run

RUN = resolved(small_run(validate_every=20), {"vocabulary": 64})


@pytest.fixture
def directory(tmp_path) -> RunDirectory:
    """A run of this very process, which lives."""
    found = RunDirectory(tmp_path / "runs" / "mine")
    found.path.mkdir(parents=True)
    write_json(found.config_file, stored_form(RUN))
    found.write_status("running", step=0)
    return found


def age(directory: RunDirectory, seconds: float) -> float:
    moved = time.time() - seconds
    for file in (directory.metrics_file, directory.status_file):
        if file.exists():
            os.utime(file, (moved, moved))
    return moved


def test_a_slow_run_has_a_twentieth_of_its_time(directory):
    seconds = 2_000.0 * 20 / RUN.training.steps
    directory.append_metrics({"step": 10, "seconds": 10 * seconds, "train_loss": 3.0})
    age(directory, 1_990)
    assert still_since(directory, RUN.training.steps) is None
    moved = age(directory, 2_010)
    assert still_since(directory, RUN.training.steps) == pytest.approx(moved, abs=1)


def test_before_its_first_record_a_run_has_ten_minutes(directory):
    age(directory, 590)
    assert still_since(directory, RUN.training.steps) is None
    age(directory, 610)
    assert still_since(directory, RUN.training.steps) is not None


def test_status_says_since_when(directory, tmp_path):
    assert overview(directory.path.parent) == [f"{directory.path}: running"]
    moved = age(directory, 700)
    still = f"{directory.path}: {still_in_words(moved)}"
    assert overview(directory.path.parent) == [f"{directory.path}: running", still]
    assert overview(tmp_path) == [f"{tmp_path / 'runs'}: 1 running", still]
    directory.write_status("failed")
    age(directory, 700)
    assert overview(directory.path.parent) == [f"{directory.path}: failed"]
