"""From labelled sentences to the ids of one encoder: survey, divide, encode, write.

Everything is read twice: once to find what is wrong and to divide the examples, once to encode them. So memory holds
hashes and labels, never all texts. A dataset is whole or absent: prepare.py says how.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from oelm.data.corpora import content_hash, is_empty
from oelm.data.encodings import UTF8, checked_encoding
from oelm.data.prepare import Meter, Preparation, Report, SplitFile, dtype_for, existing_dataset, total_bytes
from oelm.data.prepared import FORMAT_VERSION, MANIFEST
from oelm.data.sentences import COLUMNS, KIND, column_file
from oelm.data.tasks import ENTAILMENT, SENTIMENT, TUNE_SHARE, TUNE_TEXTS, Example, Source, SourcePart, Task, open_task
from oelm.data.tokenizer import save_files
from oelm.data.tokens import SPLITS, TOKENIZER_FOLDER
from oelm.machine.errors import UserError, first_line
from oelm.models.encoder_folder import TOKENIZER_FILES, EncoderFolder, open_encoder
from oelm.models.model_folder import TOKENIZER_FILE, converted
from oelm.storage.files import combined_digest, ensure_writable, explaining_a_full_disk, write_json
from oelm.storage.whole_folder import partial_folder, publish_folder

# ---- The encoder's own tokenizer -----------------------------------------------------------------------------------
# Read by the library `tokenizers` from tokenizer.json; transformers is needed only where there are older files alone.

UNKNOWN = ("[UNK]", "<unk>")
SMALLEST_TEXT = 4  # tokens of each text that must fit beside the special ones
Texts = tuple[str, ...]  # one or two


class Encoded(NamedTuple):
    """Some examples: all their ids, and for each its length, where its second text begins, whether it was cut."""

    ids: np.ndarray
    lengths: np.ndarray
    seconds: np.ndarray
    truncated: np.ndarray
    unknown: int  # tokens that stand for what the vocabulary lacks


@dataclass(frozen=True)
class EncoderTokenizer:
    encoder: EncoderFolder
    model: Any  # tokenizers.Tokenizer
    files: dict[str, bytes]  # as they are stored beside the data

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.files[TOKENIZER_FILE]).hexdigest()

    @property
    def file_bytes(self) -> int:
        return sum(map(len, self.files.values()))

    @property
    def unknown_ids(self) -> list[int]:
        numbers = map(self.model.token_to_id, UNKNOWN)
        return [number for number in numbers if number is not None]

    def limited_to(self, max_length: int, *, pairs: bool) -> EncoderTokenizer:
        """Cut examples longer than this, the longer text first; padding is left to the batches."""
        special = self.model.num_special_tokens_to_add(pairs)
        if not special:
            raise UserError(f"{self.encoder.folder}: its tokenizer adds no special tokens; an encoder needs them")
        needed, longest = special + SMALLEST_TEXT * (1 + pairs), self.encoder.longest_input
        if not needed <= max_length <= longest:
            raise UserError(f"max-length {max_length}: this encoder and task take {needed} to {longest} tokens")
        self.model.no_padding()
        self.model.enable_truncation(max_length, strategy="longest_first")
        return self

    def encode(self, examples: Sequence[Texts]) -> Encoded:
        inputs = [texts[0] if len(texts) == 1 else texts for texts in examples]
        encodings = self.model.encode_batch_fast(inputs)  # no places in the text
        lengths = np.fromiter(map(len, encodings), np.int64, len(encodings))
        ids = np.fromiter((number for each in encodings for number in each.ids), np.uint32, lengths.sum())
        encoded = Encoded(
            ids=ids,
            lengths=lengths,
            seconds=np.fromiter(map(second_start, encodings), np.int32, len(encodings)),
            truncated=np.fromiter((bool(each.overflowing) for each in encodings), bool, len(encodings)),
            unknown=int(np.isin(ids, self.unknown_ids).sum()),
        )
        self._check(encodings, encoded)
        return encoded

    def _check(self, encodings: list[Any], encoded: Encoded) -> None:
        sizes = self.encoder.sizes
        if len(encoded.ids) and encoded.ids.max() >= sizes["vocabulary"]:
            raise UserError(
                f"{self.encoder.folder}: its tokenizer makes token {encoded.ids.max()}, "
                f"but its config.json has a vocabulary of {sizes['vocabulary']}"
            )
        if sizes["token_types"] < 2:
            return
        for encoding, second in zip(encodings, encoded.seconds, strict=True):
            if sum(encoding.type_ids) != len(encoding) - second:
                raise UserError(
                    f"{self.encoder.folder}: its tokenizer does not mark the second text by segment 1, "
                    "as an encoder with token types needs it"
                )


def second_start(encoding: Any) -> int:
    """After the special tokens between the texts; the example's length if there is one text."""
    length = len(encoding)
    if encoding.n_sequences < 2:
        return length
    sequences = encoding.sequence_ids
    return sequences.index(1) if 1 in sequences else length - 1  # a text without a token: only its end is left


