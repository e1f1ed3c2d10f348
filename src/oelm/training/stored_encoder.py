"""The best encoder of a run as a folder that transformers loads: config with the arm, tokenizer, weights.

Only the weights file is ever replaced, so the folder is always whole.
"""

from __future__ import annotations

import shutil
from typing import Any

from oelm.config import Run
from oelm.data.sentences import SentenceData
from oelm.files import explaining_a_full_disk, write_json
from oelm.model.adaptation.record import FIELD, adaptation_record
from oelm.run_directory import RunDirectory
from oelm.training.checkpoint import MODEL_FILE, contiguous, replace_tensors, stored_bytes
from oelm.training.stored_model import CONFIG_FILE, weights_digest


def save_best_encoder(
    directory: RunDirectory, model: Any, run: Run, data: SentenceData, *, step: int, val_loss: float
) -> None:
    folder = directory.best
    if not (folder / CONFIG_FILE).exists():
        shutil.copytree(data.tokenizer_folder, folder, dirs_exist_ok=True)
        config = model.config.to_dict() | {"architectures": [type(model).__name__]}
        record = adaptation_record(model, run.model.attention, arm=run.arm, seed=run.seeds.projections)
        write_json(folder / CONFIG_FILE, config | {FIELD: record})
    weights = contiguous(model.state_dict())
    metadata = {"format": "pt", "step": str(step), "val_loss": repr(val_loss), "arm": run.arm}
    with explaining_a_full_disk(folder, needed_bytes=stored_bytes(weights)):
        replace_tensors(folder / MODEL_FILE, weights, metadata | {"digest": weights_digest(weights)})
