"""C1 to C4, S4: what is damaged is found and named, what is foreign is refused, and nothing is ever unpickled."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from patches import DIE_AT_STEP
from runs import (
    assert_equal_runs,
    assert_refused,
    everything_stored,
    newest,
    reseal,
    state,
    training,
    whole_steps,
    write_tokens,
)

from oelm.core.config import FORMAT_VERSION
from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory, check_whole
from oelm.run.training.checkpoint import latest_whole, read_state
from oelm.storage.files import Damaged

FILES = ("manifest.json", "model.safetensors", "optimizer.safetensors", "state.json")


def flip(file: Path, position: int, bit: int = 0) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 1 << bit
    file.write_bytes(content)


# ---- C1, C2 --------------------------------------------------------------------------------------------------------


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def empty(file: Path) -> None:
    os.truncate(file, 0)


@pytest.mark.parametrize("file", FILES)
def test_a_damaged_checkpoint_is_found_and_named(stopped, file):
    """Cut, emptied, gone, or with a single bit flipped anywhere."""
    damaged, draw = newest(stopped) / file, random.Random(file)
    content = damaged.read_bytes()
    for damage in (truncate, empty, Path.unlink):
        damage(damaged)
        with pytest.raises(Damaged, match=str(damaged)):
            check_whole(newest(stopped))
        damaged.write_bytes(content)
    for _ in range(0 if file == "manifest.json" else 200):  # of the manifest every byte, below
        position, bit = draw.randrange(len(content)), draw.randrange(8)
        flip(damaged, position, bit)
        with pytest.raises(Damaged, match=str(damaged)):
            check_whole(newest(stopped))
        flip(damaged, position, bit)
    check_whole(newest(stopped))


def test_the_previous_whole_checkpoint_is_used_and_the_skipped_one_named(server, data, reference, stopped):
    damaged = newest(stopped) / "optimizer.safetensors"
    flip(damaged, damaged.stat().st_size // 2)
    ended = server.run(*training(stopped, data))
    assert ended.code == 0, ended.text
    assert f"warning: checkpoint step-000028 is skipped: {damaged}" in ended.out
    assert "resuming from step 21 of 40 (step-000021)" in ended.out
    assert_equal_runs(stopped, reference)


def test_with_no_whole_checkpoint_left_the_run_begins_again(server, data, reference, stopped):
    for checkpoint in RunDirectory(stopped).stored_checkpoints():
        truncate(checkpoint / "model.safetensors")
    ended = server.run(*training(stopped, data))
    assert ended.code == 0, ended.text
    for step in (21, 28):
        assert f"step-0000{step} is skipped" in ended.out
    assert_equal_runs(stopped, reference)


def test_a_flipped_bit_anywhere_in_the_manifest_is_found_or_changes_nothing(stopped):
    """Every byte of it. A blank that turns into another blank changes nothing; a version may only look newer."""
    file = newest(stopped) / "manifest.json"
    meaning, draw, unnoticed = json.loads(file.read_text()), random.Random(0), []
    for position in range(file.stat().st_size):
        bit = draw.randrange(8)
        flip(file, position, bit)
        try:
            check_whole(newest(stopped))
        except (Damaged, UserError):
            pass
        else:
            unnoticed.append(json.loads(file.read_text())["files"])
        flip(file, position, bit)
    assert all(files == meaning["files"] for files in unnoticed)


def test_a_damaged_later_checkpoint_never_displaces_a_whole_one(server, data, reference, stopped):
    """Resumed from 21 because 28 is damaged, killed at 24 after a save: 24's checkpoint is the one to keep."""
    truncate(newest(stopped) / "model.safetensors")
    changes = {"checkpoint_every": 1, "keep_checkpoints": 1}
    server.run(*training(stopped, data, **changes), patch=DIE_AT_STEP.format(step=24))
    assert whole_steps(stopped) == [23]
    assert server.run(*training(stopped, data)).code == 0
    assert_equal_runs(stopped, reference)


# ---- Manifests and states that name or hold what no save writes ------------------------------------------------------

OUTSIDE = ("../../config.json", "/etc/hostname", "..", ".", "", "a/b", "sub\\file", "a\0b", "x" * 300, "\ud800", "-x")
NO_ENTRIES = ({}, [], None, "x", {"bytes": -1, "sha256": "a"}, {"bytes": True, "sha256": "a"},
              {"bytes": 1, "sha256": 5}, {"bytes": "1", "sha256": "a"}, {"bytes": 1.0, "sha256": "a"})  # fmt: skip
