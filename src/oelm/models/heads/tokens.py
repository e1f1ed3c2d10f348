"""The tokens that heads are scored on: random ones that repeat, windows of a text, or the examples of a probe. Pure
functions of a seed.

B sequences, T time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oelm.core.probes.examples import held_out_examples
from oelm.core.probes.probe import Probe
from oelm.core.seeding import seed_of
from oelm.machine.errors import UserError

LENGTH, SEQUENCES, SEED = 128, 16, 0  # unless asked otherwise; what runs record is made with these
HELD_OUT = "val"  # of a probe
SHORTEST_ROW = 3  # in a row of two, the previous token is also the one that induction points to
SHORTEST = 2 * SHORTEST_ROW + 1


@dataclass(frozen=True)
class Sequences:
    tokens_BT: np.ndarray
    asked_BT: np.ndarray | None = None  # where alone positions count; None: anywhere

    def part(self, first: int, count: int) -> Sequences:
        rows = slice(first, first + count)
        return Sequences(self.tokens_BT[rows], None if self.asked_BT is None else self.asked_BT[rows])


def examples_of(probe: Probe, *, sequences: int, seed: int) -> Sequences:
    """Held-out ones, in which only what is asked for counts."""
    held_out = held_out_examples(probe, HELD_OUT, range(sequences), seed=seed)
    return Sequences(held_out.tokens_BT, held_out.is_asked_BT)


def repeated_tokens(vocabulary: int, *, length: int, sequences: int, seed: int, key: str = "--length") -> np.ndarray:
    """Tokens that all differ, of which the last ones then come once more, in a row (B by T).

    The rows of the sequences have different lengths, from half to all of what fits, as far as the vocabulary allows: a
    head that looks a fixed distance back, whatever stands there, is of no kind. The first token is never repeated. T is
    at most `length`; `key` is what a user asked for scores by.
    """
    longest = min((length - 1) // 2, vocabulary - 1)
    if longest < SHORTEST_ROW:
        raise UserError(
            f"{key}: telling the kinds of head apart takes sequences of at least {SHORTEST} tokens and a vocabulary of "
            f"at least {SHORTEST_ROW + 1}; here are {length} tokens and a vocabulary of {vocabulary}"
        )
    time = 2 * longest + 1
    shortest = max(SHORTEST_ROW, -(-longest // 2), time - vocabulary)
    generator = np.random.default_rng(seed_of(seed, "head scores"))
    rows = shortest + generator.permutation(longest + 1 - shortest)
    tokens_BT = np.empty((sequences, time), dtype=np.int64)
    for sequence, row in enumerate(np.resize(rows, sequences)):
        different = generator.choice(vocabulary, size=time - row, replace=False)
        tokens_BT[sequence] = np.concatenate([different, different[-row:]])
    return tokens_BT


def windows(tokens: np.ndarray, *, length: int, sequences: int, seed: int) -> np.ndarray:
    """Windows of a text that do not overlap, drawn without replacement: fewer where it has no more (B by T)."""
    available = len(tokens) // length
    generator = np.random.default_rng(seed_of(seed, "windows"))
    chosen = np.sort(generator.permutation(available)[:sequences])
    return np.stack([tokens[window * length : (window + 1) * length] for window in chosen]).astype(np.int64)
