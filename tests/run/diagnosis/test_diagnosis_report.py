"""A diagnosis as text and as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from diagnosed import diagnosed, small_gpt_run
from torch import nn
from typer.testing import CliRunner

import oelm
from oelm import cli
from oelm.core.model.freezing import Schedule
from oelm.machine.errors import UserError
from oelm.run.diagnosis import diagnose, diagnose_arm, storage


def test_text_shows_every_tensor_whole_and_the_verdict() -> None:
    diagnosis = diagnosed("frozen_half")
    text = diagnosis.as_text()
    assert all(entry.name in text for entry in diagnosis.entries)
    assert text.endswith("healthy: yes")
    assert oelm.diagnose is diagnose
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
    run = small_gpt_run("frozen_head_orthogonal").model_copy(update={"data": str(data)})
    diagnosis = diagnose_arm(run, data_given=True, steps=1)
    assert diagnosis.healthy
    assert f"tokens: {data}" in diagnosis.notes
    with pytest.raises(UserError, match="oelm prepare"):
        diagnose_arm(run.model_copy(update={"data": str(data / "none")}), data_given=True)
