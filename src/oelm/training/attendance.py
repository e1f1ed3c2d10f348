"""Who of the processes of one run still answers. One that hangs would keep all others waiting without a word.

The main thread of every process counts its signs of progress; threads beside it exchange these over torchrun's store,
and leave when somebody has made none for longer than it is allowed. They live on while the main thread waits in a sum,
and stop with a process that is stopped.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist

from oelm.ownership import Process

LEAST_SECONDS = 60.0
GENEROSITY = 20.0  # times the slowest recent step
RECENT_STEPS = 100
FIRST_STEP_SECONDS = 600.0  # the first one compiles and warms up; a thaw compiles again
SLOWEST_DISK = 10 * 2**20  # bytes a second, of a save
CONNECT_SECONDS = 60.0
LOOK_SECONDS = 0.5
PAUSE_SECONDS = 5.0  # between two looks: this process itself was stopped, and perhaps all were
GRACE_SECONDS = 3.0  # for the first of the others to write down what happened
LEAVE_SECONDS = 15.0  # at most, whatever a disk does
EXIT_CODE = 1


class Patience:
    """How long one process may make no progress before the others stop waiting for it."""

    def __init__(self, setting: float | None, *, compiles: bool) -> None:
        self._setting, self._compiles = setting, compiles
        self._recent: deque[float] = deque(maxlen=RECENT_STEPS)

    def note(self, step_seconds: float) -> None:
        self._recent.append(step_seconds)

    @property
    def slowest_step(self) -> float:
        """Of the recent ones; 0: none yet."""
        return max(self._recent, default=0.0)

    @property
    def seconds(self) -> float:
        if self._setting is not None and self._recent:
            return self._setting
        least = FIRST_STEP_SECONDS if self._compiles or not self._recent else LEAST_SECONDS
        return max(least, self._setting or 0.0, GENEROSITY * self.slowest_step)

    def while_saving(self, size_bytes: int) -> float:
        return self.seconds + size_bytes / SLOWEST_DISK


class Attendance:
    """What a process says of itself. Only its main thread changes it."""

    def __init__(self) -> None:
        self.count, self._waits, self._device_waits = 0, False, False
        self.doing, self.allowed_seconds = "the start", FIRST_STEP_SECONDS
        self.announce: Callable[[], None] = lambda: None

    @property
    def waiting(self) -> bool:
        """For the others: no progress is to be expected of this process."""
        return self._waits or self._device_waits

    def sign(self) -> None:
        """Some progress was made."""
        self.count += 1

    def launched(self) -> None:
        """The device has to wait for the others; the main thread may be held up by it anywhere, inside the driver."""
        self._device_waits = True

    def settled(self) -> None:
        """A number that came after those sums has been read: the device waits for nobody."""
        self._device_waits = False
        self.sign()

    def begin(self, doing: str, *, allowed_seconds: float) -> None:
        """Another allowance is announced at once: what follows may hold up the threads beside, or stop all."""
        different = not 0.5 <= allowed_seconds / self.allowed_seconds <= 1.1
        self.doing, self.allowed_seconds = doing, allowed_seconds
        self.sign()
        if different:
            self.announce()

    @contextlib.contextmanager
    def waits(self) -> Iterator[None]:
        """Around what the main thread itself waits in."""
        self._waits = True
        self.sign()
        try:
            yield
        finally:
            self._waits = False
            self.sign()

    @contextlib.contextmanager
    def takes(self, seconds: float, doing: str) -> Iterator[None]:
        """Something long that gives no sign."""
        before = self.doing, self.allowed_seconds
        self.begin(doing, allowed_seconds=max(seconds, self.allowed_seconds))
        try:
            yield
        finally:
            self.begin(before[0], allowed_seconds=before[1])


# ---- What is known of the others -----------------------------------------------------------------------------------


@dataclass
class Companion:
    """Another process, as this one last heard of it."""

    rank: int
    said: dict[str, Any] = field(default_factory=dict)
    heard_at: float = field(default_factory=time.monotonic)  # when it last said anything new
    moved_at: float = field(default_factory=time.monotonic)  # when its count last changed

    def hear(self, said: dict[str, Any]) -> None:
        now = time.monotonic()
        if said.get("number") != self.said.get("number"):
            self.heard_at = now
        if said.get("count") != self.said.get("count"):
            self.moved_at = now
        self.said = said

    def excuse(self) -> None:
        self.heard_at = self.moved_at = time.monotonic()

    @property
    def allowed_seconds(self) -> float:
        seconds: float = self.said.get("allowed_seconds", FIRST_STEP_SECONDS)
        return seconds

    @property
    def still_seconds(self) -> float:
        return time.monotonic() - self.moved_at

    @property
    def is_still(self) -> bool:
        return self.still_seconds > self.allowed_seconds

    @property
    def is_silent(self) -> bool:
        """It neither moves nor waits for others; or says nothing at all, as a stopped process does wherever it is."""
        if self.said.get("waiting"):
            return time.monotonic() - self.heard_at > self.allowed_seconds
        return self.is_still

    @property
    def process(self) -> Process | None:
        return Process.stored(self.said["process"]) if "process" in self.said else None

    def __str__(self) -> str:
        process = self.process
        return f"rank {self.rank}" + (f" (host {process.host}, pid {process.pid})" if process else "")


def silent_ones(companions: list[Companion]) -> list[Companion]:
    """Those that keep the group waiting; where all wait for each other, all of them."""
    silent = [each for each in companions if each.is_silent]
    return silent or (companions if all(each.is_still and each.said.get("waiting") for each in companions) else [])


def what_happened(silent: list[Companion]) -> str:
    longest = max(silent, key=lambda each: each.still_seconds)
    who = (
        f"{', '.join(map(str, silent))} did not respond to the others"
        if longest.is_silent
        else "all wait for each other"
    )
    who += f" in {longest.said.get('doing', 'the start')}"
    return (
        f"{who} for {longest.still_seconds:.0f} s; the limit was {longest.allowed_seconds:.0f} s "
        "(execution.step_limit_seconds); all processes stop, the same command resumes from the last checkpoint"
    )


# ---- Watching ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def watched(attendance: Attendance, *, rank: int, size: int, tell: Callable[[str], None]) -> Iterator[None]:
    """Leave, after `tell`, when another process has gone silent. One process alone has nobody to wait for."""
    if size == 1 or "MASTER_PORT" not in os.environ:
        yield
        return
    watch = _Watch(attendance, rank, size, tell)
    with contextlib.suppress(RuntimeError):  # without a store the process group's own patience remains
        watch.begin()
    try:
        yield
    finally:
        watch.end()


class _Watch:
    def __init__(self, attendance: Attendance, rank: int, size: int, tell: Callable[[str], None]) -> None:
        self._attendance, self._rank, self._tell = attendance, rank, tell
        self._companions = [Companion(other) for other in range(size) if other != rank]
        self._prefix = "/".join(("oelm", os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), "attendance"))
        self._identity, self._number, self._sending = Process.current().__dict__, 0, threading.Lock()
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=each, name=each.__name__.strip("_"), daemon=True)
            for each in (self._exchange, self._judge)
        ]

    def begin(self) -> None:
        # A connection of its own: that of the process group may be held by a main thread that waits.
        self._store = dist.TCPStore(  # type: ignore[attr-defined]  # documented, and not in its list of exports
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            is_master=False,
            wait_for_workers=False,
            timeout=datetime.timedelta(seconds=CONNECT_SECONDS),
        )
        self._store.set_timeout(datetime.timedelta(hours=1))  # how long is too long is judged in time, not here
        self._send(self._words())
        self._attendance.announce = self._announce
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._attendance.announce = lambda: None
        self._ended.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(2 * LOOK_SECONDS)  # the store's host may be the one that hangs

    # -- over the store ----------------------------------------------------------------------------------------------

    def _words(self) -> dict[str, Any]:
        mine = self._attendance
        return {
            "count": mine.count,
            "waiting": mine.waiting,
            "doing": mine.doing,
            "allowed_seconds": mine.allowed_seconds,
            "process": self._identity,
        }

    def _send(self, words: dict[str, Any]) -> None:
        with self._sending:
            self._number += 1
            self._store.set(f"{self._prefix}/{self._rank}", json.dumps(words | {"number": self._number}))

    def _announce(self) -> None:
        """By the main thread, which waits if the store does not answer."""
        words = self._words()
        with self._attendance.waits(), contextlib.suppress(RuntimeError):
            self._send(words)

    def _exchange(self) -> None:
        """Without the store nobody is judged: the process group notices whose death it was."""
        with contextlib.suppress(RuntimeError):
            while not self._ended.wait(LOOK_SECONDS):
                self._send(self._words())
                for companion in self._companions:
                    key = f"{self._prefix}/{companion.rank}"
                    if self._store.check([key]):
                        companion.hear(json.loads(self._store.get(key)))
        self._ended.set()

    # -- in time -----------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        looked_at = time.monotonic()
        while not self._ended.wait(LOOK_SECONDS):
            paused = time.monotonic() - looked_at > PAUSE_SECONDS
            looked_at = time.monotonic()
            if paused:
                for companion in self._companions:
                    companion.excuse()
            elif self._attendance.waiting and (silent := self._silent()):
                self._leave(silent)

    def _silent(self) -> list[Companion]:
        silent = silent_ones(self._companions)
        if len(silent) < len(self._companions) or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            return silent
        # Rank 0 holds the store: with it, everybody else falls silent too.
        return [each for each in silent if each.rank == 0] or silent

    def _leave(self, silent: list[Companion]) -> None:
        """The first that can speaks. The silent ones of this host are killed: one of them may hold the run's lock."""
        enough = threading.Timer(LEAVE_SECONDS, os._exit, (EXIT_CODE,))
        enough.daemon = True
        enough.start()
        speakers = {self._rank, *(each.rank for each in self._companions)} - {each.rank for each in silent}
        if self._rank == min(speakers):
            self._tell(what_happened(silent))
        else:
            time.sleep(GRACE_SECONDS)
        for process in (each.process for each in silent):
            if process is not None and process.is_alive_here():
                os.kill(process.pid, signal.SIGKILL)
        os._exit(EXIT_CODE)
