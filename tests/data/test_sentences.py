"""Prepared sentences, read: what is accepted, and where exactly bad data is bad."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from oelm.core.config import Encoder, ResolvedRun, Run, as_far_as_known
from oelm.data.folders import check_digests
from oelm.data.prepare import prepare
from oelm.data.prepare_sentences import prepare_sentences
from oelm.data.sentences import encoder_of, open_sentences
from oelm.data.tokens import open_tokens
from oelm.machine.errors import UserError
from sentence_sources import nli_folder
from small_encoders import encoder_folder


@pytest.fixture(scope="module")
def prepared_once(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("sentences")
    source, encoder = nli_folder(root / "nli", test=9), encoder_folder(root / "bert")
    prepare_sentences(str(source), task="pairs", out=root / "data", encoder=str(encoder), max_length=24)
    return root / "data"


@pytest.fixture
def prepared(prepared_once, tmp_path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(prepared_once, tmp_path / "data"))


def edit_manifest(folder: Path, **changes) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def overwrite(file: Path, dtype: str, at: int, value: int) -> None:
    values = np.fromfile(file, dtype)
    values[at] = value
    values.tofile(file)


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as error:
        open_sentences(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_prepared_folder_opens_with_all_it_knows(prepared_once):
    data = open_sentences(prepared_once)
    assert list(data.splits) == ["train", "tune", "val", "test"]
    assert (data.task, data.labels) == ("pairs", ("entailment", "neutral", "contradiction"))
    assert set(data.facts) == set(Encoder.FROM_DATA)
    assert isinstance(as_far_as_known(Run(model=Encoder()), data.facts), ResolvedRun)
    assert data.encoder_source == str(prepared_once.parent / "bert")
    assert data.encoder_has_weights
    assert data.pad_id == 0
    assert (data.tokenizer_folder / "tokenizer.json").is_file()
    check_digests(data)
    assert data.facts["mean_length"] == round(float(data.splits["train"].lengths.mean()), 4)
    assert (data.facts["labels"], data.facts["seq_len"], data.facts["d_model"]) == (3, 24, 16)
    with pytest.raises(ValueError, match="read-only"):
        data.splits["train"].ids[0] = 1


def test_the_examples_of_a_split_lie_one_after_another(prepared_once):
    for split in open_sentences(prepared_once).splits.values():
        assert len(split) == len(split.labels) == len(split.seconds) == len(split.offsets) - 1
        assert np.array_equal(np.concatenate([split.example(index) for index in range(len(split))]), split.ids)
        assert [len(split.example(index)) for index in range(len(split))] == split.lengths.tolist()
        for index in range(len(split)):
            assert split.example(index)[split.seconds[index] - 1] == 3  # the mark that ends the first text


def test_a_folder_knows_its_kind(prepared_once, tmp_path):
    prepare("stories", out=tmp_path / "text", stories=300, tokenizer="bpe:300")
    with pytest.raises(UserError, match="contains sentences, not text for a language model"):
        open_tokens(prepared_once)
    assert "contains text for a language model, not sentences with labels" in refusal(tmp_path / "text")


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("xnli-zh", "xnli --language zh --source FOLDER"),
        ("xnli-en", "xnli --source FOLDER"),
        ("xnli", "xnli --source FOLDER"),
        ("mnli", "mnli --source FOLDER"),
        ("sst2", "sst2 --source FOLDER"),
        ("my data", "FOLDER --task pairs|sentences"),
    ],
)
def test_missing_data_names_the_command_that_makes_it(tmp_path, name, source):
    command = refusal(tmp_path / name).partition("create it with: ")[2]
    assert command.startswith(f"oelm prepare {source} --encoder FOLDER_OR_HUB_NAME --out ")
    assert shlex.split(command)[-1] == str(tmp_path / name)


@pytest.mark.parametrize(
    ("file", "dtype", "at", "value", "said"),
    [
        ("val.labels.bin", "<i2", 4, 3, "value 4 is 3, which is not one of 3 labels"),
        ("val.labels.bin", "<i2", 0, -1, "value 0 is -1, which is not one of 3 labels"),
        ("train.ids.bin", "<u2", 7, 999, "value 7 is token 999, which is not below the vocabulary 133"),
        ("train.offsets.bin", "<i8", 0, 1, "value 0 is 1, which does not bound the ids"),
        ("train.offsets.bin", "<i8", -1, 10**6, "is 1000000, which does not bound the ids"),
        ("train.offsets.bin", "<i8", 3, 0, "which begins an example not of 1 to 24"),
        ("test.seconds.bin", "<i4", 2, 25, "value 2 is 25, which does not lie within its example"),
        ("test.seconds.bin", "<i4", 2, 0, "value 2 is 0, which does not lie within its example"),
    ],
)
def test_a_bad_value_is_found_at_load_with_its_place(prepared, file, dtype, at, value, said):
    overwrite(prepared / file, dtype, at, value)
    assert refusal(prepared).startswith(f"{prepared / file}: value ")
    assert said in refusal(prepared)


@pytest.mark.parametrize("column", ["ids", "offsets", "seconds", "labels"])
def test_a_cut_or_missing_file_is_found_at_load(prepared, column):
    file = prepared / f"val.{column}.bin"
    file.write_bytes(file.read_bytes()[:-1])
    assert f"{file}: " in refusal(prepared)
    assert "but its manifest says" in refusal(prepared)
    file.unlink()
    assert f"{file}: missing" in refusal(prepared)
    file.symlink_to(prepared.parent / "elsewhere.bin")
    assert f"val.{column}.bin: damaged: is a link to outside its folder" in refusal(prepared)


def test_a_newer_or_incomplete_manifest_is_refused(prepared):
    edit_manifest(prepared, format_version=99)
    assert "format version 99 is newer" in refusal(prepared)
    edit_manifest(prepared, format_version=1, encoder={})
    assert "incomplete" in refusal(prepared)


SPLIT = {"examples": 5, "tokens": 50, "sha256": dict.fromkeys(("ids", "offsets", "seconds", "labels"), "a" * 64)}
FACTS = dict.fromkeys(Encoder.FROM_DATA, 8)
MANIFESTS = {
    "no splits": {"splits": {}},
    "a split outside the folder": {"splits": {"train": SPLIT, "../train": SPLIT}},
    "examples below zero": {"splits": {"train": SPLIT | {"examples": -5}}},
    "one digest for all columns": {"splits": {"train": SPLIT | {"sha256": "a" * 64}}},
    "a column outside the folder": {"splits": {"train": SPLIT | {"sha256": SPLIT["sha256"] | {"../x": "a"}}}},
    "labels as text": {"labels": "entailment"},
    "facts as a list": {"facts": []},
    **{f"a width of {width}": {"facts": FACTS | {"d_model": width}} for width in ("16", -16, 0, True, [16])},
    "encoder as text": {"encoder": "bert"},
    "another dtype": {"dtype": "float32"},
}


@pytest.mark.parametrize("changes", MANIFESTS.values(), ids=MANIFESTS)
def test_a_manifest_that_no_preparation_wrote_is_damaged(prepared, changes):
    edit_manifest(prepared, **changes)
    assert refusal(prepared).startswith(f"{prepared / 'manifest.json'}: damaged: ")


def test_the_encoder_of_the_data_is_proved_by_its_digest(tmp_path):
    source, encoder = nli_folder(tmp_path / "nli"), encoder_folder(tmp_path / "bert")
    prepare_sentences(str(source), task="pairs", out=tmp_path / "data", encoder=str(encoder), max_length=24)
    data = open_sentences(tmp_path / "data")
    assert encoder_of(data).digest == data.encoder_digest
    content = bytearray((encoder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (encoder / "model.safetensors").write_bytes(content)
    with pytest.raises(UserError, match=r"not the encoder that .*data was prepared for"):
        encoder_of(data)
    shutil.rmtree(encoder)
    with pytest.raises(UserError, match=r"the encoder it was prepared for is gone .*no such folder.*--force"):
        encoder_of(data)


def test_what_the_digests_do_not_say_is_found(prepared):
    edit_manifest(prepared, digest="0" * 64)
    with pytest.raises(UserError, match=r"manifest\.json: damaged: digest is not that of its files"):
        check_digests(open_sentences(prepared))
    overwrite(prepared / "train.ids.bin", "<u2", 1, 20)
    with pytest.raises(UserError, match=r"train\.ids\.bin: differs from its manifest"):
        check_digests(open_sentences(prepared))
