"""The examples of a probe: which difficulty each has, which split it belongs to, its tokens and what it asks for.

An example belongs to a split by a hash of its content, so that none is both trained on and held out; free places, which
are filled with random tokens, are no part of it. What a place in a batch holds is the first of its drawn examples that
belongs to the split.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from oelm.core.probes.probe import SPLITS, Probe
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
    noise_of,
    query_space,
    questions_after,
    stored_values,
    values_of,
)
from oelm.core.seeding import seed_of
from oelm.machine.errors import UserError

# ---- Random numbers for many examples at once ----------------------------------------------------------------------
# Each example has a stream of its own, splitmix64's, a pure function of its key: number n of a stream is a hash of
# key + n times an odd constant. Nothing depends on how many examples are drawn together.

MANY_TIMES = 8  # as many as are wanted: sorting them all is faster up to here
_STEP, _FIRST, _SECOND = (np.uint64(each) for each in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def hashed(numbers: np.ndarray) -> np.ndarray:
    """64 bits, each of which depends on all of a number's."""
    mixed: np.ndarray = (numbers ^ (numbers >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


def stream_keys(seed: int, places: np.ndarray, attempt: int = 0) -> np.ndarray:
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


# ---- How the examples of each task are made ------------------------------------------------------------------------
# B examples of one difficulty, T tokens. A generator gives the tokens, FREE where random ones go that are no part of
# the content, and what is asked for at each position, NOTHING where nothing is.

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


# ---- Which example stands where ------------------------------------------------------------------------------------

BUCKETS = np.uint64(16)
HELD_OUT = {split: number for number, split in enumerate(SPLITS[1:])}  # a bucket each; the others are trained on
LOOKED_AT = 16  # of each difficulty and split
MOST_ATTEMPTS = 2000  # a split of a sixteenth is missed so often once in 10^56


@dataclass(frozen=True)
class Examples:
    tokens_BT: np.ndarray
    asked_BT: np.ndarray  # NOTHING where nothing is asked for
    difficulty_B: np.ndarray  # as a number of the list

    @property
    def is_asked_BT(self) -> np.ndarray:
        asked: np.ndarray = self.asked_BT != NOTHING
        return asked


def training_examples(probe: Probe, *, seed: int, step: int, members: range) -> Examples:
    """Members of update `step` (the first is 1)."""
    return _examples(probe, "train", members, stream=seed_of(seed, "probe", step), table=seed)


def held_out_examples(probe: Probe, split: str, members: range, *, seed: int) -> Examples:
    """The same whatever the seed, which only a fixed table depends on."""
    return _examples(probe, split, members, stream=seed_of("probe", split), table=seed)


def refuse_too_few(probe: Probe) -> None:
    """Before a run begins: of every split that is held out, some examples of each difficulty must differ."""
    for split in HELD_OUT if probe.task.holds_out else ():
        found = held_out_examples(probe, split, range(LOOKED_AT * len(probe.difficulties)), seed=0)
        contents = np.concatenate([found.difficulty_B[:, None], found.asked_BT], axis=1)
        if len(np.unique(contents, axis=0)) < LOOKED_AT * len(probe.difficulties) // 2:
            raise _too_few(probe)


def _too_few(probe: Probe) -> UserError:
    return UserError(f"data: {probe} has too few different examples to hold some out; use a larger vocabulary")


def answers_of(probe: Probe, examples: int) -> int:
    """Of the first so many, in closed form: they take the difficulties in turn."""
    rounds, rest = divmod(examples, len(probe.difficulties))
    each = [probe.answers_at(difficulty) for difficulty in probe.difficulties]
    return rounds * sum(each) + sum(each[:rest])


def _examples(probe: Probe, split: str, members: range, *, stream: int, table: int) -> Examples:
    places = np.arange(members.start, members.stop)
    difficulty_B = places % len(probe.difficulties)
    shape = (len(places), probe.length)
    found = Examples(np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64), difficulty_B)
    for number in range(min(len(probe.difficulties), len(places))):
        open_rows = np.flatnonzero(difficulty_B == (places[0] + number) % len(probe.difficulties))
        for attempt in range(MOST_ATTEMPTS):
            draws = Draws(stream_keys(stream, places[open_rows], attempt))
            fits = _fill(found, probe, split, open_rows, draws, table=table)
            open_rows = open_rows[~fits]
            if not len(open_rows):
                break
        else:
            raise _too_few(probe)
    return found


def _fill(found: Examples, probe: Probe, split: str, rows: np.ndarray, draws: Draws, *, table: int) -> np.ndarray:
    """Write one attempt at each of these rows; which of them belong to the split."""
    difficulty = probe.difficulties[found.difficulty_B[rows[0]]]
    tokens, asked = GENERATORS[probe.task.name](probe, difficulty, draws, table)
    fits = _belongs(tokens, asked, split) if probe.task.holds_out else np.ones(len(rows), dtype=bool)
    free = tokens == FREE
    if free.any():
        filler = noise_of(probe.options) or range(probe.vocabulary)
        tokens = np.where(free, filler.start + draws.below(len(filler), probe.length), tokens)
    found.tokens_BT[rows], found.asked_BT[rows] = tokens, asked
    return fits


def _belongs(tokens: np.ndarray, asked: np.ndarray, split: str) -> np.ndarray:
    bucket = content_hash(tokens, asked) % BUCKETS
    belongs: np.ndarray = bucket == HELD_OUT[split] if split in HELD_OUT else bucket >= len(HELD_OUT)
    return belongs


def content_hash(tokens_BT: np.ndarray, asked_BT: np.ndarray) -> np.ndarray:
    both = np.concatenate([tokens_BT, asked_BT], axis=1).astype(np.uint64)
    places = hashed(np.arange(both.shape[1], dtype=np.uint64))
    total: np.ndarray = hashed(hashed(both + places).sum(axis=1, dtype=np.uint64))
    return total
