"""The diagnosis: right about healthy models, and not fooled by sabotaged ones."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from pathlib import Path

import numpy
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from typer.testing import CliRunner

import oelm
from oelm import cli
from oelm.arms import GPT_ARMS
from oelm.config import PRESETS, Every, Execution, Model, Run, Training
from oelm.diagnosis import Diagnosis, any_module, diagnose, diagnose_arm, diagnose_stored, examination, runs, storage
from oelm.errors import UserError
from oelm.model.documents import OELMTransformerBlock, OrthogonalMultiHeadAttention
from oelm.model.initialization import build
from oelm.run_directory import RunDirectory
from oelm.training.freezing import Schedule
from oelm.training.run import train

SIZES = {"vocabulary": 101, "seq_len": 16, "d_model": 32, "num_layers": 2, "num_heads": 4, "d_ff": 64}
QUERY = "blocks.0.attention.query.weight"


def _run(arm: str, *, steps: int = 40) -> Run:
    return Run(arm=arm, model=Model(**SIZES, attention=GPT_ARMS[arm]), training=Training(steps=steps, batch_size=4))


def _diagnosed(arm: str, **settings) -> Diagnosis:
    return diagnose_arm(_run(arm, **settings), data_given=False, steps=2)


def _moves(diagnosis: Diagnosis, name: str) -> tuple[int, ...] | None:
    return next(entry.moved_at for entry in diagnosis.entries if entry.name == name)


def _says(diagnosis: Diagnosis, *words: str) -> bool:
    """Unhealthy, and one problem holds all the words."""
    return not diagnosis.healthy and any(all(word in problem for word in words) for problem in diagnosis.problems)


# ---- Arms ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", GPT_ARMS)
def test_every_arm_is_healthy_and_its_counts_agree(arm: str) -> None:
    diagnosis = _diagnosed(arm)
    assert diagnosis.problems == ()
    assert len(diagnosis.counts) == 3
    assert len(set(diagnosis.counts.values())) == 1
    assert diagnosis.totals in diagnosis.counts.values()


@pytest.mark.parametrize(
    ("arm", "moved_at"),
    [
        ("trained", (1, 2)),
        ("frozen_head_orthogonal", ()),
        ("every_n", (10,)),
        ("late_unfreeze", (33,)),
        ("progressive_unfreeze", (31,)),  # the lower of two layers: at three quarters
        ("train_then_freeze", (1,)),
    ],
)
def test_queries_move_exactly_when_their_schedule_says(arm: str, moved_at: tuple[int, ...]) -> None:
    diagnosis = _diagnosed(arm)
    assert _moves(diagnosis, QUERY) == moved_at
    assert _moves(diagnosis, "token_embedding.weight") == diagnosis.trial.numbers


def test_a_schedule_is_seen_at_rest_moving_and_at_rest_again() -> None:
    assert _diagnosed("every_n").trial.numbers == (1, 10, 11)
    assert _diagnosed("late_unfreeze").trial.numbers == (1, 32, 33)
    assert _diagnosed("progressive_unfreeze").trial.numbers == (1, 20, 21, 30, 31)
    assert _diagnosed("train_then_freeze").trial.numbers == (1, 9)


def test_a_partly_frozen_projection_is_shown_as_two_parameters() -> None:
    diagnosis = _diagnosed("frozen_half")
    assert _moves(diagnosis, "blocks.1.attention.key.covered") == ()
    assert _moves(diagnosis, "blocks.1.attention.key.free") == (1, 2)
    assert diagnosis.totals.frozen == 2 * 2 * 16 * 32


def test_a_schedule_that_never_comes_is_noted() -> None:
    diagnosis = _diagnosed("every_n", steps=9)
    assert diagnosis.healthy
    assert any("never moves within 9 steps" in note for note in diagnosis.notes)


def test_a_small_learning_rate_is_no_false_alarm() -> None:
    run = _run("trained")
    slow = run.training.model_copy(update={"learning_rate": 1e-12, "warmup_steps": 40, "weight_decay": 0.0})
    assert diagnose_arm(run.model_copy(update={"training": slow}), data_given=False, steps=1).healthy


def test_without_data_the_vocabulary_of_gpt2_is_assumed_and_said() -> None:
    run = Run(model=Model(seq_len=16, d_model=16, num_layers=1, num_heads=2))
    diagnosis = diagnose_arm(run, data_given=False, steps=1)
    assert diagnosis.entries[0].shape == (50257, 16)
    assert any("50,257 assumed" in note for note in diagnosis.notes)


def test_medium_512_has_the_documented_numbers() -> None:
    run = PRESETS["medium-512"]
    model = run.model.model_copy(update={"attention": GPT_ARMS["frozen_head_orthogonal"]})
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
    diagnosis = _diagnosed("frozen_head_orthogonal")
    assert _says(diagnosis, "should never move, but moved", QUERY)
    assert len(diagnosis.problems) == 1
    assert _moves(diagnosis, QUERY) == (1, 2)


def test_a_resting_weight_that_moves_between_its_updates_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Schedule, "apply", lambda self, model, step: None)
    assert _says(_diagnosed("every_n"), "schedule lets it rest", QUERY)
    assert _says(_diagnosed("late_unfreeze"), "schedule lets it rest", QUERY)


def test_a_trainable_weight_that_stands_still_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def sabotaged(*arguments):
        gpt = build(*arguments)
        gpt.final_norm.bias.requires_grad_(False)
        return gpt

    monkeypatch.setattr(runs, "build", sabotaged)
    diagnosis = _diagnosed("trained")
    assert _says(diagnosis, "should move, but requires no gradient", "final_norm.bias")
    assert _says(diagnosis, "counts", "disagree")


def test_an_optimizer_that_holds_a_frozen_weight_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        examination, "build_optimizer", lambda gpt, training: torch.optim.AdamW(gpt.parameters(), weight_decay=0.1)
    )
    assert _says(_diagnosed("frozen_head_orthogonal"), "the optimizer holds it (weight decay 0.1)", QUERY)


def test_an_optimizer_without_a_trainable_weight_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_last(gpt: nn.Module, training: Training) -> torch.optim.Optimizer:
        return torch.optim.AdamW(list(gpt.parameters())[:-1])

    monkeypatch.setattr(examination, "build_optimizer", without_last)
    assert _says(_diagnosed("trained"), "the optimizer does not hold it", "final_norm.bias")


def test_a_load_that_thaws_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = storage.load_weights

    def thawing(model: nn.Module, path: Path) -> None:
        honest(model, path)
        model.requires_grad_(True)

    monkeypatch.setattr(storage, "load_weights", thawing)
    diagnosis = _diagnosed("frozen_head_orthogonal")
    assert _says(diagnosis, "a load thawed what was frozen", QUERY)
    assert diagnosis.as_json()["saved_and_loaded"]["kept"] is False


def test_a_load_that_forgets_the_frozen_weights_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def partial(model: nn.Module, path: Path) -> None:
        stored = {name: tensor for name, tensor in load_file(path).items() if "query" not in name}
        model.load_state_dict(stored, strict=False)

    monkeypatch.setattr(storage, "load_weights", partial)
    assert _says(_diagnosed("frozen_head_orthogonal"), "gave back other values", QUERY)


# ---- What a run has stored -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name in ("train", "val"):
        numpy.random.default_rng(0).integers(101, size=600).astype("<u2").tofile(folder / f"{name}.bin")
    return folder


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "frozen"
    run = _run("frozen_half", steps=4).model_copy(update={"data": str(data)})
    train(run, Execution(precision="float32", compile="off", threads=1), out=out)
    return out


@pytest.fixture
def run_copy(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "copy"))


def _tree_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(str(path).encode() + (path.read_bytes() if path.is_file() else b""))
    return digest.hexdigest()


def test_run_checkpoint_and_best_folder_are_healthy_and_untouched(
    trained: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = _tree_digest(trained)
    for path in (trained, trained / "best", RunDirectory(trained).stored_checkpoints()[-1]):
        diagnosis = diagnose_stored(path, steps=1)
        assert diagnosis.problems == ()
        assert len(set(diagnosis.counts.values())) == 1
        assert any("bit for bit what the seeds gave" in note for note in diagnosis.notes)
    assert _tree_digest(trained) == before
    assert list(tmp_path.iterdir()) == []


def test_a_best_folder_away_from_its_run_is_diagnosed_with_a_note(trained: Path, tmp_path: Path) -> None:
    alone = shutil.copytree(trained / "best", tmp_path / "somewhere" / "best")
    diagnosis = diagnose_stored(Path(alone), steps=1)
    assert diagnosis.healthy
    assert any("no run around this folder" in note for note in diagnosis.notes)


def test_a_float64_run_is_compared_in_float64(data: Path, tmp_path: Path) -> None:
    run = _run("frozen_head_orthogonal", steps=2).model_copy(update={"data": str(data)})
    train(run, Execution(precision="float64", compile="off", threads=1), out=tmp_path / "run")
    diagnosis = diagnose_stored(tmp_path / "run", steps=1)
    assert diagnosis.problems == ()
    assert {entry.dtype for entry in diagnosis.entries} == {"float64"}


def test_a_frozen_weight_that_moved_since_the_start_is_seen(run_copy: Path) -> None:
    file = run_copy / "best" / "model.safetensors"
    tensors = load_file(file)
    tensors[QUERY][0, 0] += 0.5
    save_file(tensors, file, metadata={"step": "4"})
    diagnosis = diagnose_stored(run_copy, steps=1)
    assert _says(diagnosis, "digest differs", "parameters.json")
    assert _says(diagnosis, "differ from their start by up to 0.5", "query.covered")


def test_a_trained_weight_may_have_moved_since_the_start(run_copy: Path) -> None:
    file = run_copy / "best" / "model.safetensors"
    tensors = load_file(file)
    tensors[QUERY][-1, -1] += 0.5  # of the free half
    save_file(tensors, file, metadata={"step": "4"})
    assert diagnose_stored(run_copy, steps=1).healthy


def test_a_wrong_record_of_the_counts_is_seen(run_copy: Path) -> None:
    file = run_copy / "parameters.json"
    recorded = json.loads(file.read_text())
    recorded["frozen"] -= 1
    next(part for part in recorded["parts"] if part["role"] == "query")["frozen"] -= 1
    file.write_text(json.dumps(recorded))
    diagnosis = diagnose_stored(run_copy, steps=1)
    assert _says(diagnosis, "parameters.json says frozen")
    assert _says(diagnosis, "parameters.json counts other numbers for query of layer 0")


def test_moments_of_a_frozen_weight_in_a_checkpoint_are_seen(run_copy: Path) -> None:
    directory = RunDirectory(run_copy)
    old = directory.stored_checkpoints()[-1]
    moments = load_file(old / "optimizer.safetensors")
    moments["blocks.0.attention.query.covered:exp_avg"] = torch.zeros(16, 32)
    with directory.new_checkpoint(5, needed_bytes=1) as folder:
        shutil.copy(old / "model.safetensors", folder)
        save_file(moments, folder / "optimizer.safetensors")
    diagnosis = diagnose_stored(directory.checkpoint_folder(5), steps=1)
    assert _says(diagnosis, "holds moments of frozen weights", "blocks.0.attention.query.covered")


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="neither a run directory nor a checkpoint"):
        diagnose_stored(tmp_path)


# ---- Any module ------------------------------------------------------------------------------------------------------


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
    assert _moves(diagnosis, "linear1.weight") == ()
    assert _moves(diagnosis, "linear2.weight") == (1, 2, 3)
    assert diagnosis.memory.optimizer_state == 2 * 4 * diagnosis.totals.trainable
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert torch.equal(optimizer.state_dict()["state"][0]["exp_avg"], moments)
    assert optimizer.state_dict()["state"][0]["step"] == 1


def test_a_user_may_say_what_should_move() -> None:
    diagnosis = diagnose(_encoder(), should_move=lambda name: "self_attn" not in name)
    assert _says(diagnosis, "should never move, but requires a gradient", "self_attn.in_proj_weight")
    assert any("was not tried" in note for note in diagnosis.notes)


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
    assert _says(diagnosis, "should never move, but moved", "linear1.weight")
    assert _says(diagnosis, "the optimizer holds it (weight decay 0.1)", "linear1.weight", "linear1.bias")


def test_a_parameter_without_a_gradient_is_seen() -> None:
    module = nn.ModuleDict({"used": nn.Linear(4, 4), "unused": nn.Linear(4, 4)})
    optimizer = _optimizer_of(module)
    diagnosis = diagnose(module, optimizer=optimizer, step=_step_of(module["used"], optimizer, torch.ones(1, 4)))
    assert _says(diagnosis, "had no gradient: unused.weight, unused.bias")


def test_a_module_whose_load_thaws_or_overwrites_is_seen() -> None:
    class Thawing(nn.Linear):
        def load_state_dict(self, *arguments, **settings):
            super().load_state_dict(*arguments, **settings)
            self.requires_grad_(True)

    class Overwriting(nn.Linear):
        def load_state_dict(self, *arguments, **settings):
            super().load_state_dict(*arguments, **settings)
            nn.init.zeros_(self.weight)

    assert _says(diagnose(Thawing(4, 4).requires_grad_(False)), "a load thawed what was frozen: weight, bias")
    assert _says(diagnose(Overwriting(4, 4)), "gave back other values: weight")


def test_running_statistics_and_masks_are_not_taken_for_frozen_weights() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    module.register_buffer("mask", torch.ones(1, 1, 8, 8).tril())
    module.register_buffer("cache", torch.randn(8, 8), persistent=False)
    optimizer = _optimizer_of(module)
    diagnosis = diagnose(module, optimizer=optimizer, step=_step_of(module, optimizer, torch.randn(8, 4)))
    assert diagnosis.healthy
    assert diagnosis.totals.frozen == 0
    assert _moves(diagnosis, "1.running_mean") == (1, 2, 3)
    assert {entry.name for entry in diagnosis.entries if entry.is_weight} == {n for n, _ in module.named_parameters()}


def test_tied_parameters_are_counted_once() -> None:
    module = nn.ModuleDict({"embedding": nn.Embedding(10, 4), "head": nn.Linear(4, 10, bias=False)})
    module["head"].weight = module["embedding"].weight
    diagnosis = diagnose(module)
    assert diagnosis.healthy
    assert diagnosis.totals.total == 40
    assert "embedding.weight = head.weight: tied, counted once" in diagnosis.notes


def test_a_module_that_cannot_be_copied_is_diagnosed_without_a_save() -> None:
    module = nn.Linear(2, 2)
    module.stream = (character for character in "a generator cannot be copied")
    diagnosis = diagnose(module)
    assert diagnosis.healthy
    assert diagnosis.storage is None
    assert any("saving and loading was not tried" in note for note in diagnosis.notes)


def test_health_is_claimed_only_where_steps_were_taken() -> None:
    module = nn.Linear(2, 2)
    assert "no step was taken" in diagnose(module).as_text().splitlines()[-1]
    assert diagnose(module, optimizer=_optimizer_of(module)).as_text().splitlines()[-1] == "healthy: yes"


def test_our_own_model_is_known_by_its_spec() -> None:
    gpt = build(_run("frozen_half").model, oelm.Seeds())
    gpt.get_parameter("blocks.0.attention.query.covered").requires_grad_(True)
    diagnosis = diagnose(gpt)
    assert _says(diagnosis, "should never move, but requires a gradient: blocks.0.attention.query.covered")
    scheduled = _run("every_n").model
    assert diagnose(build(scheduled, oelm.Seeds())).healthy
    assert isinstance(scheduled.attention.query.moves, Every)


@pytest.mark.parametrize("make", [OrthogonalMultiHeadAttention, OELMTransformerBlock])
def test_the_documents_modules_are_healthy(make) -> None:
    module = make(16, 2, 32) if make is OELMTransformerBlock else make(16, 2)
    optimizer = _optimizer_of(module, weight_decay=0.1)
    diagnosis = diagnose(module, optimizer=optimizer, step=_step_of(module, optimizer, torch.randn(2, 5, 16)))
    assert diagnosis.problems == ()
    assert diagnosis.totals.frozen == 2 * 16 * 16


def test_a_small_bert_with_frozen_queries_and_keys_is_healthy() -> None:
    transformers = pytest.importorskip("transformers", reason="pip install 'oelm[hf]'")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    model = transformers.BertForMaskedLM(config)

    def should_move(name: str) -> bool:
        return ".query." not in name and ".key." not in name

    for name, parameter in model.named_parameters():
        parameter.requires_grad_(should_move(name))
    optimizer = _optimizer_of(model, weight_decay=0.1)
    tokens = torch.randint(50, (2, 6))

    def step() -> None:
        model(tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    diagnosis = diagnose(model, optimizer=optimizer, should_move=should_move, step=step)
    assert diagnosis.problems == ()
    assert diagnosis.totals.frozen == 2 * 2 * (16 * 16 + 16)
    assert {entry.role for entry in diagnosis.entries if entry.should_move == "never"} == {"query", "key"}
    assert any("tied, counted once" in note for note in diagnosis.notes)
    model.bert.encoder.layer[1].attention.self.key.requires_grad_(True)
    assert _says(diagnose(model, optimizer=optimizer, should_move=should_move, step=step), "layer.1.attention.self.key")


# ---- The puzzle ------------------------------------------------------------------------------------------------------


def _with_buffers_for_frozen_weights(gpt: nn.Module) -> nn.Module:
    """The documents' way: what is frozen is a buffer of the same name."""
    for module in gpt.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if not parameter.requires_grad:
                delattr(module, name)
                module.register_buffer(name, torch.full_like(parameter, 0.5))
    return gpt


