"""The best model of a run, written while it trains, as a folder that transformers loads: config, tokenizer, weights.

Only the weights file is ever replaced, so the folder is always whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from oelm.config import EncoderRun, GptRun
from oelm.data.probes import ProbeData
from oelm.data.sentences import SentenceData
from oelm.data.tokenizer import load_tokenizer
from oelm.data.tokens import TokenData
from oelm.files import explaining_a_full_disk, refuse_link, write_bytes, write_json
from oelm.huggingface.model_folder import CONFIG_FILE, GENERATION_FILE, describe_model, model_config
from oelm.model.adaptation.record import FIELD, adaptation_record
from oelm.model.parameters import weights_digest
from oelm.model.transformer import GPT
from oelm.run_directory import RunDirectory
from oelm.training.checkpoint import MODEL_FILE, contiguous, replace_tensors, stored_bytes


def save_best(
    directory: RunDirectory, gpt: GPT, run: GptRun, data: TokenData | ProbeData, *, step: int, val_loss: float
) -> None:
    folder = directory.best
    refuse_link(folder)
    if not (folder / GENERATION_FILE).exists():
        folder.mkdir(exist_ok=True)
        tokenizer = None if data.tokenizer_folder is None else load_tokenizer(data.tokenizer_folder)
        describe_model(folder, model_config(run.model), model=run.model, tokenizer=tokenizer)
    _replace_weights(folder, gpt, arm=run.arm, step=step, val_loss=val_loss)


def save_best_encoder(
    directory: RunDirectory, model: Any, run: EncoderRun, data: SentenceData, *, step: int, val_loss: float
) -> None:
    folder = directory.best
    refuse_link(folder)
    if not (folder / CONFIG_FILE).exists():
        folder.mkdir(exist_ok=True)
        for file in data.tokenizer_folder.iterdir():
            write_bytes(folder / file.name, file.read_bytes())
        config = model.config.to_dict() | {"architectures": [type(model).__name__]}
        record = adaptation_record(model, run.model.parts, arm=run.arm, seed=run.seeds.projections)
        write_json(folder / CONFIG_FILE, config | {FIELD: record})
    _replace_weights(folder, model, arm=run.arm, step=step, val_loss=val_loss)


def _replace_weights(folder: Path, model: nn.Module, *, arm: str, step: int, val_loss: float) -> None:
    """The weights file alone, with what it is worth and its digest: the folder is whole at any moment."""
    weights = contiguous(model.state_dict())
    metadata = {"format": "pt", "step": str(step), "val_loss": repr(val_loss), "arm": arm}
    with explaining_a_full_disk(folder, needed_bytes=stored_bytes(weights)):
        replace_tensors(folder / MODEL_FILE, weights, metadata | {"digest": weights_digest(weights)})
