"""Any torch module, and the puzzle of a frozen model whose counter finds zero frozen parameters."""

from __future__ import annotations

import pytest
import torch
from diagnosed import moved_at, says, small_gpt_run
from torch import nn

import oelm
from oelm.compat.modules import OELMTransformerBlock, OrthogonalMultiHeadAttention
from oelm.core.arms import GPT_ARMS
from oelm.core.config import PRESETS, Seeds
from oelm.core.model.initialization import build
from oelm.core.moves import Every
from oelm.run.diagnosis import diagnose
from small_runs import small_model


def _step_of(module: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor):
    def step() -> None:
        optimizer.zero_grad()
        module(inputs).square().mean().backward()
        optimizer.step()

    return step


def _encoder() -> nn.Module:
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)


def _optimizer_of(module: nn.Module, **settings) -> torch.optim.AdamW:
    return torch.optim.AdamW((p for p in module.parameters() if p.requires_grad), lr=1e-2, **settings)


def test_a_foreign_module_is_diagnosed_and_left_as_it_was() -> None:
    module = _encoder()
    module.linear1.requires_grad_(False)
    optimizer = _optimizer_of(module)
    step = _step_of(module, optimizer, torch.randn(2, 5, 16))
    step()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    moments = optimizer.state_dict()["state"][0]["exp_avg"].clone()
    diagnosis = diagnose(module, optimizer=optimizer, step=step)
    assert diagnosis.problems == ()
    assert diagnosis.totals.frozen == 16 * 32 + 32
    assert moved_at(diagnosis, "linear1.weight") == ()
    assert moved_at(diagnosis, "linear2.weight") == (1, 2, 3)
    assert diagnosis.memory.optimizer_state == 2 * 4 * diagnosis.totals.trainable
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert torch.equal(optimizer.state_dict()["state"][0]["exp_avg"], moments)
    assert optimizer.state_dict()["state"][0]["step"] == 1


def test_a_user_may_say_what_should_move() -> None:
    diagnosis = diagnose(_encoder(), should_move=lambda name: "self_attn" not in name)
    assert says(diagnosis, "should never move, but requires a gradient", "self_attn.in_proj_weight")
    assert any("was not tested" in note for note in diagnosis.notes)
    assert {entry.role for entry in diagnosis.entries if entry.should_move == "never"} == {"self_attn", "out_proj"}


def test_without_a_step_the_optimizer_gets_drawn_gradients() -> None:
    module = _encoder()
    diagnosis = diagnose(module, optimizer=_optimizer_of(module), steps=1)
    assert diagnosis.healthy
    assert {entry.moved_at for entry in diagnosis.entries} == {(1,)}


def test_a_zero_gradient_left_over_moves_a_frozen_weight_and_is_seen() -> None:
    module = _encoder()
    module.linear1.requires_grad_(False)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2, weight_decay=0.1)
    module.linear1.weight.grad = torch.zeros_like(module.linear1.weight)
    diagnosis = diagnose(
        module, optimizer=optimizer, step=lambda: (module(torch.ones(1, 2, 16)).sum().backward(), optimizer.step())
    )
    assert says(diagnosis, "should never move, but moved", "linear1.weight")
    assert says(diagnosis, "the optimizer contains it (weight decay 0.1)", "linear1.weight", "linear1.bias")


@pytest.mark.parametrize("kept_as", ["buffer that is not persistent", "attribute"])
def test_a_frozen_weight_that_no_file_holds_is_named(kept_as: str) -> None:
    class Drawn(nn.Linear):
        def __init__(self) -> None:
            super().__init__(8, 8)
            if kept_as == "attribute":
                self.query = torch.randn(8, 8)
            else:
                self.register_buffer("query", torch.randn(8, 8), persistent=False)

    diagnosis = diagnose(nn.Sequential(Drawn()))
    assert diagnosis.storage.left_out == ("0.query",)
    assert "but 1 NOT SAVED" in diagnosis.as_text()
    assert any(note.startswith("NOT SAVED: 0.query.") for note in diagnosis.notes)
    assert diagnose(nn.Sequential(nn.Linear(8, 8))).storage.left_out == ()


def test_a_parameter_without_a_gradient_is_seen() -> None:
    module = nn.ModuleDict({"used": nn.Linear(4, 4), "unused": nn.Linear(4, 4)})
    optimizer = _optimizer_of(module)
    diagnosis = diagnose(module, optimizer=optimizer, step=_step_of(module["used"], optimizer, torch.ones(1, 4)))
    assert says(diagnosis, "had no gradient: unused.weight, unused.bias")


def test_a_module_whose_load_thaws_or_overwrites_is_seen() -> None:
    class Thawing(nn.Linear):
        def load_state_dict(self, *arguments, **settings):
            super().load_state_dict(*arguments, **settings)
            self.requires_grad_(True)

    class Overwriting(nn.Linear):
        def load_state_dict(self, *arguments, **settings):
            super().load_state_dict(*arguments, **settings)
            nn.init.zeros_(self.weight)

    assert says(diagnose(Thawing(4, 4).requires_grad_(False)), "a load thawed what was frozen: weight, bias")
    assert says(diagnose(Overwriting(4, 4)), "gave back other values: weight")


