"""Arms: right about healthy ones, and not fooled by sabotage."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from diagnosed import QUERY, diagnosed, moved_at, says, small_gpt_run
from safetensors.torch import load_file
from torch import nn

from oelm.core.arms import GPT_ARMS
from oelm.core.config import PRESETS, Model, Run, Training
from oelm.core.model.freezing import Schedule
from oelm.core.model.initialization import build
from oelm.run.diagnosis import diagnose_arm, runs, storage


@pytest.mark.parametrize("arm", GPT_ARMS)
def test_every_arm_is_healthy_and_its_counts_agree(arm: str) -> None:
    diagnosis = diagnosed(arm)
    assert diagnosis.problems == ()
    assert len(diagnosis.counts) == 3
    assert len(set(diagnosis.counts.values())) == 1
    assert diagnosis.totals in diagnosis.counts.values()


@pytest.mark.parametrize(
    ("arm", "numbers", "trials"),
    [
        ("frozen_head_orthogonal", (), (1, 2)),
        ("every_n", (10,), (1, 10, 11)),
        ("late_unfreeze", (33,), (1, 32, 33)),
        ("progressive_unfreeze", (31,), (1, 20, 21, 30, 31)),  # the lower of two layers: at three quarters
        ("train_then_freeze", (1,), (1, 9)),
    ],
)
def test_queries_move_exactly_when_their_schedule_says_and_are_seen_before_and_after(
    arm: str, numbers: tuple[int, ...], trials: tuple[int, ...]
) -> None:
    diagnosis = diagnosed(arm)
    assert moved_at(diagnosis, QUERY) == numbers
    assert moved_at(diagnosis, "token_embedding.weight") == diagnosis.trial.numbers == trials


def test_a_partly_frozen_projection_is_shown_as_two_parameters() -> None:
    diagnosis = diagnosed("frozen_half")
    assert moved_at(diagnosis, "blocks.1.attention.key.covered") == ()
    assert moved_at(diagnosis, "blocks.1.attention.key.free") == (1, 2)
    assert diagnosis.totals.frozen == 2 * 2 * 16 * 32


def test_a_schedule_that_never_comes_is_noted() -> None:
    diagnosis = diagnosed("every_n", steps=9)
    assert diagnosis.healthy
    assert any("never moves within 9 steps" in note for note in diagnosis.notes)


def test_a_small_learning_rate_is_no_false_alarm() -> None:
    run = small_gpt_run("trained")
    slow = run.training.model_copy(update={"learning_rate": 1e-12, "warmup_steps": 40, "weight_decay": 0.0})
    assert diagnose_arm(run.model_copy(update={"training": slow}), data_given=False, steps=1).healthy


def test_without_data_the_vocabulary_of_gpt2_is_assumed_and_said() -> None:
    run = Run(model=Model(seq_len=16, d_model=16, num_layers=1, num_heads=2))
    diagnosis = diagnose_arm(run, data_given=False, steps=1)
    assert diagnosis.entries[0].shape == (50257, 16)
    assert any("50,257 assumed" in note for note in diagnosis.notes)


def test_medium_512_has_the_documented_numbers() -> None:
    run = PRESETS["medium-512"]
    model = run.model.model_copy(update={"parts": GPT_ARMS["frozen_head_orthogonal"].parts})
    diagnosis = diagnose_arm(run.model_copy(update={"model": model}), data_given=False, steps=1)
    assert diagnosis.healthy
    found = diagnosis.as_json()
    assert (found["total"], found["trainable"], found["frozen"]) == (44_896_768, 41_751_040, 3_145_728)
    assert found["bytes"]["optimizer_state"] == 2 * 4 * 41_751_040
    assert "weights + Adam moments: 489.8 MiB (513.8 MiB with nothing frozen)" in diagnosis.as_text()


# ---- Sabotage --------------------------------------------------------------------------------------------------------


def _nudge(gpt: nn.Module, *_: object) -> None:
    """The smallest change there is: one bit of one frozen weight."""
    with torch.no_grad():
        first = gpt.get_parameter(QUERY).view(-1)[:1]
        first.copy_(torch.nextafter(first, torch.ones(1)))


def test_a_frozen_weight_moved_by_one_bit_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def sabotaged(*arguments):
        gpt = build(*arguments)
        gpt.register_forward_pre_hook(_nudge)
        return gpt

    monkeypatch.setattr(runs, "build", sabotaged)
    diagnosis = diagnosed("frozen_head_orthogonal")
    assert says(diagnosis, "should never move, but moved", QUERY)
    assert len(diagnosis.problems) == 1
    assert moved_at(diagnosis, QUERY) == (1, 2)


def test_a_resting_weight_that_moves_between_its_updates_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Schedule, "apply", lambda self, model, step: None)
    assert says(diagnosed("every_n"), "schedule freezes it", QUERY)
    assert says(diagnosed("late_unfreeze"), "schedule freezes it", QUERY)


def test_a_trainable_weight_that_stands_still_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def sabotaged(*arguments):
        gpt = build(*arguments)
        gpt.final_norm.bias.requires_grad_(False)
        return gpt

    monkeypatch.setattr(runs, "build", sabotaged)
    diagnosis = diagnosed("trained")
    assert says(diagnosis, "should move, but requires no gradient", "final_norm.bias")
    assert says(diagnosis, "counts", "disagree")


def test_an_optimizer_that_holds_a_frozen_weight_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        runs, "build_optimizer", lambda gpt, training: torch.optim.AdamW(gpt.parameters(), weight_decay=0.1)
    )
    assert says(diagnosed("frozen_head_orthogonal"), "the optimizer contains it (weight decay 0.1)", QUERY)


def test_an_optimizer_without_a_trainable_weight_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_last(gpt: nn.Module, training: Training) -> torch.optim.Optimizer:
        return torch.optim.AdamW(list(gpt.parameters())[:-1])

    monkeypatch.setattr(runs, "build_optimizer", without_last)
    assert says(diagnosed("trained"), "the optimizer does not contain it", "final_norm.bias")


def test_a_load_that_thaws_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = storage.load_weights

    def thawing(model: nn.Module, path: Path) -> None:
        honest(model, path)
        model.requires_grad_(True)

    monkeypatch.setattr(storage, "load_weights", thawing)
    diagnosis = diagnosed("frozen_head_orthogonal")
    assert says(diagnosis, "a load thawed what was frozen", QUERY)
    assert diagnosis.as_json()["saved_and_loaded"]["kept"] is False


def test_a_load_that_forgets_the_frozen_weights_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def partial(model: nn.Module, path: Path) -> None:
        stored = {name: tensor for name, tensor in load_file(path).items() if "query" not in name}
        model.load_state_dict(stored, strict=False)

    monkeypatch.setattr(storage, "load_weights", partial)
    assert says(diagnosed("frozen_head_orthogonal"), "gave back other values", QUERY)
