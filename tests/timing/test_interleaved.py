"""The bench of a study: its file, its notes, its choice of arms, and when it may stop early."""

from __future__ import annotations

import json

import pytest

from oelm.errors import UserError
from oelm.study.declaration import study_of
from oelm.study.shelf import BENCH_FILE, Shelf
from oelm.timing import interleaved
from oelm.timing.interleaved import LEAST_ROUNDS, measure
from oelm.timing.workload import TimedArm, workload_of
from oelm.training.device import resolve_machine
from small_runs import VOCABULARY, quiet_execution, small_run

BASE = {
    "model": {"seq_len": 16, "d_model": 32, "num_layers": 2, "num_heads": 4, "d_ff": 64},
    "training": {"steps": 8, "batch_size": 4},
    "execution": {"device": "cpu", "precision": "float32", "compile": "off", "threads": 1},
}
FASTER = {
    "name": "H3",
    "claim": "faster",
    "kind": "faster",
    "treatment": "frozen_head_orthogonal",
    "control": "trained_head_orthogonal",
    "varies": ["moves"],
}


def _study(*arms: str, data, **keys):
    base = BASE | {"data": str(data)}
    return study_of(
        {"name": "small", "question": "?", "base": base, "arms": list(arms), "seeds": [0], **keys}, name="test"
    )


@pytest.fixture
def said():
    return []


def test_bench_file_has_paired_times_of_every_arm_and_its_circumstances(tmp_path, token_folder, said):
    study = _study("trained", "frozen_head_orthogonal", "late_unfreeze", data=token_folder)
    record = measure(study, out=tmp_path / "small", rounds=3, steps_per_round=2, say=said.append)
    assert json.loads((tmp_path / "small" / BENCH_FILE).read_text()) == record == Shelf(tmp_path / "small").bench()
    assert record["format_version"] == 1
    assert record["baseline"] == "trained"
    assert record["arms"] == list(record["seconds"]) == list(study.arms)
    assert record["rounds"] == 3
    assert all(len(times) == 3 and min(times) > 0 for times in record["seconds"].values())
    expected = {"device": "cpu", "precision": "float32", "compile": False, "threads": 1, "steps_per_round": 2}
    assert {key: record[key] for key in expected} == expected
    assert record["versions"]["torch"]
    assert len(record["source_digest"]) == 64
    assert record["tokens"] == str(token_folder)
    assert any("step 1" in note and "late_unfreeze" in note for note in record["notes"])
    assert any("ETA" in line for line in said)


def test_without_data_tokens_are_drawn_and_it_is_said(tmp_path, said):
    study = _study("trained", "frozen_normal", data=tmp_path / "nowhere")
    base = study.base | {"model": study.base["model"] | {"vocabulary": 64}}
    study = study.model_copy(update={"base": base})
    record = measure(study, out=tmp_path, rounds=2, steps_per_round=1, say=said.append)
    assert "drawn at random" in record["tokens"]
    assert any("drawn at random" in line for line in said)


def test_arms_can_be_picked_and_an_unknown_one_is_named(tmp_path, token_folder, said):
    study = _study("trained", "frozen_normal", "frozen_orthogonal", data=token_folder)
    record = measure(
        study, out=tmp_path, rounds=2, steps_per_round=1, say=said.append, arms=["frozen_orthogonal", "frozen_normal"]
    )
    assert record["arms"] == ["frozen_normal", "frozen_orthogonal"]
    assert record["baseline"] == "frozen_normal"
    with pytest.raises(UserError, match="frozen_half"):
        measure(study, out=tmp_path, rounds=2, steps_per_round=1, say=said.append, arms=["frozen_half"])


def test_a_known_ratio_ends_the_measurement_early(tmp_path, token_folder, said, monkeypatch):
    """Steps of constant length: the ratio is exact after the least number of rounds."""
    monkeypatch.setattr(TimedArm, "step", lambda self: 0.001)
    study = _study(
        "trained", "trained_head_orthogonal", "frozen_head_orthogonal", data=token_folder, hypotheses=[FASTER]
    )
    record = measure(study, out=tmp_path, rounds=1000, steps_per_round=1, say=said.append, until_half_width=0.01)
    assert record["rounds"] == LEAST_ROUNDS
    assert "frozen_head_orthogonal / trained_head_orthogonal: 1.000" in said[-1]


def test_the_ratios_in_question_are_those_of_the_speed_hypotheses(token_folder):
    arms = ["trained", "trained_head_orthogonal", "frozen_head_orthogonal"]
    asked = _study(*arms, data=token_folder, hypotheses=[FASTER])
    assert interleaved._pairs(asked, arms, "trained") == [("frozen_head_orthogonal", "trained_head_orthogonal")]
    unasked = _study(*arms, data=token_folder)
    assert interleaved._pairs(unasked, arms, "trained") == [(arm, "trained") for arm in arms[1:]]


@pytest.mark.parametrize(
    ("arm", "has_moments"), [("late_unfreeze", False), ("every_n", False), ("train_then_freeze", True)]
)
def test_a_schedule_is_timed_as_at_its_first_step(arm, has_moments, token_folder):
    """However many steps are timed, what rests at step 1 never moves."""
    run = small_run(arm, data=token_folder)
    machine, _ = resolve_machine(quiet_execution(), run, local_rank=0, world_size=1)
    timed = TimedArm(run, machine, workload_of(run))
    for _ in range(12):
        assert timed.step() > 0
    query = timed.task.model.get_parameter("blocks.0.attention.query.weight")
    assert bool(timed.optimizer.state.get(query)) is has_moments


def test_real_tokens_are_those_of_the_run(token_folder):
    workload = workload_of(small_run(data=token_folder))
    assert workload.facts == {"vocabulary": VOCABULARY}
    assert len(workload.data.splits["train"]) == 20_000
    assert len(workload.data.splits["val"]) == 2_000
