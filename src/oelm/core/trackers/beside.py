"""Trackers beside a run: each in a thread of its own, so that one that fails, or never answers, costs the run nothing.

A run hands its records over and goes on. A tracker that raises is said once and dropped. One that falls behind loses
records (MOST_WAITING), and at the end of a run, when everything of it is written, all of them together have
CLOSING_SECONDS; LEAVING_SECONDS where the run was stopped or failed.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from oelm.core.trackers.table import Tracked, begun, numbers_in

MOST_WAITING = 10_000  # records that a tracker may be behind
CLOSING_SECONDS = 20.0  # for all trackers together
LEAVING_SECONDS = 3.0


class _Beside:
    """One tracker."""

    def __init__(self, name: str, run: Tracked) -> None:
        self.name = name
        self.problem: str | None = None  # why it was dropped
        self._records: queue.Queue[tuple[dict[str, float], int] | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._work, args=(run,), name=f"tracker {name}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # no further thread on this machine
            self.problem = str(error)

    def _work(self, run: Tracked) -> None:
        try:
            sink = begun(self.name, run)
            while (record := self._records.get()) is not None:
                sink.log(*record)
            sink.close()
        except BaseException as error:  # of somebody else's library: whatever it is
            self.problem = f"{error}".strip().partition("\n")[0] or type(error).__name__

    def hand_over(self, record: tuple[dict[str, float], int] | None) -> None:
        """Numbers and their step; None asks it to close."""
        try:
            self._records.put_nowait(record)
        except queue.Full:
            self.problem = f"is {MOST_WAITING:,} records behind"

    def wait(self, seconds: float) -> None:
        if self._thread.ident is not None:
            self._thread.join(max(0.0, seconds))
        if self._thread.is_alive() and self.problem is None:
            self.problem = "did not end in time; its last records may be missing"


class Trackers:
    """All trackers of one run; `tell` is called once for each that fails."""

    def __init__(self, names: Iterable[str], run_of: Callable[[str], Tracked], tell: Callable[[str], object]) -> None:
        self._names, self._run_of, self._tell = names, run_of, tell
        self._all: list[_Beside] = []

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Begun for the block, and closed however it ends."""
        self._all = [_Beside(name, self._run_of(name)) for name in self._names]
        seconds = LEAVING_SECONDS
        try:
            yield
            seconds = CLOSING_SECONDS
        finally:
            self._close(seconds)

    def log(self, record: Mapping[str, Any]) -> None:
        self._drop_failed()
        if self._all:
            numbers = numbers_in(record)
            for each in self._all:
                each.hand_over((numbers, record["step"]))

    def _close(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        for each in self._all:
            each.hand_over(None)
        for each in self._all:
            each.wait(until - time.monotonic())
        self._drop_failed()
        self._all = []

    def _drop_failed(self) -> None:
        for each in [each for each in self._all if each.problem is not None]:
            self._all.remove(each)
            self._tell(f"execution.trackers: {each.name}: {each.problem}; the run does not depend on it")
