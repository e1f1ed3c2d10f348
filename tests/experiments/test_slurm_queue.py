"""What Slurm says, and what it is taken for when it says nothing."""

from __future__ import annotations

import pytest

from oelm.errors import UserError
from oelm.experiments import slurm_queue
from oelm.experiments.slurm_queue import Job, Queue, refusal


def test_a_cluster_that_was_silent_is_not_asked_once_for_every_run(tmp_path, monkeypatch):
    asked = []

    def silent() -> dict:
        asked.append(1)
        raise UserError("squeue: silent")

    monkeypatch.setattr(slurm_queue, "_listed", silent)
    queue = Queue(tmp_path)
    for task in range(5):
        with pytest.raises(UserError, match="silent"):
            queue.job("array", task)
    assert len(asked) == 1


def test_a_moment_of_silence_after_a_submission_is_waited_out(tmp_path, monkeypatch):
    answers = [{}, UserError("squeue: silent"), {("array", 0): Job("1_0", "PENDING", "None")}]

    def listed() -> dict:
        answer = answers.pop(0)
        if isinstance(answer, UserError):
            raise answer
        return answer

    monkeypatch.setattr(slurm_queue, "_listed", listed)
    monkeypatch.setattr(slurm_queue, "FIRST_LOOK_SECONDS", 0.01)
    queue = Queue(tmp_path)
    assert queue.job("array", 0) is None
    queue.forget()
    assert queue.job("array", 0).state == "PENDING"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "sbatch: error: invalid account\nsbatch: error: Batch job submission failed: Invalid account",
            "slurm.account",
        ),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", "ask for less"),
        ("squeue: error: Unable to contact slurm controller (connect failure)", "call again later"),
        ("", "refused without a word"),
    ],
)
def test_a_refusal_says_what_to_do(words, expected):
    line = refusal("sbatch", words)
    assert expected in line
    assert "\n" not in line


def test_a_job_that_will_never_start_says_so():
    assert "ask for less" in str(Job("5_0", "PENDING", "PartitionConfig"))
    assert str(Job("5_0", "PENDING", "Priority")) == "PENDING (Priority), job 5_0"
