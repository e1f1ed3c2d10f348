"""What Slurm says, and what it is taken for when it says nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from oelm.execution import slurm_queue
from oelm.execution.handles import StudyEngines
from oelm.execution.slurm import SlurmEngine
from oelm.execution.slurm_queue import Queue, SlurmJob, refusal
from oelm.machine.errors import UserError


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(slurm_queue, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def answering(monkeypatch, clock: list[float], *answers: dict) -> list[int]:
    """squeue gives these one after another, then none: that takes half a minute. Returns how often it was silent."""
    left, silent = list(answers), []

    def listed() -> dict:
        if left and (answer := left.pop(0)) is not None:
            return answer
        silent.append(1)
        clock[0] += 30
        raise UserError("squeue: silent")

    monkeypatch.setattr(slurm_queue, "_listed", listed)
    return silent


RUNNING = {("array", 0): SlurmJob("1_0", "RUNNING", "None")}


def test_a_cluster_that_was_silent_is_not_asked_once_for_every_run(tmp_path, monkeypatch, clock):
    silent, queue = answering(monkeypatch, clock), Queue(tmp_path)
    for task in range(5):
        with pytest.raises(UserError, match="silent"):
            queue.job("array", task)
    assert len(silent) == 1


def test_what_was_submitted_before_a_silence_counts_as_waiting_and_the_silence_is_told(tmp_path, monkeypatch, clock):
    """Neither is it taken for ended nor does anybody wait in silence for the cluster to answer."""
    answering(monkeypatch, clock, {}, None, RUNNING)
    engine = SlurmEngine(tmp_path)
    engines = StudyEngines(tmp_path, engine)
    assert engine.queue.job("array", 0) is None
    engine.queue.note_submitted("array")
    assert engine.queue.job("array", 0).state == "PENDING"
    assert list(engines.news()) == ["Slurm does not answer (squeue: silent); trying again, its runs continue"]
    assert list(engines.news()) == []
    clock[0] += slurm_queue.LAST_LOOK_SECONDS
    assert engine.queue.job("array", 0).state == "RUNNING"
    assert list(engines.news()) == ["Slurm answers again"]


def test_a_silence_that_lasts_is_an_error(tmp_path, monkeypatch, clock):
    answering(monkeypatch, clock, RUNNING)
    queue = Queue(tmp_path)
    for seconds in (0.0, slurm_queue.MOST_SILENCE_SECONDS - 30):
        clock[0] += seconds
        assert queue.job("array", 0).state == "RUNNING"
    clock[0] += slurm_queue.LAST_LOOK_SECONDS
    with pytest.raises(UserError, match="silent"):
        queue.job("array", 0)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "sbatch: error: invalid account\nsbatch: error: Batch job submission failed: Invalid account",
            "slurm.account",
        ),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", "request less"),
        ("squeue: error: Unable to contact slurm controller (connect failure)", "try again later"),
        ("", "refused without a reason"),
    ],
)
def test_a_refusal_says_what_to_do(words, expected):
    line = refusal("sbatch", words)
    assert expected in line
    assert "\n" not in line


def test_a_job_that_will_never_start_says_so():
    assert "request less" in str(SlurmJob("5_0", "PENDING", "PartitionConfig"))
    assert str(SlurmJob("5_0", "PENDING", "Priority")) == "PENDING (Priority), job 5_0"
