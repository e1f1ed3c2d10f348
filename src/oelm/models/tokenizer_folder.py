"""A tokenizer's files as AutoTokenizer reads them: tokenizer.json, and tokenizer_config.json, which says what it is.

Our own `load_tokenizer` reads the same tokenizer.json. Theirs differ in one way: in text given to AutoTokenizer a
written `<|endoftext|>` is the mark, not ordinary text.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from oelm.machine.errors import UserError, first_line
from oelm.machine.installation import install_command
from oelm.storage.files import write_bytes, write_json

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
