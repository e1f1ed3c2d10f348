"""What transformers reads beside a model's weights: config.json, generation_config.json and the tokenizer's files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from oelm.core.config import ResolvedModel
from oelm.models.tokenizer_folder import write_tokenizer
from oelm.storage.files import write_json

CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"
MODEL_TYPE = "oelm"
ARCHITECTURE = "OrthogonalELMTransformer"


class WritableTokenizer(Protocol):
    """What of a tokenizer is stored with a model."""

    @property
    def end_of_text(self) -> int: ...

    @property
    def mark(self) -> str: ...

    def as_json(self) -> bytes: ...


def model_config(model: ResolvedModel) -> dict[str, Any]:
    """config.json of our own class; `describe_model` adds what the tokenizer says."""
    return {"model_type": MODEL_TYPE, "architectures": [ARCHITECTURE], **model.model_dump(mode="json")}


def describe_model(
    folder: Path, config: dict[str, Any], *, model: ResolvedModel, tokenizer: WritableTokenizer | None
) -> None:
    """Everything but the weights. Generation stops at the last position there is."""
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    marks = {} if tokenizer is None else dict.fromkeys(names, tokenizer.end_of_text)
    if tokenizer is not None:
        write_tokenizer(folder, tokenizer.as_json(), mark=tokenizer.mark, seq_len=model.seq_len)
    write_json(folder / CONFIG_FILE, config | marks)
    write_json(folder / GENERATION_FILE, {**marks, "max_length": model.seq_len})
