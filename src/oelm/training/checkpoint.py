"""A run's state as files: weights and optimizer moments in safetensors, everything else in JSON. Never pickle."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from oelm.errors import UserError
from oelm.files import publish, read_json, temporary_name, write_json
from oelm.run_directory import Damaged, RunDirectory, check_whole, checkpoint_step
from oelm.training.optimizer import foreign_moments, optimizer_state, restore_optimizer

MODEL_FILE = "model.safetensors"
OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "state.json"


def save_checkpoint(
    directory: RunDirectory,
    step: int,
    *,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    keep: int,
) -> None:
    """Publish step-N, then prune: at any moment one whole checkpoint is there."""
    weights, moments = contiguous(model.state_dict()), contiguous(optimizer_state(optimizer, model))
    needed_bytes = stored_bytes(weights) + stored_bytes(moments)
    with directory.new_checkpoint(step, needed_bytes=needed_bytes) as folder:
        write_tensors(folder / MODEL_FILE, weights)
        write_tensors(folder / OPTIMIZER_FILE, moments)
        write_json(folder / STATE_FILE, state)
    directory.prune_checkpoints(newest=step, keep=keep)


def latest_whole(directory: RunDirectory, *, say: Callable[[str], None]) -> Path | None:
    """The newest checkpoint that is whole; every newer one that is not is named."""
    for folder in reversed(directory.stored_checkpoints()):
        try:
            check_whole(folder)
        except Damaged as damage:
            say(f"checkpoint {folder.name} is skipped: {damage}")
            continue
        return folder
    return None


def load_checkpoint(folder: Path, *, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Restore weights and moments; returns the rest of the state."""
    load_weights(model, folder / MODEL_FILE)
    moments = read_tensors(folder / OPTIMIZER_FILE)
    foreign = foreign_moments(optimizer, model, moments)
    if foreign:
        raise UserError("\n".join(f"{folder / OPTIMIZER_FILE}: {line}" for line in foreign))
    restore_optimizer(optimizer, model, moments)
    state = read_json(folder / STATE_FILE)
    assert state["step"] == checkpoint_step(folder)
    return state


def load_weights(model: nn.Module, path: Path) -> None:
    stored, expected = read_tensors(path), model.state_dict()
    lines = [f"{path}: {line}" for line in _shape_differences(stored, expected)]
    if lines:
        raise UserError("\n".join(lines))
    model.load_state_dict(stored)


def _shape_differences(stored: dict[str, Tensor], expected: dict[str, Tensor]) -> list[str]:
    lines = []
    for name in sorted(stored.keys() | expected.keys()):
        if name not in stored or name not in expected:
            lines.append(f"{name} is only in the {'model' if name in expected else 'file'}")
        elif stored[name].shape != expected[name].shape:
            lines.append(
                f"{name} is {tuple(stored[name].shape)} in the file, {tuple(expected[name].shape)} in the model"
            )
    return lines


# ---- Tensors in files ----------------------------------------------------------------------------------------------


def contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}


def stored_bytes(tensors: dict[str, Tensor]) -> int:
    """What a file of them needs, with room for its header and for what is written beside it."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()) + 2**20


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write, so that a full disk shows as the same OSError that other files give."""
    path.touch()
    mode = path.stat().st_mode  # as the umask says; safetensors would make the file private
    try:
        save_file(tensors, path, metadata=metadata)
        path.chmod(mode)
    except SafetensorError as error:
        if "os error 28" in str(error) or "No space left" in str(error):
            raise OSError(errno.ENOSPC, "No space left on device", str(path)) from error
        raise


def replace_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write beside `path` and take its name: a reader sees the old file or the new one."""
    folder = temporary_name(path)  # a folder: safetensors has temporary names of its own
    try:
        folder.mkdir()
        write_tensors(folder / path.name, tensors, metadata)
        publish(folder / path.name, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path}: not a safetensors file ({error}); pickled weights are never read") from error
