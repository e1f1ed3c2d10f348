"""Scores of heads from their attention weights, in float64, and the tokens that they are scored on: random ones that
repeat, windows of a text, or the examples of a probe, pure functions of a seed. No torch: weights come as arrays.

B sequences, H heads, T time of what asks, S time of what is seen, N positions that count, over all sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oelm.core.probes.examples import held_out_examples
from oelm.core.probes.probe import Probe
from oelm.core.seeding import seed_of
from oelm.machine.errors import UserError
from oelm.models.heads.kinds import HeadScores

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


@dataclass(frozen=True)
class Keys:
    """Which keys each kind of head points to, and the positions at which the kinds point to different ones.

    A position counts if its token has occurred before and no key belongs to two kinds: then the scores of a head are
    shares of one whole. It does not count if its token is also the one before it, the one two before it, or the first;
    nor if its token has stood twice in a row; nor where a probe asks for nothing.
    """

    of_kind: dict[str, np.ndarray]  # B by T by S, true for the keys of a kind
    counted: np.ndarray  # B by T


def keys_of(scored: Sequences) -> Keys:
    tokens_BT = scored.tokens_BT
    sequences, time = tokens_BT.shape
    same_BTS = tokens_BT[:, :, None] == tokens_BT[:, None, :]
    after_BTS = np.zeros_like(same_BTS)
    after_BTS[:, :, 1:] = same_BTS[:, :, :-1]
    places = {
        "previous": np.eye(time, k=-1, dtype=bool),
        "duplicate": same_BTS & np.tri(time, k=-1, dtype=bool),
        "induction": after_BTS & np.tri(time, dtype=bool),
        "current": np.eye(time, dtype=bool),
        "first": np.broadcast_to(np.arange(time) == 0, (time, time)),
    }
    of_kind = {kind: np.broadcast_to(keys, (sequences, time, time)) for kind, keys in places.items()}
    kinds_of_key_BTS = np.sum(list(of_kind.values()), axis=0)
    counted_BT = of_kind["duplicate"].any(-1) & (kinds_of_key_BTS <= 1).all(-1)
    return Keys(of_kind, counted_BT if scored.asked_BT is None else counted_BT & scored.asked_BT)


WeightsOf = Callable[[np.ndarray], Sequence[np.ndarray]]  # of tokens, B by T: B by H by T by S of every layer


def head_scores(scored: Sequences, weights_of: WeightsOf, *, at_once: int) -> HeadScores:
    """Means over the positions that count, of `at_once` sequences at a time."""
    sums: list[dict[str, np.ndarray]] = []  # by layer, over the positions: H
    even: dict[str, float] = {}
    positions = 0
    for first in range(0, len(scored.tokens_BT), at_once):
        part = scored.part(first, at_once)
        part_BT, keys = part.tokens_BT, keys_of(part)
        positions += int(keys.counted.sum())
        rows, time = part_BT.shape
        evenly_TS = np.tri(time) / np.arange(1, time + 1)[:, None]  # of one head that attends to all it sees alike
        evenly_BHTS = np.broadcast_to(evenly_TS, (rows, 1, time, time))
        even = _added(even, {name: float(value[0]) for name, value in _sums(evenly_BHTS, keys)})
        layers = [dict(_sums(weights_BHTS, keys)) for weights_BHTS in weights_of(part_BT)]
        sums = layers if not sums else [_added(before, now) for before, now in zip(sums, layers, strict=True)]
    if not positions:
        raise UserError(
            "head scores: no token of these sequences can be scored: none has occurred before in its sequence, or only "
            "where two kinds of head would attend to the same key; give a larger --length or more --sequences"
        )
    return HeadScores(
        scores={name: [(layer[name] / positions).tolist() for layer in sums] for name in even},
        even={name: value / positions for name, value in even.items()},
        positions=positions,
    )


def _added(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    return {name: before.get(name, 0.0) + value for name, value in now.items()}


def _sums(weights_BHTS: np.ndarray, keys: Keys) -> Iterator[tuple[str, np.ndarray]]:
    """By name, of every head, over the positions that count."""
    sequence_N, time_N = np.nonzero(keys.counted)
    weights_NHS = weights_BHTS[sequence_N, :, time_N].astype(np.float64)
    for kind, keys_BTS in keys.of_kind.items():
        yield kind, np.einsum("nhs,ns->h", weights_NHS, keys_BTS[sequence_N, time_N].astype(np.float64))
    logarithms = np.log(weights_NHS, out=np.zeros_like(weights_NHS), where=weights_NHS > 0)
    yield "entropy", -(weights_NHS * logarithms).sum((0, 2))
    yield "keys", (1 / np.square(weights_NHS).sum(2)).sum(0)
    distance_NS = time_N[:, None] - np.arange(weights_NHS.shape[2])
    yield "distance", np.einsum("nhs,ns->h", weights_NHS, distance_NS.astype(np.float64))
