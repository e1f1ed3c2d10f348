"""What else went on while something was timed: what others took of the processors, how long we waited. No torch.

Only Linux says all of it (/proc); what a system does not say is None and disturbs nothing.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass

from oelm.machine.system import PROC
from oelm.study.bench import BlockRecord

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
