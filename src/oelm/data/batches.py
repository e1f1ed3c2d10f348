"""Which tokens a step sees: a pure function of (data seed, step), the same for every arm and any number of processes.

Training walks through shuffled windows of the token stream, each once per epoch; every epoch shifts the window grid,
so that no token is always first. Validation reads a fixed, evenly spaced set.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from oelm.core.seeding import seed_of


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
    """A permutation that later NumPy versions repeat: raw Philox bits are guaranteed, `permutation` is not."""
    raw = np.random.Philox(key=seed_of(seed, "order", epoch)).random_raw(windows)
    return np.argsort(raw, kind="stable")


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