NO_MANIFESTS = ({"format_version": 1, "files": {}}, {"files": {}}, {"format_version": True, "files": {}},
                {"format_version": 1, "files": ["model.safetensors"]}, {"format_version": 1}, [], 3)  # fmt: skip


def foreign_manifests(tree: dict) -> Iterator[tuple[object, str]]:
    """None of which a save writes, and what is said of each."""
    files = tree["files"]
    for each in NO_MANIFESTS:
        yield each, ""
    for name in files:
        yield tree | {"files": {other: files[other] for other in files if other != name}}, f"does not list {name}"
    for name in OUTSIDE:
        yield tree | {"files": files | {name: {"bytes": 1, "sha256": "a" * 64}}}, "which is not a file in its folder"
    for entry in NO_ENTRIES:
        named = "model.safetensors"
        yield tree | {"files": files | {named: entry}}, f"has no size and SHA-256 of {named}"


def test_a_manifest_that_no_save_wrote_is_damaged_and_nothing_is_read(stopped, monkeypatch):
    def never(path):
        raise AssertionError(f"{path} was read")

    monkeypatch.setattr("oelm.run.directory.sha256_of", never)
    file = newest(stopped) / "manifest.json"
    tree = json.loads(file.read_text())
    assert tree["files"].keys() == {*FILES[1:]}
    for foreign, said in foreign_manifests(tree):
        file.write_text(json.dumps(foreign))
        with pytest.raises(Damaged, match=str(file)) as damaged:
            check_whole(newest(stopped))
        assert said in str(damaged.value)


def test_a_link_out_of_the_folder_is_refused_unread_and_a_linked_folder_is_not(stopped, tmp_path):
    checkpoint, weights = newest(stopped), newest(stopped) / "model.safetensors"
    (tmp_path / "by link").symlink_to(checkpoint)
    check_whole(tmp_path / "by link")
    weights.rename(tmp_path / "elsewhere")
    weights.symlink_to(tmp_path / "elsewhere")
    for folder in (checkpoint, tmp_path / "by link"):
        with pytest.raises(Damaged, match="is a link to outside its folder"):
            check_whole(folder)


def edit(file: Path, change) -> None:
    tree = json.loads(file.read_text())
    change(tree)
    file.write_text(json.dumps(tree))


def progress_with(**changes: object):
    return lambda state: state["progress"].update(changes)


STATES = {
    "no progress": lambda state: state.pop("progress"),
    "progress as a list": lambda state: state.update(progress=[]),
    "no digests": lambda state: state.pop("digests"),
    "a digest that is a number": lambda state: state.update(digests={"blocks.0.attention.query.weight": 5}),
    "no step": lambda state: state.pop("step"),
    "another step": lambda state: state.update(step=27),
    "a step that is true": lambda state: state.update(step=True),
    "another step of the progress": progress_with(step=27),
    "text for a number": progress_with(loss_sum="0"),
    "nothing for a number": progress_with(training_seconds=None),
    "a count below zero": progress_with(resumes=-1),
    "half a count": progress_with(loss_steps=0.5),
    "a truth for a loss": progress_with(best_val_loss=True),
    "a missing key": lambda state: state["progress"].pop("clipped_since"),
    "a foreign key": progress_with(surprise=1),
}


def test_a_state_that_no_save_wrote_is_damaged_and_passed_over(server, data, reference, stopped):
    state_file = newest(stopped) / "state.json"
    whole = state_file.read_text()
    for change in STATES.values():
        state_file.write_text(whole)
        edit(state_file, change)
        reseal(newest(stopped))
        check_whole(newest(stopped))
        with pytest.raises(Damaged, match=str(state_file)):
            read_state(newest(stopped))
        said: list[str] = []
        assert latest_whole(RunDirectory(stopped), say=said.append).name == "step-000021"
        assert said[0].startswith(f"checkpoint step-000028 is skipped: {state_file}: damaged: ")
    ended = server.run(*training(stopped, data))
    assert ended.code == 0, ended.text
    assert "resuming from step 21 of 40" in ended.out
    assert_equal_runs(stopped, reference)


def test_a_checkpoint_without_the_digest_of_a_frozen_weight_proves_nothing(server, data, stopped):
    edit(newest(stopped) / "state.json", lambda state: state["digests"].popitem())
    reseal(newest(stopped))
    assert_refused(server.run(*training(stopped, data)), "digest differs", code=4)


