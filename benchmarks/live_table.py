"""What the live table of a study with 200 runs costs: CPU time of its process over wall time. The share comes last.

    python benchmarks/live_table.py [--runs 200] [--running 8] [--seconds 30]

The run directories are made up; half of them are finished, a few are "running" with metrics that grow. The terminal is
a real pseudo-terminal, so that rich draws what a person would see. Aim: under 0.05 of a core.
"""

from __future__ import annotations

import argparse
import os
import pty
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from oelm.execution.controller import POLL_SECONDS, ActiveRun
from oelm.execution.local import LocalHandle
from oelm.execution.table import LiveTable
from oelm.run.directory import RunDirectory
from oelm.storage.ownership import Process
from oelm.study.plan import Plan, planned
from stored_runs import small_study, store_study


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--running", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plan, active = made_up(Path(folder), options.runs, options.running)
        share = cpu_share(plan, active, options.seconds)
    print(f"{options.runs} runs, {len(active)} of them running, drawn once a second for {options.seconds:g} s")
    print(f"live table, CPU time / wall time: {share:.4f} (aim: under 0.05)")


def made_up(folder: Path, runs: int, running: int) -> tuple[Plan, list[ActiveRun]]:
    study = small_study(seeds=list(range(runs // 5)))
    half = runs // 10
    plan = planned(study, store_study(study, folder, lambda arm, seed, stage, point: 3.0 if seed < half else None))
    waiting = [run for run in plan.runs if run.stored is None]
    source = next(run.stored.directory for run in plan.runs if run.stored)
    active = []
    for number in range(running):
        directory = RunDirectory(folder / f"running-{number}")
        directory.path.mkdir()
        directory.metrics_file.write_bytes(source.metrics_file.read_bytes())
        active.append(ActiveRun(waiting[number], LocalHandle(directory, Process.current(), (number,))))
    return plan, active


def cpu_share(plan: Plan, active: list[ActiveRun], seconds: float) -> float:
    """The controller's own loop, on a pseudo-terminal that somebody reads."""
    from rich.console import Console
    from rich.live import Live

    ours, theirs = pty.openpty()
    threading.Thread(target=_drain, args=(ours,), daemon=True).start()
    with os.fdopen(theirs, "w") as terminal:
        console = Console(file=terminal, force_terminal=True, width=120, height=50)
        with Live(console=console, auto_refresh=False, transient=True) as live:
            table = LiveTable(live, len(active))
            began, used = time.monotonic(), time.process_time()
            while time.monotonic() - began < seconds:
                assert all(run.handle.is_alive() for run in active)
                table.show(plan, active)
                time.sleep(POLL_SECONDS)
            return (time.process_time() - used) / (time.monotonic() - began)


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 1 << 16):
            pass
    except OSError:
        pass


if __name__ == "__main__":
    main()
