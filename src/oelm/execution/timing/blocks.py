"""Contenders that take turns: in every block each takes the same number of steps, there and back, in random order.

Going there and back, a drift of the machine weighs on all alike. The order is drawn anew for each block, so that a load
that comes and goes falls on either of two contenders with equal chances, however long it lasts: this is what makes the
blocks independent. So is the place in memory that a contender gets, where building anew does not take too long.
No torch.
"""

from __future__ import annotations

import gc
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean, median

from oelm.execution.timing.circumstances import Reading, between, reading
from oelm.study.bench import BlockRecord

# Building anew may take this many times as long as a block: contenders that stay keep their places in memory, and a
# difference between two places passes for one between arms, however many blocks are measured.
MOST_BUILDING = 4.0

Step = Callable[[], float]  # takes one step and returns its seconds
Build = Callable[[], Step]  # makes a contender that is past its first steps


@dataclass(frozen=True)
class TimedBlock:
    seconds: dict[str, float]  # of a step of each contender: the geometric mean
    record: BlockRecord
    built_anew: bool  # for this block


def blocks_of(
    contenders: Mapping[str, Build],
    *,
    blocks: int,
    steps: int,
    threads: int = 1,
    seed: int = 0,
    may_rebuild: bool = True,
    clock: Callable[[], float] = time.perf_counter,
    read: Callable[[], Reading] = reading,
    forget: Callable[[], object] = gc.collect,  # the old contenders, which hold each other in cycles, and their memory
) -> Iterator[TimedBlock]:
    """Yield every block as it ends."""
    shuffled = random.Random(seed)
    standing: dict[str, Step] = {}
    rebuilds = False
    for number in range(blocks):
        if rebuilds or not standing:
            standing.clear()
            forget()
            building_seconds = _build(contenders, standing, shuffled, clock)
        before = read()
        seconds = _one_block(standing, shuffled.sample(list(contenders), len(contenders)), steps)
        record = between(before, read(), threads=threads)
        yield TimedBlock({name: seconds[name] for name in contenders}, record, built_anew=rebuilds or number == 0)
        if number == 0:
            rebuilds = may_rebuild and building_seconds < MOST_BUILDING * record.seconds


def _build(
    contenders: Mapping[str, Build], standing: dict[str, Step], shuffled: random.Random, clock: Callable[[], float]
) -> float:
    """Seconds that building them takes, by the usual one: the very first also starts the libraries."""
    took = []
    for name in shuffled.sample(list(contenders), len(contenders)):
        began = clock()
        standing[name] = contenders[name]()
        took.append(clock() - began)
    return median(took) * len(took)


def _one_block(contenders: Mapping[str, Step], order: list[str], steps: int) -> dict[str, float]:
    taken: dict[str, list[float]] = {name: [] for name in order}
    for turn in range(steps):
        for name in order if turn % 2 == 0 else reversed(order):
            taken[name].append(contenders[name]())
    return {name: math.exp(fmean(map(math.log, seconds))) for name, seconds in taken.items()}
