"""A stored model is read back as it was written, or refused."""

import shutil

import pytest
import torch

from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory
from oelm.run.stored_models.loading import load_stored
from oelm.run.training.run import train
from oelm.storage.files import write_json
from small_runs import quiet_execution, small_run


@pytest.fixture(scope="module")
def stored(token_folder, tmp_path_factory):
    run = small_run("frozen_half", data=token_folder, steps=3)
    return train(run, quiet_execution(), out=tmp_path_factory.mktemp("runs") / "run").directory.path


@pytest.fixture
def finished(stored, tmp_path):
    return RunDirectory(shutil.copytree(stored, tmp_path / "run"))


def test_run_best_and_checkpoint_are_all_read(finished):
    from_run, from_best = load_stored(finished.path), load_stored(finished.best)
    from_checkpoint = load_stored(finished.checkpoint_folder(3))
    for name, value in from_checkpoint.gpt.state_dict().items():
        assert torch.equal(from_run.gpt.state_dict()[name], value)
        assert torch.equal(from_best.gpt.state_dict()[name], value)
    assert not from_best.gpt.blocks[0].attention.query.covered.requires_grad


def test_one_flipped_byte_of_the_best_model_is_noticed(finished):
    file = finished.best / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-100] ^= 1
    file.write_bytes(content)
    with pytest.raises(UserError, match="do not match their digest"):
        load_stored(finished.path)


def test_a_checkpoint_outside_its_run_says_so(finished, tmp_path):
    copied = tmp_path / "elsewhere" / "checkpoints" / "step-000003"
    shutil.copytree(finished.checkpoint_folder(3), copied)
    with pytest.raises(UserError, match=r"a checkpoint is read inside its run; there is no .*config\.json"):
        load_stored(copied)


def test_a_model_with_a_wrong_config_is_refused_in_a_line(finished):
    for config, said in (
        ([], "is not the config of a model"),
        ({"model_type": "oelm"}, "does not contain the sizes of the model"),
        ({"model_type": "oelm", "d_model": -3}, "d_model"),
    ):
        write_json(finished.best / "config.json", config)
        with pytest.raises(UserError, match=said):
            load_stored(finished.best)
