"""Does saving and loading keep the values, and does it thaw? Files are safetensors, temporary, and gone afterwards."""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from oelm.core.accounting import Totals
from oelm.core.config import ResolvedModel, Seeds
from oelm.core.model.initialization import build
from oelm.core.model.parameters import layer_of, role_of, stored_name
from oelm.core.model.transformer import GPT
from oelm.run.diagnosis.steps import same_bits
from oelm.run.diagnosis.survey import Surveyed, unsaved_tensors
from oelm.run.training.checkpoint import MODEL_FILE, contiguous, load_weights, write_tensors
from oelm.storage.files import explaining_a_full_disk

OUT_OF_PLACE = 0.125  # what every weight of a twin is before it is loaded


@dataclass(frozen=True)
class Storage:
    """What a save and a load into another model have shown."""

    totals: Totals  # by the header of the file
    changed: tuple[str, ...]  # values that are not what was saved
    thawed: tuple[str, ...]  # requires_grad off before the load, on after it
    frozen: tuple[str, ...]  # the reverse
    left_out: tuple[str, ...] = ()  # in no file, though they look like weights

    @property
    def kept(self) -> bool:
        return not (self.changed or self.thawed or self.frozen)


# ---- Headers -------------------------------------------------------------------------------------------------------


def header_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shapes by name, without reading a value."""
    with safe_open(path, framework="pt") as stream:
        return {name: tuple(stream.get_slice(name).get_shape()) for name in stream.keys()}  # noqa: SIM118


def header_dtypes(path: Path) -> set[str]:
    with safe_open(path, framework="pt") as stream:
        return {stream.get_slice(name).get_dtype() for name in stream.keys()}  # noqa: SIM118


def header_metadata(path: Path) -> dict[str, str]:
    with safe_open(path, framework="pt") as stream:
        return stream.metadata() or {}


def totals_by_spec(shapes: dict[str, tuple[int, ...]], model: ResolvedModel) -> Totals:
    """Sizes from a file of ours, frozen rows from the spec: the file itself does not know what is frozen."""
    total = sum(torch.Size(shape).numel() for shape in shapes.values())
    frozen = 0
    for name, shape in shapes.items():
        rows, *columns = shape
        layer = layer_of(name)
        part = model.part_at(role_of(name), layer)
        resting = part.frozen_rows(rows, heads=model.num_heads)
        frozen += resting * math.prod(columns)
    return Totals(total=total, trainable=total - frozen, frozen=frozen)


def totals_by_names(shapes: dict[str, tuple[int, ...]], entries: tuple[Surveyed, ...]) -> Totals:
    """Sizes from a file of any module; which of its names are weights, and frozen, from the survey."""
    by_stored_name: dict[str, list[Surveyed]] = {}
    for entry in entries:
        by_stored_name.setdefault(entry.name if entry.name in shapes else stored_name(entry.name), []).append(entry)
    total = trainable = 0
    for name, shape in shapes.items():
        parts = by_stored_name.get(name, [])
        if not parts or not all(part.is_weight for part in parts):
            continue
        total += torch.Size(shape).numel()
        trainable += sum(part.elements for part in parts if part.requires_grad)
    return Totals(total=total, trainable=trainable, frozen=total - trainable)


# ---- Saving and loading --------------------------------------------------------------------------------------------


def stored_and_loaded(gpt: GPT, model: ResolvedModel, *, other_seeds: Seeds) -> Storage:
    """Save as a checkpoint does; load into a model of the same config that started from other seeds."""
    saved = contiguous(gpt.state_dict())
    with _temporary_file(saved) as path:
        totals = totals_by_spec(header_shapes(path), model)
        fresh = build(model, other_seeds).to(gpt.token_embedding.weight.dtype)
        return _storage(fresh, saved, totals, load=lambda: load_weights(fresh, path))


def any_stored_and_loaded(module: nn.Module, entries: tuple[Surveyed, ...]) -> Storage:
    """The same for a module that nobody can build anew: a copy of it, with every weight set out of place."""
    state = module.state_dict()
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    first_names = _first_names(tensors)
    kept = {name: tensors[name].detach().cpu().clone() for name in dict.fromkeys(first_names.values())}
    twin = copy.deepcopy(module)
    with torch.no_grad():
        for value in twin.state_dict(keep_vars=True).values():
            if isinstance(value, Tensor) and value.is_floating_point():
                value.fill_(OUT_OF_PLACE)

    def load(path: Path) -> None:
        stored = load_file(path)
        twin.load_state_dict(state | {name: stored[first] for name, first in first_names.items()})

    with _temporary_file(kept) as path:
        totals = totals_by_names(header_shapes(path), entries)
        expected = {name: kept[first] for name, first in first_names.items()}
        done = _storage(twin, expected, totals, load=lambda: load(path))
    return replace(done, left_out=tuple(unsaved_tensors(module)))


def _first_names(tensors: dict[str, Tensor]) -> dict[str, str]:
    """Tied tensors are stored under their first name."""
    first: dict[tuple[Any, ...], str] = {}
    return {
        name: first.setdefault((tensor.data_ptr(), tensor.shape, tensor.stride()) if tensor.numel() else (name,), name)
        for name, tensor in tensors.items()
    }


@contextmanager
def _temporary_file(tensors: dict[str, Tensor]) -> Iterator[Path]:
    needed_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    with tempfile.TemporaryDirectory(prefix="oelm-diagnosis-") as folder:
        with explaining_a_full_disk(Path(folder), needed_bytes=needed_bytes):
            write_tensors(Path(folder) / MODEL_FILE, tensors)
        yield Path(folder) / MODEL_FILE


def _storage(twin: nn.Module, saved: dict[str, Tensor], totals: Totals, *, load: Callable[[], None]) -> Storage:
    before = {name: parameter.requires_grad for name, parameter in twin.named_parameters()}
    load()
    after = {name: parameter.requires_grad for name, parameter in twin.named_parameters()}
    return Storage(
        totals=totals,
        changed=tuple(differing(twin, saved)),
        thawed=tuple(name for name, requires in after.items() if requires and not before.get(name, True)),
        frozen=tuple(name for name, requires in after.items() if not requires and before.get(name, False)),
    )


def differing(module: nn.Module, tensors: dict[str, Tensor]) -> list[str]:
    """Names under which the module holds other bits than `tensors`."""
    found = {name: value for name, value in module.state_dict().items() if isinstance(value, Tensor)}
    return [
        name
        for name in sorted(found.keys() | tensors.keys())
        if name not in found or name not in tensors or not same_bits(found[name].cpu(), tensors[name])
    ]
