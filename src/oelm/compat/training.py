"""`train.py` (global orthogonal start) and `train_v2.py` (head-wise): the originals' flags, trained by `oelm train`.

`--batch_size` is per process, as there; the config stores the global batch. `--out_dir` is itself the run directory.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from oelm.compat.arm_names import TRAIN_PY_ARMS
from oelm.compat.data_folders import existing_data
from oelm.compat.flags import (
    PRESET,
    SIZES,
    TRAINING,
    Parser,
    add_flags,
    add_further_settings,
    as_a_script,
    assignments,
    truth,
)
from oelm.core.config import Run, Settings
from oelm.core.settings import load_settings
from oelm.machine.answers import say
from oelm.machine.errors import UserError
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


BATCH_SIZE_OF_A_PROCESS = 8
OUTPUTS = Path("models/checkpoints")
V2_TYPES = ("baseline", "oelm_v2", "oelm_random")


def train_v1() -> None:
    """The script train.py."""
    with as_a_script():
        options = _v1_parser().parse_args()
        group = _v1_group(options)
        arm, data = TRAIN_PY_ARMS[group], existing_data(options.data_path)
        out = Path(options.out_dir or OUTPUTS / f"exp_{group}")
        if options.model_type == "oelm" and _is_first_process():
            say(
                f"{group} here is the arm {arm}: one orthogonal matrix for all heads; train_v2.py and the study "
                "qk_freeze use the form that is orthogonal head by head"
            )
        _train(_settings(options, arm=arm, data=data), out=out, model_type=options.model_type)


def train_v2() -> None:
    """The script train_v2.py."""
    with as_a_script():
        options = _v2_parser().parse_args()
        out = Path(options.out_dir or OUTPUTS / f"exp_{options.model_type}")
        data = existing_data(options.data_path or str(Path("data") / options.dataset))
        _train(_settings(options, arm=options.model_type, data=data), out=out, model_type=options.model_type)


# ---- Flags ---------------------------------------------------------------------------------------------------------


def _v1_parser() -> argparse.ArgumentParser:
    parser = Parser(description="Train a GPT, or an OELM whose queries and keys start as one orthogonal matrix each.")
    parser.add_argument(
        "--model_type",
        choices=("gpt", "oelm"),
        default="oelm",
        help="gpt: the baseline; oelm: Q/K orthogonal over the whole matrix, not by head as in train_v2.py (oelm).",
    )
    parser.add_argument(
        "--freeze_qk", type=truth, default=True, metavar="true|false", help="Freeze queries and keys; oelm only (true)."
    )
    parser.add_argument(
        "--data_path",
        metavar="PATH",
        default="data/tiny_stories/train.bin",
        help="train.bin with val.bin next to it, or their folder (data/tiny_stories/train.bin or data/tinystories).",
    )
    _add_common(parser)
    return parser


def _v1_group(options: argparse.Namespace) -> str:
    if options.model_type == "gpt":
        return "gpt_base"
    return "oelm_freeze" if options.freeze_qk else "oelm_no_freeze"


def _v2_parser() -> argparse.ArgumentParser:
    parser = Parser(description="Train a GPT baseline, or freeze its queries and keys: orthogonal per head, or random.")
    parser.add_argument(
        "--model_type",
        choices=V2_TYPES,
        default="oelm_v2",
        help="baseline: trained; oelm_v2: frozen, orthogonal per head; oelm_random: frozen, normal 0.02 (oelm_v2).",
    )
    parser.add_argument(
        "--dataset",
        metavar="NAME",
        default="tinystories",
        help="A folder of token files in data/ (tinystories).",
    )
    parser.add_argument(
        "--data_path", metavar="PATH", help="Token files elsewhere: train.bin with val.bin next to it, or their folder."
    )
    _add_common(parser)
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_flags(parser, SIZES | TRAINING)
    parser.add_argument(
        "--batch_size",
        type=int,
        metavar="N",
        default=BATCH_SIZE_OF_A_PROCESS,
        help=f"Sequences per update and process ({BATCH_SIZE_OF_A_PROCESS}).",
    )
    parser.add_argument("--out_dir", metavar="DIR", help=f"Run directory ({OUTPUTS}/exp_...); an existing run resumes.")
    add_further_settings(parser)


# ---- The run -------------------------------------------------------------------------------------------------------


def _settings(options: argparse.Namespace, *, arm: str, data: str) -> Settings:
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    together = options.batch_size * processes
    if processes > 1 and _is_first_process():
        say(f"batch: {options.batch_size} sequences on each of {processes} processes, {together} per update")
    given = [
        "model.vocabulary=null",  # as the data says
        "model.d_ff=null",  # 4 d_model, whatever d_model is
        *assignments(options, SIZES | TRAINING),
        f"training.batch_size={together}",
        *options.set,
    ]
    return load_settings(preset=PRESET, arm=arm, data=data, seed=options.seed, assignments=given)


def _is_first_process() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _train(settings: Settings, *, out: Path, model_type: str) -> None:
    if out.name in ("", "..") or out.name.startswith("-"):
        raise UserError(f"--out_dir {out}: name the folder itself, for example --out_dir {OUTPUTS}/exp_mine")
    from oelm.compat.training import write_timing
    from oelm.run.directory import final_numbers
    from oelm.run.training.run import train

    outcome = train(settings.run, settings.execution, out=out)
    result = outcome.result
    if not result:
        return  # one of several processes, not the first
    if not outcome.was_finished or not outcome.directory.timing_file.exists():
        write_timing(outcome.directory, settings.run, result, model_type=model_type)
    if outcome.was_finished:
        say(f"{out}: this run is finished (step {result['steps']}, {final_numbers(result)}); nothing to do")
