"""The bench of a study: its file, its notes, its choice of arms, and when it may stop early."""

from __future__ import annotations

import pytest

from oelm.core.accounting import as_at_first_step, step_work
from oelm.core.arms import ARMS
from oelm.core.model.freezing import moves_at
from oelm.core.moves import Always, Never
from oelm.core.parts import ROLES
from oelm.execution.timing import interleaved
from oelm.execution.timing.interleaved import TWIN, WARMUP_STEPS, measure
from oelm.execution.timing.workload import MANY_STEPS, TimedArm, workload_of
from oelm.machine.errors import UserError
from oelm.run.training.device import resolve_machine
from oelm.storage.files import read_sealed
from oelm.study.bench import BENCH_FILE, LEAST_BLOCKS, REJECTED_FILE, BlockRecord, bench_of
from oelm.study.bench_fit import bench_for
from oelm.study.plan import planned
from oelm.study.reading import study_of
from oelm.study.shelf import Shelf
from small_runs import VOCABULARY, quiet_execution, small_run

BASE = {
    "model": {"vocabulary": 64, "seq_len": 16, "d_model": 32, "num_layers": 2, "num_heads": 4, "d_ff": 64},
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
    assert read_sealed(tmp_path / "small" / BENCH_FILE) == record
    assert Shelf(tmp_path / "small").bench() == bench_of(record, tmp_path)
    assert record["format_version"] == 3
    assert record["baseline"] == "trained"
    assert record["arms"] == list(record["seconds"]) == list(study.arms)
    assert record["rounds"] == 3
    assert all(len(times) == 3 and min(times) > 0 for times in [*record["seconds"].values(), record["twin"]])
    assert [set(block) for block in record["blocks"]] == [set(BlockRecord.model_fields)] * 3
    assert (record["rebuilt"], type(record["seed"])) == (True, int)
    expected = {"device": "cpu", "precision": "float32", "compile": False, "threads": 1, "steps_per_round": 2}
    assert {key: record[key] for key in expected} == expected
    assert record["versions"]["torch"]
    assert len(record["source_digest"]) == 64
    assert record["tokens"] == str(token_folder)
    assert any("step 1" in note and "late_unfreeze" in note for note in record["notes"])
    assert any("ETA" in line for line in said)
    shelf = Shelf(tmp_path / "small")
    stored = shelf.bench()
    assert stored.runs["frozen_head_orthogonal"].model.vocabulary == VOCABULARY
    assert stored.execution == {"device": "cpu", "precision": "float32", "compile": "off", "threads": 1} | {
        "micro_batch_size": record["micro_batch_size"], "deterministic": True, "tf32": False
    }  # fmt: skip
    assert stored.declared["micro_batch_size"] is None
    assert bench_for(planned(study, shelf, data_digest=record["data_digest"]), shelf).other_config == {}


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
    """Steps of constant length on a quiet machine: the ratio is exact after the least number of blocks."""
    monkeypatch.setattr(TimedArm, "step", lambda self: 0.001)
    monkeypatch.setattr(interleaved, "judged", lambda blocks: blocks)
    study = _study(
        "trained", "trained_head_orthogonal", "frozen_head_orthogonal", data=token_folder, hypotheses=[FASTER]
    )
    record = measure(study, out=tmp_path, rounds=1000, steps_per_round=1, say=said.append, until_half_width=0.01)
    assert record["rounds"] == LEAST_BLOCKS
    assert "frozen_head_orthogonal / trained_head_orthogonal: 1.000" in said[-1]


def test_disturbed_blocks_are_repeated_while_there_are_rounds(tmp_path, token_folder, said, monkeypatch):
    def judged(blocks):
        return [
            block.model_copy(update={"disturbed": ["others"] * (number % 2)}) for number, block in enumerate(blocks)
        ]

    monkeypatch.setattr(TimedArm, "step", lambda self: 0.001)
    monkeypatch.setattr(interleaved, "judged", judged)
    study = _study("trained", "frozen_normal", data=token_folder)
    settings = {"out": tmp_path, "steps_per_round": 1, "say": said.append, "until_half_width": 0.01}
    record = measure(study, rounds=1000, **settings)
    assert record["rounds"] == 2 * LEAST_BLOCKS - 1
    assert "7 disturbed (others 7)" in said[-1]
    assert bench_of(measure(study, rounds=2 * LEAST_BLOCKS - 2, **settings), tmp_path).is_busy


def test_a_worse_measurement_is_put_beside_a_better_one(tmp_path, token_folder, said, monkeypatch):
    """Fewer arms, or too few undisturbed blocks; --replace puts it in its place, and so does an edited study."""
    monkeypatch.setattr(TimedArm, "step", lambda self: 0.001)
    monkeypatch.setattr(interleaved, "judged", lambda blocks: blocks)
    study = _study("trained", "frozen_normal", "frozen_orthogonal", data=token_folder)
    settings = {"out": tmp_path, "rounds": LEAST_BLOCKS, "steps_per_round": 1, "say": said.append}
    good = measure(study, **settings)
    bench, rejected = tmp_path / BENCH_FILE, tmp_path / REJECTED_FILE
    few = measure(study, arms=["trained", "frozen_normal"], **settings)
    assert (read_sealed(bench), read_sealed(rejected)) == (good, few)
    assert said[-1] == (
        f"{bench} stays: this measurement is missing frozen_orthogonal; it is in bench-rejected.json (--replace writes "
        "bench.json anyway)"
    )
    monkeypatch.setattr(
        interleaved, "judged", lambda blocks: [each.model_copy(update={"disturbed": ["others"]}) for each in blocks]
    )
    busy = measure(study, **settings)
    assert (read_sealed(bench), read_sealed(rejected)) == (good, busy)
    assert "has too few undisturbed blocks (0 of at least 8)" in said[-1]
    assert read_sealed(bench) != measure(study, replace=True, **settings) == read_sealed(bench)
    monkeypatch.setattr(interleaved, "judged", lambda blocks: blocks)
    measure(study, **settings)
    larger = study.model_copy(update={"base": study.base | {"training": {"steps": 8, "batch_size": 2}}})
    said.clear()
    few = measure(larger, arms=["trained", "frozen_normal"], **settings)
    assert read_sealed(bench) == few
    assert not any("stays" in line for line in said)


def test_the_baseline_is_timed_twice_by_contenders_built_anew(tmp_path, token_folder, said, monkeypatch):
    built, steps = [], []

    class Watched(TimedArm):
        def __init__(self, run, machine, workload):
            built.append(run.arm)
            super().__init__(run, machine, workload)

        def step(self):
            steps.append(self)
            return super().step()

    monkeypatch.setattr(interleaved, "TimedArm", Watched)
    study = _study("trained", "frozen_normal", data=token_folder)
    record = measure(study, out=tmp_path, rounds=4, steps_per_round=8, say=said.append)
    blocks = 4 if record["rebuilt"] else 1
    assert sorted(built) == sorted(["trained", "trained", "frozen_normal"] * blocks)
    assert len(steps) == 3 * (WARMUP_STEPS * blocks + 4 * 8)
    assert record["twin"] != record["seconds"]["trained"]
    assert TWIN not in record["seconds"]


def test_what_moves_first_is_what_the_loop_moves_first():
    for arm in ARMS:
        run = small_run()
        model = run.model.model_copy(update={"parts": ARMS[arm].parts})
        first = as_at_first_step(run.model_copy(update={"model": model})).model.parts
        for name in ROLES:
            moves = moves_at(getattr(ARMS[arm].parts, name).moves, 1, steps=MANY_STEPS, layer=None, num_layers=4)
            assert isinstance(getattr(first, name).moves, Always if moves else Never)
    assert step_work(as_at_first_step(small_run("late_unfreeze"))) == step_work(small_run("frozen_head_orthogonal"))


def test_frozen_weights_save_products_and_optimizer_traffic():
    trained, frozen = (step_work(small_run(arm)) for arm in ("trained", "frozen_normal"))
    ratios = {name: frozen[name] / trained[name] for name in trained}
    weights = 2 * 4 * 32 * 32  # query and key of four layers
    assert frozen["products"] == trained["products"] - 2 * weights * 4 * 16
    assert ratios["optimizer"] < ratios["memory"] < 1


def test_the_ratios_in_question_are_those_of_the_speed_hypotheses(token_folder):
    arms = ["trained", "trained_head_orthogonal", "frozen_head_orthogonal"]
    asked = _study(*arms, data=token_folder, hypotheses=[FASTER])
    assert interleaved._pairs(asked, arms, "trained") == [("frozen_head_orthogonal", "trained_head_orthogonal")]
    unasked = _study(*arms, data=token_folder)
    assert interleaved._pairs(unasked, arms, "trained") == [(arm, "trained") for arm in arms[1:]]


@pytest.mark.parametrize(("arm", "has_moments"), [("late_unfreeze", False), ("train_then_freeze", True)])
def test_a_schedule_is_timed_as_at_its_first_step(arm, has_moments, token_folder):
    """However many steps are timed, what rests at step 1 never moves."""
    run = small_run(arm, data=token_folder)
    machine, _ = resolve_machine(quiet_execution(), run, local_rank=0, world_size=1)
    timed = TimedArm(run, machine, workload_of(run))
    for _ in range(12):
        assert timed.step() > 0
    query = timed.objective.model.get_parameter("blocks.0.attention.query.weight")
    assert bool(timed.optimizer.state.get(query)) is has_moments


def test_real_tokens_are_those_of_the_run(token_folder):
    workload = workload_of(small_run(data=token_folder))
    assert workload.facts == {"vocabulary": VOCABULARY}
    assert len(workload.data.splits["train"]) == 20_000
    assert len(workload.data.splits["val"]) == 2_000
