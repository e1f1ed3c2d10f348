"""Every row of every table in a whole run: it differs from the baseline where the row says, and nowhere else.

A run is taken through real steps with weight decay, a resume, an export and a reload.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("transformers", reason="Hugging Face transformers is not installed: pip install 'oelm[hf]'")

from transformers import AutoModelForCausalLM

from every_option import OPTIONS_SET
from oelm.core.config import GptRun, Model, Run, Seeds, Training, resolved, resolved_model
from oelm.core.model.initialization import build
from oelm.core.model.parameters import role_of
from oelm.core.moves import Always, Never
from oelm.core.options import OPTIONS, POSITIONS
from oelm.core.parts import BASELINE, ROLES, Part, problems_of
from oelm.core.starts import STARTS
from oelm.models.gpt2 import what_no_gpt2_has
from oelm.run.directory import RunDirectory
from oelm.run.stored_models.export import export
from oelm.run.stored_models.loading import load_stored
from oelm.run.training.run import train
from small_runs import VOCABULARY, quiet_execution

HEADS, LAYERS, STEPS = 2, 2, 4
SIZES = {
    "vocabulary": VOCABULARY, "seq_len": 8, "d_model": 16, "num_layers": LAYERS, "num_heads": HEADS, "d_ff": 24,
}  # fmt: skip
TOKENS = torch.arange(16).view(2, 8)


@dataclass(frozen=True)
class Row:
    """What a model is told besides its sizes; the roles that then begin otherwise, and those that rest."""

    settings: dict[str, Any]
    begins_otherwise: set[str]
    rests: set[str]


def can_be(role: str, part: Part) -> bool:
    return not list(problems_of(BASELINE.model_copy(update={role: part}), num_heads=HEADS, num_layers=LAYERS))


def of_start(name: str) -> Row:
    """On every part that can have it."""
    part = Part(start=name, moves=Never() if STARTS[name].matrix_free else Always())
    roles = {role for role in ROLES if can_be(role, part)}
    assert roles
    return Row(
        settings={"parts": {role: part.model_dump() for role in roles}},
        begins_otherwise={role for role in roles if ROLES[role].start != name},
        rests=roles if STARTS[name].matrix_free else set(),
    )


def of_part(role: str) -> Row:
    """Frozen as the baseline starts it: with one seed, the same numbers."""
    part = Part(start=ROLES[role].start, moves=Never())
    return Row(settings={"parts": {role: part.model_dump()}}, begins_otherwise=set(), rests={role})


# Options that add no weights of their own, and the roles whose weights they add, change or take away.
CHANGES = {
    "positions": {"position_embedding"}, "tied": {"output_layer"}, "scores.query_key_width": {"query", "key"},
    "scores.source": {"query", "key"},
}  # fmt: skip


def of_option(setting: str, value: object) -> Row:
    tree: Any = value
    for name in reversed(setting.split(".")[1:]):
        tree = {name: tree}
    key = next(key for key in OPTIONS if f"{setting}.".startswith(f"model.{key}."))
    adds = {OPTIONS[key].role} if value == "distance" else set()
    return Row(settings=tree, begins_otherwise=CHANGES.get(key, {OPTIONS[key].role}) | adds, rests=set())


ROWS = {
    **{f"start {name}": of_start(name) for name, row in STARTS.items() if not row.of_given_weights},
    **{f"part {role}": of_part(role) for role in ROLES},
    **{f"option {setting}": of_option(setting, value) for setting, (value, *_) in OPTIONS_SET.items()},
    "option model.scores.source distance": of_option("model.scores.source", "distance"),
    **{f"positions {kind}": of_option("model.positions", kind) for kind in POSITIONS if kind != "rotary"},
}
BASE = build(Model(**SIZES), Seeds()).state_dict()


def run_of(row: Row, data: Path) -> GptRun:
    training = Training(steps=STEPS, batch_size=2, learning_rate=1e-2, warmup_steps=1, weight_decay=0.5)
    run = Run(model=Model(**SIZES, **row.settings), training=training, data=str(data))
    known = resolved(run)
    assert isinstance(known, GptRun)
    return known


@pytest.mark.parametrize("name", ROWS)
def test_a_row_begins_as_the_baseline_but_where_it_says(name):
    model = resolved_model(Model(**SIZES, **ROWS[name].settings))
    state = build(model, Seeds()).state_dict()
    otherwise = {
        weight
        for weight in BASE.keys() | state.keys()
        if weight not in BASE or weight not in state or not torch.equal(BASE[weight], state[weight])
    }
    assert {role_of(weight) for weight in otherwise} == ROWS[name].begins_otherwise
    is_an_option = name.startswith(("option", "positions"))
    assert (what_no_gpt2_has(model) is None) == (not is_an_option or name == "option model.tied")


def tensors(directory: RunDirectory, step: int) -> dict[str, torch.Tensor]:
    """Weights and moments."""
    folder = directory.checkpoint_folder(step)
    return {
        f"{file}/{name}": value
        for file in ("model", "optimizer")
        for name, value in load_file(folder / f"{file}.safetensors").items()
    }


@pytest.mark.parametrize("name", ROWS)
def test_a_row_moves_resumes_and_is_exported_as_it_says(name, token_folder, tmp_path):
    row, execution = ROWS[name], quiet_execution(checkpoint_every=STEPS // 2, keep_checkpoints=2)
    run = run_of(row, token_folder)
    whole = train(run, execution, out=tmp_path / "whole").directory
    after = tensors(whole, STEPS)

    gpt = build(run.model, run.seeds)
    unmoved = {name for name, value in gpt.state_dict().items() if torch.equal(after[f"model/{name}"], value)}
    assert unmoved == {name for name in gpt.state_dict() if role_of(name) in row.rests}

    half = RunDirectory(tmp_path / "half")
    shutil.copytree(whole.checkpoint_folder(STEPS // 2), half.checkpoint_folder(STEPS // 2))
    shutil.copy(whole.config_file, half.config_file)
    assert train(run, execution, out=half.path).result["resumes"] == 1
    again = tensors(half, STEPS)
    assert again.keys() == after.keys()
    assert [name for name in after if not torch.equal(again[name], after[name])] == []

    export(whole.path, tmp_path / "export", form="oelm")
    stored, loaded = load_stored(whole.path).gpt, AutoModelForCausalLM.from_pretrained(tmp_path / "export")
    assert torch.equal(loaded(TOKENS).logits, stored.logits(stored(TOKENS)))
    assert torch.equal(load_stored(tmp_path / "export").gpt(TOKENS), stored(TOKENS))
    resting = {name for name, value in loaded.gpt.named_parameters() if not value.requires_grad}
    assert resting == {name for name, value in stored.named_parameters() if not value.requires_grad}
    assert {role_of(name) for name in resting} == {role_of(name) for name in unmoved}
