"""Tiny encoders as folders: config.json, tokenizer.json, model.safetensors, as a user would have them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
SENTENCES = (
    "the a cat dog man woman child boat house tree sat ran saw read made found is was not never very good bad "
    "film book day home red blue big small on in to of and he she it nothing everyone . , ! ? 我 他 好"
)
WORDS = SENTENCES.split()
TYPES = ("bert", "roberta", "distilbert")


def config_of(model_type: str, *, vocabulary: int, positions: int = 64) -> dict:
    if model_type == "distilbert":
        own = {"dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 32, "max_position_embeddings": positions}
    else:
        roberta = model_type != "bert"
        own = SIZES | {
            "max_position_embeddings": positions + 2 * roberta,
            "type_vocab_size": 1 if roberta else 2,
        }
    pad = 1 if model_type not in ("bert", "distilbert") else 0
    return {"model_type": model_type, "vocab_size": vocabulary, "pad_token_id": pad} | own


def word_pieces():
    """BERT's tokenizer over a few words, their letters and pieces."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    letters = sorted({letter for word in WORDS for letter in word} | set("abcdefghijklmnopqrstuvwxyz0123456789'"))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *letters, *(f"##{letter}" for letter in letters)]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    tokenizer.add_special_tokens(pieces[:5])
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"]))
    return tokenizer


def byte_pieces():
    """RoBERTa's tokenizer without merges: one token a byte."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(pieces[:5])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return tokenizer


def encoder_folder(folder: Path, model_type: str = "bert", *, positions: int = 64) -> Path:
    """Everything but real weights: one small tensor stands for them."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = byte_pieces() if model_type not in ("bert", "distilbert") else word_pieces()
    (folder / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    config = config_of(model_type, vocabulary=tokenizer.get_vocab_size(), positions=positions)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file({"weight": np.arange(6, dtype=np.float32)}, folder / "model.safetensors")
    return folder


def loadable_encoder(folder: Path, model_type: str = "bert", *, seed: int = 0, positions: int = 64) -> Path:
    """The same with random weights that transformers loads."""
    import torch
    from transformers import AutoConfig, AutoModel

    encoder_folder(folder, model_type, positions=positions)
    config = json.loads((folder / "config.json").read_text())
    torch.manual_seed(seed)
    model = AutoModel.from_config(AutoConfig.for_model(**config))
    model.save_pretrained(folder, safe_serialization=True)
    return folder
