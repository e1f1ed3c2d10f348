"""Finished runs next to each other, as a plain table, and everything besides the arm that differs between them.

Reads run directories only; no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oelm.errors import UserError
from oelm.run_directory import BEFORE_IT_WAS_RECORDED, COMPARED_ENVIRONMENT, RunDirectory, flat, measured
from oelm.sealing import end_of, read_config
from oelm.sources import SOURCE_DIGEST, SOURCE_SCHEME, differ, scheme_of


@dataclass(frozen=True)
class FinishedRun:
    path: Path
    result: dict[str, Any]
    settings: dict[str, Any]  # everything that should be equal for a comparison of arms
    parts: dict[str, Any]  # what an arm decides


COLUMNS: dict[str, Callable[[FinishedRun], str]] = {
    "run": lambda run: str(run.path),
    "arm": lambda run: str(run.result["arm"]),
    "val loss": lambda run: f"{run.result['val_loss']:.4f}",
    "measure": lambda run: measured(run.result),
    "trainable": lambda run: f"{run.result['trainable']:,}",
    "frozen": lambda run: f"{run.result['frozen']:,}",
    "s/step": lambda run: f"{run.result['mean_step_seconds']:.4f}",
}
TEXT_COLUMNS = 2
# Not differences between runs that should differ in their arm alone: the arm itself, and where the data lies.
PARTS = "model.parts."
EXPECTED = ("arm", "data", PARTS, "format_version")


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
    compared = differences(runs) if len(runs) > 1 else ["only one run: give two or more to compare them"]
    return "\n".join([*lines, "", *compared])


def differences(runs: list[FinishedRun]) -> list[str]:
    """One line for each setting besides the arm that is not the same in all runs."""
    keys = sorted({key for run in runs for key in run.settings})
    lines = []
    for key in keys:
        if differ(key, (run.settings for run in runs)):
            values = " / ".join(dict.fromkeys(str(run.settings.get(key)) for run in runs))
            unknown = f"cannot be compared: {SOURCE_DIGEST}, taken by scheme {values}"
            lines.append(unknown if key == SOURCE_SCHEME else f"differs besides the arm: {key} is {values}")
    if lines:
        return lines
    if all(run.parts == runs[0].parts for run in runs):
        same_name = len({run.result["arm"] for run in runs}) == 1
        return [f"nothing{'' if same_name else ' but the name of the arm'} differs: the runs are one computation"]
    return ["nothing but the arm differs; one run per arm is not a comparison yet, because seeds vary"]


def _finished(path: Path) -> FinishedRun:
    directory = RunDirectory(path)
    if not path.is_dir():
        raise UserError(f"{path}: no such run directory")
    if not directory.config_file.exists():
        raise UserError(f"{path}: is not a run (no {directory.config_file.name} in it)")
    ended = end_of(directory)
    if ended is None or ended.result is None:
        state = ended.state if ended else (directory.status() or {}).get("state", "not started")
        advice = "it is reported as such and not run again" if state == "diverged" else "finish it with `oelm train`"
        raise UserError(f"{path}: no result (state: {state}); {advice}")
    # As a run of this version: an earlier format stored the same settings under other names.
    config, environment = flat(read_config(directory).run.model_dump(mode="json")), flat(ended.environment)
    environment = BEFORE_IT_WAS_RECORDED | environment
    settings = {key: value for key, value in config.items() if not key.startswith(EXPECTED)}
    settings |= {key: environment.get(key) for key in COMPARED_ENVIRONMENT} | {SOURCE_SCHEME: scheme_of(environment)}
    parts = {key: value for key, value in config.items() if key.startswith(PARTS)}
    return FinishedRun(path, ended.result, settings, parts)
