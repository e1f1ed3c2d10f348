"""A tokenizer's files as AutoTokenizer reads them: tokenizer.json, and tokenizer_config.json, which says what it is.

Our own `load_tokenizer` reads the same tokenizer.json. Theirs differ in one way: in text given to AutoTokenizer a
written `<|endoftext|>` is the mark, not ordinary text.
"""

from __future__ import annotations

import json
from pathlib import Path

from oelm.data.tokenizer import BPE_FILE, END_OF_TEXT, BpeTokenizer, Gpt2Tokenizer, Tokenizer, save_files
from oelm.files import write_json

SETTINGS_FILE = "tokenizer_config.json"


def save_for_transformers(tokenizer: Tokenizer, folder: Path, *, seq_len: int) -> None:
    save_files(folder, {BPE_FILE: _tokenizer_json(tokenizer)})
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "unk_token": END_OF_TEXT,
        "model_max_length": seq_len,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
    }
    write_json(folder / SETTINGS_FILE, settings)


def _tokenizer_json(tokenizer: Tokenizer) -> bytes:
    match tokenizer:
        case BpeTokenizer():
            return tokenizer.content
        case Gpt2Tokenizer():
            return _gpt2_as_json(tokenizer.files)
    raise TypeError(f"{tokenizer.name}: transformers has no form of it")


def _gpt2_as_json(files: dict[str, bytes]) -> bytes:
    """encoder.json and vocab.bpe (a line with its version, then a merge a line) in one file."""
    from tokenizers import AddedToken, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Model

    _, *merges = files["vocab.bpe"].decode().strip().split("\n")
    pairs = [(left, right) for left, _, right in (line.partition(" ") for line in merges)]
    model = Model(models.BPE(vocab=json.loads(files["encoder.json"]), merges=pairs))
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    model.add_special_tokens([AddedToken(END_OF_TEXT, normalized=False, special=True)])
    return model.to_str().encode()
