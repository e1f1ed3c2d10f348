"""Random numbers for many examples at once: each example has a stream of its own, a pure function of its key.

The streams are splitmix64's: number n of a stream is a hash of key + n times an odd constant. Whole arrays are drawn at
once, and nothing depends on how many examples are drawn together.
"""

from __future__ import annotations

import numpy as np

MANY_TIMES = 8  # as many as are wanted: sorting them all is faster up to here
_STEP, _FIRST, _SECOND = (np.uint64(each) for each in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def hashed(numbers: np.ndarray) -> np.ndarray:
    """64 bits, each of which depends on all of a number's."""
    mixed: np.ndarray = (numbers ^ (numbers >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


def keys_of(seed: int, places: np.ndarray, attempt: int = 0) -> np.ndarray:
    """A stream's key for each place; another attempt is another stream."""
    start = np.uint64((seed + (attempt + 1) * int(_SECOND)) % 2**64)
    return hashed(hashed(places.astype(np.uint64) * _STEP + start))


class Draws:
    """One stream per row, read from the front."""

    def __init__(self, keys: np.ndarray) -> None:
        self._keys, self._read = keys[:, None], 0

    def __len__(self) -> int:
        return len(self._keys)

    def bits(self, columns: int) -> np.ndarray:
        numbers = np.arange(self._read + 1, self._read + columns + 1, dtype=np.uint64) * _STEP
        self._read += columns
        return hashed(self._keys + numbers)

    def below(self, bound: int, columns: int) -> np.ndarray:
        """Whole numbers from 0 to bound - 1; a bound far below 2^32 leaves no bias that could be seen."""
        return ((self.bits(columns) >> np.uint64(32)) * np.uint64(bound) >> np.uint64(32)).astype(np.int64)

    def shares(self, columns: int) -> np.ndarray:
        """Above 0 and below 1."""
        return ((self.bits(columns) >> np.uint64(12)).astype(np.float64) + 0.5) / 2**52

    def orders(self, columns: int) -> np.ndarray:
        """A permutation per row."""
        return self.bits(columns).argsort(axis=1, kind="stable")

    def distinct(self, count: int, bound: int) -> np.ndarray:
        """So many different numbers below the bound, in random order; by Floyd's way where the bound is large."""
        if bound <= MANY_TIMES * count:
            return self.orders(bound)[:, :count]
        chosen = np.full((len(self), count), -1, dtype=np.int64)
        for place, last in enumerate(range(bound - count, bound)):
            drawn = self.below(last + 1, 1)
            chosen[:, place] = np.where((chosen == drawn).any(axis=1), last, drawn[:, 0])
        return np.take_along_axis(chosen, self.orders(count), axis=1)

    def weighted(self, count: int, weights: np.ndarray) -> np.ndarray:
        """So many different places, drawn one after another with these weights (the first of exponential clocks)."""
        clocks = -np.log(self.shares(len(weights))) / weights
        order: np.ndarray = clocks.argsort(axis=1, kind="stable")
        return order[:, :count]
