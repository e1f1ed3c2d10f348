"""Ctrl-C, SIGTERM, a closed terminal: the first asks a run to save and stop after its step, a second leaves at once.

The main thread may sit in a sum that never ends, where Python runs no handler: a thread beside it hears every signal
too, and leaves when nothing else would.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from oelm.machine.errors import Stopped

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the last: the terminal was closed
# torchrun forwards a Ctrl-C that its workers have already had from the terminal: one wish, not two.
SAME_WISH_SECONDS = 0.3
SAME_WISH_SECONDS_UNDER_TORCHRUN = 5.0
STANDARD_ERROR = 2
Handler = Callable[[int, FrameType | None], object] | int | None
GIVE_UP_SECONDS = 20.0  # at least: a rank that waits for a dead one never reaches the end of its step
GIVE_UP_STEPS = 4  # at least, of the slowest recent ones


class Interrupted(Stopped):
    """A run that stopped on request, with a checkpoint."""


def leave_at_once(number: int, line: str = "") -> None:
    """No saving, no cleaning up. The last line goes past everything that buffers or draws; a terminal gets its cursor
    back, which the live line had hidden."""
    shown = "\x1b[?25h\n" if os.isatty(STANDARD_ERROR) else ""
    with contextlib.suppress(OSError):
        os.write(STANDARD_ERROR, f"{shown}{line}{line and chr(10)}".encode())
    os._exit(128 + number)


class StopRequest:
    def __init__(self, *, world_size: int, slowest_step: Callable[[], float] = lambda: 0.0) -> None:
        self._distributed, self._slowest_step = world_size > 1, slowest_step
        self._number: int | None = None
        self._at = 0.0
        self._give_up: threading.Timer | None = None
        self._beginning = threading.RLock()

    def __call__(self) -> bool:
        return self._number is not None

    @property
    def number(self) -> int:
        """The signal to answer; another rank may have had it instead of this one."""
        return self._number or signal.SIGTERM

    def acknowledge(self) -> None:
        """All ranks agreed to stop: from now on only saving takes time."""
        if self._give_up is not None:
            self._give_up.cancel()

    @contextmanager
    def listening(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # signals belong to the main thread's owner
            return
        # nohup asks for a run that outlives its terminal.
        heeded = [n for n in SIGNALS if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
        before = {number: signal.signal(number, self._handle) for number in heeded}
        try:
            with self._heard_beside(heeded):
                yield
        finally:
            self.acknowledge()
            for number, handler in before.items():
                signal.signal(number, handler if self._number is None else self._once_more(handler))

    def _once_more(self, handler: Handler) -> Callable[[int, FrameType | None], None]:
        """After a run that stopped on request: what repeats that wish is no new one; a later one is the handler's."""

        def heed(number: int, frame: FrameType | None) -> None:
            if not self._repeats_the_wish():
                signal.signal(number, handler)
                signal.raise_signal(number)

        return heed

    def _repeats_the_wish(self) -> bool:
        same = SAME_WISH_SECONDS_UNDER_TORCHRUN if self._distributed else SAME_WISH_SECONDS
        return time.monotonic() - self._at < same

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """By the main thread, as soon as it runs Python; the thread beside it counts."""
        self._begin(number)

    def _begin(self, number: int) -> None:
        """Heed the first wish, once."""
        with self._beginning:
            if self._number is not None:
                return
            self._number, self._at = number, time.monotonic()
            with contextlib.suppress(OSError):  # the terminal may be gone
                os.write(STANDARD_ERROR, b"\nstopping after this step and saving; once more to leave at once\n")
            if self._distributed:
                seconds = max(GIVE_UP_SECONDS, GIVE_UP_STEPS * self._slowest_step())
                line = f"oelm: the step did not end within {seconds:.0f} s, so this process leaves without saving"
                self._give_up = threading.Timer(seconds, leave_at_once, (number, line))
                self._give_up.daemon = True
                self._give_up.start()

    @contextmanager
    def _heard_beside(self, heeded: list[signal.Signals]) -> Iterator[None]:
        """The system's own handler writes the number of every signal into a socket, wherever the main thread is."""
        told, teller = socket.socketpair()
        teller.setblocking(False)
        listener = threading.Thread(target=self._listen, args=(told, set(heeded)), name="signals", daemon=True)
        before = signal.set_wakeup_fd(teller.fileno(), warn_on_full_buffer=False)
        listener.start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            teller.close()
            listener.join()
            told.close()

    def _listen(self, told: socket.socket, heeded: set[signal.Signals]) -> None:
        heard = False
        while numbers := told.recv(64):
            for number in heeded.intersection(numbers):
                if heard and not self._repeats_the_wish():
                    leave_at_once(number)
                heard = True
                self._begin(number)
