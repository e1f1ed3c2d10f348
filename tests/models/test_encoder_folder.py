"""An encoder as files: its sizes under each family's names, its digest, and what is refused."""

import json
import os
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest

from oelm.machine.errors import UserError
from oelm.models.encoder_folder import open_encoder
from small_encoders import TYPES, encoder_folder, loadable_encoder
from small_runs import child_environment

SIZES = {"d_model": 16, "num_layers": 2, "num_heads": 4, "d_ff": 32}


def edit_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text()) | changes
    kept = {key: value for key, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept))


def refusal(folder) -> str:
    with pytest.raises(UserError) as error:
        open_encoder(str(folder))
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("model_type", "vocabulary", "positions", "token_types"),
    [("bert", 133, 64, 2), ("roberta", 261, 66, 1), ("xlm-roberta", 261, 66, 1), ("distilbert", 133, 64, 0)],
)
def test_each_family_tells_its_sizes_under_its_own_names(tmp_path, model_type, vocabulary, positions, token_types):
    encoder = open_encoder(str(encoder_folder(tmp_path / "encoder", model_type)))
    assert encoder.sizes == SIZES | {"vocabulary": vocabulary, "positions": positions, "token_types": token_types}
    assert encoder.longest_input == 64  # RoBERTa's positions begin after its padding id
    assert encoder.pad_id == (1 if "roberta" in model_type else 0)


def test_the_source_is_the_absolute_folder(tmp_path, monkeypatch):
    folder = encoder_folder(tmp_path / "my models" / "bért 🙂")
    monkeypatch.chdir(tmp_path)
    encoder = open_encoder("my models/bért 🙂")
    assert (encoder.source, encoder.revision) == (str(folder), None)


def test_the_digest_is_of_config_and_weights_alone(tmp_path):
    folder = encoder_folder(tmp_path / "a")
    digest = open_encoder(str(folder)).digest
    (folder / "README.md").write_text("a note")
    assert open_encoder(str(folder)).digest == digest
    assert open_encoder(str(shutil.copytree(folder, tmp_path / "b"))).digest == digest
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "model.safetensors").write_bytes(content)
    other = open_encoder(str(folder)).digest
    edit_config(folder, hidden_dropout_prob=0.3)
    configured = open_encoder(str(folder)).digest
    (folder / "model.safetensors").unlink()
    at_random = open_encoder(str(folder))
    assert at_random.weights == ()
    assert len({digest, other, configured, at_random.digest}) == 4


def test_weights_in_several_files_are_one_encoder(tmp_path):
    from safetensors.numpy import save_file

    folder = encoder_folder(tmp_path / "a")
    (folder / "model.safetensors").unlink()
    names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    for name in names:
        save_file({name: np.ones(3, np.float32)}, folder / name)
    index = {"weight_map": {"a": names[0], "b": names[1], "c": names[0]}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    encoder = open_encoder(str(folder))
    assert encoder.weights == tuple(names)
    save_file({"b": np.zeros(3, np.float32)}, folder / names[1])
    assert open_encoder(str(folder)).digest != encoder.digest
    (folder / names[1]).unlink()
    assert names[1] in refusal(folder)
    for name in ("../model.safetensors", "/model.safetensors", ".safetensors", 5, ["model.safetensors"], None):
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
        assert "not an index" in refusal(folder)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2' is not known; known types: bert, roberta"),
        ({"model_type": None}, "model_type None is not known"),
        ({"hidden_size": None}, "hidden_size is None"),
        ({"hidden_size": "16"}, "hidden_size is '16'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_attention_heads": 3}, "width 16 is not divisible by 3 heads"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type must be absolute"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(tmp_path, changes, said):
    folder = encoder_folder(tmp_path / "a")
    edit_config(folder, **changes)
    with pytest.raises(UserError) as error:
        _ = open_encoder(str(folder)).sizes
    assert str(folder / "config.json") in str(error.value)
    assert said in str(error.value)


def test_a_place_that_is_no_encoder_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "empty").mkdir()
    assert "no encoder there (config.json is missing)" in refusal(tmp_path / "empty")
    assert "no such folder" in refusal(tmp_path / "nowhere" / "deep")
    file = encoder_folder(tmp_path / "a") / "config.json"
    assert "is a file; give the folder" in refusal(file)
    file.write_text("{")
    assert "damaged: not JSON" in refusal(tmp_path / "a")


@pytest.mark.parametrize("name", ["-x/y", "../up", "a/b/c", "a b", "", "https://example.org/m"])
def test_what_cannot_be_a_name_on_the_hub_is_not_asked_for(name):
    with pytest.raises(UserError, match=r"no such folder|is missing"):
        open_encoder(name)


def test_a_hub_encoder_comes_from_the_cache_first_and_the_network_second(tmp_path, monkeypatch):
    huggingface_hub = pytest.importorskip("huggingface_hub", reason="pip install huggingface_hub")
    snapshot = encoder_folder(tmp_path / "snapshots" / "c0ffee")
    asked = []

    def download(name, *, revision, allow_patterns, local_files_only=False):
        asked.append((name, revision, local_files_only))
        assert "pytorch_model.bin" not in allow_patterns
        if local_files_only and not cached:
            raise OSError("not there")
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    for cached in (True, False):
        asked.clear()
        encoder = open_encoder("someone/tiny-bert", revision="main")
        assert (encoder.source, encoder.revision) == ("someone/tiny-bert", "c0ffee")
        assert asked[0] == ("someone/tiny-bert", "main", True)
        assert len(asked) == (1 if cached else 2)
    (snapshot / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"the hub has no model\.safetensors for it"):
        open_encoder("someone/tiny-bert")


def test_an_unreachable_hub_is_one_line():
    pytest.importorskip("huggingface_hub", reason="pip install huggingface_hub")
    code = (
        "from oelm.models.encoder_folder import *\n"
        "try: open_encoder('nobody/no-such-encoder')\n"
        "except UserError as error: print(error)"
    )
    environment = child_environment(HF_HUB_OFFLINE="1")
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("encoder nobody/no-such-encoder: no such folder, and it cannot be fetched")
    assert done.stdout.count("\n") == 1


def test_pickled_and_cut_weights_are_never_opened(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    folder = encoder_folder(tmp_path / "a")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-5])
    assert f"{weights}: not a whole safetensors file" in refusal(folder)
    weights.unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Trap()))
    assert "contains pickled weights only (pytorch_model.bin)" in refusal(folder)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("model_type", TYPES)
def test_sizes_are_what_transformers_reads_and_saves(tmp_path, model_type):
    transformers = pytest.importorskip("transformers", reason="pip install transformers")
    folder = encoder_folder(tmp_path / "plain", model_type)
    plain, config = open_encoder(str(folder)), transformers.AutoConfig.from_pretrained(folder)
    theirs = (config.hidden_size, config.num_hidden_layers, config.num_attention_heads, config.vocab_size)
    assert tuple(plain.sizes[name] for name in ("d_model", "num_layers", "num_heads", "vocabulary")) == theirs
    saved = open_encoder(str(loadable_encoder(tmp_path / "saved", model_type)))
    assert saved.weights == ("model.safetensors",)
    assert (saved.sizes, saved.pad_id, saved.longest_input) == (plain.sizes, plain.pad_id, plain.longest_input)
