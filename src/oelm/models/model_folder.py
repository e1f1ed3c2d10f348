"""What transformers reads beside a model's weights: config.json, generation_config.json and the tokenizer's files."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Protocol

from oelm.core.config import ResolvedModel
from oelm.machine.errors import UserError, first_line
from oelm.machine.installation import install_command
from oelm.storage.files import write_bytes, write_json

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


# ---- The tokenizer -------------------------------------------------------------------------------------------------


TOKENIZER_FILE, SETTINGS_FILE = "tokenizer.json", "tokenizer_config.json"
OLDER_FILES = ("vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model")


def write_tokenizer(folder: Path, content: bytes, *, mark: str, seq_len: int) -> None:
    """`content` is a tokenizer.json, `mark` what ends a text."""
    write_bytes(folder / TOKENIZER_FILE, content)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": mark,
        "eos_token": mark,
        "unk_token": mark,
        "pad_token": mark,
        "model_max_length": seq_len,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
    }
    write_json(folder / SETTINGS_FILE, settings)


def converted(folder: Path) -> bytes:
    """tokenizer.json made of the older files."""
    older = [name for name in OLDER_FILES if (folder / name).is_file()]
    if not older:
        raise UserError(f"{folder}: no tokenizer there (neither {TOKENIZER_FILE} nor {', '.join(OLDER_FILES)})")
    if importlib.util.find_spec("transformers") is None:
        raise UserError(
            f"{folder}: has {older[0]} but no {TOKENIZER_FILE}; reading it needs transformers: {install_command('hf')}"
        )
    from oelm.models.library import transformers

    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        return tokenizer.backend_tokenizer.to_str().encode()
    except Exception as error:  # of no common class
        raise UserError(f"{folder}: its tokenizer cannot be read ({first_line(error)})") from error
