"""A progress bar for preparing data: live in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from oelm.machine.visible import visible

PLAIN_SECONDS = 5.0
Report = Callable[[Any], None]


@contextmanager
def preparation_progress() -> Iterator[Report]:
    """Yields what `prepare` reports to: oelm.data.prepare.Preparation objects. The last stage is said when it ends."""
    stage = ""
    with _live_bar() if sys.stderr.isatty() else _plain_lines() as show:

        def report(progress: Any) -> None:
            nonlocal stage
            stage = progress.stage
            show(progress)

        yield report
    print(visible(stage), file=sys.stderr)


@contextmanager
def _live_bar() -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[text]}"),
        TextColumn("ETA"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, text="")

        def report(progress: Any) -> None:
            bar.update(
                task,
                description=visible(progress.stage),
                total=progress.total_bytes,
                completed=progress.bytes_read,
                text=f"{progress.documents:,} {progress.unit}",
            )

        yield report


@contextmanager
def _plain_lines() -> Iterator[Report]:
    last = time.monotonic()

    def report(progress: Any) -> None:
        nonlocal last
        if time.monotonic() - last < PLAIN_SECONDS:
            return
        last = time.monotonic()
        stage = visible(progress.stage)
        share = f" of {progress.total_bytes / 1e6:,.0f}" if progress.total_bytes else ""
        print(
            f"{stage}: {progress.bytes_read / 1e6:,.0f}{share} MB, {progress.documents:,} {progress.unit}",
            file=sys.stderr,
            flush=True,
        )

    yield report
