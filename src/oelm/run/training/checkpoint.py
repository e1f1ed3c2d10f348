"""A run's state as files: weights and optimizer moments in safetensors, everything else in JSON. Never pickle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from oelm.machine.errors import UserError
from oelm.machine.exhaustion import in_the_systems_words
from oelm.run.directory import CHECKPOINT_FILES, RunDirectory, check_whole, checkpoint_step
from oelm.run.training.optimizer import foreign_moments, optimizer_state, restore_optimizer
from oelm.run.training.records import Progress
from oelm.storage.files import Damaged, new_folder, publish, read_object, remove, temporary_name, write_json_unflushed

MODEL_FILE, OPTIMIZER_FILE, STATE_FILE = CHECKPOINT_FILES
HEADER_BYTES = 256  # of a tensor: its name and shape
BESIDE_BYTES = 2**16  # state and manifest


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
        write_json_unflushed(folder / STATE_FILE, state)  # with the others, when the folder is whole
    directory.prune_checkpoints(newest=step, keep=keep)


def latest_whole(directory: RunDirectory, *, say: Callable[[str], None]) -> Path | None:
    """The newest checkpoint that is whole; every newer one that is not is named."""
    for folder in reversed(directory.stored_checkpoints()):
        try:
            check_whole(folder)
            read_state(folder)
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
    return read_state(folder)


def read_state(folder: Path) -> dict[str, Any]:
    """What a save wrote besides tensors: the step, the progress, the digests of what may rest; else Damaged."""
    file = folder / STATE_FILE
    state = read_object(file)
    for key in ("progress", "digests"):
        if not isinstance(state.get(key), dict):
            raise Damaged(file, f"has no {key}")
    progress, digests = state["progress"], state["digests"]
    expected = {field.name: str(field.type) for field in fields(Progress)}
    for name in expected.keys() | progress.keys():
        if name not in expected or name not in progress or not _fits(progress[name], expected[name]):
            raise Damaged(file, f"progress.{name} is not what oelm writes")
    for step in (state.get("step"), progress["step"]):
        if type(step) is not int or step != checkpoint_step(folder):
            raise Damaged(file, f"is of step {step!r}, in the folder of step {checkpoint_step(folder)}")
    if not all(isinstance(digest, str) for digest in digests.values()):
        raise Damaged(file, "has a digest that is not text")
    return state


def _fits(value: Any, kind: str) -> bool:
    """Whether a value is of a type of Progress: int, which counts and is never below 0, float, or either or nothing."""
    if value is None:
        return kind.endswith("| None")
    if kind.startswith("int"):
        return type(value) is int and value >= 0
    return type(value) in (int, float)


def load_weights(model: nn.Module, path: Path) -> None:
    stored, expected = read_tensors(path), model.state_dict()
    lines = []
    for name in sorted(stored.keys() | expected.keys()):
        if name not in stored or name not in expected:
            lines.append(f"{path}: {name} is only in the {'model' if name in expected else 'file'}")
        elif stored[name].shape != expected[name].shape:
            there, here = tuple(stored[name].shape), tuple(expected[name].shape)
            lines.append(f"{path}: {name} is {there} in the file, {here} in the model")
    if lines:
        raise UserError("\n".join(lines))
    model.load_state_dict(stored)


# ---- Tensors in files ----------------------------------------------------------------------------------------------


def contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}


def stored_bytes(tensors: dict[str, Tensor]) -> int:
    """What a file of them needs, with its header and what is written beside it."""
    return sum(tensor.numel() * tensor.element_size() + HEADER_BYTES for tensor in tensors.values()) + BESIDE_BYTES


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write, so that a full disk or a limit shows as the same OSError that other files give."""
    path.touch()
    mode = path.stat().st_mode  # as the umask says; safetensors would make the file private
    try:
        save_file(tensors, path, metadata=metadata)
        path.chmod(mode)
    except SafetensorError as error:
        raise in_the_systems_words(error, path) from error


def replace_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write beside `path` and take its name: a reader sees the old file or the new one."""
    folder = temporary_name(path)  # a folder: safetensors has temporary names of its own
    try:
        new_folder(folder)
        write_tensors(folder / path.name, tensors, metadata)
        publish(folder / path.name, path)
    finally:
        remove(folder)


def read_tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        return load_file(path)
    except SafetensorError as error:
        if isinstance(system := in_the_systems_words(error, path), OSError):
            raise system from error
        raise UserError(f"{path}: not a safetensors file ({error}); pickled weights are never read") from error
