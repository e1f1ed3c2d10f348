"""A progress bar for preparing data: live in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PLAIN_SECONDS = 5.0


@contextmanager
def preparation_progress() -> Iterator[Callable[[Any], None]]:
    """Yields what `prepare` reports to: oelm.data.prepare.Progress objects."""
    if not sys.stderr.isatty():
        yield _plain_lines()
        return
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
                description=progress.stage,
                total=progress.total_bytes,
                completed=progress.bytes_read,
                text=f"{progress.documents:,} documents",
            )

        yield report


def _plain_lines() -> Callable[[Any], None]:
    last = time.monotonic()

    def report(progress: Any) -> None:
        nonlocal last
        if time.monotonic() - last < PLAIN_SECONDS:
            return
        last = time.monotonic()
        share = f" of {progress.total_bytes / 1e6:,.0f}" if progress.total_bytes else ""
        print(
            f"{progress.stage}: {progress.bytes_read / 1e6:,.0f}{share} MB, {progress.documents:,} documents",
            file=sys.stderr,
            flush=True,
        )

    return report
