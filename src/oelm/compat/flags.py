"""The flags that the originals' scripts share, and the settings each stands for.

A flag that is not given leaves its setting alone: Medium-512, d_ff = 4 d_model, warm-up = min(2000, steps / 10).
"""

from __future__ import annotations

import argparse
import io
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NoReturn

from oelm.machine.answers import one_line_errors
from oelm.machine.errors import UserError

PRESET = "medium-512"

# Flag -> setting, type, help.
SIZES = {
    "d_model": ("model.d_model", int, "Width of the model (512)."),
    "num_layers": ("model.num_layers", int, "Transformer blocks (6)."),
    "num_heads": ("model.num_heads", int, "Attention heads; must divide d_model (8)."),
    "d_ff": ("model.d_ff", int, "Width of the feed-forward layer (4 d_model)."),
    "seq_len": ("model.seq_len", int, "Tokens per sequence (512)."),
    "dropout": ("model.dropout", float, "Dropout (0)."),
}
TRAINING = {
    "max_steps": ("training.steps", int, "Total number of updates (100000)."),
    "max_lr": ("training.learning_rate", float, "Highest learning rate (3e-4); it ends at a tenth."),
    "warmup_steps": ("training.warmup_steps", int, "Linear warm-up (2000, at most a tenth of the steps)."),
    "weight_decay": ("training.weight_decay", float, "AdamW's weight decay, on matrices (0.1)."),
    "val_interval": (
        "training.validate_every",
        int,
        "Updates between validations (20 per run, at least one every 1000).",
    ),
    "save_interval": (
        "execution.checkpoint_every",
        int,
        "Updates between checkpoints (10 per run, at least one every 5000).",
    ),
}


class Parser(argparse.ArgumentParser):
    """Complains in one line."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (--help lists the flags)")


def truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"write true or false, not {text!r}")
    return text.lower() == "true"


def add_flags(parser: argparse.ArgumentParser, flags: dict[str, tuple[str, type, str]]) -> None:
    for name, (_, kind, explanation) in flags.items():
        parser.add_argument(f"--{name}", type=kind, metavar="N" if kind is int else "X", help=explanation)


def add_further_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, metavar="N", help="Seed for weights, projections and data order (0).")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="Any other setting, as with `oelm train`."
    )


def assignments(options: argparse.Namespace, flags: dict[str, tuple[str, type, str]]) -> list[str]:
    """The given flags as KEY=VALUE pairs."""
    given = {key: getattr(options, name) for name, (key, _, _) in flags.items()}
    return [f"{key}={value}" for key, value in given.items() if value is not None]


def as_a_script() -> AbstractContextManager[None]:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # where a terminal has no Chinese
    return one_line_errors(Path(sys.argv[0]).name, command=["python", *sys.argv])
