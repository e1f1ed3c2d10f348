"""`diagnose_freeze.py`: is what should be frozen frozen? Without arguments it examines Medium-512 with frozen Q/K."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from oelm.compat.arm_names import TRAIN_PY_ARMS
from oelm.compat.flags import PRESET, SIZES, Parser, add_flags, add_further_settings, as_a_script, assignments, truth
from oelm.core.config import PRESETS
from oelm.core.settings import load_settings
from oelm.machine.answers import say
from oelm.machine.errors import UserError
from oelm.machine.visible import json_text

if TYPE_CHECKING:
    from oelm.run.diagnosis import Diagnosis

VOCABULARY = {"vocab_size": ("model.vocabulary", int, "Size of the vocabulary (50257).")}
DEFAULT_TYPE = "oelm_v2"


def diagnose_freeze() -> None:
    """The script diagnose_freeze.py; exits with 1 if something is not as it should be."""
    with as_a_script():
        options = _parser().parse_args()
        diagnosis = _of_checkpoint(options) if options.checkpoint else _of_arm(options)
        say(json_text(diagnosis.as_json()) if options.json else diagnosis.as_text())
        if not diagnosis.healthy:
            sys.exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(description="List every parameter and buffer, take real steps, save and load: is Q/K frozen?")
    parser.add_argument(
        "--model_type",
        metavar="TYPE",
        help=f"gpt, oelm, baseline, oelm_v2, oelm_random, or an arm that `oelm arms` lists ({DEFAULT_TYPE}).",
    )
    parser.add_argument("--freeze_qk", type=truth, metavar="true|false", help="With --model_type oelm (true).")
    parser.add_argument("--preset", choices=tuple(PRESETS), help=f"Sizes by name ({PRESET}).")
    parser.add_argument(
        "--checkpoint", metavar="PATH", type=Path, help="A run directory, a checkpoint or a best/ folder instead."
    )
    parser.add_argument(
        "--data_path", metavar="PATH", help="Token files for the steps; without them tokens are random."
    )
    parser.add_argument("--steps", metavar="N", type=int, default=3, help="Number of real training steps to take (3).")
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    add_flags(parser, SIZES | VOCABULARY)
    add_further_settings(parser)
    return parser


def _of_checkpoint(options: argparse.Namespace) -> Diagnosis:
    for name in ("model_type", "freeze_qk", "preset", "data_path", "seed", "set", *SIZES, *VOCABULARY):
        if getattr(options, name) not in (None, []):
            raise UserError(f"--{name}: cannot be combined with --checkpoint, which has its own")
    from oelm.run.diagnosis import diagnose_stored

    return diagnose_stored(options.checkpoint, steps=_steps(options))


def _of_arm(options: argparse.Namespace) -> Diagnosis:
    given = assignments(options, SIZES | VOCABULARY)
    if options.d_model is not None and options.d_ff is None:
        given.append("model.d_ff=null")  # 4 d_model
    settings = load_settings(
        preset=options.preset or PRESET,
        arm=_arm(options.model_type or DEFAULT_TYPE, options.freeze_qk),
        data=options.data_path,
        seed=options.seed,
        assignments=[*given, *options.set],
    )
    from oelm.run.diagnosis import diagnose_arm

    return diagnose_arm(settings.run, data_given=options.data_path is not None, steps=_steps(options))


def _steps(options: argparse.Namespace) -> int:
    if options.steps < 1:
        raise UserError(f"--steps: {options.steps} is less than 1")
    return int(options.steps)


def _arm(model_type: str, freeze_qk: bool | None) -> str:
    """The types of both training scripts; any other name is an arm's."""
    if model_type == "oelm":
        return TRAIN_PY_ARMS["oelm_no_freeze" if freeze_qk is False else "oelm_freeze"]
    if freeze_qk is not None:
        raise UserError(f"--freeze_qk: only for --model_type oelm; {model_type} itself defines what is frozen")
    return TRAIN_PY_ARMS["gpt_base"] if model_type == "gpt" else model_type