def test_zero_frozen_with_weights_in_buffers_is_explained_with_the_exact_numbers() -> None:
    model = PRESETS["medium-512"].model.model_copy(update={"attention": GPT_ARMS["frozen_head_orthogonal"]})
    gpt = _with_buffers_for_frozen_weights(oelm.GPT(model))
    assert sum(p.numel() for p in gpt.parameters()) == 41_751_040  # what the documents' counter saw
    assert all(p.requires_grad for p in gpt.parameters())
    diagnosis = diagnose(gpt)
    assert diagnosis.problems == ()
    assert tuple(vars(diagnosis.totals).values()) == (44_896_768, 41_751_040, 3_145_728)
    note = next(note for note in diagnosis.notes if "buffers" in note)
    for words in (
        "parameters() alone counts 41,751,040",
        "3,145,728 more elements are in 12 buffers",
        "The true total is 44,896,768",
        "an error of counting, not a missing freeze",
    ):
        assert words in note


def test_a_weight_in_a_buffer_that_moves_is_seen() -> None:
    module = nn.Linear(4, 4)
    module.register_buffer("frozen", torch.randn(4, 4))
    diagnosis = diagnose(module, step=lambda: module.frozen.mul_(2), steps=1)
    assert _says(diagnosis, "should never move, but moved in a step: frozen")


