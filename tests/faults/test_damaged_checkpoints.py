"""C1 to C4, S4: what is damaged is found and named, what is foreign is refused, and nothing is ever unpickled."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
from pathlib import Path

import pytest
from patches import DIE_AT_STEP
from runs import everything_stored, reseal, state, training, write_tokens

from oelm.core.config import FORMAT_VERSION
from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory, check_whole
from oelm.run.training.checkpoint import latest_whole, read_state
from oelm.storage.files import Damaged

FILES = ("manifest.json", "model.safetensors", "optimizer.safetensors", "state.json")


def newest(run: Path) -> Path:
    return RunDirectory(run).stored_checkpoints()[-1]


def flip(file: Path, position: int, bit: int = 0) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 1 << bit
    file.write_bytes(content)


# ---- C1, C2 --------------------------------------------------------------------------------------------------------


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def empty(file: Path) -> None:
    os.truncate(file, 0)


def flip_in_the_middle(file: Path) -> None:
    flip(file, file.stat().st_size // 2)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", [truncate, empty, Path.unlink, flip_in_the_middle], ids=lambda d: d.__name__)
def test_a_damaged_checkpoint_is_found_and_named(stopped, damage, file):
    damaged = newest(stopped) / file
    damage(damaged)
    # A digit of the manifest that changed shows as a file that does not match it.
    flipped_digit = damage is flip_in_the_middle and file == "manifest.json"
    with pytest.raises(Damaged, match=str(damaged.parent if flipped_digit else damaged)):
        check_whole(newest(stopped))


@pytest.mark.parametrize("file", FILES)
def test_the_previous_whole_checkpoint_is_used_and_the_skipped_one_named(server, data, reference, stopped, file):
    damaged = newest(stopped) / file
    flip_in_the_middle(damaged) if file.startswith("optimizer") else truncate(damaged)
    ended = server.run(*training(stopped, data))
    assert ended.code == 0, ended.text
    assert f"warning: checkpoint step-000028 is skipped: {damaged}" in ended.out
    assert "resuming from step 21 of 40 (step-000021)" in ended.out
    assert everything_stored(stopped) == everything_stored(reference)


def test_with_no_whole_checkpoint_left_the_run_begins_again(server, data, reference, stopped):
    for checkpoint in RunDirectory(stopped).stored_checkpoints():
        truncate(checkpoint / "model.safetensors")
    ended = server.run(*training(stopped, data))
    assert ended.code == 0, ended.text
    assert "step-000028 is skipped" in ended.out
    assert "step-000021 is skipped" in ended.out
    assert everything_stored(stopped) == everything_stored(reference)


@pytest.mark.parametrize("file", FILES[1:])
def test_a_flipped_bit_anywhere_in_a_stored_file_is_found(stopped, file):
    damaged, draw = newest(stopped) / file, random.Random(file)
    for _ in range(200):
        position, bit = draw.randrange(damaged.stat().st_size), draw.randrange(8)
        flip(damaged, position, bit)
        with pytest.raises(Damaged, match=str(damaged)):
            check_whole(newest(stopped))
        flip(damaged, position, bit)
    check_whole(newest(stopped))


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
    assert [folder.name for folder in RunDirectory(stopped).stored_checkpoints()] == ["step-000023"]
    check_whole(newest(stopped))
    assert server.run(*training(stopped, data)).code == 0
    assert everything_stored(stopped) == everything_stored(reference)


# ---- Manifests and states that name or hold what no save writes ------------------------------------------------------

OUTSIDE = ("../../config.json", "/etc/hostname", "..", ".", "", "a/b", "sub\\file", "a\0b", "x" * 300, "\ud800", "-x")
MANIFESTS = {
    "no files": {"format_version": 1, "files": {}},
    "no version": {"files": {}},
    "a version that is true": {"format_version": True, "files": {}},
    "files as a list": {"format_version": 1, "files": ["model.safetensors"]},
    "no files at all": {"format_version": 1},
    "a list": [],
    "a number": 3,
}


def edit(file: Path, change) -> None:
    tree = json.loads(file.read_text())
    change(tree)
    file.write_text(json.dumps(tree))


@pytest.mark.parametrize("tree", MANIFESTS.values(), ids=MANIFESTS)
def test_a_manifest_that_names_no_files_is_not_valid(stopped, tree):
    file = newest(stopped) / "manifest.json"
    file.write_text(json.dumps(tree))
    with pytest.raises(Damaged, match=str(file)):
        check_whole(newest(stopped))


@pytest.mark.parametrize("file", FILES[1:])
def test_a_manifest_must_name_model_optimizer_and_state(stopped, file):
    edit(newest(stopped) / "manifest.json", lambda tree: tree["files"].pop(file))
    with pytest.raises(Damaged, match=f"does not list {file}"):
        check_whole(newest(stopped))


@pytest.mark.parametrize("name", OUTSIDE, ids=ascii)
def test_an_entry_that_leaves_the_folder_is_refused_unread(stopped, name, monkeypatch):
    def never(path):
        raise AssertionError(f"{path} was read")

    monkeypatch.setattr("oelm.run.directory.sha256_of", never)
    edit(newest(stopped) / "manifest.json", lambda tree: tree["files"].update({name: {"bytes": 1, "sha256": "a" * 64}}))
    with pytest.raises(Damaged, match="which is not a file in its folder"):
        check_whole(newest(stopped))


def test_a_link_out_of_the_folder_is_refused_unread_and_a_linked_folder_is_not(stopped, tmp_path):
    checkpoint, weights = newest(stopped), newest(stopped) / "model.safetensors"
    (tmp_path / "by link").symlink_to(checkpoint)
    check_whole(tmp_path / "by link")
    weights.rename(tmp_path / "elsewhere")
    weights.symlink_to(tmp_path / "elsewhere")
    for folder in (checkpoint, tmp_path / "by link"):
        with pytest.raises(Damaged, match="is a link to outside its folder"):
            check_whole(folder)


@pytest.mark.parametrize(
    "entry",
    [{}, [], None, "x", {"bytes": -1, "sha256": "a"}, {"bytes": True, "sha256": "a"}, {"bytes": 1, "sha256": 5},
     {"bytes": "1", "sha256": "a"}, {"bytes": 1.0, "sha256": "a"}],
    ids=str,
)  # fmt: skip
def test_an_entry_needs_a_size_and_a_digest(stopped, entry):
    edit(newest(stopped) / "manifest.json", lambda tree: tree["files"].update({"model.safetensors": entry}))
    with pytest.raises(Damaged, match=r"has no size and SHA-256 of model\.safetensors"):
        check_whole(newest(stopped))


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


@pytest.mark.parametrize("change", STATES.values(), ids=STATES)
def test_a_state_that_no_save_wrote_is_damaged(stopped, change):
    checkpoint = newest(stopped)
    edit(checkpoint / "state.json", change)
    reseal(checkpoint)
    check_whole(checkpoint)
    with pytest.raises(Damaged, match=str(checkpoint / "state.json")):
        read_state(checkpoint)
    said: list[str] = []
    assert latest_whole(RunDirectory(stopped), say=said.append).name == "step-000021"
    assert said[0].startswith(f"checkpoint step-000028 is skipped: {checkpoint / 'state.json'}: damaged: ")


def test_a_resealed_checkpoint_with_a_damaged_state_is_passed_over(server, data, reference, stopped):
    edit(newest(stopped) / "state.json", progress_with(loss_sum="0"))
    reseal(newest(stopped))
    ended = server.run(*training(stopped, data))
    assert ended.code == 0, ended.text
    assert "checkpoint step-000028 is skipped: " in ended.out
    assert "resuming from step 21 of 40" in ended.out
    assert everything_stored(stopped) == everything_stored(reference)


def test_a_checkpoint_without_the_digest_of_a_frozen_weight_proves_nothing(server, data, stopped):
    edit(newest(stopped) / "state.json", lambda state: state["digests"].popitem())
    reseal(newest(stopped))
    ended = server.run(*training(stopped, data))
    assert ended.code == 4
    assert "Traceback" not in ended.text
    assert "digest differs" in ended.err


# ---- C3 ------------------------------------------------------------------------------------------------------------


def test_a_changed_config_is_refused_key_by_key(server, data, stopped):
    before = everything_stored(stopped)
    ended = server.run(*training(stopped, data, arm="trained", d_model=32, learning_rate=0.001))
    assert ended.code == 2
    assert "Traceback" not in ended.text
    for line in (
        "model.d_model is 16 there and 32 here",
        "model.d_ff is 64 there and 128 here",
        "training.learning_rate is 0.002 there and 0.001 here",
        "model.parts.query.moves.kind is never there and always here",
    ):
        assert f"oelm: {stopped}: {line}\n" in ended.err
    assert "choose another --out or undo the change" in ended.err
    assert everything_stored(stopped) == before


def test_changed_data_are_refused(server, stopped, tmp_path):
    other = write_tokens(tmp_path / "other data", seed=1)
    ended = server.run(*training(stopped, other))
    assert ended.code == 2
    assert f"oelm: {stopped}: data digest is " in ended.err


def test_a_checkpoint_of_another_shape_is_refused_weight_by_weight(server, data, stopped, tmp_path):
    wider = tmp_path / "wider"
    server.run(*training(wider, data, d_model=32), patch=DIE_AT_STEP.format(step=30))
    shutil.rmtree(newest(stopped))
    shutil.copytree(newest(wider), stopped / "checkpoints" / "step-000028")
    ended = server.run(*training(stopped, data))
    assert ended.code == 2
    assert "Traceback" not in ended.text
    line = "final_norm.weight is (32,) in the file, (16,) in the model"
    assert f"{newest(stopped) / 'model.safetensors'}: {line}\n" in ended.err


def test_optimizer_moments_of_another_model_are_refused(server, data, stopped, tmp_path):
    """Weights fit, moments do not: the arm was another one, its manifest in order."""
    trained = tmp_path / "trained"
    server.run(*training(trained, data, arm="trained_head_orthogonal"), patch=DIE_AT_STEP.format(step=8))
    wider = tmp_path / "wider"
    server.run(*training(wider, data, d_model=32), patch=DIE_AT_STEP.format(step=8))
    for foreign in (trained, wider):
        shutil.copy(newest(foreign) / "optimizer.safetensors", newest(stopped))
        reseal(newest(stopped))
        ended = server.run(*training(stopped, data))
        assert ended.code == 2, ended.text
        assert "Traceback" not in ended.text
        assert f"{newest(stopped) / 'optimizer.safetensors'}: " in ended.err


# ---- C4 ------------------------------------------------------------------------------------------------------------


def with_version(file: Path, version: int) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format_version": version}))


def test_a_checkpoint_of_a_newer_format_is_refused_with_its_version(server, data, stopped):
    with_version(newest(stopped) / "manifest.json", 7)
    ended = server.run(*training(stopped, data))
    assert ended.code == 2
    assert f"{newest(stopped)}: checkpoint format version 7, this oelm reads up to 1; use a newer oelm" in ended.err
    assert "Traceback" not in ended.text


def test_a_run_of_a_newer_format_is_refused_with_its_version(server, data, stopped):
    with_version(stopped / "config.json", 7)
    for command in (training(stopped, data), ["generate", stopped]):
        ended = server.run(*command)
        assert ended.code == 2
        expected = f"has format version 7, this oelm reads up to {FORMAT_VERSION}; use a newer oelm"
        assert f"{stopped / 'config.json'}: {expected}" in ended.err
        assert "Traceback" not in ended.text


# ---- S4 ------------------------------------------------------------------------------------------------------------


class Touch:
    """Unpickling it makes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


