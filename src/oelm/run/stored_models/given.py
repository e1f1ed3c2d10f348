"""What `oelm probe` was given, by its config alone, before torch is loaded: a model of ours or of transformers.

Everything that its config shows to be impossible is refused here, in one line.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oelm.core.config import GptRun
from oelm.core.probes.probe import is_probe
from oelm.core.settings import stored_run
from oelm.machine.errors import UserError
from oelm.models.heads.scores import LENGTH, SHORTEST
from oelm.models.model_folder import CONFIG_FILE, MODEL_TYPE
from oelm.run.directory import RunDirectory, is_checkpoint
from oelm.storage.files import read_json, read_object

CAUSAL = ("ForCausalLM", "LMHeadModel")  # how the classes of such models end
# What transformers calls them in the configs of different models.
POSITIONS = ("max_position_embeddings", "n_positions", "seq_len", "max_seq_len", "n_ctx")
VOCABULARY = ("vocab_size", "vocabulary")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")


@dataclass(frozen=True)
class GivenModel:
    path: Path
    is_ours: bool
    vocabulary: int
    positions: int | None  # None: its config names no limit
    probe: str | None = None  # that the run was trained on

    def checked_length(self, wanted: int | None, *, asked_by: str = "--length") -> int:
        """Tokens of a sequence: as asked for, else as many as usual where the model has so many positions."""
        length = min(LENGTH, self.positions or LENGTH) if wanted is None else wanted
        if self.positions is not None and length > self.positions:
            raise UserError(f"{asked_by} {length}: the model in {self.path} has only {self.positions} positions")
        if length < SHORTEST:
            raise UserError(f"{asked_by} {length}: telling the kinds of head apart takes at least {SHORTEST} tokens")
        return length


def given_model(path: Path) -> GivenModel:
    if not path.is_dir():
        raise UserError(f"{path}: no such folder; give a run, a checkpoint or the folder of a causal language model")
    if is_checkpoint(path):
        return _of_run(path, RunDirectory(path.parent.parent))
    file = path / CONFIG_FILE
    if not file.is_file():
        raise UserError(f"{path}: neither a run nor a model (no {CONFIG_FILE})")
    tree = read_object(file)
    return _of_run(path, RunDirectory(path)) if "format_version" in tree else _of_folder(path, tree)


def _of_run(path: Path, directory: RunDirectory) -> GivenModel:
    file = directory.config_file
    if not file.is_file():
        raise UserError(f"{path}: a checkpoint is read inside its run; there is no {file}")
    run = stored_run(read_json(file), name=str(file))
    if not isinstance(run, GptRun):
        raise UserError(
            f"{path}: contains an encoder for sentences; only the heads of causal language models are scored"
        )
    probe = run.data if is_probe(run.data) else None
    return GivenModel(path, is_ours=True, vocabulary=run.model.vocabulary, positions=run.model.seq_len, probe=probe)


def _of_folder(path: Path, tree: dict[str, Any]) -> GivenModel:
    """As save_pretrained or `oelm export` writes it."""
    file, kind = path / CONFIG_FILE, tree.get("model_type")
    if not isinstance(kind, str):
        raise UserError(f"{file}: is not the config of a model (no model_type)")
    classes = [str(name) for name in tree.get("architectures") or []]
    is_ours = kind == MODEL_TYPE
    if classes and not is_ours and not any(name.endswith(CAUSAL) for name in classes):
        raise UserError(f"{path}: contains a {classes[0]}; only the heads of causal language models are scored")
    if _size(tree, HEADS) is None:
        raise UserError(f"{path}: a model of type {kind} has no attention weights (its config names no heads)")
    vocabulary = _size(tree, VOCABULARY)
    if vocabulary is None:
        raise UserError(f"{file}: does not say how large the vocabulary is (vocab_size)")
    return GivenModel(path, is_ours, vocabulary, _size(tree, POSITIONS))


def _size(tree: dict[str, Any], names: tuple[str, ...]) -> int | None:
    found = (tree.get(name) for name in names)
    return next((value for value in found if type(value) is int and value > 0), None)
