"""Sentences or pairs of them with labels, read: what `oelm prepare xnli` and its like have written for one encoder.

A split is four flat files: token ids one example after another, where each begins, where its second text begins, and
its label. Everything a later batch relies on is checked at load and named by file and position.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from oelm.core.config import Encoder
from oelm.data.prepared import MANIFEST, missing_data, name_of_data, read_manifest
from oelm.data.tokens import TOKENIZER_FOLDER, check_entries, first_at_least, is_count, mapped
from oelm.machine.errors import UserError
from oelm.models.encoder_folder import EncoderFolder, open_encoder
from oelm.storage.files import Damaged, combined_digest, named_in

KIND = "sentences"
COLUMNS = {"ids": None, "offsets": np.dtype("<i8"), "seconds": np.dtype("<i4"), "labels": np.dtype("<i2")}
SIZES = tuple(key for key in Encoder.FROM_DATA if key != "mean_length")
AGAIN = "prepare it again with --force"


@dataclass(frozen=True, eq=False)
class Sentences:
    """The examples of one split, in the order of their source."""

    ids: np.ndarray  # read-only memory map, all examples one after another
    offsets: np.ndarray  # n + 1: example i is ids[offsets[i] : offsets[i + 1]]
    seconds: np.ndarray  # n: where the second text begins within the example; its length if there is none
    labels: np.ndarray  # n

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def example(self, index: int) -> np.ndarray:
        return self.ids[self.offsets[index] : self.offsets[index + 1]]


@dataclass(frozen=True, eq=False)
class SentenceData:
    folder: Path
    digest: str  # of tokens, labels and the encoder
    task: str
    language: str | None
    labels: tuple[str, ...]
    facts: dict[str, Any]  # what the data says of the model: config.Encoder.FROM_DATA
    encoder_source: str  # a folder, or a name on the hub
    encoder_revision: str | None  # the hub's commit
    encoder_digest: str  # of config.json and the weights
    encoder_has_weights: bool
    pad_id: int
    splits: dict[str, Sentences]
    manifest: dict[str, Any]
    tokenizer_folder: Path

    @property
    def provenance(self) -> dict[str, Any]:
        """What a run notes of its data besides the digest; of a local folder only its last names."""
        local = Path(self.encoder_source).is_absolute()
        source = "/".join(Path(self.encoder_source).parts[-2:]) if local else self.encoder_source
        name = name_of_data(self.folder, self.manifest)
        return {"data_name": name, "encoder_source": source, "encoder_digest": self.encoder_digest}


def open_sentences(folder: Path, *, study: Path | None = None) -> SentenceData:
    """Map the splits of a prepared folder and check them. What is missing is also looked for beside the file of the
    study that names it."""
    if not (folder / MANIFEST).is_file():
        raise missing_data(folder, prepare_command(folder), what="prepared sentences", study=study)
    manifest = read_manifest(folder)
    if manifest.get("kind") != KIND:
        raise UserError(
            f"{folder}: contains text for a language model, not sentences with labels; "
            f"create those with: {prepare_command(folder.with_name('xnli-en'))}"
        )
    try:
        check_described(folder, manifest)
        data = described(folder, manifest)
    except KeyError as error:
        raise UserError(f"{folder / MANIFEST}: incomplete, {error} is missing; {AGAIN}") from error
    for name, split in data.splits.items():
        check_split(data, name, split)
    return data


def check_described(folder: Path, manifest: dict[str, Any]) -> None:
    """Raise Damaged for a value of a type that no preparation writes, KeyError for a missing one."""
    encoder, facts, labels = manifest["encoder"], manifest["facts"], manifest["labels"]
    right = {
        "labels": isinstance(labels, list) and all(isinstance(label, str) for label in labels),
        "task": isinstance(manifest["task"], str),
        "language": isinstance(manifest["language"], str | None),
        "encoder": isinstance(encoder, dict)
        and all(isinstance(encoder[key], str) for key in ("source", "digest"))
        and isinstance(encoder["revision"], str | None)
        and isinstance(encoder["has_weights"], bool)
        and is_count(encoder["pad_id"]),
        "facts": isinstance(facts, dict)
        and all(is_count(facts[key]) and facts[key] >= (key != "token_types") for key in SIZES)
        and isinstance(facts["mean_length"], int | float),
    }
    for key, fits in right.items():
        if not fits:
            raise Damaged(folder / MANIFEST, f"{key} is not what a preparation writes; {AGAIN}")
    check_entries(folder, manifest, counts=("examples", "tokens"))
    for name, entry in manifest["splits"].items():
        digests = entry["sha256"]
        if not isinstance(digests, dict) or digests.keys() != COLUMNS.keys():
            raise Damaged(folder / MANIFEST, f"splits.{name}.sha256 does not name {', '.join(COLUMNS)}")


def described(folder: Path, manifest: dict[str, Any]) -> SentenceData:
    encoder = manifest["encoder"]
    return SentenceData(
        folder=folder,
        digest=manifest["digest"],
        task=manifest["task"],
        language=manifest["language"],
        labels=tuple(manifest["labels"]),
        facts=manifest["facts"],
        encoder_source=encoder["source"],
        encoder_revision=encoder["revision"],
        encoder_digest=encoder["digest"],
        encoder_has_weights=encoder["has_weights"],
        pad_id=encoder["pad_id"],
        splits={name: open_split(folder, name, manifest) for name in manifest["splits"]},
        manifest=manifest,
        tokenizer_folder=folder / TOKENIZER_FOLDER,
    )


def prepare_command(folder: Path) -> str:
    """The command that makes the data; the folder's name says which task and language, if it is one's."""
    task, _, language = folder.name.partition("-")
    chosen = f" --language {shlex.quote(language)}" if task == "xnli" and language not in ("", "en") else ""
    source = f"{task}{chosen} --source FOLDER" if task in ("xnli", "mnli", "sst2") else "FOLDER --task pairs|sentences"
    return f"oelm prepare {source} --encoder FOLDER_OR_HUB_NAME --out {shlex.quote(str(folder))}"


def open_split(folder: Path, name: str, manifest: dict[str, Any]) -> Sentences:
    entry = manifest["splits"][name]
    examples, columns = entry["examples"], {}
    lengths = {"ids": entry["tokens"], "offsets": examples + 1, "seconds": examples, "labels": examples}
    for column, dtype in COLUMNS.items():
        file = named_in(folder / MANIFEST, column_file(name, column))
        dtype = dtype or np.dtype(manifest["dtype"]).newbyteorder("<")
        columns[column] = mapped(file, dtype, values=lengths[column])
    return Sentences(**columns)


def column_file(split: str, column: str) -> str:
    return f"{split}.{column}.bin"


def check_split(data: SentenceData, name: str, split: Sentences) -> None:
    """Raise for the first example that does not fit its files, its encoder or its labels."""
    facts, lengths = data.facts, split.lengths

    def bad_value(column: str, at: int, said: str) -> UserError:
        return UserError(f"{data.folder / column_file(name, column)}: value {at} {said}; {AGAIN}")

    if split.offsets[0] != 0 or split.offsets[-1] != len(split.ids):
        at = 0 if split.offsets[0] != 0 else len(split)
        raise bad_value("offsets", at, f"is {split.offsets[at]}, which does not bound the ids")
    wrong = (
        ("offsets", (lengths < 1) | (lengths > facts["seq_len"]), f"begins an example not of 1 to {facts['seq_len']}"),
        ("seconds", (split.seconds < 1) | (split.seconds > lengths), "does not lie within its example"),
        ("labels", (split.labels < 0) | (split.labels >= len(data.labels)), f"is not one of {len(data.labels)} labels"),
    )
    for column, bad, said in wrong:
        if bad.any():
            at = int(np.argmax(bad))
            raise bad_value(column, at, f"is {getattr(split, column)[at]}, which {said}")
    offset = first_at_least(split.ids, facts["vocabulary"])
    if offset is not None:
        said = f"is token {split.ids[offset]}, which is not below the vocabulary {facts['vocabulary']}"
        raise bad_value("ids", offset, said)


def file_digests(data: SentenceData) -> dict[str, str]:
    """As the manifest says."""
    return {
        column_file(name, column): digest
        for name, entry in data.manifest["splits"].items()
        for column, digest in entry["sha256"].items()
    }


def check_combined(data: SentenceData) -> None:
    """Whether the digest of the data is that of its files and its encoder."""
    if data.digest != combined_digest(file_digests(data) | {"encoder": data.encoder_digest}):
        raise Damaged(data.folder / MANIFEST, f"digest is not that of its files and its encoder; {AGAIN}")


def encoder_of(data: SentenceData) -> EncoderFolder:
    """The encoder that sentences were prepared for, proved to be the same by its digest."""
    try:
        encoder = open_encoder(data.encoder_source, revision=data.encoder_revision)
    except UserError as error:
        raise UserError(
            f"{data.folder}: the encoder it was prepared for is gone ({error}); restore it there, or "
            "prepare the data again with --encoder and --force"
        ) from error
    if encoder.digest != data.encoder_digest:
        raise UserError(
            f"{encoder.folder}: not the encoder that {data.folder} was prepared for (its digest differs); "
            "restore the old files, or prepare the data again with --force"
        )
    return encoder
