"""Which tokens a step sees: a pure function of (data seed, step), the same for every arm and any number of processes.

Of text, training walks through shuffled windows of the token stream, each once per epoch; every epoch shifts the
window grid, so that no token is always first. Validation reads a fixed, evenly spaced set.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from oelm.core.seeding import seed_of
from oelm.data.sentences import Sentences
from oelm.machine.errors import UserError


@dataclass(frozen=True)
class TrainingBatches:
    tokens: np.ndarray
    seq_len: int
    batch_size: int
    seed: int

    @property
    def windows(self) -> int:
        """Windows of one epoch: one less than fit, so that the grid has room to shift."""
        return max(1, (len(self.tokens) - 1) // self.seq_len - 1)

    def rows(self, step: int, members: range) -> np.ndarray:
        """Sequences `members` of update `step` (the first is 1), each seq_len + 1 tokens."""
        first = (step - 1) * self.batch_size
        starts = [self._start(first + member) for member in members]
        return _sequences(self.tokens, starts, self.seq_len)

    def _start(self, index: int) -> int:
        epoch, place = divmod(index, self.windows)
        slack = len(self.tokens) - 1 - self.windows * self.seq_len
        shift = seed_of(self.seed, "shift", epoch) % (slack + 1)
        return shift + int(_order(self.seed, epoch, self.windows)[place]) * self.seq_len


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, windows: int) -> np.ndarray:
    return _shuffled(windows, seed_of(seed, "order", epoch))


@dataclass(frozen=True)
class ValidationSequences:
    tokens: np.ndarray
    seq_len: int
    wanted: int

    def __len__(self) -> int:
        return min(self.wanted, self.available)

    @property
    def available(self) -> int:
        return (len(self.tokens) - 1) // self.seq_len

    def starts(self, members: range) -> list[int]:
        return [member * self.available // len(self) * self.seq_len for member in members]

    def rows(self, members: range) -> np.ndarray:
        return _sequences(self.tokens, self.starts(members), self.seq_len)


def _sequences(tokens: np.ndarray, starts: list[int], seq_len: int) -> np.ndarray:
    return np.stack([tokens[start : start + seq_len + 1] for start in starts]).astype(np.int64)


# ---- Labelled sentences --------------------------------------------------------------------------------------------
# Every epoch is shuffled anew; within groups of some batches, examples of similar length are put together, so that
# little is computed for padding, and the batches of the epoch are shuffled again. What does not fill a batch is left
# out of its epoch.

BATCHES_PER_GROUP = 50


@dataclass(frozen=True, eq=False)
class SentenceBatches:
    sentences: Sentences
    batch_size: int
    seed: int

    def __post_init__(self) -> None:
        if self.batch_size > len(self.sentences):
            raise UserError(
                f"training.batch_size: {self.batch_size} is more than the {len(self.sentences)} training examples"
            )

    @property
    def per_epoch(self) -> int:
        return len(self.sentences) // self.batch_size

    def indices(self, step: int) -> np.ndarray:
        """The examples of update `step` (the first is 1), the longest first."""
        epoch, place = divmod(step - 1, self.per_epoch)
        batch: np.ndarray = self._epoch(epoch)[place]
        return batch

    def tokens_after(self, step: int) -> int:
        """Tokens of the updates 1 to `step`, padding left out."""
        epochs, rest = divmod(step, self.per_epoch)
        whole = sum(int(self._tokens(epoch)[-1]) for epoch in range(epochs))
        return whole + (int(self._tokens(epochs)[rest - 1]) if rest else 0)

    @lru_cache(maxsize=2)  # noqa: B019 - lives as long as its run
    def _epoch(self, epoch: int) -> np.ndarray:
        order = _shuffled(len(self.sentences), seed_of(self.seed, "order", epoch))
        size = BATCHES_PER_GROUP * self.batch_size
        lengths = self.sentences.lengths
        groups = [order[first : first + size] for first in range(0, len(order), size)]
        grouped = np.concatenate([group[np.argsort(-lengths[group], kind="stable")] for group in groups])
        batches = grouped[: self.per_epoch * self.batch_size].reshape(self.per_epoch, self.batch_size)
        shuffled: np.ndarray = batches[_shuffled(self.per_epoch, seed_of(self.seed, "batches", epoch))]
        return shuffled

    @lru_cache(maxsize=64)  # noqa: B019
    def _tokens(self, epoch: int) -> np.ndarray:
        return np.cumsum(self.sentences.lengths[self._epoch(epoch)].sum(axis=1))


def _shuffled(count: int, seed: int) -> np.ndarray:
    """A permutation that later NumPy versions repeat: raw Philox bits are guaranteed, `permutation` is not."""
    return np.argsort(np.random.Philox(key=seed).random_raw(count), kind="stable")


def evenly_spaced(available: int, wanted: int) -> np.ndarray:
    """So many of the examples, or all of them."""
    count = min(wanted, available)
    return np.arange(count) * available // count


def padded(sentences: Sentences, indices: np.ndarray, *, padding: int, token_types: bool) -> dict[str, np.ndarray]:
    """A batch as a model takes it: ids, where they are no padding, and to which of two sentences they belong."""
    lengths = sentences.lengths[indices]
    shape = len(indices), int(lengths.max())
    places = np.arange(shape[1])
    batch = {
        "input_ids": np.full(shape, padding, dtype=np.int64),
        "attention_mask": (places < lengths[:, None]).astype(np.int64),
    }
    for row, index in enumerate(indices):
        batch["input_ids"][row, : lengths[row]] = sentences.example(index)
    if token_types:
        second = places >= sentences.seconds[indices][:, None]
        batch["token_type_ids"] = (second & (batch["attention_mask"] == 1)).astype(np.int64)
    return batch
