"""The best encoder of a run as a folder that transformers loads: config with the arm, tokenizer, weights.

Only the weights file is ever replaced, so the folder is always whole.
"""

from __future__ import annotations

from typing import Any

from oelm.config import EncoderRun
from oelm.data.sentences import SentenceData
from oelm.files import refuse_link, write_bytes, write_json
from oelm.model.adaptation.record import FIELD, adaptation_record
from oelm.run_directory import RunDirectory
from oelm.training.stored_model import CONFIG_FILE, replace_weights


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
    replace_weights(folder, model, arm=run.arm, step=step, val_loss=val_loss)
