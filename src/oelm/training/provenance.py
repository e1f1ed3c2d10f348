"""Where a result comes from: sources, versions, machine, data; and what changed between two starts of one run."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import oelm
from oelm.errors import UserError
from oelm.files import read_json
from oelm.training.device import Machine

PACKAGE = Path(__file__).parent.parent
COMPUTING_FOLDERS = ("model", "training", "data")
SYNCED_FILE = ".oelm-synced.json"
LIBRARIES = ("torch", "numpy", "safetensors", "tokenizers", "tiktoken", "transformers")


def environment(machine: Machine, *, world_size: int, data_digest: str) -> dict[str, Any]:
    return {
        **_sources(),
        "source_digest": source_digest(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "versions": {"oelm": oelm.__version__} | {name: _version(name) for name in LIBRARIES},
        **machine.as_json(),
        "world_size": world_size,
        "data_digest": data_digest,
    }


def source_digest() -> str:
    """Of the files that decide what a run computes."""
    digest = hashlib.sha256()
    for folder in COMPUTING_FOLDERS:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(PACKAGE).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()


_COMPARED = ("source_digest", "device", "precision", "compile", "threads", "micro_batch_size", "world_size", "versions")


def changed_settings(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """One line for each setting that can move the last bits of a resumed run."""
    return [
        f"{key}: {before.get(key)} before, {after.get(key)} now"
        for key in _COMPARED
        if before.get(key) != after.get(key)
    ]


def _sources() -> dict[str, Any]:
    """Commit and whether anything was changed since; where `oelm remote` brought the sources, it wrote it down."""
    try:
        synced = read_json(PACKAGE.parent.parent / SYNCED_FILE)
        return {"commit": synced["commit"], "dirty": synced["dirty"]}
    except (OSError, UserError, KeyError, TypeError):
        return {"commit": _git("rev-parse", "HEAD"), "dirty": bool(_git("status", "--porcelain", "--", "."))}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=PACKAGE, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    """The CPU's model name, where the kernel tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
