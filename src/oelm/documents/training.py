"""`train.py` (global orthogonal start) and `train_v2.py` (head-wise): the documents' flags, trained by `oelm train`.

`--batch_size` is per process, as there; the config stores the global batch. `--out_dir` is itself the run directory.
"""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from oelm.config import Settings
from oelm.data.corpora import NAMES
from oelm.data.tokens import MANIFEST, file_name
from oelm.documents.flags import PRESET, SIZES, TRAINING, Parser, add_flags, add_further_settings, assignments, truth
from oelm.documents.script import as_a_script
from oelm.errors import UserError
from oelm.settings import load_settings

BATCH_SIZE_OF_A_PROCESS = 8
OUTPUTS = Path("models/checkpoints")
V1_ARMS = {"gpt_base": "trained", "oelm_no_freeze": "trained_orthogonal", "oelm_freeze": "frozen_orthogonal"}
V2_TYPES = ("baseline", "oelm_v2", "oelm_random")


def train_v1() -> None:
    """The script train.py."""
    with as_a_script():
        options = _v1_parser().parse_args()
        group = _v1_group(options)
        out = Path(options.out_dir or OUTPUTS / f"exp_{group}")
        _train(_settings(options, arm=V1_ARMS[group], data=_existing_data(options.data_path)), out=out)


def train_v2() -> None:
    """The script train_v2.py."""
    with as_a_script():
        options = _v2_parser().parse_args()
        out = Path(options.out_dir or OUTPUTS / f"exp_{options.model_type}")
        data = _existing_data(options.data_path or str(Path("data") / options.dataset))
        _train(_settings(options, arm=options.model_type, data=data), out=out)


# ---- Flags ---------------------------------------------------------------------------------------------------------


def _v1_parser() -> argparse.ArgumentParser:
    parser = Parser(description="Train a GPT, or an OELM whose queries and keys start as one orthogonal matrix each.")
    parser.add_argument("--model_type", choices=("gpt", "oelm"), default="oelm", help="gpt: the baseline (oelm).")
    parser.add_argument(
        "--freeze_qk", type=truth, default=True, metavar="true|false", help="Freeze queries and keys; oelm only (true)."
    )
    parser.add_argument(
        "--data_path",
        metavar="PATH",
        default="data/tiny_stories/train.bin",
        help="train.bin with val.bin beside it, or their folder (data/tiny_stories/train.bin).",
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
        "--dataset", metavar="NAME", default="tinystories", help="A folder of token files in data/ (tinystories)."
    )
    parser.add_argument(
        "--data_path", metavar="PATH", help="Token files elsewhere: train.bin with val.bin beside it, or their folder."
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
        help=f"Sequences in one update of each process ({BATCH_SIZE_OF_A_PROCESS}).",
    )
    parser.add_argument(
        "--out_dir", metavar="DIR", help=f"The run directory itself ({OUTPUTS}/exp_...); given again, it resumes."
    )
    add_further_settings(parser)


# ---- Settings and data ---------------------------------------------------------------------------------------------


def _settings(options: argparse.Namespace, *, arm: str, data: str) -> Settings:
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    together = options.batch_size * processes
    if processes > 1 and os.environ.get("RANK") == "0":
        print(f"batch: {options.batch_size} sequences on each of {processes} processes, {together} in one update")
    given = [
        "model.vocabulary=null",  # as the data says
        "model.d_ff=null",  # 4 d_model, whatever d_model is
        *assignments(options, SIZES | TRAINING),
        f"training.batch_size={together}",
        *options.set,
    ]
    return load_settings(preset=PRESET, arm=arm, data=data, seed=options.seed, assignments=given)


def _existing_data(data_path: str) -> str:
    """The path itself, if there are token files; else the command that makes them."""
    path = Path(data_path)
    if path.suffix == ".bin" and path.name != file_name("train"):
        raise UserError(f"{path}: name {file_name('train')} or its folder; val.bin is looked for beside it")
    folder = path.parent if path.name == file_name("train") else path
    if (folder / MANIFEST).is_file() or (folder / file_name("train")).is_file():
        return data_path
    name = folder.name.replace("_", "")  # the documents write tiny_stories
    corpus = name if name in NAMES else "tinystories"
    command = shlex.join(["oelm", "prepare", corpus, "--out", str(folder)])
    raise UserError(f"{folder}: no prepared data there; make it with: {command}")


def _train(settings: Settings, *, out: Path) -> None:
    if out.name in ("", "..") or out.name.startswith("-"):
        raise UserError(f"--out_dir {out}: name the folder itself, for example --out_dir {OUTPUTS}/exp_mine")
    from oelm.run_directory import final_numbers
    from oelm.training.run import train

    outcome = train(settings.run, settings.execution, out=out)
    if outcome.was_finished and outcome.result:
        result = outcome.result
        print(f"{out}: this run is finished (step {result['steps']}, {final_numbers(result)}); nothing to do")
