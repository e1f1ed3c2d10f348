"""Token files, read: memory-mapped splits of a prepared folder, or of a bare one with train.bin and val.bin.

Everything a later batch relies on (sizes, ids below the vocabulary, enough tokens for a sequence) is checked here, so
that bad data is found at load and named by file and offset.
"""

from __future__ import annotations

import importlib
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oelm.data.prepared import EMBEDDED, MANIFEST, folder_of, is_embedded, missing_data, name_of_data, read_manifest
from oelm.machine.errors import UserError
from oelm.storage.files import Damaged, combined_digest, named_in, sha256_of

TOKENIZER_FOLDER = "tokenizer"
SPLITS = ("train", "tune", "val", "test")
BARE_DTYPE = np.dtype("<u2")
GPT2_VOCABULARY = 50257  # taken for bare files, which do not say
SCAN_TOKENS = 1 << 24
DTYPES = ("uint16", "uint32")


@dataclass(frozen=True, eq=False)
class TokenData:
    folder: Path
    vocabulary: int | None  # unknown for a bare folder
    dtype: np.dtype
    splits: dict[str, np.ndarray]  # read-only memory maps
    offsets: dict[str, int]  # where a split begins in its file, in tokens
    digest: str
    manifest: dict[str, Any] | None
    tokenizer_folder: Path | None

    @property
    def facts(self) -> dict[str, Any]:
        """What the data says of the model; bare files say nothing, and are taken for GPT-2's."""
        return {"vocabulary": self.vocabulary or GPT2_VOCABULARY}

    @property
    def provenance(self) -> dict[str, Any]:
        """What a run notes of its data besides the digest."""
        return {"data_name": name_of_data(self.folder, self.manifest)}

    def file_of(self, split: str) -> Path:
        """A bare folder's tune is the first half of val.bin."""
        return self.folder / file_name("val" if self.manifest is None and split == "tune" else split)


def open_tokens(path: Path, *, study: Path | None = None) -> TokenData:
    """Map the splits of a prepared folder, of a bare one, or of the folder of a given train.bin. What is missing is
    also looked for beside the file of the study that names it."""
    folder = folder_of(path)
    if (folder / MANIFEST).is_file():
        return open_prepared(folder)
    if (folder / file_name("train")).is_file():
        return open_bare(folder)
    raise missing_data(folder, prepare_command(folder), study=study)


def prepare_command(folder: Path) -> str:
    """The command that makes the data; the folder's name says which, if it is a corpus's. The embedded stories stand
    for themselves alone, never for a text that is missing."""
    corpora = importlib.import_module("oelm.data.corpora")  # by its name: it decides none of a run's numbers
    corpus = folder.name if folder.name in corpora.HUB or is_embedded(folder) else "FILE_OR_FOLDER"
    return f"oelm prepare {corpus} --out {shlex.quote(str(folder))}"


def open_prepared(folder: Path) -> TokenData:
    manifest = read_manifest(folder)
    if "kind" in manifest:
        raise UserError(
            f"{folder}: contains {manifest['kind']}, not text for a language model; they are for an encoder "
            f"(--preset fine-tuning), or create text with: {prepare_command(EMBEDDED)}"
        )
    check_entries(folder, manifest, counts=("tokens",))
    if not is_count(manifest.get("vocabulary")):
        raise Damaged(folder / MANIFEST, "vocabulary is not a count")
    dtype = np.dtype(manifest["dtype"]).newbyteorder("<")
    splits = {}
    for name, entry in manifest["splits"].items():
        splits[name] = mapped(named_in(folder / MANIFEST, file_name(name)), dtype, values=entry["tokens"])
    return TokenData(
        folder=folder,
        vocabulary=manifest["vocabulary"],
        dtype=dtype,
        splits=splits,
        offsets=dict.fromkeys(splits, 0),
        digest=manifest["digest"],
        manifest=manifest,
        tokenizer_folder=folder / TOKENIZER_FOLDER,
    )


