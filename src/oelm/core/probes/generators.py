"""How the examples of each task are made, for many examples of one difficulty at once.

B examples, T tokens. A generator gives the tokens, FREE where random ones go that are no part of the content, and what
is asked for at each position, NOTHING where nothing is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from oelm.core.probes.draws import Draws, hashed
from oelm.core.probes.probe import Probe
from oelm.core.probes.tasks import (
    BLANK,
    FIRST_CONTENT,
    MARK,
    MOST_HOPS,
    items_at_once,
    key_alphabet,
    keys_of,
    letters_of,
    noise_count,
    query_space,
    questions_after,
    stored_values,
    values_of,
)

FREE = NOTHING = -1
GAP_POWER = 0.01  # Zoology's: a query's distance d has a weight of d^(GAP_POWER - 1), near before far
Made = tuple[np.ndarray, np.ndarray]
Generator = Callable[[Probe, int, Draws, int], Made]  # the last number: the seed of a table, where there is one


def _empty(probe: Probe, draws: Draws, fill: int) -> Made:
    shape = (len(draws), probe.length)
    return np.full(shape, fill, dtype=np.int64), np.full(shape, NOTHING, dtype=np.int64)


def _put(array_BT: np.ndarray, places: np.ndarray, values: np.ndarray) -> None:
    np.put_along_axis(array_BT, places, values, axis=1)


def _gaps(draws: Draws, pairs: int, space: int) -> np.ndarray:
    """A place for each query. In any order: as they are drawn, the first pair would mostly be asked for first."""
    gaps_BP = draws.weighted(pairs, np.arange(1, space + 1) ** (GAP_POWER - 1))
    return np.take_along_axis(gaps_BP, draws.orders(pairs), axis=1)


def recall(probe: Probe, pairs: int, draws: Draws, table: int) -> Made:
    """Pairs among noise (none in plain recall), then keys at drawn places, every second one of the rest."""
    keys, values, options = keys_of(probe.options), values_of(probe.options), probe.options
    tokens_BT, asked_BT = _empty(probe, draws, FREE)
    key_BP = keys.start + draws.distinct(pairs, len(keys))
    value_BP = values.start + draws.distinct(pairs, len(values))
    noise = noise_count(pairs, options)
    place_BP = np.broadcast_to(np.arange(0, 2 * pairs, 2), key_BP.shape)
    if noise:
        unit_BP = np.sort(draws.distinct(pairs, pairs + noise), axis=1)
        place_BP = unit_BP + np.arange(pairs)  # each pair before it is one token longer than a noise token
    _put(tokens_BT, place_BP, key_BP)
    _put(tokens_BT, place_BP + 1, value_BP)
    query_BP = 2 * pairs + noise + 2 * _gaps(draws, pairs, query_space(pairs, options))
    _put(tokens_BT, query_BP, key_BP)
    _put(asked_BT, query_BP, value_BP)
    return tokens_BT, asked_BT


def fuzzy_recall(probe: Probe, pairs: int, draws: Draws, table: int) -> Made:
    keys, values, width = keys_of(probe.options), values_of(probe.options), int(probe.options["tokens"])
    tokens_BT, asked_BT = _empty(probe, draws, FREE)
    letters = letters_of(pairs, probe.options)
    letter_BL = keys.start + draws.distinct(letters, len(keys))
    code_BP = draws.distinct(pairs, letters**width)
    query_BP = 2 * width * (pairs + _gaps(draws, pairs, query_space(pairs, probe.options)))
    for digit in range(width):
        key_BP = np.take_along_axis(letter_BL, code_BP // letters**digit % letters, axis=1)
        value_BP = values.start + draws.distinct(pairs, len(values))
        for start_BP in (np.broadcast_to(np.arange(0, 2 * width * pairs, 2 * width), code_BP.shape), query_BP):
            _put(tokens_BT, start_BP + digit, key_BP)
            _put(tokens_BT, start_BP + width + digit, value_BP)
        if digit == 0:
            _put(asked_BT, query_BP + width - 1, value_BP)
    return tokens_BT, asked_BT


def copy(probe: Probe, count: int, draws: Draws, table: int) -> Made:
    tokens_BT, asked_BT = _empty(probe, draws, BLANK)
    content_BN = FIRST_CONTENT + draws.distinct(count, probe.vocabulary - FIRST_CONTENT)
    tokens_BT[:, :count] = tokens_BT[:, count + 1 : 2 * count + 1] = content_BN
    tokens_BT[:, count] = MARK
    asked_BT[:, count : 2 * count] = content_BN
    return tokens_BT, asked_BT


def selective_copy(probe: Probe, count: int, draws: Draws, table: int) -> Made:
    tokens_BT, asked_BT = _empty(probe, draws, BLANK)
    content_BN = FIRST_CONTENT + draws.distinct(count, probe.vocabulary - FIRST_CONTENT)
    _put(tokens_BT, np.sort(draws.distinct(count, probe.length - count), axis=1), content_BN)
    tokens_BT[:, -count:] = MARK
    asked_BT[:, -count:] = content_BN
    return tokens_BT, asked_BT


def induction(probe: Probe, period: int, draws: Draws, table: int) -> Made:
    """The ring, closed by its first token, shows every successor; what follows are drawn tokens with theirs."""
    tokens_BT, asked_BT = _empty(probe, draws, BLANK)
    ring_BN = draws.distinct(period, probe.vocabulary)
    closed = period + 1
    place_BQ = draws.below(period, questions_after(period, probe.options))
    tokens_BT[:, :closed] = ring_BN[:, np.arange(closed) % period]
    tokens_BT[:, closed::2] = np.take_along_axis(ring_BN, place_BQ, axis=1)
    asked_BT[:, closed::2] = np.take_along_axis(ring_BN, (place_BQ + 1) % period, axis=1)
    tokens_BT[:, closed + 1 :: 2] = asked_BT[:, closed:-1:2]
    return tokens_BT, asked_BT


def hops(probe: Probe, hops_to_go: int, draws: Draws, table: int) -> Made:
    nodes, queries = int(probe.options["nodes"]), int(probe.options["queries"])
    tokens_BT, asked_BT = _empty(probe, draws, BLANK)
    ring_BN = MOST_HOPS + 1 + draws.distinct(nodes, probe.vocabulary - MOST_HOPS - 1)
    shown_BN, start_BQ = draws.orders(nodes), draws.orders(nodes)[:, :queries]

    def node(place: np.ndarray) -> np.ndarray:
        return np.take_along_axis(ring_BN, place % nodes, axis=1)

    tokens_BT[:, 0 : 2 * nodes : 2], tokens_BT[:, 1 : 2 * nodes : 2] = node(shown_BN), node(shown_BN + 1)
    asked_for = slice(2 * nodes + 1, 2 * (nodes + queries), 2)
    tokens_BT[:, 2 * nodes : 2 * (nodes + queries) : 2] = hops_to_go
    tokens_BT[:, asked_for], asked_BT[:, asked_for] = node(start_BQ), node(start_BQ + hops_to_go)
    return tokens_BT, asked_BT


def memorise(probe: Probe, items: int, draws: Draws, table: int) -> Made:
    most = probe.difficulties[-1]
    count, base, values = items_at_once(probe.options), key_alphabet(most), stored_values(most, probe.options)
    tokens_BT, asked_BT = _empty(probe, draws, BLANK)
    item_BN = draws.distinct(count, items)
    noted = hashed(hashed(item_BN.astype(np.uint64)) + np.uint64(table))
    value_BN = values.start + (noted % np.uint64(len(values))).astype(np.int64)
    for place, part in enumerate((1 + item_BN // base, 1 + item_BN % base, value_BN)):
        tokens_BT[:, place : 3 * count : 3] = part
    asked_BT[:, 1 : 3 * count : 3] = value_BN
    return tokens_BT, asked_BT


GENERATORS: dict[str, Generator] = {
    "recall": recall,
    "fuzzy_recall": fuzzy_recall,
    "noisy_recall": recall,
    "copy": copy,
    "selective_copy": selective_copy,
    "induction": induction,
    "hops": hops,
    "memorise": memorise,
}
