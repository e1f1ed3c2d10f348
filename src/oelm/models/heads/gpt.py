"""Scores of the heads of our GPT: its attention weights, and what a run records of them.

B sequences, H heads, T time.
"""

from __future__ import annotations

import contextlib

import numpy as np
import torch
from torch import Tensor

from oelm.core.config import GptRun
from oelm.core.model.transformer import GPT
from oelm.core.probes.probe import is_probe, probe_of
from oelm.models.heads.kinds import HeadScores, Table
from oelm.models.heads.scores import (
    LENGTH,
    SEED,
    SEQUENCES,
    Sequences,
    examples_of,
    head_scores,
    keys_of,
    repeated_tokens,
)

BYTES_AT_ONCE = 2**28  # of attention weights


def gpt_scores(gpt: GPT, scored: Sequences) -> HeadScores:
    """In plain products and evaluation mode, whatever mode the model is in and whether it is compiled."""
    model, was_training = gpt.config, gpt.training
    at_once = sequences_at_once(scored.tokens_BT.shape[1], heads=model.num_layers * model.num_heads)
    gpt.eval()
    try:
        return head_scores(scored, lambda part_BT: _weights(gpt, part_BT), at_once=at_once)
    finally:
        gpt.train(was_training)


@torch.no_grad()
def _weights(gpt: GPT, tokens_BT: np.ndarray) -> list[np.ndarray]:
    device = gpt.token_embedding.weight.device
    embedded_BTD = gpt.token_embedding(torch.from_numpy(tokens_BT).to(device))
    weights: list[Tensor] = []
    # A graph that hands out its weights would be one more for every layer.
    compiled = any(block._compiled_call_impl is not None for block in gpt.blocks)
    with torch.compiler.set_stance("force_eager") if compiled else contextlib.nullcontext():
        gpt.hidden(embedded_BTD, torch.arange(tokens_BT.shape[1], device=device), weights=weights)
    return [as_array(weights_BHTT) for weights_BHTT in weights]


def as_array(weights_BHTT: Tensor) -> np.ndarray:
    """bfloat16 has no counterpart in numpy."""
    array: np.ndarray = weights_BHTT.detach().to("cpu", torch.promote_types(weights_BHTT.dtype, torch.float32)).numpy()
    return array


def sequences_at_once(time: int, *, heads: int) -> int:
    """So many that the weights of all heads of the model stay small."""
    return max(1, BYTES_AT_ONCE // (4 * heads * time * time))


# ---- What a run records --------------------------------------------------------------------------------------------


def recorded_on(run: GptRun) -> Sequences:
    """The tokens of `oelm probe` without options, the same for every run with these sizes; of a probe its own examples,
    unless nothing is asked for where kinds of head can be told apart.
    """
    if is_probe(run.data):
        examples = examples_of(probe_of(run.data), sequences=4 * SEQUENCES, seed=run.seeds.data)
        if keys_of(examples).counted.any():
            return examples
    model, key = run.model, "training.head_scores"
    length = min(LENGTH, model.seq_len)
    return Sequences(repeated_tokens(model.vocabulary, length=length, sequences=SEQUENCES, seed=SEED, key=key))


def recorded_scores(gpt: GPT, scored: Sequences) -> dict[str, Table]:
    return gpt_scores(gpt, scored).rounded()