def check_entries(folder: Path, manifest: dict[str, Any], *, counts: tuple[str, ...]) -> None:
    """Raise Damaged unless a manifest names splits of ours, how long they are and in which type."""
    file, splits = folder / MANIFEST, manifest.get("splits")
    if manifest.get("dtype") not in DTYPES or not isinstance(manifest.get("digest"), str):
        raise Damaged(file, f"has no digest, or a dtype that is not one of {', '.join(DTYPES)}")
    if not isinstance(splits, dict) or "train" not in splits:
        raise Damaged(file, "names no split train")
    for name, entry in splits.items():
        if name not in SPLITS:
            raise Damaged(file, f"names a split {name[:80]!r}; known splits: {', '.join(SPLITS)}")
        if not isinstance(entry, dict) or not all(is_count(entry.get(key)) for key in counts):
            raise Damaged(file, f"splits.{name} does not say how long it is ({', '.join(counts)})")
        if "sha256" not in entry:
            raise Damaged(file, f"splits.{name} has no SHA-256")


def is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def open_bare(folder: Path) -> TokenData:
    files = {name: folder / file_name(name) for name in ("train", "val", "test")}
    if not files["val"].is_file():
        raise UserError(f"{files['val']}: missing; a folder without {MANIFEST} needs train.bin and val.bin")
    present = {name: file for name, file in files.items() if file.is_file()}
    splits = {name: mapped(file, BARE_DTYPE) for name, file in present.items()}
    half = len(splits["val"]) // 2
    splits |= {"tune": splits["val"][:half], "val": splits["val"][half:]}
    return TokenData(
        folder=folder,
        vocabulary=None,
        dtype=BARE_DTYPE,
        splits={name: splits[name] for name in SPLITS if name in splits},
        offsets={name: half if name == "val" else 0 for name in splits},
        digest=combined_digest({file.name: sha256_of(file) for file in present.values()}),
        manifest=None,
        tokenizer_folder=None,
    )


def mapped(file: Path, dtype: np.dtype, *, values: int | None = None) -> np.ndarray:
    """The file in memory; where its manifest says how many values it has, with exactly so many."""
    size = file.stat().st_size if file.is_file() else None
    if values is not None and size != values * dtype.itemsize:
        found = "missing" if size is None else f"{size or 'empty, 0'} bytes"
        expected = f"its manifest says {values * dtype.itemsize} bytes"
        raise UserError(f"{file}: {found}, but {expected}; prepare it again with --force")
    assert size is not None, file
    if size % dtype.itemsize:
        raise UserError(
            f"{file}: {size} bytes is not a whole number of {dtype.name} tokens (offset {size - size % dtype.itemsize})"
        )
    if size == 0:
        raise UserError(f"{file}: empty; prepare the data again")
    return np.memmap(file, dtype=dtype, mode="r")


def check_tokens(data: TokenData, *, seq_len: int, vocabulary: int) -> None:
    """Raise for a split too short for one sequence, or for the first id the model has no embedding for."""
    for name, tokens in data.splits.items():
        if len(tokens) < seq_len + 1:
            raise UserError(
                f"{data.file_of(name)}: {name} has {len(tokens)} tokens, but seq_len {seq_len} needs {seq_len + 1}; "
                "prepare more text or lower seq_len"
            )
    for name, tokens in data.splits.items():
        offset = first_at_least(tokens, vocabulary)
        if offset is not None:
            raise UserError(
                f"{data.file_of(name)}: token {int(tokens[offset])} at token offset {data.offsets[name] + offset} "
                f"is not below the vocabulary {vocabulary}"
            )


def file_digests(data: TokenData) -> dict[str, str]:
    """As the manifest says. Of bare files none: their digest was taken when they were opened."""
    entries = data.manifest["splits"] if data.manifest else {}
    return {file_name(name): entry["sha256"] for name, entry in entries.items()}


def check_combined(data: TokenData) -> None:
    """Whether the digest of the data is that of its files."""
    if data.manifest is not None and data.digest != combined_digest(file_digests(data)):
        raise Damaged(data.folder / MANIFEST, "digest is not that of its files; prepare it again with --force")


def first_at_least(tokens: np.ndarray, bound: int) -> int | None:
    """Position of the first token >= bound."""
    if bound > np.iinfo(tokens.dtype).max:
        return None
    for start in range(0, len(tokens), SCAN_TOKENS):
        chunk = tokens[start : start + SCAN_TOKENS]
        if chunk.max() >= bound:
            return start + int(np.argmax(chunk >= bound))
    return None


def file_name(split: str) -> str:
    return f"{split}.bin"
