"""Who of the processes of one run has come to where all wait for each other: each counts its waits in torchrun's store.

When a wait fails, those whose count is behind are the ones that the others waited for.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist

from oelm.storage.ownership import Process

MOST_BYTES = 1024  # of what a process says of itself


class RollCall:
    """Of one start of a group. All processes make it at the same time."""

    def __init__(self, *, rank: int, size: int, limit_seconds: float) -> None:
        self._rank, self._limit, self._count, self._began = rank, limit_seconds, 0, time.monotonic()
        # A connection of its own: that of the process group may be held up with it.
        self._store = dist.TCPStore(  # type: ignore[attr-defined]  # documented, and not in its list of exports
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            is_master=False,
            wait_for_workers=False,
            timeout=datetime.timedelta(seconds=limit_seconds),
        )
        self._processes = list(_every_process(size))

    def _key(self, rank: int) -> str:
        """Of this start alone: torchrun keeps one store over all its restarts."""
        first = self._processes[0]
        return f"oelm/{first.pid}-{first.pid_started}/{rank}"

    def here(self) -> None:
        """Before every wait."""
        self._count, self._began = self._count + 1, time.monotonic()
        self._store.set(self._key(self._rank), str(self._count))

    def what_happened(self, reason: str) -> tuple[str, bool]:
        """After a wait that failed: one line, and whether it is for this process to tell, the first of those that are
        left. A process of this host that hangs is killed: it may hold the run's lock.
        """
        others = [rank for rank in range(len(self._processes)) if rank != self._rank]
        dead = [rank for rank in others if self._processes[rank].is_alive_here() is False]
        absent = [] if time.monotonic() - self._began < self._limit else self._absent(others)
        told = [f"{self._named(rank)} has ended" for rank in dead]
        for rank in absent:
            if rank not in dead:
                told.append(f"{self._named(rank)} did not respond for {self._limit:g} s (execution.step_limit_seconds)")
                if self._processes[rank].is_alive_here():
                    os.kill(self._processes[rank].pid, signal.SIGKILL)
        left = {self._rank, *others} - {*dead, *absent}
        who = ", ".join(told) or f"rank {self._rank}: another process of this run has left or hangs ({reason})"
        return who, not told or self._rank == min(left)

    def _named(self, rank: int) -> str:
        return f"rank {rank} (host {self._processes[rank].host}, pid {self._processes[rank].pid})"

    def _absent(self, others: list[int]) -> list[int]:
        """Those that have not come to this wait."""
        with contextlib.suppress(RuntimeError):  # where rank 0 keeps the store, it hangs with it
            keys = {rank: self._key(rank) for rank in others}
            return [
                rank
                for rank, key in keys.items()
                if not self._store.check([key]) or int(self._store.get(key)) < self._count
            ]
        return [rank for rank in others if rank == 0]


def _every_process(size: int) -> Iterator[Process]:
    """In the order of their ranks, as each says itself."""
    said = torch.zeros(MOST_BYTES, dtype=torch.uint8)
    mine = json.dumps(Process.current().__dict__).encode()
    said[: len(mine)] = torch.frombuffer(bytearray(mine), dtype=torch.uint8)
    told = [torch.empty_like(said) for _ in range(size)]
    dist.all_gather(told, said)
    for each in told:
        yield Process.stored(json.loads(bytes(each.numpy()).rstrip(b"\0")))
