"""The kinds of head that are scored, a row each, and the scores of a model as values. No torch.

A score is a share of attention: what a head gives, on average, to the keys that a kind points to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Kind:
    name: str
    keys: str  # which keys it points to, in words
    words: tuple[str, str]  # what such a head is called, English and Chinese


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("previous", "the token before", ("previous token", "前一个 token")),
        Kind("duplicate", "earlier occurrences of the same token", ("duplicate token", "重复 token")),
        Kind("induction", "what followed earlier occurrences of the same token", ("induction", "归纳")),
        Kind("current", "the token itself", ("current token", "当前 token")),
        Kind("first", "the first token of the sequence", ("first token", "首个 token")),
    )
}


# Besides the kinds, how spread the attention of a head is, and how far back it lies.
SPREADS: dict[str, str] = {
    "entropy": "entropy of the attention, in nats",
    "keys": "number of keys attended to, 1 / sum of p^2",
    "distance": "mean distance of what is attended to, in tokens",
}

NAMES = (*KINDS, *SPREADS)
LEAST_SHARE = 0.1  # of attention, of a head that is called one of a kind
LEAST_RATIO = 2.0  # and so many times what even attention has
DECIMALS = 3  # of a stored score

Table = list[list[float]]  # layers by heads


@dataclass(frozen=True)
class HeadScores:
    """Of every head of a model, and what one that attends to all keys evenly would have at the same positions."""

    scores: dict[str, Table]  # by the names of NAMES
    even: dict[str, float]
    positions: int  # so many were counted, over all sequences

    def strongest(self, layer: int, head: int) -> str | None:
        """The kind with the largest score; none where that is small, or hardly more than even attention has."""
        kind = max(KINDS, key=lambda kind: self.scores[kind][layer][head])
        least = max(LEAST_SHARE, LEAST_RATIO * self.even[kind])
        return kind if self.scores[kind][layer][head] >= least else None

    def rounded(self) -> dict[str, Table]:
        """As runs store them."""
        return {
            name: [[round(value, DECIMALS) for value in heads] for heads in layers]
            for name, layers in self.scores.items()
        }

    def as_json(self) -> dict[str, Any]:
        layers = self.scores[next(iter(KINDS))]
        strongest = [[self.strongest(layer, head) for head in range(len(heads))] for layer, heads in enumerate(layers)]
        return {"positions": self.positions, "scores": self.scores, "even": self.even, "strongest": strongest}


# ---- As text -------------------------------------------------------------------------------------------------------


MARK = "*"


def table_lines(scores: HeadScores) -> list[str]:
    rows = [["layer", "head", *(f"{name} " if name in KINDS else name for name in NAMES)]]
    for layer, heads in enumerate(scores.scores[NAMES[0]]):
        for head in range(len(heads)):
            strongest = scores.strongest(layer, head)
            row = {name: scores.scores[name][layer][head] for name in NAMES}
            rows.append([str(layer), str(head), *_cells(row, strongest)])
    rows.append(["even", "", *_cells(scores.even, None)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [
        *lines,
        "even: a head that attends to all keys alike; "
        f"{MARK} the strongest kind of a head, if at least {LEAST_SHARE:g} and at least {LEAST_RATIO:g} times even",
        *(f"{kind.name}: {kind.keys}" for kind in KINDS.values()),
        *(f"{name}: {meaning}" for name, meaning in SPREADS.items()),
    ]


def _cells(values: dict[str, float], strongest: str | None) -> list[str]:
    kinds = [f"{values[name]:.3f}{MARK if name == strongest else ' '}" for name in KINDS]
    return [*kinds, *(f"{values[name]:.2f}" for name in SPREADS)]
