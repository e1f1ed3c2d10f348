"""The floor of text: the losses of a unigram and of an interpolated bigram, fitted on the training tokens, on exactly
the windows that a run reports, and how much of these also stands in train. Kept beside the manifest for whoever asks
next, never part of the data's digest.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from oelm.core.config import GptRun, ResolvedRun
from oelm.core.floors import BIGRAM, SEEN, UNIGRAM
from oelm.core.probes.probe import is_probe, probe_of
from oelm.data.batches import ValidationSequences
from oelm.data.prepared import digest_here
from oelm.data.sentences import SentenceData
from oelm.data.tokens import TokenData, open_tokens
from oelm.machine.errors import UserError
from oelm.storage.files import DATA_FLOORS, read_sealed, write_sealed

FORMAT_VERSION = 1
BIGRAM_WEIGHT = 0.8  # of how often a token followed the one before it; the rest is how often it occurred at all
CHUNK_TOKENS = 1 << 22
KEPT = (UNIGRAM, BIGRAM, SEEN)

Losses = dict[str, float]


def floor_of(data: object, run: ResolvedRun) -> Losses:
    """Of the windows that a run reports, to be stored with its result. Of sentences, how many were trained on; nothing
    of a probe."""
    if isinstance(data, SentenceData):
        return {SEEN: _whole_copies(data.manifest, run.training.validation_split, "examples")}
    if not isinstance(data, TokenData) or not isinstance(run, GptRun):
        return {}
    windows = _windows(run)
    found = _kept(data, windows)
    if found is None:
        found = fitted(data, **windows)
        _keep(data, windows, found)
    return found


def floor_here(run: ResolvedRun, *, digest: str | None) -> dict[str, Any]:
    """What a result of the run would say of its floor, for a reader, who writes nothing. Of text: nothing where the
    data with this digest are not here."""
    if is_probe(run.data):
        probe = probe_of(run.data)
        in_context = {str(each): chance for each, chance in probe.chances_in_context.items()}
        return {"chance_blind": probe.blind_chance, "chance_in_context": in_context}
    if not isinstance(run, GptRun):
        return {}
    path = Path(run.data)
    here = digest_here(path)
    if here is None or digest not in (None, here):
        return {}
    try:
        return dict(_read(path, here, **_windows(run)))
    except (OSError, UserError):
        return {}


@functools.lru_cache(maxsize=64)
def _read(path: Path, digest: str, **windows: Any) -> Losses:
    data = open_tokens(path)
    return _kept(data, windows) or fitted(data, **windows)


def windows_of(run: ResolvedRun) -> tuple[object, ...]:
    """What the floor of a run depends on."""
    return run.data, *(_windows(run).items() if isinstance(run, GptRun) else ())


def _windows(run: GptRun) -> dict[str, Any]:
    training = run.training
    return {
        "split": training.validation_split,
        "seq_len": run.model.seq_len,
        "sequences": training.final_validation_sequences,
    }


# ---- What was found before -----------------------------------------------------------------------------------------


def _stored(data: TokenData) -> list[dict[str, Any]]:
    """Of these data and this weight; a file that is missing, damaged or of other data costs another fit."""
    try:
        tree = read_sealed(data.folder / DATA_FLOORS)
    except (OSError, UserError):
        return []
    is_of_these = tree.get("digest") == data.digest and tree.get("bigram_weight") == BIGRAM_WEIGHT
    floors = tree.get("floors") if is_of_these and tree.get("format_version") == FORMAT_VERSION else None
    return floors if isinstance(floors, list) and all(isinstance(each, dict) for each in floors) else []


def _kept(data: TokenData, windows: dict[str, Any]) -> Losses | None:
    for each in _stored(data):
        losses = {name: each.get(name) for name in KEPT}
        if each | windows == each and all(isinstance(loss, float) for loss in losses.values()):
            return {name: float(loss) for name, loss in losses.items() if loss is not None}
    return None


def _keep(data: TokenData, windows: dict[str, Any], losses: Losses) -> None:
    if data.manifest is None:
        return  # a folder that is not ours
    others = [each for each in _stored(data) if each | windows != each]
    tree = {"format_version": FORMAT_VERSION, "digest": data.digest, "bigram_weight": BIGRAM_WEIGHT}
    with contextlib.suppress(OSError, UserError):
        write_sealed(data.folder / DATA_FLOORS, tree | {"floors": [*others, windows | losses]})


# ---- The tables ----------------------------------------------------------------------------------------------------


def fitted(data: TokenData, *, split: str, seq_len: int, sequences: int) -> Losses:
    """The losses in nats per token; every token of the vocabulary counts once more than it occurs, so that none is
    impossible."""
    if split not in data.splits:
        raise UserError(f"{data.folder}: has no split {split}")
    train, vocabulary = data.splits["train"], int(data.facts["vocabulary"])
    windows = ValidationSequences(data.splits[split], seq_len, sequences)
    if not len(windows):
        raise UserError(f"{data.folder}: {split} has no window of {seq_len} tokens")
    rows = windows.rows(range(len(windows)))
    pairs, times = np.unique(rows[:, :-1] * vocabulary + rows[:, 1:], return_counts=True)
    before, after = np.divmod(pairs, vocabulary)
    counts, together = _counted(train, pairs, vocabulary)
    unigram = (counts[after] + 1) / (len(train) + vocabulary)
    followed = counts[before] - (before == train[-1])  # the last token is followed by nothing
    conditional = np.where(followed > 0, together / np.maximum(followed, 1), unigram)
    bigram = BIGRAM_WEIGHT * conditional + (1 - BIGRAM_WEIGHT) * unigram
    probabilities = {UNIGRAM: unigram, BIGRAM: bigram}
    losses = {name: math.fsum((-np.log(p) * times).tolist()) / int(times.sum()) for name, p in probabilities.items()}
    passages = share_in_train(train, data.splits[split], windows.starts(range(len(windows))), seq_len)
    return losses | {SEEN: max(passages, _whole_copies(data.manifest, split, "documents"))}


def _whole_copies(manifest: dict[str, Any] | None, split: str, unit: str) -> float:
    """The share of documents or examples of a split that are in train as a whole, as they were counted when the data
    were prepared. A document may be shorter than a passage."""
    entry = manifest["splits"].get(split, {}) if manifest else {}
    copies, of = entry.get("also_in_train"), entry.get(unit)
    return copies / of if isinstance(copies, int) and isinstance(of, int) and of else 0.0


def _counted(train: np.ndarray, pairs: np.ndarray, vocabulary: int) -> tuple[np.ndarray, np.ndarray]:
    """How often each token occurs, and each of these sorted pairs: all pairs of a large text are too many."""
    counts, together = np.zeros(vocabulary, dtype=np.int64), np.zeros(len(pairs), dtype=np.int64)
    for start in range(0, len(train), CHUNK_TOKENS):
        chunk = train[start : start + CHUNK_TOKENS + 1].astype(np.int64)
        counts += np.bincount(chunk[:CHUNK_TOKENS], minlength=vocabulary)
        seen = np.sort(chunk[:-1] * vocabulary + chunk[1:])
        together += np.searchsorted(seen, pairs, "right") - np.searchsorted(seen, pairs, "left")
    return counts, together


# ---- What also stands in train -------------------------------------------------------------------------------------
# Read from the tokens themselves, whoever made them: passages of PASSAGE tokens that begin in the reported windows,
# found word for word in train. Shorter ones recur by chance, in invented stories above all: 26 % of those of 32 tokens
# with the tokenizer bpe:300, and 0.5 % of these.

PASSAGE = 64  # tokens; a power of two
SIEVE_BITS = 22  # a table that most passages of train fall through, before they are looked for
_BASE = 0x9E3779B97F4A7C15  # odd: of a polynomial modulo 2^64


def share_in_train(train: np.ndarray, held_out: np.ndarray, starts: Sequence[int], length: int) -> float:
    """Of the passages that begin in windows of this length; 0 where there is none."""
    windows = [held_out[start : start + length + PASSAGE - 1] for start in starts]
    numbers = np.concatenate([np.empty(0, dtype=np.uint64), *map(_numbers, windows)])
    wanted, times = np.unique(numbers, return_counts=True)
    if not len(wanted):
        return 0.0
    sieve = np.zeros(1 << SIEVE_BITS, dtype=bool)
    sieve[_sieved(wanted)] = True
    is_seen = np.zeros(len(wanted), dtype=bool)
    for start in range(0, len(train), CHUNK_TOKENS):
        passages = _numbers(train[start : start + CHUNK_TOKENS + PASSAGE - 1])
        maybe = passages[sieve[_sieved(passages)]]
        places = np.minimum(np.searchsorted(wanted, maybe), len(wanted) - 1)
        is_seen[places[wanted[places] == maybe]] = True
    return float(times[is_seen].sum() / times.sum())


def _sieved(numbers: np.ndarray) -> np.ndarray:
    return numbers >> np.uint64(64 - SIEVE_BITS)


def _numbers(tokens: np.ndarray) -> np.ndarray:
    """One for every passage, by doubling: equal passages have equal ones, and other ones hardly ever."""
    numbers = (tokens.astype(np.uint64) + np.uint64(1)) * np.uint64(_BASE)  # all over the range, as tokens are not
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers, length, factor = numbers ^ (numbers >> np.uint64(31)), 1, _BASE
    while length < PASSAGE:
        numbers = numbers[:-length] * np.uint64(factor) + numbers[length:]
        length, factor = 2 * length, factor * factor % 2**64
    return numbers
