"""From labelled sentences to the ids of one encoder: survey, divide, encode, write.

Everything is read twice: once to find what is wrong and to divide the examples, once to encode them. So memory holds
hashes and labels, never all texts. A dataset is whole or absent: dataset_folder.py says how.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from oelm.data.dataset_folder import existing_dataset
from oelm.data.division import Division, Survey, divided, label_names, surveyed
from oelm.data.encoder_tokenizer import EncoderTokenizer, encoder_tokenizer
from oelm.data.encodings import UTF8, checked_encoding
from oelm.data.example_files import Example
from oelm.data.prepare import Meter, Preparation, Report, SplitFile, dtype_for
from oelm.data.prepared import FORMAT_VERSION, MANIFEST
from oelm.data.sentences import COLUMNS, KIND, column_file
from oelm.data.tasks import Source, open_task
from oelm.data.tokenizer import save_files
from oelm.data.tokens import SPLITS, TOKENIZER_FOLDER
from oelm.machine.errors import UserError
from oelm.models.encoder_folder import EncoderFolder, open_encoder
from oelm.storage.files import combined_digest, ensure_writable, explaining_a_full_disk, write_json
from oelm.storage.whole_folder import partial_folder, publish_folder

USUAL_MAX_LENGTH = 128
BATCH_EXAMPLES = 2_000
BYTES_PER_EXAMPLE = 100  # to say what a full disk would have needed


def prepare_sentences(
    name: str,
    *,
    out: Path,
    encoder: str,
    task: str | None = None,
    source_path: Path | None = None,
    language: str | None = None,
    train_file: Path | None = None,
    max_length: int | None = None,
    train_examples: int | None = None,
    encoding: str | None = None,
    force: bool = False,
    progress: Report | None = None,
) -> dict[str, Any]:
    """Make the dataset `out` and return its manifest; where it is already there with the same settings, just return.

    `name` is xnli, mnli or sst2, or a folder of one's own together with `task` (pairs or sentences). `encoder` is a
    folder or a name on the hub: its tokenizer makes the ids, and a run on this data starts from its weights.
    """
    out = Path(os.path.realpath(out))
    encoding = checked_encoding(encoding)
    source = open_task(
        name, task=task, source_path=source_path, language=language, train_file=train_file, encoding=encoding
    )
    opened = open_encoder(encoder)
    max_length = min(USUAL_MAX_LENGTH, opened.longest_input) if max_length is None else max_length
    tokenizer = encoder_tokenizer(opened).limited_to(max_length, pairs=source.task.pairs)
    settings = {
        "task": source.task.name,
        "language": source.language,
        "source": source.identity,
        "encoder": opened.digest,
        "tokenizer": tokenizer.digest,
        "max_length": max_length,
        "train_examples": train_examples,
        "encoding": encoding,
    }
    meter = Meter(
        progress or (lambda _: None), Preparation("reading", total_bytes=total_bytes(source), unit="examples")
    )
    existing = existing_dataset(out, settings, force=force, kind=KIND)
    if existing is not None:
        meter.tell(stage="already prepared")
        return existing
    meter.tell()
    surveys = {part: surveyed(source.parts[part]) for part in SPLITS if part in source.parts}
    labels = label_names(source.task, surveys["train"])
    divisions = divided(source, surveys, labels, train_examples=train_examples)
    ensure_writable(out.parent)
    try:
        with partial_folder(out) as folder:
            save_files(folder / TOKENIZER_FOLDER, tokenizer.files)
            splits = encoded_splits(source, divisions, tokenizer, folder=folder, meter=meter)
            described = {
                split: files.entry(labels) | {"also_in_train": also_in_train(split, surveys, divisions)}
                for split, files in splits.items()
            }
            manifest = manifest_of(source, settings, opened, labels, described, divisions)
            write_json(folder / MANIFEST, manifest)
            publish_folder(folder, out)
    except OSError:
        examples = sum(map(len, surveys.values()))
        with explaining_a_full_disk(out.parent, needed_bytes=examples * BYTES_PER_EXAMPLE + tokenizer.file_bytes):
            raise
    meter.tell(stage="prepared")
    return manifest


def total_bytes(source: Source) -> int | None:
    sizes = [part.source_bytes for part in source.parts.values()]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


@dataclass
class SplitFiles:
    """The files of one split while they grow."""

    files: dict[str, SplitFile]
    dtype: np.dtype
    end: int = 0
    truncated: int = 0
    unknown: int = 0
    labels: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.files["offsets"].append(np.zeros(1, COLUMNS["offsets"]))

    def append(self, tokenizer: EncoderTokenizer, examples: list[tuple[str, ...]], labels: list[int]) -> int:
        """The number of tokens that were added."""
        encoded = tokenizer.encode(examples)
        ends = self.end + np.cumsum(encoded.lengths)
        written = {"ids": encoded.ids, "offsets": ends, "seconds": encoded.seconds, "labels": np.array(labels)}
        for column, values in written.items():
            self.files[column].append(values.astype(COLUMNS[column] or self.dtype))
        self.end = int(ends[-1])
        self.truncated += int(encoded.truncated.sum())
        self.unknown += encoded.unknown
        self.labels.update(labels)
        return len(encoded.ids)

    def entry(self, names: tuple[str, ...]) -> dict[str, Any]:
        return {
            "examples": self.labels.total(),
            "tokens": self.end,
            "labels": {name: self.labels[number] for number, name in enumerate(names)},
            "truncated": self.truncated,
            "unknown_tokens": self.unknown,
            "sha256": {column: file.hash.hexdigest() for column, file in self.files.items()},
        }


def encoded_splits(
    source: Source, divisions: dict[str, Division], tokenizer: EncoderTokenizer, *, folder: Path, meter: Meter
) -> dict[str, SplitFiles]:
    dtype = dtype_for(tokenizer.encoder.sizes["vocabulary"])
    meter.tell(stage="encoding")
    with contextlib.ExitStack() as stack:
        found: dict[str, SplitFiles] = {}
        for part, division in divisions.items():
            for split, examples, labels, source_bytes in batches(source.parts[part].read(), division):
                if split not in found:
                    columns = {}
                    for column in COLUMNS:
                        columns[column] = SplitFile(folder / column_file(split, column))
                        stack.callback(columns[column].close)
                    found[split] = SplitFiles(columns, dtype)
                tokens = found[split].append(tokenizer, examples, labels)
                meter.add(source_bytes=source_bytes, documents=len(examples), tokens=tokens)
    for split in ("train", "tune", "val", *divisions):
        if split not in found:
            place = source.parts[split].place if split in source.parts else source.parts["train"].place
            raise UserError(f"{place}: no labelled examples for {split}")
    return {split: found[split] for split in SPLITS if split in found}


def batches(
    examples: Iterable[Example], division: Division
) -> Iterator[tuple[str, list[tuple[str, ...]], list[int], int]]:
    """Split, texts, labels and bytes read, in the order of the part within each split."""
    rows = zip(examples, division.splits.tolist(), division.labels.tolist(), strict=True)
    while some := list(islice(rows, BATCH_EXAMPLES)):
        unread = sum(example.source_bytes for example, _, _ in some)
        for number, split in enumerate(SPLITS):
            chosen = [(example.texts, label) for example, at, label in some if at == number]
            if chosen:
                texts, labels = zip(*chosen, strict=True)
                yield split, list(texts), list(labels), unread
                unread = 0


def also_in_train(split: str, surveys: dict[str, Survey], divisions: dict[str, Division]) -> int:
    """How many examples of a split are, text for text, among the training examples that were taken."""

    def keys(split: str) -> np.ndarray:
        at = SPLITS.index(split)
        return np.concatenate([surveys[part].keys[division.splits == at] for part, division in divisions.items()])

    return 0 if split == "train" else int(np.isin(keys(split), keys("train")).sum())


def manifest_of(
    source: Source,
    settings: dict[str, Any],
    encoder: EncoderFolder,
    labels: tuple[str, ...],
    splits: dict[str, dict[str, Any]],
    divisions: dict[str, Division],
) -> dict[str, Any]:
    train = splits["train"]
    digests = {
        column_file(split, column): digest
        for split, entry in splits.items()
        for column, digest in entry["sha256"].items()
    }
    return {
        "kind": KIND,
        "format_version": FORMAT_VERSION,
        "task": source.task.name,
        "language": source.language,
        "labels": list(labels),
        "source": {
            part: {
                "place": source.parts[part].place,
                "identity": source.parts[part].identity,
                "examples": len(division.labels),
                "unlabelled_dropped": division.unlabelled,
                "empty_dropped": division.empty,
            }
            for part, division in divisions.items()
        },
        "encoding": settings["encoding"] or UTF8,
        "settings": settings,
        "split_rule": source.split_rule,
        "encoder": {
            "source": encoder.source,
            "revision": encoder.revision,
            "model_type": encoder.model_type,
            "has_weights": bool(encoder.weights),
            "pad_id": encoder.pad_id,
            "digest": encoder.digest,
        },
        "facts": encoder.sizes
        | {
            "labels": len(labels),
            "seq_len": settings["max_length"],
            "mean_length": round(train["tokens"] / train["examples"], 4),
        },
        "dtype": dtype_for(encoder.sizes["vocabulary"]).name,
        "byte_order": "little",
        "splits": splits,
        "digest": combined_digest(digests | {"encoder": encoder.digest}),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
