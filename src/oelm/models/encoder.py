"""An encoder with a classification head, from its folder: its weights, its head's start, its arm.

What the weights' file does not hold (the head; everything, for an encoder started at random) is a pure function of the
seed and the parameter's name, as in our own model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from oelm.core.config import ResolvedEncoder, Seeds
from oelm.core.model.initialization import normal_draw
from oelm.core.starts import WEIGHT_STANDARD_DEVIATION
from oelm.models.adaptation import adapt
from oelm.models.library import transformers

# The names that BERT's, RoBERTa's and DistilBERT's configs give to the one rate.
DROPOUT_NAMES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout")
HEAD_DROPOUT_NAMES = ("classifier_dropout", "seq_classif_dropout")


def build_encoder(encoder: ResolvedEncoder, seeds: Seeds, *, folder: Path, labels: tuple[str, ...]) -> nn.Module:
    """The model with its starting values, the arm's for its parts."""
    config = _config(encoder, folder, labels)
    transformers.utils.logging.set_verbosity_error()  # that the head is new is no news
    transformers.utils.logging.disable_progress_bar()
    if encoder.pretrained:
        loaded: tuple[nn.Module, dict[str, Any]] = transformers.AutoModelForSequenceClassification.from_pretrained(
            folder, config=config, use_safetensors=True, dtype=torch.float32, output_loading_info=True
        )
        model, information = loaded
        unset = {str(name) for name in (*information["missing_keys"], *information["mismatched_keys"])}
    else:
        model = transformers.AutoModelForSequenceClassification.from_config(config, dtype=torch.float32)
        unset = {name for name, _ in model.named_parameters()}
    _start(model, unset, seeds.weights)
    model.train()
    adapt(model, encoder.parts, seed=seeds.projections)
    return model


def _config(encoder: ResolvedEncoder, folder: Path, labels: tuple[str, ...]) -> transformers.PretrainedConfig:
    config: transformers.PretrainedConfig = transformers.AutoConfig.from_pretrained(folder, num_labels=len(labels))
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: index for index, label in enumerate(labels)}
    for name in DROPOUT_NAMES + HEAD_DROPOUT_NAMES:
        if hasattr(config, name):
            setattr(config, name, encoder.dropout)
    return config


@torch.no_grad()
def _start(model: nn.Module, names: set[str], seed: int) -> None:
    modules = dict(model.named_modules())
    for name, parameter in model.named_parameters():
        if name not in names:
            continue
        module = modules[name.rpartition(".")[0]]
        if parameter.dim() >= 2:
            parameter.copy_(normal_draw(seed, name, parameter.shape) * WEIGHT_STANDARD_DEVIATION)
            if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                parameter[module.padding_idx].zero_()
        else:
            parameter.fill_(1.0 if name.endswith("weight") else 0.0)