def test_running_statistics_and_masks_are_not_taken_for_frozen_weights() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    module.register_buffer("mask", torch.ones(1, 1, 8, 8).tril())
    module.register_buffer("cache", torch.randn(8, 8), persistent=False)
    optimizer = _optimizer_of(module)
    diagnosis = diagnose(module, optimizer=optimizer, step=_step_of(module, optimizer, torch.randn(8, 4)))
    assert diagnosis.healthy
    assert diagnosis.totals.frozen == 0
    assert moved_at(diagnosis, "1.running_mean") == (1, 2, 3)
    assert {entry.name for entry in diagnosis.entries if entry.is_weight} == {n for n, _ in module.named_parameters()}


def test_tied_parameters_are_counted_once() -> None:
    module = nn.ModuleDict({"embedding": nn.Embedding(10, 4), "head": nn.Linear(4, 10, bias=False)})
    module["head"].weight = module["embedding"].weight
    diagnosis = diagnose(module)
    assert diagnosis.healthy
    assert diagnosis.totals.total == 40
    assert "embedding.weight = head.weight: tied, counted once" in diagnosis.notes


@pytest.mark.parametrize("tied", [True, False])
def test_the_output_layer_of_our_gpt_is_said_to_be_the_embedding_where_it_is(tied: bool) -> None:
    diagnosis = diagnose(build(small_model("frozen_embedding", tied=tied), Seeds()))
    assert diagnosis.healthy
    note = "the output layer is the token embedding: counted once, and frozen with it"
    assert (note in diagnosis.notes) is tied
    assert [entry.name for entry in diagnosis.entries if entry.role == "output_layer"] == (
        [] if tied else ["output_layer.weight"]
    )


def test_a_module_that_cannot_be_copied_is_diagnosed_without_a_save() -> None:
    module = nn.Linear(2, 2)
    module.stream = (character for character in "a generator cannot be copied")
    diagnosis = diagnose(module)
    assert diagnosis.healthy
    assert diagnosis.storage is None
    assert any("saving and loading was not tested" in note for note in diagnosis.notes)


def test_health_is_claimed_only_where_steps_were_taken() -> None:
    module = nn.Linear(2, 2)
    assert "no step was taken" in diagnose(module).as_text().splitlines()[-1]
    assert diagnose(module, optimizer=_optimizer_of(module)).as_text().splitlines()[-1] == "healthy: yes"


def test_our_own_model_is_known_by_its_spec() -> None:
    gpt = build(small_gpt_run("frozen_half").model, oelm.Seeds())
    gpt.get_parameter("blocks.0.attention.query.covered").requires_grad_(True)
    diagnosis = diagnose(gpt)
    assert says(diagnosis, "should never move, but requires a gradient: blocks.0.attention.query.covered")
    scheduled = small_gpt_run("every_n").model
    assert diagnose(build(scheduled, oelm.Seeds())).healthy
    assert isinstance(scheduled.parts.query.moves, Every)


@pytest.mark.parametrize("make", [OrthogonalMultiHeadAttention, OELMTransformerBlock])
def test_modules_of_compat_are_healthy(make) -> None:
    module = make(16, 2, 32) if make is OELMTransformerBlock else make(16, 2)
    optimizer = _optimizer_of(module, weight_decay=0.1)
    diagnosis = diagnose(module, optimizer=optimizer, step=_step_of(module, optimizer, torch.randn(2, 5, 16)))
    assert diagnosis.problems == ()
    assert diagnosis.totals.frozen == 2 * 16 * 16


# ---- The puzzle ------------------------------------------------------------------------------------------------------


def _with_buffers_for_frozen_weights(gpt: nn.Module) -> nn.Module:
    """As oelm.compat.modules has it: what is frozen is a buffer of the same name."""
    for module in gpt.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if not parameter.requires_grad:
                delattr(module, name)
                module.register_buffer(name, torch.full_like(parameter, 0.5))
    return gpt


def test_zero_frozen_with_weights_in_buffers_is_explained_with_the_exact_numbers() -> None:
    model = PRESETS["medium-512"].model.model_copy(update={"parts": GPT_ARMS["frozen_head_orthogonal"].parts})
    gpt = _with_buffers_for_frozen_weights(oelm.GPT(model))
    assert sum(p.numel() for p in gpt.parameters()) == 41_751_040  # what a counter of parameters() sees
    assert all(p.requires_grad for p in gpt.parameters())
    diagnosis = diagnose(gpt)
    assert diagnosis.problems == ()
    assert tuple(vars(diagnosis.totals).values()) == (44_896_768, 41_751_040, 3_145_728, 0)
    note = next(note for note in diagnosis.notes if "buffers" in note)
    for words in ("41,751,040", "3,145,728 more elements are in 12 buffers", "The true total is 44,896,768"):
        assert words in note


def test_a_weight_in_a_buffer_that_moves_is_seen() -> None:
    module = nn.Linear(4, 4)
    module.register_buffer("frozen", torch.randn(4, 4))
    diagnosis = diagnose(module, step=lambda: module.frozen.mul_(2), steps=1)
    assert says(diagnosis, "should never move, but moved in a step: frozen")