def encoder_tokenizer(encoder: EncoderFolder) -> EncoderTokenizer:
    folder = encoder.folder
    files = {name: (folder / name).read_bytes() for name in TOKENIZER_FILES if (folder / name).is_file()}
    if TOKENIZER_FILE not in files:
        files[TOKENIZER_FILE] = converted(folder)
    from tokenizers import Tokenizer

    try:
        model = Tokenizer.from_str(files[TOKENIZER_FILE].decode())
    except Exception as error:  # the library raises bare Exception
        raise UserError(f"{folder / TOKENIZER_FILE}: not readable as a tokenizer ({first_line(error)})") from error
    return EncoderTokenizer(encoder, model, files)


# ---- Which example goes into which split ---------------------------------------------------------------------------
# Every choice is a pure function of the texts. What is held out of train or halved goes by the hash of the first text,
# so that the pairs of one premise stay together; a training subset is the first N in the order of the hash of the whole
# example, so that a smaller subset lies within a larger one, whatever the seed. Subsets are not balanced.

OTHER_NAMES = {"contradictory": "contradiction"}  # as XNLI's translated training files write it
UNLABELLED = "-"  # where MNLI's annotators did not agree
MOST_LABELS = 1_000


@dataclass(frozen=True, eq=False)
class Survey:
    """What a first reading of a part finds; one entry an example."""

    place: str
    written_labels: list[str]
    lines: np.ndarray
    keys: np.ndarray  # hashes of the whole examples
    first_keys: np.ndarray  # of their first texts
    empty: np.ndarray  # whether a text is blank

    def __len__(self) -> int:
        return len(self.lines)


@dataclass(frozen=True, eq=False)
class Division:
    """Which examples of a part go into which split, by their place in SPLITS; -1: into none."""

    labels: np.ndarray
    splits: np.ndarray
    unlabelled: int
    empty: int


def surveyed(part: SourcePart) -> Survey:
    known: dict[str, str] = {}  # a label is kept once, not once an example
    labels: list[str] = []
    lines, keys, first_keys, empty = array("q"), array("Q"), array("Q"), array("b")
    for example in part.read():
        labels.append(known.setdefault(example.label, example.label))
        lines.append(example.line)
        keys.append(content_hash("\t".join(example.texts)))
        first_keys.append(content_hash(example.texts[0]))
        empty.append(any(map(is_empty, example.texts)))
    if not labels:
        raise UserError(f"{part.place}: contains no examples")
    numbers = [np.frombuffer(column, dtype=column.typecode) for column in (lines, keys, first_keys)]
    return Survey(part.place, labels, numbers[0], numbers[1], numbers[2], np.frombuffer(empty, bool))


