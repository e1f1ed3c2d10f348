"""Finished runs next to each other, as a plain table, and everything besides the arm that differs between them.

Reads run directories only; no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oelm.errors import UserError
from oelm.files import read_json
from oelm.run_directory import COMPARED_ENVIRONMENT, RunDirectory, flat, measured

COLUMNS = {
    "run": lambda run: str(run.path),
    "arm": lambda run: run.result["arm"],
    "val loss": lambda run: f"{run.result['val_loss']:.4f}",
    "measure": lambda run: measured(run.result),
    "trainable": lambda run: f"{run.result['trainable']:,}",
    "frozen": lambda run: f"{run.result['frozen']:,}",
    "s/step": lambda run: f"{run.result['mean_step_seconds']:.4f}",
}
TEXT_COLUMNS = 2
# Not differences between runs that should differ in their arm alone: the arm itself, and where the data lies.
EXPECTED = ("arm", "data", "model.attention.", "format_version")


@dataclass(frozen=True)
class FinishedRun:
    path: Path
    result: dict[str, Any]
    settings: dict[str, Any]  # everything that should be equal for a comparison of arms


def table(paths: list[Path]) -> str:
    runs = [_finished(path) for path in paths]
    rows = [list(COLUMNS)] + [[cell(run) for cell in COLUMNS.values()] for run in runs]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = [
        "  ".join(
            text.ljust(width) if index < TEXT_COLUMNS else text.rjust(width)
            for index, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([*lines, "", *differences(runs)])


def differences(runs: list[FinishedRun]) -> list[str]:
    """One line for each setting besides the arm that is not the same in all runs."""
    keys = sorted({key for run in runs for key in run.settings})
    lines = []
    for key in keys:
        values = list(dict.fromkeys(str(run.settings.get(key)) for run in runs))
        if len(values) > 1:
            lines.append(f"differs besides the arm: {key} is {' / '.join(values)}")
    return lines or ["nothing but the arm differs; one run each is no comparison yet: seeds vary"]


def _finished(path: Path) -> FinishedRun:
    directory = RunDirectory(path)
    if not path.is_dir():
        raise UserError(f"{path}: no such run directory")
    if not directory.result_file.exists():
        state = (directory.status() or {}).get("state", "not started")
        raise UserError(f"{path}: no result yet (state: {state}); finish it with `oelm train`")
    config, environment = flat(read_json(directory.config_file)), flat(read_json(directory.environment_file))
    settings = {key: value for key, value in config.items() if not key.startswith(EXPECTED)}
    settings |= {key: environment.get(key) for key in COMPARED_ENVIRONMENT}
    return FinishedRun(path, read_json(directory.result_file), settings)
