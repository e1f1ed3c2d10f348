"""Asking for a probe from a process that does not want torch: the child measures, this reads its one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from oelm.core.config import Settings
from oelm.core.settings import written_out
from oelm.machine.errors import UserError
from oelm.storage.files import write_json

PROBE = "oelm.execution.timing.probe"


def probed(
    settings: Settings, *, timeout: float, processes: int = 1, variables: dict[str, str] | None = None
) -> dict[str, Any]:
    """Seconds a step, memory and disk of one run, measured in a child; `processes` share the batch among them.

    `variables` go into the child's environment: they say which GPU it may see.
    """
    with tempfile.TemporaryDirectory(prefix="oelm-probe-") as folder:
        file = Path(folder) / "settings.json"
        write_json(file, _tree(settings, processes))
        done = _finished([sys.executable, "-m", PROBE, str(file)], timeout=timeout, variables=variables or {})
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise UserError(f"probe of {settings.run.arm}: {reason[0].removeprefix(f'{file}: ')}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _tree(settings: Settings, processes: int) -> dict[str, Any]:
    """As a config file, with one process's part of the batch."""
    tree = written_out(settings)
    tree["training"]["batch_size"] = -(-settings.run.training.batch_size // processes)
    return tree


def _finished(command: list[str], *, timeout: float, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | variables
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, env=environment)
    except subprocess.TimeoutExpired as error:
        raise UserError(f"the probe took longer than {timeout:g} s and was stopped; no estimate") from error