def label_names(task: Task, train: Survey) -> tuple[str, ...]:
    """The task's, or else those of the training examples: numbers by value, known names as known, others by name."""
    if task.labels is not None:
        return task.labels
    found = set(train.written_labels) - {UNLABELLED}
    if not 2 <= len(found) <= MOST_LABELS:
        raise UserError(f"{train.place}: {len(found)} different labels; a task has 2 to {MOST_LABELS}")
    if all(re.fullmatch(r"-?[0-9]+", label) for label in found):
        return tuple(sorted(found, key=int))
    for known in (ENTAILMENT, SENTIMENT):
        if found <= set(known):
            return tuple(label for label in known if label in found)
    return tuple(sorted(found))


def label_numbers(task: Task, survey: Survey, names: tuple[str, ...]) -> np.ndarray:
    """Each example's place among the names; -1 for one without a label."""
    numbers = {name: number for number, name in enumerate(names)} | {UNLABELLED: -1}
    if task.labels is not None:  # the published files write numbers too, and -1 for none
        numbers |= {str(number): number for number in range(-1, len(names))}
        numbers |= {other: numbers[name] for other, name in OTHER_NAMES.items() if name in numbers}
    unknown = set(survey.written_labels) - set(numbers)
    if unknown:
        at = next(place for place, label in enumerate(survey.written_labels) if label in unknown)
        where, label = f"{survey.place}, line {survey.lines[at]}", survey.written_labels[at]
        raise UserError(f"{where}: label {label!r:.60} is not one of {', '.join(names)}")
    return np.fromiter((numbers[label] for label in survey.written_labels), np.int16, len(survey))


def divided(
    source: Source, surveys: dict[str, Survey], names: tuple[str, ...], *, train_examples: int | None = None
) -> dict[str, Division]:
    """For each part of the source, which of its examples go where."""
    divisions = {}
    for part, survey in surveys.items():
        labels = label_numbers(source.task, survey, names)
        usable = (labels >= 0) & ~survey.empty
        splits = np.where(usable, SPLITS.index(part), -1).astype(np.int8)
        lower = 0
        for split in held_out_of(part, source):
            bound = held_out_bound(source, survey, usable, above=lower)
            splits[usable & (lower <= survey.first_keys) & (survey.first_keys < bound)] = SPLITS.index(split)
            lower = bound
        if part == "train" and train_examples is not None:
            splits[left_out(survey, splits == SPLITS.index("train"), train_examples)] = -1
        divisions[part] = Division(
            labels, splits, unlabelled=int((labels < 0).sum()), empty=int((survey.empty & (labels >= 0)).sum())
        )
    return divisions


def held_out_of(part: str, source: Source) -> list[str]:
    """The splits that the source lacks and that come of this part of it."""
    halved = source.task.val_is_halved
    found = ["tune"] if "tune" not in source.parts and part == ("val" if halved else "train") else []
    return [*found, "val"] if "val" not in source.parts and part == "train" else found


def held_out_bound(source: Source, survey: Survey, usable: np.ndarray, *, above: int = 0) -> int:
    """First texts whose hash lies below, and not below `above`, leave the part."""
    hashes = np.unique(survey.first_keys[usable])
    share = 0.5 if source.task.val_is_halved else min(TUNE_SHARE, TUNE_TEXTS / max(1, len(hashes)))
    end = int((hashes < above).sum()) + max(1, round(share * len(hashes)))
    if len(hashes) <= end:
        raise UserError(
            f"{survey.place}: {len(hashes)} different texts are too few to hold some out for tuning; add a tune file"
        )
    return int(hashes[end])


def left_out(survey: Survey, train: np.ndarray, wanted: int) -> np.ndarray:
    """Places of the training examples beyond the first `wanted` in the order of their hashes."""
    places = np.flatnonzero(train)
    if not 1 <= wanted <= len(places):
        raise UserError(f"train-examples {wanted}: {survey.place} has 1 to {len(places)} to choose from")
    return places[np.argsort(survey.keys[places], kind="stable")[wanted:]]


# ---- The files -----------------------------------------------------------------------------------------------------

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
