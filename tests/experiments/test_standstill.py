"""A run that lives and does not move is shown; one that is only slow is not."""

import os
import time

import pytest

from oelm.config import resolved, stored_form
from oelm.experiments.standstill import in_words, still_since
from oelm.experiments.status import overview
from oelm.files import write_json
from oelm.run_directory import RunDirectory
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


def records(directory: RunDirectory, *, step_seconds: float, every: int = 10, validation_seconds: float = 0.0) -> None:
    for step in (every, 2 * every, 3 * every):
        directory.append_metrics({"step": step, "seconds": step * step_seconds, "train_loss": 3.0})
    spent = validation_seconds * 3 * every / RUN.training.validate_every
    directory.append_metrics(
        {"step": 3 * every, "seconds": 3 * every * step_seconds, "validation_seconds": spent, "val_loss": 3.0}
    )


def age(directory: RunDirectory, seconds: float) -> float:
    moved = time.time() - seconds
    for file in (directory.metrics_file, directory.status_file):
        if file.exists():
            os.utime(file, (moved, moved))
    return moved


@pytest.mark.parametrize(
    ("pace", "still_after"),
    [
        ({"step_seconds": 0.01}, 60),  # never less than a minute
        ({"step_seconds": 10.0}, 500),  # five times the 100 s between its records
        ({"step_seconds": 0.01, "validation_seconds": 40.0}, 200),  # or with the validation between them
        ({"step_seconds": 0.01, "every": 1000}, 60),
    ],
)
def test_a_run_is_judged_by_its_own_pace(directory, pace, still_after):
    records(directory, **pace)
    age(directory, still_after - 5)
    assert still_since(directory, RUN) is None
    moved = age(directory, still_after + 5)
    assert still_since(directory, RUN) == pytest.approx(moved, abs=1)


def test_before_the_first_records_it_has_ten_minutes(directory):
    age(directory, 590)
    assert still_since(directory, RUN) is None
    age(directory, 610)
    assert still_since(directory, RUN) is not None


@pytest.mark.parametrize("line", ['{"step": "x"}', '{"step": 0, "seconds": 1}', "[" * 9000, '{"step": 1e999}', "null"])
def test_what_is_no_record_is_passed_over(directory, line):
    records(directory, step_seconds=0.01)
    with open(directory.metrics_file, "a") as stream:
        stream.write(line + "\n")
    age(directory, 70 if len(line) < 8192 else 610)
    assert still_since(directory, RUN) is not None


def test_status_says_since_when(directory, tmp_path):
    records(directory, step_seconds=0.01)
    assert overview(directory.path.parent) == [f"{directory.path}: running"]
    moved = age(directory, 300)
    still = f"{directory.path}: {in_words(moved)}"
    assert overview(directory.path.parent) == [f"{directory.path}: running", still]
    assert overview(tmp_path) == [f"{tmp_path / 'runs'}: 1 running", still]
    directory.write_status("failed")
    age(directory, 300)
    assert overview(directory.path.parent) == [f"{directory.path}: failed"]
