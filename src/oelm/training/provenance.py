"""Where a result comes from: sources, versions, machine, data; and what changed between two starts of one run."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import oelm
from oelm.sources import SCHEME, SOURCE_DIGEST, SOURCE_SCHEME, commit_and_changes, differ, scheme_of, source_digest
from oelm.system import processor
from oelm.training.device import Machine

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
        "world_size": world_size,
        "data_digest": data_digest,
    }


_COMPARED = (SOURCE_DIGEST, "device", "precision", "compile", "threads", "micro_batch_size", "world_size", "versions")


def changed_settings(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """One line for each setting that can move the last bits of a resumed run."""
    lines = [
        f"{key}: {before.get(key)} before, {after.get(key)} now" for key in _COMPARED if differ(key, (before, after))
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
