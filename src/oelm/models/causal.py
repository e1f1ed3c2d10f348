"""A causal language model of transformers, read from a local folder for its attention weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from oelm.machine.errors import UserError
from oelm.models.library import transformers


def load_causal(folder: Path) -> Any:  # a PreTrainedModel
    """In float32 and evaluation mode, with attention in plain products; from safetensors, and from here alone."""
    transformers.utils.logging.disable_progress_bar()
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, attn_implementation="eager", dtype=torch.float32, use_safetensors=True, local_files_only=True
        )
    except (OSError, ValueError, RuntimeError, KeyError, ImportError, SafetensorError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(f"{folder}: transformers cannot load it as a causal language model: {reason}") from error
    return model.eval()


@torch.no_grad()
def attention_weights(model: Any, tokens_BT: Tensor, *, folder: Path) -> list[Tensor]:
    """Of every layer, B by heads by T by T."""
    output = model(tokens_BT, output_attentions=True, use_cache=False)
    weights = getattr(output, "attentions", None)
    batch, time = tokens_BT.shape
    if not weights or any(
        not isinstance(layer, Tensor) or layer.dim() != 4 or (layer.shape[0], *layer.shape[2:]) != (batch, time, time)
        for layer in weights
    ):
        raise UserError(
            f"{folder}: a model of type {model.config.model_type} has no attention weights in some or all of its layers"
        )
    return list(weights)
