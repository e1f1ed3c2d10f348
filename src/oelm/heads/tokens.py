"""The tokens that heads are scored on: random ones that repeat, or windows of a text. Pure functions of a seed.

B sequences, T time.
"""

from __future__ import annotations

import numpy as np

from oelm.errors import UserError
from oelm.seeding import seed_of

LENGTH, SEQUENCES, SEED = 128, 16, 0  # unless asked otherwise; what runs record is made with these
SHORTEST_PERIOD = 3  # with a period of two, the previous token is also the one that induction points to
SHORTEST = 2 * SHORTEST_PERIOD + 1


def repeated_tokens(vocabulary: int, *, length: int, sequences: int, seed: int, key: str = "--length") -> np.ndarray:
    """One token, then a row of tokens, all different from it and from each other, then the same row again (B by T).

    The row is as long as the length and the vocabulary allow, so T is at most `length`; `key` is what a user asked for
    scores by.
    """
    period = min((length - 1) // 2, vocabulary - 1)
    if period < SHORTEST_PERIOD:
        raise UserError(
            f"{key}: telling the kinds of head apart takes sequences of at least {SHORTEST} tokens and a vocabulary of "
            f"at least {SHORTEST_PERIOD + 1}; here are {length} tokens and a vocabulary of {vocabulary}"
        )
    generator = np.random.default_rng(seed_of(seed, "head scores"))
    rows = [generator.choice(vocabulary, size=period + 1, replace=False) for _ in range(sequences)]
    return np.stack([np.concatenate([row, row[1:]]) for row in rows]).astype(np.int64)


def windows(tokens: np.ndarray, *, length: int, sequences: int, seed: int) -> np.ndarray:
    """Windows of a text that do not overlap, drawn without replacement: fewer where it has no more (B by T)."""
    available = len(tokens) // length
    generator = np.random.default_rng(seed_of(seed, "windows"))
    chosen = np.sort(generator.permutation(available)[:sequences])
    return np.stack([tokens[window * length : (window + 1) * length] for window in chosen]).astype(np.int64)
