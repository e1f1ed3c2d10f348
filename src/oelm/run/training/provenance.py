"""Where a result comes from: sources, versions, machine, data; and what changed between two starts of one run."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

import oelm
from oelm.core.config import STEP_EXECUTION
from oelm.core.sources import SCHEME, SOURCE_DIGEST, SOURCE_SCHEME, commit_and_changes, differ, scheme_of, source_digest
from oelm.machine.system import gpu_driver, processor
from oelm.run.directory import BEFORE_IT_WAS_RECORDED
from oelm.run.training.device import Machine

LIBRARIES = ("torch", "numpy", "safetensors", "tokenizers", "tiktoken", "transformers")


def environment(machine: Machine, *, world_size: int, data_digest: str) -> dict[str, Any]:
    return {
        **commit_and_changes(),
        SOURCE_DIGEST: source_digest(),
        SOURCE_SCHEME: SCHEME,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": processor(),
        "versions": {"oelm": oelm.__version__} | {name: _version(name) for name in LIBRARIES},
        **machine.as_json(),
        **_gpu(machine),
        "world_size": world_size,
        "data_digest": data_digest,
    }


def _gpu(machine: Machine) -> dict[str, Any]:
    """The model of GPU and what drives it; nothing where none is used."""
    if machine.kind != "cuda":
        return {}
    known = torch.cuda.get_device_properties(machine.device)
    return {
        "gpu": known.name,
        "gpu_memory_bytes": known.total_memory,
        "gpu_driver": gpu_driver(),
        "cuda": torch.version.cuda,
        "nccl": _nccl_version(),
    }


def _nccl_version() -> str | None:
    """None: a torch that was built without it."""
    try:
        return ".".join(map(str, torch.cuda.nccl.version()))
    except (AttributeError, RuntimeError):
        return None


_COMPARED = (SOURCE_DIGEST, *STEP_EXECUTION, "gpu", "world_size", "versions")


def changed_settings(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """One line for each setting that can move the last bits of a resumed run."""
    before, after = BEFORE_IT_WAS_RECORDED | before, BEFORE_IT_WAS_RECORDED | after
    unknown = {"gpu"} - before.keys()  # not recorded then
    lines = [
        f"{key}: {before.get(key)} before, {after.get(key)} now"
        for key in _COMPARED
        if key not in unknown and differ(key, (before, after))
    ]
    return [*lines, *not_comparable(before, after)]


def not_comparable(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """A line where the digests of the sources say nothing about each other."""
    then, now = scheme_of(before), scheme_of(after)
    return [] if then == now else [f"{SOURCE_DIGEST}: cannot be compared (taken by scheme {then} before, {now} now)"]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
