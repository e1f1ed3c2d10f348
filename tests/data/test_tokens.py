"""Token files, read: what is accepted, and where exactly bad data is bad."""

from __future__ import annotations

import hashlib
import json
import pickle
import shlex
from pathlib import Path

import numpy as np
import pytest

from oelm.data import tokens as module
from oelm.data.corpora import HUB
from oelm.data.folders import check_digests
from oelm.data.prepare import prepare
from oelm.data.tokens import check_tokens, open_tokens
from oelm.machine.errors import UserError
from oelm.storage.files import Damaged, combined_digest

OWN = "FILE_OR_FOLDER"


@pytest.fixture(scope="module")
def prepared_once(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("datasets") / "stories"
    prepare("stories", out=out, stories=300, tokenizer="bpe:400")
    return out


@pytest.fixture
def prepared(prepared_once, tmp_path) -> Path:
    """A copy that a test may damage."""
    import shutil

    return Path(shutil.copytree(prepared_once, tmp_path / "data"))


def bare(folder: Path, **splits: list[int]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, ids in splits.items():
        np.array(ids, dtype="<u2").tofile(folder / f"{name}.bin")
    return folder


def edit_manifest(folder: Path, **changes) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_prepared_folder_opens_with_all_it_knows(prepared):
    data = open_tokens(prepared)
    assert list(data.splits) == ["train", "tune", "val"]
    assert data.vocabulary == 400
    assert data.dtype == np.dtype("<u2")
    assert data.digest == data.manifest["digest"]
    assert data.tokenizer_folder == prepared / "tokenizer"
    assert {name: len(ids) for name, ids in data.splits.items()} == {
        name: entry["tokens"] for name, entry in data.manifest["splits"].items()
    }
    check_tokens(data, seq_len=64, vocabulary=400)
    check_digests(data)
    files = {f"{name}.bin": hashlib.sha256((prepared / f"{name}.bin").read_bytes()).hexdigest() for name in data.splits}
    assert data.digest == combined_digest(files)  # the rule of bare folders too
    with pytest.raises(ValueError, match="read-only"):
        data.splits["train"][0] = 1


def test_a_bare_folder_halves_its_val(tmp_path):
    folder = bare(tmp_path / "bäre 🙂 folder", train=list(range(50)), val=list(range(100, 121)))
    data = open_tokens(folder)
    assert data.splits["train"].tolist() == list(range(50))
    assert data.splits["tune"].tolist() == list(range(100, 110))
    assert data.splits["val"].tolist() == list(range(110, 121))
    assert (data.vocabulary, data.manifest, data.tokenizer_folder) == (None, None, None)


def test_the_path_of_train_bin_means_its_folder(tmp_path, prepared):
    folder = bare(tmp_path / "bare", train=[1, 2], val=[3, 4])
    assert open_tokens(folder / "train.bin").splits["train"].tolist() == [1, 2]
    assert open_tokens(prepared / "train.bin").manifest is not None


def test_the_digest_of_a_bare_folder_follows_its_bytes(tmp_path):
    one = open_tokens(bare(tmp_path / "a", train=[1, 2], val=[3, 4])).digest
    assert one == open_tokens(bare(tmp_path / "b", train=[1, 2], val=[3, 4])).digest
    assert one != open_tokens(bare(tmp_path / "c", train=[1, 2], val=[3, 5])).digest
    assert one != open_tokens(bare(tmp_path / "d", train=[3, 4], val=[1, 2])).digest


@pytest.mark.parametrize(
    ("name", "corpus"),
    [*((name, name) for name in HUB), ("data/stories", "stories"), ("stories", OWN), ("my data", OWN)],
)
def test_missing_data_names_the_command_that_makes_it(tmp_path, name, corpus):
    folder = tmp_path / name
    if name == "my data":
        folder.mkdir()
    with pytest.raises(UserError) as error:
        open_tokens(folder)
    assert str(error.value).startswith(f"{folder}: no prepared data there")
    command = shlex.split(str(error.value).split("create it with: ")[1])
    assert command == ["oelm", "prepare", corpus, "--out", str(folder)]


def test_a_split_shorter_than_a_sequence_is_named(tmp_path):
    data = open_tokens(bare(tmp_path, train=[1] * 100, val=[1] * 40))
    check_tokens(data, seq_len=19, vocabulary=2)
    with pytest.raises(UserError, match=r"val\.bin: tune has 20 tokens, but seq_len 20 needs 21"):
        check_tokens(data, seq_len=20, vocabulary=2)


@pytest.mark.parametrize("scan", [7, 1 << 24])
@pytest.mark.parametrize(("file", "offset"), [("train", 0), ("train", 99), ("train", 13), ("val", 3), ("val", 39)])
def test_an_id_outside_the_vocabulary_is_named_by_file_and_offset(tmp_path, monkeypatch, file, offset, scan):
    monkeypatch.setattr(module, "SCAN_TOKENS", scan)
    splits = {"train": [5] * 100, "val": [5] * 40}
    splits[file][offset:] = [77] * (len(splits[file]) - offset)
    data = open_tokens(bare(tmp_path, **splits))
    check_tokens(data, seq_len=8, vocabulary=78)
    with pytest.raises(UserError) as error:
        check_tokens(data, seq_len=8, vocabulary=77)
    said = f"{file}.bin: token 77 at token offset {offset} is not below the vocabulary 77"
    assert str(error.value) == f"{tmp_path}/{said}"


ENTRY = {"tokens": 5, "sha256": "a" * 64}
MANIFESTS = {
    "no splits": {"splits": {}},
    "splits as a list": {"splits": ["train"]},
    "a split outside the folder": {"splits": {"train": ENTRY, "../train": ENTRY}},
    "a split of another name": {"splits": {"train": ENTRY, "other": ENTRY}},
    "an entry that is a list": {"splits": {"train": []}},
    "tokens as text": {"splits": {"train": ENTRY | {"tokens": "5"}}},
    "tokens below zero": {"splits": {"train": ENTRY | {"tokens": -5}}},
    "no digest of a split": {"splits": {"train": {"tokens": 5}}},
    "another dtype": {"dtype": "object"},
    "dtype as a list": {"dtype": []},
    "vocabulary as text": {"vocabulary": "400"},
    "no digest": {"digest": None},
    "settings as a list": {"settings": []},
}


@pytest.mark.parametrize("changes", MANIFESTS.values(), ids=MANIFESTS)
def test_a_manifest_that_no_preparation_wrote_is_damaged(prepared, changes):
    edit_manifest(prepared, **changes)
    with pytest.raises(Damaged, match=str(prepared / "manifest.json")):
        open_tokens(prepared)


def test_a_split_that_is_a_link_out_of_its_folder_is_refused_and_a_linked_folder_is_not(prepared, tmp_path):
    (tmp_path / "by link").symlink_to(prepared)
    check_digests(open_tokens(tmp_path / "by link"))
    (prepared / "val.bin").rename(tmp_path / "elsewhere.bin")
    (prepared / "val.bin").symlink_to(tmp_path / "elsewhere.bin")
    with pytest.raises(Damaged, match=r"val\.bin: damaged: is a link to outside its folder"):
        open_tokens(prepared)


def test_a_pickle_beside_bare_files_is_never_loaded(tmp_path):
    folder = bare(tmp_path, train=[1, 2], val=[3, 4])
    marker = tmp_path / "executed"
    (folder / "meta.pkl").write_bytes(pickle.dumps(Bomb(str(marker))))
    open_tokens(folder)
    assert not marker.exists()


class Bomb:
    def __init__(self, marker: str):
        self.marker = marker

    def __reduce__(self):
        return open, (self.marker, "w")


def test_a_truncated_missing_or_changed_file_is_found(prepared):
    file = prepared / "train.bin"
    content = file.read_bytes()
    file.write_bytes(content[:-100])
    sizes = f"{len(content) - 100} bytes, but its manifest says {len(content)} bytes"
    with pytest.raises(UserError, match=f"^{file}: {sizes}; prepare it again with --force$"):
        open_tokens(prepared)
    file.unlink()
    with pytest.raises(UserError, match=r"train\.bin: missing"):
        open_tokens(prepared)
    file.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    with pytest.raises(UserError, match=r"train\.bin: differs from its manifest"):
        check_digests(open_tokens(prepared))
    file.write_bytes(content)
    edit_manifest(prepared, digest="0" * 64)
    with pytest.raises(Damaged, match=r"manifest\.json: damaged: digest is not that of its files"):
        check_digests(open_tokens(prepared))


def test_odd_empty_and_missing_bare_files_are_named(tmp_path):
    odd = bare(tmp_path / "odd", train=[1, 2, 3], val=[1, 2])
    with open(odd / "train.bin", "ab") as stream:
        stream.write(b"x")
    for folder, said in (
        (odd, r"train\.bin: 7 bytes is not a whole number of uint16 tokens \(offset 6\)"),
        (bare(tmp_path / "a", train=[], val=[1]), r"train\.bin: empty"),
        (bare(tmp_path / "b", train=[1]), r"val\.bin: missing"),
    ):
        with pytest.raises(UserError, match=said):
            open_tokens(folder)


def test_a_newer_foreign_or_broken_manifest_is_named(prepared):
    newer = '{"format_version": 99}'
    for text, said in ((newer, "99 is newer than 1"), ("[]", "not the manifest"), ("{broken", "damaged: not JSON")):
        (prepared / "manifest.json").write_text(text)
        with pytest.raises(UserError, match=said):
            open_tokens(prepared)
