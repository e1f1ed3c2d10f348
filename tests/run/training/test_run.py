"""What a run leaves behind, and that the same command again is safe."""

import json
import math
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from oelm.core.config import stored_form
from oelm.data import tokens
from oelm.data.prepare import prepare
from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory
from oelm.run.stored_models.loading import load_stored
from oelm.run.training import driver
from oelm.run.training.checkpoint import read_state
from oelm.run.training.run import train
from oelm.storage.files import write_json
from oelm.study.shelf import read_stored
from small_runs import VOCABULARY, quiet_execution, small_run


@pytest.fixture(scope="module")
def finished(token_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "half frozen"
    run = small_run("frozen_half", data=token_folder, validate_every=5)
    return run, train(run, quiet_execution(checkpoint_every=6, keep_checkpoints=2, log_every=4), out=out)


def test_a_run_leaves_every_file_of_the_contract(finished):
    _, outcome = finished
    directory = outcome.directory
    assert {path.name for path in directory.path.iterdir()} >= {
        "config.json", "environment.json", "status.json", "parameters.json", "metrics.jsonl",
        "experiment_result.json", "seal.json", "training.log", "checkpoints", "best",
    }  # fmt: skip
    assert directory.status()["state"] == "finished"
    assert [path.name for path in directory.stored_checkpoints()] == ["step-000018", "step-000020"]


def test_metrics_carry_steps_tokens_and_seconds(finished):
    run, outcome = finished
    records = outcome.directory.metrics()
    training = [record for record in records if "train_loss" in record]
    validation = [record for record in records if "val_loss" in record]
    assert [record["step"] for record in training] == [4, 8, 12, 16, 20]
    assert [record["step"] for record in validation] == [5, 10, 15, 20]
    assert all(r["tokens"] == r["step"] * run.training.batch_size * run.model.seq_len for r in records)
    assert {"learning_rate", "gradient_norm", "clipped_fraction", "seconds"} <= training[0].keys()
    assert all(r["perplexity"] == math.exp(r["val_loss"]) for r in validation)
    seconds = [record["seconds"] for record in records]
    assert seconds == sorted(seconds)


def test_checkpoints_count_the_time_of_the_whole_run_so_that_a_resume_goes_on_from_it(finished):
    walls = []
    for folder in finished[1].directory.stored_checkpoints():
        progress = read_state(folder)["progress"]
        assert progress["wall_seconds"] >= progress["training_seconds"] + progress["validation_seconds"]
        walls.append(progress["wall_seconds"])
    assert 0 < walls[0] < walls[1] < finished[1].result["wall_seconds"]


def test_a_checkpoint_waits_for_the_best_model_that_it_knows_of(token_folder, tmp_path, monkeypatch):
    written, at_checkpoints = [], []
    save = driver.save_checkpoint

    def slowly(*_, step, **__):
        return lambda: (time.sleep(0.1), written.append(step))

    monkeypatch.setattr(driver, "best_saver", slowly)
    monkeypatch.setattr(
        driver, "save_checkpoint", lambda *rest, **keys: (at_checkpoints.append(written[-1]), save(*rest, **keys))
    )
    run = small_run(steps=6, data=token_folder, validate_every=3)
    train(run, quiet_execution(checkpoint_every=3), out=tmp_path / "run")
    assert at_checkpoints == [3, 6]


def test_counts_and_digest_are_recorded(finished):
    _, outcome = finished
    parameters = json.loads(outcome.directory.parameters_file.read_text())
    result = outcome.result
    assert parameters["total"] == parameters["trainable"] + parameters["frozen"] == result["total"]
    assert parameters["frozen"] == result["frozen"] == 4 * 2 * 32 * 32 // 2
    assert parameters["frozen_digest"] == result["frozen_digest"] is not None
    assert sum(part["frozen"] for part in parameters["parts"]) == parameters["frozen"]


def test_the_best_model_is_the_one_with_the_lowest_validation_loss(finished):
    run, outcome = finished
    losses = {r["step"]: r["val_loss"] for r in outcome.directory.metrics() if "val_loss" in r}
    assert outcome.result["best_step"] == min(losses, key=losses.get)
    stored = load_stored(outcome.directory.path)
    assert stored.model == run.model
    if outcome.result["best_step"] == 20:
        last = load_file(outcome.directory.checkpoint_folder(20) / "model.safetensors")
        assert all(torch.equal(last[name], value) for name, value in stored.gpt.state_dict().items())


def test_a_validation_split_that_is_not_there_is_named(token_folder, tmp_path):
    run = small_run(data=token_folder, validation_split="test")
    with pytest.raises(UserError, match="test"):
        train(run, quiet_execution(), out=tmp_path / "run")


def test_a_batch_larger_than_the_data_is_said(tmp_path):
    for name in ("train", "val"):
        (np.arange(100) % VOCABULARY).astype("<u2").tofile(tmp_path / f"{name}.bin")
    train(small_run(data=tmp_path, steps=2, batch_size=8), quiet_execution(), out=tmp_path / "run")
    log = (tmp_path / "run" / "training.log").read_text()
    assert "warning: one update reads 8 sequences, but the training split contains 5: they repeat within it" in log


def test_a_folder_in_which_nothing_was_computed_can_be_taken(token_folder, tmp_path):
    train_once = small_run(data=token_folder, steps=2)
    directory = RunDirectory(tmp_path / "run")
    directory.path.mkdir()
    write_json(directory.config_file, stored_form(small_run(data=token_folder, steps=3)))
    directory.write_status("failed", error="before its first step")
    assert not train(train_once, quiet_execution(), out=directory.path).was_finished
    with pytest.raises(UserError, match="the folder contains a different run"):
        train(small_run(data=token_folder, steps=3), quiet_execution(), out=directory.path)


def test_a_folder_with_other_files_is_left_alone(token_folder, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match=r"contains files that do not belong to a run \(mine.txt\)"):
        train(small_run(data=token_folder, steps=2), quiet_execution(), out=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} <= {"mine.txt", "lock.json"}


def test_a_checkpoint_without_a_best_model_takes_the_tokenizer_of_its_data(tmp_path):
    prepare("stories", out=tmp_path / "data", stories=60)
    run = small_run(data=tmp_path / "data", steps=2)
    run = run.model_copy(update={"model": run.model.model_copy(update={"vocabulary": None})})
    train(run, quiet_execution(), out=tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "best")
    assert load_stored(tmp_path / "run").tokenizer() is not None


def test_a_run_without_a_folder_of_its_own_scans_the_data_once(token_folder, tmp_path, monkeypatch):
    scanned, first_at_least = [], tokens.first_at_least
    monkeypatch.setattr(
        tokens, "first_at_least", lambda *given: scanned.append(len(given[0])) or first_at_least(*given)
    )
    monkeypatch.chdir(tmp_path)
    run = small_run(data=token_folder, steps=2)
    outcome = train(run, quiet_execution(), group="once")
    assert sorted(scanned) == [2_000, 2_000, 20_000]
    assert outcome.directory.path.parent == Path("runs/once")
    assert train(run, quiet_execution(), group="once").was_finished


def test_a_run_killed_between_its_seal_and_its_last_status_is_finished(finished, tmp_path):
    run, outcome = finished
    directory = RunDirectory(shutil.copytree(outcome.directory.path, tmp_path / "run"))
    tree = json.loads(directory.status_file.read_text()) | {"state": "running", "host": "elsewhere"}
    directory.status_file.write_text(json.dumps(tree))
    assert read_stored(directory.path).state == "finished"
    assert train(run, quiet_execution(), out=directory.path).was_finished
    assert directory.status()["state"] == "finished"
