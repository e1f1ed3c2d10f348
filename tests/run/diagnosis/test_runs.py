"""What a run has stored: examined as any user of it loads it."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from diagnosed import QUERY, says, small_gpt_run
from safetensors.torch import load_file, save_file

from oelm.core.config import Execution
from oelm.machine.errors import UserError
from oelm.run.diagnosis import diagnose_stored
from oelm.run.directory import RunDirectory
from oelm.run.training.run import train


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
    assert any("this folder is not inside a run" in note for note in diagnosis.notes)


def test_a_model_of_transformers_that_is_not_ours_is_no_damaged_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(UserError, match=r": a bert model of transformers, not a run or model of oelm; .*oelm.diagnose"):
        diagnose_stored(tmp_path)


def test_a_float64_run_is_compared_in_float64(data: Path, tmp_path: Path) -> None:
    run = small_gpt_run("frozen_head_orthogonal", steps=2).model_copy(update={"data": str(data)})
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
    assert says(diagnosis, "digest differs", "parameters.json")
    assert says(diagnosis, "differ from their start by up to 0.5", "query.covered")


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
    assert says(diagnosis, "parameters.json says frozen")
    assert says(diagnosis, "parameters.json has different counts for query of layer 0")


def test_moments_of_a_frozen_weight_in_a_checkpoint_are_seen(run_copy: Path) -> None:
    directory = RunDirectory(run_copy)
    old = directory.stored_checkpoints()[-1]
    moments = load_file(old / "optimizer.safetensors")
    moments["blocks.0.attention.query.covered:exp_avg"] = torch.zeros(16, 32)
    with directory.new_checkpoint(5, needed_bytes=1) as folder:
        for name in ("model.safetensors", "state.json"):
            shutil.copy(old / name, folder)
        save_file(moments, folder / "optimizer.safetensors")
    diagnosis = diagnose_stored(directory.checkpoint_folder(5), steps=1)
    assert says(diagnosis, "contains moments of frozen weights", "blocks.0.attention.query.covered")
