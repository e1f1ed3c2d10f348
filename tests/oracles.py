"""Solvers in a few lines that read an example as a person would, and guessers that do not."""

from __future__ import annotations

import numpy as np

from oelm.core.probes.probe import Probe
from oelm.core.probes.tasks import FIRST_CONTENT, MARK


def pairs_of(probe: Probe, tokens: list[int], pairs: int) -> dict[tuple[int, ...], list[int]]:
    width = int(probe.options.get("tokens", 1))
    half, noise = probe.vocabulary // 2, probe.vocabulary - probe.vocabulary // 8
    if "noise" in probe.options:
        tokens = [token for token in tokens if token < noise]
    shown = [tokens[place : place + 2 * width] for place in range(0, 2 * width * pairs, 2 * width)]
    assert all(max(each[:width]) < half <= min(each[width:]) for each in shown)
    return {tuple(each[:width]): each[width:] for each in shown}


def recalled(probe: Probe, tokens: list[int], place: int, pairs: int) -> int:
    width = int(probe.options.get("tokens", 1))
    known = pairs_of(probe, tokens, pairs)
    return known[tuple(tokens[place - width + 1 : place + 1])][0]


def copied(probe: Probe, tokens: list[int], place: int, count: int) -> int:
    return [token for token in tokens if token >= FIRST_CONTENT][place - tokens.index(MARK)]


def continued(probe: Probe, tokens: list[int], place: int, period: int) -> int:
    return tokens[tokens.index(tokens[place]) + 1]


def followed(probe: Probe, tokens: list[int], place: int, hops: int) -> int:
    nodes = int(probe.options["nodes"])
    successor = dict(zip(tokens[0 : 2 * nodes : 2], tokens[1 : 2 * nodes : 2], strict=True))
    assert tokens[place - 1] == hops
    node = tokens[place]
    for _ in range(hops):
        node = successor[node]
    return node


ORACLES = {
    "recall": recalled,
    "fuzzy_recall": recalled,
    "noisy_recall": recalled,
    "copy": copied,
    "selective_copy": copied,
    "induction": continued,
    "hops": followed,
}


def offered(probe: Probe, tokens: np.ndarray, place: int, difficulty: int) -> list[int]:
    """What the context offers as answers, before any thought about which it is."""
    seen = tokens.tolist()
    match probe.task.name:
        case "recall" | "noisy_recall" | "fuzzy_recall":
            return [values[0] for values in pairs_of(probe, seen, difficulty).values()]
        case "copy" | "selective_copy":
            return [token for token in seen if token >= FIRST_CONTENT][:difficulty]
        case "induction":
            return seen[:difficulty]
        case "hops":
            return seen[0 : 2 * int(probe.options["nodes"]) : 2]
    raise AssertionError(probe.task.name)
