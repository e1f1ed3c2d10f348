"""From a corpus to token files: read, encode on all cores, write, in bounded memory.

A dataset is whole or absent, and the folder that it is asked for is looked at first.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from oelm.data import sentences
from oelm.data.corpora import Corpus, content_hash, held_out, is_empty, open_corpus, split_documents, split_rule
from oelm.data.encodings import UTF8, checked_encoding
from oelm.data.prepared import FORMAT_VERSION, MANIFEST, read_manifest
from oelm.data.readers import Document
from oelm.data.tasks import Source
from oelm.data.tokenizer import TRAINING_BYTES, Tokenizer, bpe_size, gpt2_tokenizer, sampled_texts, trained_bpe
from oelm.data.tokens import GPT2_VOCABULARY, SPLITS, TOKENIZER_FOLDER, file_name, open_tokens
from oelm.machine.errors import UserError
from oelm.machine.exhaustion import refuse_little_address_space
from oelm.machine.system import usable_cores
from oelm.storage.files import (
    DATA_FLOORS,
    DATA_MEMORY,
    combined_digest,
    ensure_writable,
    explaining_a_full_disk,
    write_json,
)
from oelm.storage.whole_folder import partial_folder, publish_folder

MOST_DOCUMENTS = 200_000  # of a part, its first: so many hashes are kept, however large the source is


class Overlap:
    """Watches a corpus go by, train first: do documents that are held out also stand in train?

    A loss on such text is no loss on unseen text. Only where the source itself has several parts: what is held out of
    train is chosen by content, twins together.
    """

    def __init__(self, corpus: Corpus) -> None:
        parts = [part for name, part in corpus.parts.items() if name != "train" and part.source_bytes is not None]
        texts = (document.text for part in parts for document in islice(part.read(), MOST_DOCUMENTS))
        self._held_out = {content_hash(text) for text in texts if not is_empty(text)}
        self._in_train: set[int] = set()
        self.counts: Counter[str] = Counter()  # split -> documents that are also in train

    def watched(self, documents: Iterator[tuple[str, Document]]) -> Iterator[tuple[str, Document]]:
        if not self._held_out:
            yield from documents
            return
        for split, document in documents:
            number = content_hash(document.text)
            if split == "train" and number in self._held_out:
                self._in_train.add(number)
            elif split != "train" and number in self._in_train:
                self.counts[split] += 1
            yield split, document


BATCH_CHARACTERS = 1 << 16
BATCHES_AHEAD_PER_WORKER = 4
# Rough sizes, to say what a full disk would have needed.
BYTES_PER_GPT2_TOKEN, BYTES_PER_BPE_TOKEN = 4.0, 2.5
GPT2_FILES_BYTES, BPE_ENTRY_BYTES = 1_500_000, 64


Report = Callable[["Preparation"], None]


@dataclass(frozen=True)
class Preparation:
    """How far a preparation is. `total_bytes` is None where the size of the source is unknown."""

    stage: str  # "training the tokenizer" | "encoding" | "prepared" | "already prepared"
    bytes_read: int = 0
    total_bytes: int | None = None
    documents: int = 0
    tokens: int = 0
    unit: str = "documents"


@dataclass
class Meter:
    """Where the preparation stands, told to whoever watches after every step."""

    report: Report
    progress: Preparation

    def tell(self, **changes: Any) -> None:
        self.progress = replace(self.progress, **changes)
        self.report(self.progress)

    def add(self, *, source_bytes: int, documents: int = 0, tokens: int = 0) -> None:
        now = self.progress
        self.tell(
            bytes_read=now.bytes_read + source_bytes, documents=now.documents + documents, tokens=now.tokens + tokens
        )


@dataclass
class Batch:
    """Documents of one split that are encoded together."""

    split: str
    texts: list[str] = field(default_factory=list)
    characters: int = 0
    source_bytes: int = 0
    empty: int = 0
    crlf: int = 0

    def add(self, document: Document) -> None:
        self.source_bytes += document.source_bytes
        self.crlf += document.crlf
        if is_empty(document.text):
            self.empty += 1
        else:
            self.texts.append(document.text)
            self.characters += len(document.text)


class SplitFile:
    """One token file while it grows, hashed as it is written."""

    def __init__(self, path: Path):
        self.stream = open(path, "wb")  # noqa: SIM115 (closed by `close`)
        self.hash = hashlib.sha256()
        self.counts = {"documents": 0, "empty_dropped": 0, "crlf_line_ends": 0, "tokens": 0, "text_bytes": 0}

    def append(self, tokens: np.ndarray, **counts: int) -> None:
        self.stream.write(tokens.data)
        self.hash.update(tokens.data)
        for name, count in ({"tokens": len(tokens)} | counts).items():
            self.counts[name] += count

    def close(self) -> None:
        with self.stream:
            self.stream.flush()
            os.fsync(self.stream.fileno())

    def entry(self) -> dict[str, Any]:
        return self.counts | {"sha256": self.hash.hexdigest()}


def prepare(
    source: str,
    *,
    out: Path,
    tokenizer: str | None = None,
    source_path: Path | None = None,
    gpt2_folder: Path | None = None,
    stories: int = 20_000,
    seed: int = 0,
    workers: int | None = None,
    encoding: str | None = None,
    column: str | None = None,
    force: bool = False,
    progress: Report | None = None,
) -> dict[str, Any]:
    """Make the dataset `out` and return its manifest; where it is already there with the same settings, just return.

    `source` is a corpus name or the path of a text file or folder. `tokenizer` is gpt2 or bpe:N; by default bpe:1024
    for the embedded stories and gpt2 for all else. `stories` and `seed` matter to the embedded stories alone,
    `encoding` to text, tables and JSON lines in local files, `column` to those whose rows have columns.
    """
    tokenizer = tokenizer or ("bpe:1024" if source == "stories" else "gpt2")
    bpe_size(tokenizer)
    workers = checked_workers(workers)
    out = Path(os.path.realpath(out))
    encoding = checked_encoding(encoding)
    corpus = open_corpus(source, source_path=source_path, stories=stories, seed=seed, encoding=encoding, column=column)
    settings = {"corpus": corpus.name, "source": corpus.identity, "tokenizer": tokenizer, "encoding": encoding}
    settings |= {} if column is None else {"column": column}
    meter = Meter(progress or (lambda _: None), Preparation("encoding", total_bytes=total_bytes(corpus)))
    existing = existing_dataset(out, settings, force=force)
    if existing is not None:
        meter.tell(stage="already prepared")
        return existing
    ensure_writable(out.parent)
    refuse_little_address_space(200 * 2**20, "tokenizers")
    try:
        with partial_folder(out) as folder:
            made = made_tokenizer(tokenizer, corpus, gpt2_folder=gpt2_folder, meter=meter)
            made.save(folder / TOKENIZER_FOLDER)
            splits = encoded_splits(corpus, made, folder=folder, workers=workers, meter=meter)
            manifest = manifest_of(corpus, settings, made, splits)
            write_json(folder / MANIFEST, manifest)
            publish_folder(folder, out)
    except OSError:
        with explaining_a_full_disk(out.parent, needed_bytes=expected_bytes(meter.progress, tokenizer)):
            raise
    meter.tell(stage="prepared")
    return manifest


def checked_workers(workers: int | None) -> int:
    if workers is None:
        return usable_cores()
    if workers < 1:
        raise UserError(f"workers: {workers} is too few; give at least 1, or leave it out to use every core")
    return workers


def total_bytes(corpus: Corpus | Source) -> int | None:
    sizes = [part.source_bytes for part in corpus.parts.values()]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def expected_bytes(progress: Preparation, tokenizer: str) -> int:
    """Size of the finished dataset: extrapolated from what was written, guessed before that."""
    size = bpe_size(tokenizer)
    item = dtype_for(size or GPT2_VOCABULARY).itemsize
    tokens = progress.tokens
    if tokens and progress.total_bytes:
        tokens = max(tokens, tokens * progress.total_bytes // progress.bytes_read)
    elif progress.total_bytes:
        tokens = int(progress.total_bytes / (BYTES_PER_GPT2_TOKEN if size is None else BYTES_PER_BPE_TOKEN))
    return tokens * item + (GPT2_FILES_BYTES if size is None else size * BPE_ENTRY_BYTES)


def manifest_of(
    corpus: Corpus, settings: dict[str, Any], tokenizer: Tokenizer, splits: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        "corpus": corpus.name,
        "source": corpus.description,
        "encoding": settings["encoding"] or UTF8,
        "settings": settings,
        "split_rule": split_rule(corpus),
        "ignored_files": list(corpus.ignored[:100]),
        "tokenizer": tokenizer.name,
        "tokenizer_training_bytes_at_most": None if tokenizer.name == "gpt2" else TRAINING_BYTES,
        "vocabulary": tokenizer.vocabulary,
        "dtype": dtype_for(tokenizer.vocabulary).name,
        "byte_order": "little",
        "end_of_text": tokenizer.end_of_text,
        "splits": splits,
        "digest": combined_digest({file_name(split): entry["sha256"] for split, entry in splits.items()}),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


# --- the text ---------------------------------------------------------------------------------------------------


def made_tokenizer(name: str, corpus: Corpus, *, gpt2_folder: Path | None, meter: Meter) -> Tokenizer:
    size = bpe_size(name)
    if size is None:
        return gpt2_tokenizer(gpt2_folder)
    whole = meter.progress
    meter.tell(stage="training the tokenizer", total_bytes=min(TRAINING_BYTES, whole.total_bytes or TRAINING_BYTES))
    texts = (
        document.text
        for split, document in metered(split_documents(corpus, held_out(corpus)), meter)
        if split == "train"
    )
    made = trained_bpe(sampled_texts(texts), size)
    meter.progress = whole
    return made


def metered(documents: Iterator[tuple[str, Document]], meter: Meter) -> Iterator[tuple[str, Document]]:
    unreported = 0
    for split, document in documents:
        yield split, document
        unreported += document.source_bytes
        if unreported >= BATCH_CHARACTERS:
            meter.add(source_bytes=unreported)
            unreported = 0


def encoded_splits(
    corpus: Corpus, tokenizer: Tokenizer, *, folder: Path, workers: int, meter: Meter
) -> dict[str, dict[str, Any]]:
    """Write the token files and say what is in them."""
    overlap = Overlap(corpus)
    documents = overlap.watched(split_documents(corpus, held_out(corpus)))
    with contextlib.ExitStack() as stack:
        files: dict[str, SplitFile] = {}
        for batch, (tokens, text_bytes) in encoded_batches(documents, tokenizer, workers=workers):
            if batch.split not in files:
                files[batch.split] = SplitFile(folder / file_name(batch.split))
                stack.callback(files[batch.split].close)
            file = files[batch.split]
            file.append(
                tokens,
                documents=len(batch.texts),
                empty_dropped=batch.empty,
                crlf_line_ends=batch.crlf,
                text_bytes=text_bytes,
            )
            meter.add(source_bytes=batch.source_bytes, documents=len(batch.texts), tokens=len(tokens))
    for split in ("train", "tune", "val", *files):
        if split not in files or not files[split].counts["documents"]:
            raise UserError(f"{corpus.description}: no text for {split}; give more, or files named train, tune and val")
    return {
        split: files[split].entry() | {"also_in_train": overlap.counts[split]} for split in SPLITS if split in files
    }


def encoded_batches(
    documents: Iterator[tuple[str, Document]], tokenizer: Tokenizer, *, workers: int
) -> Iterator[tuple[Batch, tuple[np.ndarray, int]]]:
    """Batches with their tokens in the order of the text; a bounded number is under way at any time."""
    dtype = dtype_for(tokenizer.vocabulary)
    under_way: deque[tuple[Batch, Future[tuple[np.ndarray, int]]]] = deque()
    pool = ThreadPoolExecutor(workers)  # threads: encoding leaves Python's lock
    try:
        for batch in batches(documents):
            under_way.append((batch, pool.submit(encoded, batch.texts, tokenizer, dtype)))
            if len(under_way) > workers * BATCHES_AHEAD_PER_WORKER:
                batch, future = under_way.popleft()
                yield batch, future.result()
        for batch, future in under_way:
            yield batch, future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def batches(documents: Iterator[tuple[str, Document]]) -> Iterator[Batch]:
    filling: dict[str, Batch] = {}
    for split, document in documents:
        batch = filling.get(split) or filling.setdefault(split, Batch(split))
        batch.add(document)
        if batch.characters >= BATCH_CHARACTERS:
            yield filling.pop(split)
    yield from filling.values()


def encoded(texts: list[str], tokenizer: Tokenizer, dtype: np.dtype) -> tuple[np.ndarray, int]:
    text_bytes = sum(len(text) if text.isascii() else len(text.encode()) for text in texts)
    return tokenizer.encode_documents(texts).astype(dtype), text_bytes


def dtype_for(vocabulary: int) -> np.dtype:
    return np.dtype("<u2" if vocabulary <= 1 << 16 else "<u4")


# ---- What lies in a folder already ---------------------------------------------------------------------------------


OPENERS = {"text": open_tokens, sentences.KIND: sentences.open_sentences}
OUR_FILES = {
    MANIFEST,
    DATA_FLOORS,
    DATA_MEMORY,
    TOKENIZER_FOLDER,
    *(file_name(split) for split in SPLITS),
    *(sentences.column_file(split, column) for split in SPLITS for column in sentences.COLUMNS),
}


def existing_dataset(out: Path, settings: dict[str, Any], *, force: bool, kind: str = "text") -> dict[str, Any] | None:
    """The manifest of what lies in `out` if that is what is asked for; None if `out` is free to be written."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: is a file; --out takes a folder")
    if os.path.ismount(out):
        raise UserError(f"{out}: is a mount point, which cannot be replaced as a whole; choose a folder inside it")
    contents = {entry.name for entry in out.iterdir()} if out.exists() else set()
    if not contents:
        return None
    if MANIFEST not in contents or (force and contents - OUR_FILES):
        example = min(contents - OUR_FILES, default=MANIFEST)
        raise UserError(
            f"{out}: contains files that are not prepared data ({example}); choose another folder with --out"
        )
    if force:
        return None
    manifest = read_manifest(out)
    there_kind, there = manifest.get("kind", "text"), manifest.get("settings", {})
    if there_kind != kind:
        raise UserError(f"{out}: contains prepared {there_kind}, not {kind}; choose another --out or add --force")
    different = []
    for key, value in settings.items():
        before, now = ("the default" if each is None else each for each in (there.get(key), value))
        if before != now:
            different.append(f"{key} is {before}, not {now}")
    if there.get("source") != settings.get("source"):
        different.append("a file counts as different when its name, size or modification time differs")
    if different:
        raise UserError(
            f"{out}: contains another dataset ({'; '.join(different)}); choose another --out or add --force"
        )
    OPENERS[kind](out)  # finds a file that was cut short since
    return manifest
