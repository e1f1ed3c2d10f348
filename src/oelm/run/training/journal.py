"""What a person sees of a run: a live line in a terminal, plain lines elsewhere, and training.log in any case."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from oelm.machine.visible import visible
from oelm.storage.files import append_to

PLAIN_SECONDS = 5.0  # between progress lines where there is no terminal
VALIDATION_SECONDS = 30.0  # between validations that are shown: a short run has one every few steps


class Journal:
    def __init__(self, log_file: Path | None) -> None:
        self._log_file = log_file
        self._console = Console(highlight=False, emoji=False, soft_wrap=True)
        self._live: Progress | None = None
        self._last_plain = 0.0
        self._last_validation = time.monotonic()

    def say(self, line: str) -> None:
        """A line for the screen and the log."""
        self.log(line)
        with _lasting_longer_than_the_screen():
            self._console.print(visible(line), markup=False)

    def warn(self, line: str) -> None:
        self.say(f"warning: {line}")

    def log(self, line: str) -> None:
        if self._log_file is not None:
            with append_to(self._log_file) as stream:
                stream.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {visible(line)}\n".encode())

    def begin(self, *, step: int, steps: int) -> None:
        if self._console.is_terminal:
            self._live = Progress(
                TextColumn("step"),
                MofNCompleteColumn(),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[text]}", markup=False),
                TextColumn("ETA"),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._live.start()
            self._live.add_task("train", total=steps, completed=step, text="")

    def advance(self, step: int, text: str) -> None:
        """Called after every step; cheap."""
        if self._live is not None:
            self._live.update(self._live.task_ids[0], completed=step, text=text)

    def progress(self, line: str) -> None:
        """A periodic line: always logged, printed now and then where there is no live line."""
        self.log(line)
        if self._live is None and time.monotonic() - self._last_plain >= PLAIN_SECONDS:
            self._last_plain = time.monotonic()
            with _lasting_longer_than_the_screen():
                print(visible(line), flush=True)

    def validation(self, line: str) -> None:
        """Always logged, shown now and then."""
        if time.monotonic() - self._last_validation < VALIDATION_SECONDS:
            self.log(line)
            return
        self._last_validation = time.monotonic()
        self.say(line)

    def end(self) -> None:
        with _lasting_longer_than_the_screen():
            if self._live is not None:
                live, self._live = self._live, None
                live.stop()
            sys.stdout.flush()


class Silent(Journal):
    """Of the processes that are not the first."""

    def __init__(self) -> None:
        super().__init__(None)

    def say(self, line: str) -> None: ...
    def begin(self, *, step: int, steps: int) -> None: ...
    def progress(self, line: str) -> None: ...
    def validation(self, line: str) -> None: ...


@contextlib.contextmanager
def _lasting_longer_than_the_screen() -> Iterator[None]:
    """A closed pipe, or a full disk behind `>`, must not end a run: training.log has every line."""
    try:
        yield
    except (OSError, SystemExit):  # rich makes an exit of a closed pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


Say = Callable[[str], None]
