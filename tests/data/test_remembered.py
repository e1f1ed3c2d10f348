"""Prepared data that did not change is not hashed again; whatever is wrong with the memory costs a reading, no more."""

import json
import os
import shutil

import pytest

from oelm.data import folders
from oelm.data.folders import check_changes, check_digests
from oelm.data.prepare import prepare
from oelm.data.tokens import open_tokens
from oelm.machine.errors import UserError
from oelm.storage.files import DATA_MEMORY


@pytest.fixture(scope="module")
def prepared_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared") / "stories"
    prepare("stories", out=folder, tokenizer="bpe:300", stories=200)
    return folder


@pytest.fixture
def prepared(prepared_once, tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "SETTLED_NANOSECONDS", 0)
    return shutil.copytree(prepared_once, tmp_path / "stories")


@pytest.fixture
def hashed(monkeypatch):
    """Names of the files that were read whole."""
    names, sha256_of = [], folders.sha256_of
    monkeypatch.setattr(folders, "sha256_of", lambda path: names.append(path.name) or sha256_of(path))
    return names


def start(folder):
    check_changes(open_tokens(folder))


def test_what_did_not_change_is_read_whole_once(prepared, hashed):
    every = sorted(path.name for path in prepared.glob("*.bin"))
    start(prepared)
    assert sorted(hashed) == every
    start(prepared)
    assert sorted(hashed) == every
    check_digests(open_tokens(prepared))  # as `oelm verify` does
    assert sorted(hashed) == sorted(2 * every)


def test_a_file_that_changed_is_read_again_and_no_other(prepared, hashed):
    start(prepared)
    hashed.clear()
    os.utime(prepared / "val.bin")
    start(prepared)
    assert hashed == ["val.bin"]


@pytest.mark.parametrize("time_set_back", [False, True])
def test_a_flipped_byte_is_found_at_the_next_start(prepared, time_set_back):
    start(prepared)
    file = prepared / "train.bin"
    times = file.stat()
    with open(file, "r+b") as stream:
        stream.seek(100)
        byte = stream.read(1)[0]
        stream.seek(100)
        stream.write(bytes([byte ^ 1]))
    if time_set_back:
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(UserError, match=r"train\.bin: differs from its manifest"):
        start(prepared)


def test_a_copy_is_read_whole_although_the_memory_came_along(prepared, hashed, tmp_path):
    start(prepared)
    hashed.clear()
    start(shutil.copytree(prepared, tmp_path / "copy"))
    assert "train.bin" in hashed


def edited(memory):
    tree = json.loads(memory.read_text())
    tree["files"]["train.bin"]["inode"] += 1
    memory.write_text(json.dumps(tree))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda memory: memory.write_bytes(b""),
        lambda memory: memory.write_bytes(b"\xff\x00"),
        lambda memory: memory.write_text("[]"),
        lambda memory: memory.write_text('{"files": 3}'),
        edited,
        lambda memory: (memory.unlink(), memory.mkdir()),
        lambda memory: (memory.unlink(), os.mkfifo(memory)),
    ],
)
def test_a_damaged_or_unwritable_memory_costs_a_reading(prepared, hashed, spoil):
    start(prepared)
    hashed.clear()
    spoil(prepared / DATA_MEMORY)
    start(prepared)
    assert "train.bin" in hashed


def test_a_file_that_may_still_change_within_a_tick_is_not_remembered(prepared, hashed, monkeypatch):
    monkeypatch.setattr(folders, "SETTLED_NANOSECONDS", 10**15)
    start(prepared)
    start(prepared)
    assert hashed.count("train.bin") == 2


def test_the_memory_is_a_file_of_prepared_data(prepared):
    start(prepared)
    settings = {"tokenizer": "bpe:300", "stories": 200}
    assert prepare("stories", out=prepared, **settings)["digest"] == open_tokens(prepared).digest
    prepare("stories", out=prepared, **settings, force=True)
    assert not (prepared / DATA_MEMORY).exists()
