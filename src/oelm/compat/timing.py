"""timing_stats.json: what the originals store of a finished run, in their words, made from its result."""

from __future__ import annotations

from typing import Any

from oelm.core.config import Run
from oelm.run.directory import RunDirectory
from oelm.storage.files import write_json

BASELINES = ("baseline", "gpt")  # which have no init_method there
INIT_METHODS: dict[str, str] = {"orthogonal": "orthogonal", "head_orthogonal": "orthogonal"}


def write_timing(directory: RunDirectory, run: Run, result: dict[str, Any], *, model_type: str) -> None:
    write_json(directory.timing_file, timing_stats(run, result, model_type=model_type))


def timing_stats(run: Run, result: dict[str, Any], *, model_type: str) -> dict[str, Any]:
    """`model_type` is the one that was asked for: baseline, oelm_v2, oelm_random; gpt, oelm."""
    start = run.model.parts.query.start
    init_method = {} if model_type in BASELINES else {"init_method": INIT_METHODS.get(start, start)}
    return {
        "model_type": model_type,
        **init_method,
        "final_perplexity": result["perplexity"],
        "total_wall_time": result["wall_seconds"],
        "mean_step_time": result["mean_step_seconds"],
        "total_validation_time": result["validation_seconds"],
    }
