"""A stored model of ours, read back: from a run, a checkpoint, or a folder that transformers loads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from oelm.core.config import GptRun, Model, ResolvedModel, Seeds, resolved_model
from oelm.core.model.initialization import build
from oelm.core.model.parameters import check_weights_file
from oelm.core.model.transformer import GPT
from oelm.core.settings import problem_lines, stored_run
from oelm.data.tokenizer import Tokenizer, load_tokenizer
from oelm.data.tokens import TOKENIZER_FOLDER
from oelm.machine.errors import UserError
from oelm.models.model_folder import CONFIG_FILE, MODEL_TYPE
from oelm.run.directory import MANIFEST, RunDirectory, check_whole, is_checkpoint
from oelm.run.training.checkpoint import MODEL_FILE, latest_whole, load_weights
from oelm.storage.files import read_json


@dataclass(frozen=True)
class StoredModel:
    gpt: GPT
    model: ResolvedModel
    run: GptRun | None
    weights_file: Path
    tokenizer_folder: Path | None

    def tokenizer(self) -> Tokenizer | None:
        return load_tokenizer(self.tokenizer_folder) if self.tokenizer_folder is not None else None


def load_stored(path: Path) -> StoredModel:
    """From a run directory (its best model, else its last checkpoint), a checkpoint, or a best/ folder."""
    if not path.is_dir():
        raise UserError(f"{path}: no such folder; give a run directory, a checkpoint or its best/ folder")
    if (path / MANIFEST).exists() and is_checkpoint(path):
        return _from_checkpoint(path)
    if (path / CONFIG_FILE).exists() and _config(path).get("model_type") == MODEL_TYPE:
        return _from_best(path, run=None)
    directory = RunDirectory(path)
    if not directory.config_file.exists():
        raise UserError(f"{path}: neither a run directory nor a checkpoint (no config.json)")
    run = language_run(directory, path)
    if (directory.best / MODEL_FILE).exists():
        return _from_best(directory.best, run=run)
    checkpoint = latest_whole(directory, say=lambda line: None)
    if checkpoint is None:
        state = (directory.status() or {}).get("state", "not started")
        raise UserError(f"{path}: has no model: the run ended before it saved one (state: {state})")
    return _from_checkpoint(checkpoint)


def language_run(directory: RunDirectory, path: Path) -> GptRun:
    """The run in a directory; `path` is what was given to be read."""
    run = stored_run(read_json(directory.config_file), name=str(directory.config_file))
    if not isinstance(run, GptRun):
        raise UserError(
            f"{path}: contains an encoder for sentences, not a language model; "
            "its best/ folder is a transformers model: load it with oelm.load or from_pretrained"
        )
    return run


def _config(folder: Path) -> dict[str, Any]:
    tree = read_json(folder / CONFIG_FILE)
    if not isinstance(tree, dict):
        raise UserError(f"{folder / CONFIG_FILE}: is not the config of a model (not an object)")
    return tree


def _from_best(folder: Path, *, run: GptRun | None) -> StoredModel:
    tree, file = _config(folder), folder / CONFIG_FILE
    try:
        model = Model.model_validate({key: tree[key] for key in Model.model_fields if key in tree})
    except ValidationError as error:
        raise UserError("\n".join(f"{file}: {line}" for line in problem_lines(error, model=Model))) from error
    if model.vocabulary is None or model.d_ff is None:
        raise UserError(f"{file}: does not contain the sizes of the model (vocabulary, d_ff)")
    if not (folder / MODEL_FILE).exists() and (pickled := next(folder.glob("*.bin"), None)):
        raise UserError(f"{folder}: has only pickled weights ({pickled.name}), which are never read; use safetensors")
    known = resolved_model(model)
    stored = _loaded(known, folder / MODEL_FILE, run=run, tokenizer_folder=_tokenizer_folder(folder))
    check_weights_file(stored.weights_file)
    return stored


def _from_checkpoint(folder: Path) -> StoredModel:
    check_whole(folder)
    directory = RunDirectory(folder.parent.parent)
    if not directory.config_file.exists():
        raise UserError(f"{folder}: a checkpoint is read inside its run; there is no {directory.config_file}")
    run = language_run(directory, folder)
    tokenizer = _tokenizer_folder(directory.best) or _tokenizer_folder(Path(run.data) / TOKENIZER_FOLDER)
    return _loaded(run.model, folder / MODEL_FILE, run=run, tokenizer_folder=tokenizer)


def _loaded(
    model: ResolvedModel, weights_file: Path, *, run: GptRun | None, tokenizer_folder: Path | None
) -> StoredModel:
    gpt = build(model, run.seeds if run else Seeds())
    load_weights(gpt, weights_file)
    return StoredModel(gpt=gpt, model=model, run=run, weights_file=weights_file, tokenizer_folder=tokenizer_folder)


def _tokenizer_folder(folder: Path) -> Path | None:
    names = ("tokenizer.json", "vocab.bpe")
    return folder if any((folder / name).exists() for name in names) else None