# ---- Text and command ------------------------------------------------------------------------------------------------


def test_text_shows_every_tensor_whole_and_the_verdict() -> None:
    diagnosis = _diagnosed("frozen_half")
    text = diagnosis.as_text()
    assert all(entry.name in text for entry in diagnosis.entries)
    assert text.endswith("healthy: yes")
    module = nn.Linear(2, 2)
    sick = diagnose(module, should_move=lambda name: False).as_text()
    assert "PROBLEM: should never move, but requires a gradient: weight, bias" in sick
    assert sick.endswith("healthy: NO")


def test_the_command_prints_json_and_its_exit_code_is_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["diagnose", "--arm", "frozen_head_orthogonal", "--json", "--steps", "1"]
    for setting in ("vocabulary=101", "d_model=32", "num_layers=2", "num_heads=4", "seq_len=16"):
        arguments += ["--set", setting]
    done = CliRunner().invoke(cli.app, arguments)
    found = json.loads(done.stdout)
    assert done.exit_code == 0
    assert (found["healthy"], found["frozen"]) == (True, 4 * 32 * 32)
    monkeypatch.setattr(Schedule, "apply", lambda self, model, step: model.requires_grad_(False))
    monkeypatch.setattr(storage, "load_weights", lambda model, path: None)
    assert CliRunner().invoke(cli.app, arguments[:4] + arguments[6:]).exit_code == 1


def test_an_arm_is_diagnosed_on_its_data(data: Path) -> None:
    run = _run("frozen_head_orthogonal").model_copy(update={"data": str(data)})
    diagnosis = diagnose_arm(run, data_given=True, steps=1)
    assert diagnosis.healthy
    assert f"tokens: {data}" in diagnosis.notes
    with pytest.raises(UserError, match="oelm prepare"):
        diagnose_arm(run.model_copy(update={"data": str(data / "none")}), data_given=True)


def test_the_package_offers_diagnose() -> None:
    assert oelm.diagnose is diagnose is any_module.diagnose
