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

from oelm.errors import UserError
from oelm.run_directory import Damaged, RunDirectory, check_whole

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
        "model.attention.query.moves.kind is never there and always here",
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
    server.run(*training(wider, data, d_model=32), patch=DIE_AT_STEP.format(step=8))
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
        expected = "has format version 7, this oelm reads up to 2; use a newer oelm"
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
    if file == "manifest.json":
        assert "step-000028 is skipped" in ended.out
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
