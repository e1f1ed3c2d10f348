"""The examples of a probe: which difficulty each has, which split it belongs to, its tokens and what it asks for.

An example belongs to a split by a hash of its content, so that none is both trained on and held out; free places, which
are filled with random tokens, are no part of it. What a place in a batch holds is the first of its drawn examples that
belongs to the split.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oelm.core.probes.draws import Draws, hashed, keys_of
from oelm.core.probes.generators import FREE, GENERATORS, NOTHING
from oelm.core.probes.probe import SPLITS, Probe
from oelm.core.probes.tasks import noise_of
from oelm.core.seeding import seed_of
from oelm.machine.errors import UserError

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
            keys = keys_of(stream, places[open_rows], attempt)
            fits = _fill(found, probe, split, open_rows, Draws(keys), table=table)
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
