"""A pretrained encoder as files: where it lies, its sizes, its digest. Nothing here loads its weights.

Weights are safetensors or are not used at all: a pickle can run any code when it is opened.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oelm.machine.errors import UserError, first_line
from oelm.machine.installation import install_command
from oelm.storage.files import combined_digest, read_json, sha256_of

CONFIG, WEIGHTS, WEIGHTS_INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".ckpt", ".h5")
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.txt", "vocab.json", "merges.txt", "sentencepiece.bpe.model", "spiece.model",
)  # fmt: skip
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")

BERT_KEYS = {
    "vocabulary": "vocab_size",
    "positions": "max_position_embeddings",
    "token_types": "type_vocab_size",
    "d_model": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "d_ff": "intermediate_size",
}
DISTILBERT_KEYS = {
    "vocabulary": "vocab_size",
    "positions": "max_position_embeddings",
    "d_model": "dim",
    "num_layers": "n_layers",
    "num_heads": "n_heads",
    "d_ff": "hidden_dim",
}


@dataclass(frozen=True)
class Family:
    keys: dict[str, str]  # our name -> the name in config.json
    default_pad_id: int
    positions_follow_padding: bool = False  # RoBERTa numbers positions from the padding id + 1 on


ROBERTA = Family(BERT_KEYS, default_pad_id=1, positions_follow_padding=True)
FAMILIES = {
    "bert": Family(BERT_KEYS, default_pad_id=0),
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "camembert": ROBERTA,
    "distilbert": Family(DISTILBERT_KEYS, default_pad_id=0),
}


@dataclass(frozen=True)
class EncoderFolder:
    source: str  # the folder's absolute path, or its name on the hub
    revision: str | None  # the hub's commit
    folder: Path
    config: dict[str, Any]
    weights: tuple[str, ...]  # file names; none: the encoder can start at random only
    digest: str  # of config.json and the weights

    @property
    def model_type(self) -> str:
        name: str = self.config["model_type"]
        return name

    @property
    def family(self) -> Family:
        return FAMILIES[self.model_type]

    @property
    def pad_id(self) -> int:
        given = self.config.get("pad_token_id")
        return self.family.default_pad_id if given is None else given

    @property
    def sizes(self) -> dict[str, int]:
        """What of config.Encoder.FROM_DATA the encoder decides."""
        found = {name: self._size(name, key) for name, key in self.family.keys.items()}
        if found["d_model"] % found["num_heads"]:
            raise UserError(
                f"{self.folder / CONFIG}: width {found['d_model']} is not divisible by {found['num_heads']} heads"
            )
        return {"token_types": 0} | found

    @property
    def longest_input(self) -> int:
        """In tokens, special ones included."""
        reserved = self.pad_id + 1 if self.family.positions_follow_padding else 0
        return self.sizes["positions"] - reserved

    def _size(self, name: str, key: str) -> int:
        value = self.config.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < (0 if name == "token_types" else 1):
            raise UserError(f"{self.folder / CONFIG}: {key} is {value!r}, but must be a whole number above zero")
        return value


def open_encoder(source: str, *, revision: str | None = None) -> EncoderFolder:
    """The encoder in a local folder, or of a name on the hub (its local cache first)."""
    folder = Path(source).expanduser()
    if folder.is_dir():
        return read_encoder(folder.resolve(), source=str(folder.resolve()))
    if folder.exists():
        raise UserError(f"encoder {source}: is a file; give the folder that contains {CONFIG} and {WEIGHTS}")
    if not HUB_NAME.fullmatch(source):
        raise UserError(f"encoder {source!r}: no such folder")
    found = hub_folder(source, revision)
    encoder = read_encoder(found, source=source, revision=found.name if found.parent.name == "snapshots" else revision)
    if not encoder.weights:
        raise UserError(f"encoder {source}: the hub has no {WEIGHTS} for it, and oelm does not open pickled weights")
    return encoder


def read_encoder(folder: Path, *, source: str, revision: str | None = None) -> EncoderFolder:
    if not (folder / CONFIG).is_file():
        raise UserError(f"{folder}: no encoder there ({CONFIG} is missing)")
    config = read_json(folder / CONFIG)
    model_type = config.get("model_type") if isinstance(config, dict) else None
    if model_type not in FAMILIES:
        raise UserError(
            f"{folder / CONFIG}: model_type {model_type!r} is not known; known types: {', '.join(FAMILIES)}"
        )
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise UserError(f"{folder / CONFIG}: position_embedding_type must be absolute")
    weights = weight_files(folder)
    digest = combined_digest({name: sha256_of(folder / name) for name in (CONFIG, *weights)})
    return EncoderFolder(source, revision, folder, config, weights, digest)


def weight_files(folder: Path) -> tuple[str, ...]:
    """Names of the safetensors files, each whole; empty for a folder without any weights."""
    if (folder / WEIGHTS).is_file():
        names = [WEIGHTS]
    elif (folder / WEIGHTS_INDEX).is_file():
        names = shards(folder / WEIGHTS_INDEX)
    else:
        other = sorted(file.name for file in folder.iterdir() if file.suffix in OTHER_WEIGHTS)
        if other:
            raise UserError(
                f"{folder}: contains pickled weights only ({other[0]}), which oelm never opens; "
                f"use a copy of the model with {WEIGHTS}"
            )
        names = []
    for name in names:
        check_safetensors(folder / name)
    return tuple(names)


def shards(index: Path) -> list[str]:
    content = read_json(index)
    table = content.get("weight_map") if isinstance(content, dict) else None
    named = list(table.values()) if isinstance(table, dict) else []
    plain = all(isinstance(each, str) and re.fullmatch(r"\w[\w.-]*\.safetensors", each) for each in named)
    names = sorted(set(named)) if plain else []
    if not names:
        raise UserError(f"{index}: not an index of safetensors files (no usable weight_map)")
    return names


def check_safetensors(file: Path) -> None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy"):
            pass
    except (OSError, SafetensorError) as error:
        raise UserError(f"{file}: not a whole safetensors file ({first_line(error)})") from error


def hub_folder(name: str, revision: str | None) -> Path:
    """A snapshot with config, weights and tokenizer: from the cache if it is whole there, else from the network."""
    if importlib.util.find_spec("huggingface_hub") is None:
        raise UserError(
            f"encoder {name}: no such folder, and fetching it needs huggingface_hub: {install_command('hf')}"
        )
    from huggingface_hub import snapshot_download

    wanted = [CONFIG, WEIGHTS, WEIGHTS_INDEX, "model-*.safetensors", *TOKENIZER_FILES]
    with contextlib.suppress(Exception):  # whatever the cache lacks, the network decides
        cached = Path(snapshot_download(name, revision=revision, allow_patterns=wanted, local_files_only=True))
        if weight_files(cached) and any((cached / file).is_file() for file in TOKENIZER_FILES):
            return cached
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=wanted))
    except Exception as error:  # the library and its transports raise errors of no common class
        raise UserError(
            f"encoder {name}: no such folder, and it cannot be fetched from the Hugging Face hub "
            f"({first_line(error)}); check the name and the network, or give a local folder"
        ) from error