@pytest.fixture
def crafted(tmp_path) -> tuple[bytes, Path]:
    marker = tmp_path / "unpickled"
    pickled = pickle.dumps(Touch(marker))
    pickle.loads(pickled)
    assert marker.exists()  # it does what it should
    marker.unlink()
    return pickled, marker


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"])
def test_a_pickle_offered_as_checkpoint_is_never_unpickled(server, data, stopped, crafted, file):
    pickled, marker = crafted
    (newest(stopped) / file).write_bytes(pickled)
    if file != "manifest.json":
        reseal(newest(stopped))
    ended = server.run(*training(stopped, data))
    assert not marker.exists()
    assert "Traceback" not in ended.text
    if file in ("manifest.json", "state.json"):
        assert f"step-000028 is skipped: {newest(stopped).with_name('step-000028') / file}" in ended.out
    else:
        assert ended.code == 2
        assert str(newest(stopped) / file) in ended.err


def test_a_pickle_offered_as_best_model_is_never_unpickled(server, reference, tmp_path, crafted):
    pickled, marker = crafted
    run = Path(shutil.copytree(reference, tmp_path / "run"))
    (run / "best" / "model.safetensors").write_bytes(pickled)
    for place in (run, run / "best"):
        ended = server.run("generate", place)
        assert ended.code == 2
        assert f"{run / 'best' / 'model.safetensors'}: not a safetensors file" in ended.err
        assert "Traceback" not in ended.text
    assert not marker.exists()


def test_old_names_of_pickled_weights_are_not_looked_for(server, reference, tmp_path, crafted):
    pickled, marker = crafted
    run = Path(shutil.copytree(reference, tmp_path / "run"))
    (run / "best" / "model.safetensors").unlink()
    for checkpoint in RunDirectory(run).stored_checkpoints():
        shutil.rmtree(checkpoint)
    for name in ("pytorch_model.bin", "model.pt", "model.ckpt"):
        (run / "best" / name).write_bytes(pickled)
    ended = server.run("generate", run)
    assert ended.code == 2
    assert not marker.exists()
    assert state(run) == "finished"
