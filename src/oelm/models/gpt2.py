"""Our GPT as Hugging Face's GPT-2: the same function in their layout, which their own classes load.

Theirs fuses query, key and value, stores matrices input by output (Conv1D), and has biases in attention: zero here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from oelm.core.config import ResolvedModel
from oelm.core.model.transformer import NORM_EPSILON
from oelm.core.moves import Always
from oelm.core.options import in_use

PROJECTIONS = ("query", "key", "value", "output")
NORMS = {"attention_norm": "ln_1", "feed_forward_norm": "ln_2"}
OF_GPT2_TOO = ("tied",)  # options that their config has
FEED_FORWARD = {"up": "c_fc", "down": "c_proj"}


def is_plain(model: ResolvedModel) -> bool:
    """Nothing rests, ever, and it computes what a GPT-2 does: one like any other, whatever its starting values."""
    return what_no_gpt2_has(model) is None and all(isinstance(part.moves, Always) for _, part in model.parts.items())


def what_no_gpt2_has(model: ResolvedModel) -> str | None:
    """The options that make it another function than a GPT-2 computes, in words."""
    own = [option.said(facts) for option, facts in in_use(model) if option.key not in OF_GPT2_TOO]
    return "; ".join(own) or None


def gpt2_config(model: ResolvedModel) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": model.vocabulary,
        "n_positions": model.seq_len,
        "n_embd": model.d_model,
        "n_layer": model.num_layers,
        "n_head": model.num_heads,
        "n_inner": model.d_ff,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": NORM_EPSILON,
        "resid_pdrop": model.dropout,
        "embd_pdrop": model.dropout,
        "attn_pdrop": model.dropout,
        "tie_word_embeddings": model.tied,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def gpt2_weights(weights: dict[str, Tensor], model: ResolvedModel) -> dict[str, Tensor]:
    """From the state of a GPT; a tied output layer is not stored."""
    found = {
        "transformer.wte.weight": weights["token_embedding.weight"],
        "transformer.wpe.weight": weights["position_embedding.weight"],
        "transformer.ln_f.weight": weights["final_norm.weight"],
        "transformer.ln_f.bias": weights["final_norm.bias"],
    }
    if not model.tied:
        found["lm_head.weight"] = weights["output_layer.weight"]
    for layer in range(model.num_layers):
        ours, theirs = f"blocks.{layer}", f"transformer.h.{layer}"
        for our_name, their_name in NORMS.items():
            for leaf in ("weight", "bias"):
                found[f"{theirs}.{their_name}.{leaf}"] = weights[f"{ours}.{our_name}.{leaf}"]
        for our_name, their_name in FEED_FORWARD.items():
            found[f"{theirs}.mlp.{their_name}.weight"] = weights[f"{ours}.feed_forward.{our_name}.weight"].T
            found[f"{theirs}.mlp.{their_name}.bias"] = weights[f"{ours}.feed_forward.{our_name}.bias"]
        query, key, value, output = (weights[f"{ours}.attention.{name}.weight"] for name in PROJECTIONS)
        found[f"{theirs}.attn.c_attn.weight"] = torch.cat([query, key, value]).T
        found[f"{theirs}.attn.c_proj.weight"] = output.T
        found[f"{theirs}.attn.c_attn.bias"] = output.new_zeros(3 * model.d_model)
        found[f"{theirs}.attn.c_proj.bias"] = output.new_zeros(model.d_model)
    return found
