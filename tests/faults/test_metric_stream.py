"""The metric stream survives what ends a run: torn lines, repeated steps, clocks that start again."""

from __future__ import annotations

import json
import signal

import pytest
from patches import DIE_AT_STEP
from runs import losses, training

from oelm.run.directory import RunDirectory


def test_half_written_metric_line_is_ignored(server, data, reference, stopped):
    """By readers at once; by the resumed run, which does not write its first record behind it."""
    file = stopped / "metrics.jsonl"
    content, before = file.read_bytes(), RunDirectory(stopped).metrics()
    for torn in (b"{", b"\0\0\0", b"\xff\xfe", b"[1, 2]", b"null", b'{"step": 33, "tok'):
        file.write_bytes(content + torn)
        assert RunDirectory(stopped).metrics() == before
    file.write_bytes(content + b'{"step": 33}')  # whole JSON, though its line lacks an end
    assert server.run(*training(stopped, data)).code == 0
    assert losses(stopped) == losses(reference)


def test_for_a_step_written_twice_the_last_record_counts(server, data, reference, stopped):
    """Killed at step 32, resumed from 28: steps 29 to 31 are there twice, once as they were before the kill."""
    lines = (stopped / "metrics.jsonl").read_text().splitlines()
    spoiled = [
        json.dumps(json.loads(line) | {"tokens": -1}) if json.loads(line)["step"] > 28 else line for line in lines
    ]
    assert spoiled != lines
    (stopped / "metrics.jsonl").write_text("\n".join(spoiled) + "\n")
    assert server.run(*training(stopped, data)).code == 0
    written = [json.loads(line)["step"] for line in (stopped / "metrics.jsonl").read_text().splitlines()]
    assert written.count(30) == 4  # a training and a validation record, each twice
    assert losses(stopped) == losses(reference)


def test_seconds_add_up_over_resumes(server, data, tmp_path):
    """Of the steps that count: those lost by a kill are not paid for twice."""
    run = tmp_path / "run"
    for step in (10, 20, 30):
        assert server.run(*training(run, data), patch=DIE_AT_STEP.format(step=step)).code == -signal.SIGKILL
    assert server.run(*training(run, data)).code == 0
    training_records = [record for record in RunDirectory(run).metrics() if "train_loss" in record]
    assert [record["step"] for record in training_records] == list(range(1, 41))
    seconds = [record["seconds"] for record in training_records]
    assert seconds == sorted(seconds)
    result = json.loads((run / "experiment_result.json").read_text())
    assert result["resumes"] == 3
    assert result["training_seconds"] == pytest.approx(seconds[-1], abs=1e-3)
    assert result["wall_seconds"] > result["training_seconds"] + result["validation_seconds"]
    assert result["tokens"] == 40 * 4 * 16
