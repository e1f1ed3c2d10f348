"""Head scores of a stored model: its tokens and its attention weights put together for `oelm probe`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from oelm.core.probes.probe import is_probe, probe_of
from oelm.data.tokens import TokenData, first_at_least, open_tokens
from oelm.machine.errors import UserError
from oelm.models.heads.gpt import as_array, gpt_scores, sequences_at_once
from oelm.models.heads.kinds import HeadScores
from oelm.models.heads.scores import Sequences, examples_of, head_scores, repeated_tokens, windows
from oelm.run.stored_models.given import GivenModel
from oelm.run.stored_models.loading import load_stored
from oelm.run.training.device import device_named

UNKNOWN = 64  # layers, or heads of a layer, where a config calls them something else: they decide memory alone


@dataclass(frozen=True)
class Probed:
    scores: HeadScores
    weights: Path  # the file or folder they were read from
    tokens: tuple[int, int]  # sequences, and tokens of each


def probed(
    given: GivenModel, *, data: str | None, length: int, sequences: int, seed: int, device: str = "cpu"
) -> Probed:
    """Of a run its best model, else its last checkpoint, as everywhere; `data` is prepared text, or a probe."""
    device = device_named(device, key="--device")
    scored = _scored(given, data, length=length, sequences=sequences, seed=seed)
    if given.is_ours:
        stored = load_stored(given.path)
        scores, weights = gpt_scores(stored.gpt.to(device), scored), stored.weights_file
    else:
        scores, weights = _transformers_scores(given.path, scored, device), given.path
    return Probed(scores, weights, (scored.tokens_BT.shape[0], scored.tokens_BT.shape[1]))


def _scored(given: GivenModel, data: str | None, *, length: int, sequences: int, seed: int) -> Sequences:
    if data is None:
        return Sequences(repeated_tokens(given.vocabulary, length=length, sequences=sequences, seed=seed))
    if not is_probe(data):
        return Sequences(_text(open_tokens(Path(data)), given, length=length, sequences=sequences, seed=seed))
    probe = probe_of(data)
    if probe.vocabulary > given.vocabulary:
        raise UserError(f"{data}: has {probe.vocabulary} tokens, {given.path} only {given.vocabulary}")
    return examples_of(probe, sequences=sequences, seed=seed)


def _transformers_scores(folder: Path, scored: Sequences, device: str) -> HeadScores:
    from oelm.models.causal import attention_weights, load_causal

    model = load_causal(folder).to(device)
    sizes = (getattr(model.config, name, UNKNOWN) for name in ("num_hidden_layers", "num_attention_heads"))
    heads = math.prod(sizes)

    def weights_of(part_BT: np.ndarray) -> list[np.ndarray]:
        tokens = torch.from_numpy(part_BT).to(device)
        return [as_array(layer) for layer in attention_weights(model, tokens, folder=folder)]

    return head_scores(scored, weights_of, at_once=sequences_at_once(scored.tokens_BT.shape[1], heads=heads))


HELD_OUT = ("val", "test", "tune", "train")  # the first that there is


def _text(data: TokenData, given: GivenModel, *, length: int, sequences: int, seed: int) -> np.ndarray:
    split = next(name for name in HELD_OUT if name in data.splits)
    tokens, file = data.splits[split], data.file_of(split)
    if len(tokens) < length:
        raise UserError(f"{file}: has {len(tokens)} tokens, but --length is {length}")
    chosen_BT = windows(tokens, length=length, sequences=sequences, seed=seed)
    too_large = first_at_least(chosen_BT.reshape(-1), given.vocabulary)
    if too_large is not None:
        raise UserError(
            f"{file}: token {chosen_BT.reshape(-1)[too_large]} is not below the vocabulary {given.vocabulary} of "
            f"{given.path}; prepare the text with the tokenizer of the model"
        )
    return chosen_BT
