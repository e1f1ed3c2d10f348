"""Contenders that take turns: in every block each takes the same number of steps, there and back, in random order.

Going there and back, a drift of the machine weighs on all alike. The order is drawn anew for each block, so that a load
that comes and goes falls on either of two contenders with equal chances, however long it lasts: this is what makes the
blocks independent. So is the place in memory that a contender gets, where building anew does not take too long.
No torch.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean, median

from oelm.machine.system import PROC
from oelm.study.bench import BlockRecord

# ---- What else went on: what others took of the processors, how long we waited ---------------------------------------
# Only Linux says all of it (/proc); what a system does not say is None and disturbs nothing.

# A block beyond one of these is disturbed.
MOST_TAKEN = 0.1  # of all processors, by other processes or by other guests of the host
MOST_WAITED = 0.05  # of the time in which we could have run
LEAST_OF_THE_BEST_SHARE = 0.9  # of the processors we use, against the best block so far
TICK_SECONDS = 0.01  # /proc/stat counts in these


@dataclass(frozen=True)
class Reading:
    """Counters at one moment, in seconds since some beginning."""

    clock: float
    used: float  # by all threads of this process
    ran: float | None  # the same by the scheduler's count
    waited: float | None  # for a processor, while something was to be done
    busy: float | None  # all processors together, all processes
    steal: float | None
    pressure: float | None


def reading() -> Reading:
    ran, waited = _scheduled()
    busy, steal = _processors()
    return Reading(time.perf_counter(), time.process_time(), ran, waited, busy, steal, _pressure())


def between(before: Reading, after: Reading, *, threads: int) -> BlockRecord:
    """What the counters say of the time between two readings, during which we used so many threads."""
    seconds = max(after.clock - before.clock, 1e-9)
    used = after.used - before.used
    capacity = seconds * (os.cpu_count() or 1)
    ran, waited = _passed(before.ran, after.ran), _passed(before.waited, after.waited)
    busy, steal = _passed(before.busy, after.busy), _passed(before.steal, after.steal)
    pressure = _passed(before.pressure, after.pressure)
    rounding = TICK_SECONDS * (os.cpu_count() or 1)
    return BlockRecord(
        seconds=seconds,
        share=used / (seconds * threads),
        waited=waited / max(ran + waited, 1e-9) if ran is not None and waited is not None else None,
        others=max(0.0, busy - used - rounding) / capacity if busy is not None else None,
        steal=max(0.0, steal - TICK_SECONDS) / capacity if steal is not None else None,
        load=_load(),
        pressure=pressure / seconds if pressure is not None else None,
    )


def judged(blocks: list[BlockRecord]) -> list[BlockRecord]:
    """Each with what disturbed it. The best share is known only from all of them, so all are judged again each time."""
    best = max((block.share for block in blocks if block.share is not None), default=0.0)
    return [block.model_copy(update={"disturbed": _causes(block, best)}) for block in blocks]


def _causes(block: BlockRecord, best_share: float) -> list[str]:
    beyond = {
        "others": block.others is not None and block.others > MOST_TAKEN,
        "steal": block.steal is not None and block.steal > MOST_TAKEN,
        "waited": block.waited is not None and block.waited > MOST_WAITED,
        "share": block.share is not None and block.share < LEAST_OF_THE_BEST_SHARE * best_share,
    }
    return [cause for cause, is_beyond in beyond.items() if is_beyond]


def _passed(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else max(0.0, after - before)


# ---- Counters ------------------------------------------------------------------------------------------------------


def _scheduled() -> tuple[float | None, float | None]:
    """Of all threads: seconds on a processor, and seconds ready for one that was not free."""
    ran = waited = 0
    try:
        for thread in (PROC / "self" / "task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                numbers = (thread / "schedstat").read_text(encoding="ascii").split()
                ran, waited = ran + int(numbers[0]), waited + int(numbers[1])
    except (OSError, ValueError, IndexError):
        return None, None
    return (ran / 1e9, waited / 1e9) if ran else (None, None)


def _processors() -> tuple[float | None, float | None]:
    """Seconds that all processors worked, and that the host gave to others, since the start of the system."""
    try:
        ticks = [int(each) for each in (PROC / "stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]]
        user, nice, system, _, _, interrupts, soft_interrupts, steal = ticks[:8]
    except (OSError, ValueError):
        return None, None
    hertz = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + interrupts + soft_interrupts) / hertz, steal / hertz


def _pressure() -> float | None:
    """Seconds in which some process waited for a processor."""
    try:
        some = (PROC / "pressure" / "cpu").read_text(encoding="ascii").split("\n", 1)[0]
        return int(some.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError):
        return None


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


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
