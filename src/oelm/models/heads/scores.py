"""Scores of heads from their attention weights, in float64. No torch: weights come as arrays.

B sequences, H heads, T time of what asks, S time of what is seen, N positions that count, over all sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from oelm.machine.errors import UserError
from oelm.models.heads.keys import Keys, keys_of
from oelm.models.heads.kinds import HeadScores
from oelm.models.heads.tokens import Sequences

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
        even = _added(even, {name: float(value[0]) for name, value in _sums(_evenly(part_BT), keys)})
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


def _evenly(tokens_BT: np.ndarray) -> np.ndarray:
    """The weights of one head that attends to all keys it sees alike."""
    sequences, time = tokens_BT.shape
    weights_TS = np.tri(time) / np.arange(1, time + 1)[:, None]
    return np.broadcast_to(weights_TS, (sequences, 1, time, time))


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
