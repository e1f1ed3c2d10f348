"""Finished runs next to each other, as a plain table. Reads run directories only; no torch."""

from __future__ import annotations

from pathlib import Path

from oelm.errors import UserError
from oelm.files import read_json
from oelm.run_directory import RunDirectory

COLUMNS = {
    "run": lambda result: result["arm"],
    "val loss": lambda result: f"{result['val_loss']:.4f}",
    "perplexity": lambda result: "inf" if result["perplexity"] is None else f"{result['perplexity']:.3f}",
    "trainable": lambda result: f"{result['trainable']:,}",
    "frozen": lambda result: f"{result['frozen']:,}",
    "learning rate": lambda result: f"{result['learning_rate']:g}",
    "seed": lambda result: "/".join(str(seed) for seed in dict.fromkeys(result["seeds"].values())),
    "tokens": lambda result: f"{result['tokens']:,}",
    "s/step": lambda result: f"{result['mean_step_seconds']:.4f}",
}


def table(paths: list[Path]) -> str:
    rows = [list(COLUMNS)] + [[cell(result) for cell in COLUMNS.values()] for result in map(_result, paths)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(
            text.ljust(width) if index == 0 else text.rjust(width)
            for index, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def _result(path: Path) -> dict:
    directory = RunDirectory(path)
    if directory.result_file.exists():
        return read_json(directory.result_file)
    state = (directory.status() or {}).get("state", "not started")
    raise UserError(f"{path}: no result yet (state: {state}); finish it with `oelm train`")