# ---- C3 ------------------------------------------------------------------------------------------------------------


def test_a_changed_config_is_refused_key_by_key(server, data, stopped):
    before = everything_stored(stopped)
    ended = server.run(*training(stopped, data, arm="trained", d_model=32, learning_rate=0.001))
    differences = (
        "model.d_model is 16 there and 32 here",
        "model.d_ff is 64 there and 128 here",
        "training.learning_rate is 0.002 there and 0.001 here",
        "model.parts.query.moves.kind is never there and always here",
    )
    assert_refused(ended, "--out", *(f"oelm: {stopped}: {line}\n" for line in differences))
    assert everything_stored(stopped) == before


def test_changed_data_are_refused(server, stopped, tmp_path):
    other = write_tokens(tmp_path / "other data", seed=1)
    assert_refused(server.run(*training(stopped, other)), f"oelm: {stopped}: data digest is ")


def test_a_checkpoint_of_another_model_is_refused_weight_by_weight(server, data, stopped, tmp_path):
    """Weights of another shape; and moments of another arm or shape where weights fit, the manifest in order."""
    trained, wider = tmp_path / "trained", tmp_path / "wider"
    server.run(*training(trained, data, arm="trained_head_orthogonal"), patch=DIE_AT_STEP.format(step=8))
    server.run(*training(wider, data, d_model=32), patch=DIE_AT_STEP.format(step=30))
    ours = newest(stopped)
    for foreign in (trained, wider):
        shutil.copy(newest(foreign) / "optimizer.safetensors", ours)
        reseal(ours)
        assert_refused(server.run(*training(stopped, data)), f"{ours / 'optimizer.safetensors'}: ")
    shutil.rmtree(ours)
    shutil.copytree(newest(wider), ours)
    line = "final_norm.weight is (32,) in the file, (16,) in the model"
    assert_refused(server.run(*training(stopped, data)), f"{ours / 'model.safetensors'}: {line}\n")


# ---- C4 ------------------------------------------------------------------------------------------------------------


def test_what_is_of_a_newer_format_is_refused_with_its_version(server, data, stopped):
    for file, named, known in (
        (newest(stopped) / "manifest.json", newest(stopped), 1),
        (stopped / "config.json", stopped / "config.json", FORMAT_VERSION),
    ):
        edit(file, lambda tree: tree.update(format_version=7))
        ended = server.run(*training(stopped, data))
        assert_refused(ended, f"{named}: ", "version 7", f"reads up to {known}", "use a newer oelm")
    assert_refused(server.run("generate", stopped), f"{stopped / 'config.json'}: ", "version 7")


# ---- S4 ------------------------------------------------------------------------------------------------------------


class Touch:
    """Unpickling it makes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


@pytest.fixture
def crafted(tmp_path) -> Iterator[bytes]:
    marker = tmp_path / "unpickled"
    pickled = pickle.dumps(Touch(marker))
    pickle.loads(pickled)
    assert marker.exists()  # it does what it should
    marker.unlink()
    yield pickled
    assert not marker.exists()


@pytest.mark.parametrize("file", ["model.safetensors", "state.json"])
def test_a_pickle_offered_as_checkpoint_is_never_unpickled(server, data, stopped, crafted, file):
    (newest(stopped) / file).write_bytes(crafted)
    reseal(newest(stopped))
    damaged = newest(stopped) / file
    ended = server.run(*training(stopped, data))
    if file == "state.json":
        assert f"step-000028 is skipped: {damaged}" in ended.out
        assert "Traceback" not in ended.text
    else:
        assert_refused(ended, str(damaged))


def test_a_pickle_offered_as_best_model_is_never_unpickled(server, reference, tmp_path, crafted):
    """Under no name: those under which others store pickles are not looked for."""
    run = Path(shutil.copytree(reference, tmp_path / "run"))
    weights = run / "best" / "model.safetensors"
    weights.write_bytes(crafted)
    for place in (run, run / "best"):
        assert_refused(server.run("generate", place), f"{weights}: not a safetensors file")
    weights.unlink()
    for checkpoint in RunDirectory(run).stored_checkpoints():
        shutil.rmtree(checkpoint)
    for name in ("pytorch_model.bin", "model.pt", "model.ckpt"):
        weights.with_name(name).write_bytes(crafted)
    assert server.run("generate", run).code == 2
    assert state(run) == "finished"
