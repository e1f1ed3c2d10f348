"""Processes that load the machine by turns: `python artificial_load.py SEED`, until they are killed.

Each time and each pause has a random length, from much shorter than a block of a small bench to many blocks; half of
the times are spent computing, half moving memory.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator

SHORTEST_SECONDS, LONGEST_SECONDS = 0.02, 3.0
MOVED_BYTES = 2**25


def main(seed: int) -> None:
    drawn = random.Random(seed)
    source, target = bytearray(MOVED_BYTES), bytearray(MOVED_BYTES)
    while os.getppid() == PARENT:
        moves_memory, until = drawn.random() < 0.5, time.monotonic() + _seconds(drawn)
        while time.monotonic() < until:
            if moves_memory:
                target[:] = source
            else:
                sum(range(10_000))
        time.sleep(_seconds(drawn))


def _seconds(drawn: random.Random) -> float:
    return math.exp(drawn.uniform(math.log(SHORTEST_SECONDS), math.log(LONGEST_SECONDS)))


@contextlib.contextmanager
def load_that_comes_and_goes(seed: int, *, processes: int | None = None) -> Iterator[None]:
    """One process a core, unless told otherwise."""
    count = processes or os.cpu_count() or 1
    started = [subprocess.Popen([sys.executable, __file__, str(seed * 1000 + number)]) for number in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


if __name__ == "__main__":
    PARENT = os.getppid()  # whose death ends the load
    main(int(sys.argv[1]))
