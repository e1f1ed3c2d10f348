"""Warm starts against cold ones: the same study of short one-thread runs, by turns. The ratio comes last.

    python benchmarks/warm_starts.py [--runs 16] [--seconds 4] [--slots 2] [--rounds 3] [--before COMMIT]

First runs, not counted, say how many steps a run of so many seconds has, without its start: steps, validations and
checkpoints, from the first to the end. Each round then runs the study twice from nothing, once cold and once warm, the
first of them changing. Aim: warm takes at most 0.6 of the time of cold on two otherwise idle cores. With --before, each
round also runs it with the sources of another commit, cold as all starts once were: what users gained by starts of both
kinds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import mean

from interleaved import checkout, environment_for, ratio_line
from oelm.execution.controller import Controller
from oelm.execution.local import LocalEngine, LocalSlots, units_here
from oelm.execution.warm_server import WarmStarts
from oelm.storage.files import read_json
from oelm.study.reading import load_study
from ratios import paired
from two_slots import write_study

STEPS_TO_MEASURE = 40
STARTS = ("cold", "warm")
BEFORE = "before"


class Silent:
    def say(self, line: str) -> None: ...
    def show(self, plan: object, active: object) -> None: ...


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a run without its start")
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", metavar="COMMIT", help="compare with the starts of this commit too")
    parser.add_argument("--one", nargs=3, metavar=("STARTS", "STUDY", "OUT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        starts, study, out = options.one
        run_study(Path(study), Path(out), slots=options.slots, warm=WarmStarts() if starts == "warm" else None)
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        then = stack.enter_context(checkout(options.before)) / "src" if options.before else None
        seconds = measured(folder, then, options)
    if then:
        for starts in STARTS:
            print(
                ratio_line(
                    f"study of short runs, {starts} / {options.before}", paired(seconds[starts], seconds[BEFORE]), "-"
                )
            )
    print(ratio_line("study of short runs, warm / cold", paired(seconds["warm"], seconds["cold"]), "at most 0.6"))


def measured(folder: Path, then: Path | None, options: argparse.Namespace) -> dict[str, list[float]]:
    first, slots = folder / "first", options.slots
    first.mkdir()
    study = write_study(first, runs=2 * slots, steps=STEPS_TO_MEASURE)
    took = study_seconds("warm", study, first / "out", slots=slots)[1]
    steps = max(1, round(STEPS_TO_MEASURE * options.seconds / took))
    print(f"{options.runs} runs of {steps} steps on {slots} slots", flush=True)
    study = write_study(folder, runs=options.runs, steps=steps)
    contenders = [*STARTS, BEFORE] if then else list(STARTS)
    seconds: dict[str, list[float]] = {starts: [] for starts in contenders}
    for number in range(options.rounds):
        told = []
        for starts in contenders if number % 2 == 0 else contenders[::-1]:
            sources = then if starts == BEFORE else None
            out = folder / f"{number}-{starts}"
            took, of_a_run = study_seconds(starts, study, out, slots=slots, sources=sources)
            seconds[starts].append(took)
            told.append(f"{starts} {took:.1f} s ({of_a_run:.1f} s a run without its start)")
        print(f"round {number + 1}: {', '.join(told)}", flush=True)
    return seconds


def study_seconds(
    starts: str, study: Path, out: Path, *, slots: int, sources: Path | None = None
) -> tuple[float, float]:
    """Of the whole study, by a controller of its own, and the mean of what its runs took without their start."""
    began = time.monotonic()
    command = [sys.executable, __file__, "--slots", str(slots), "--one", starts, str(study), str(out)]
    if starts == BEFORE:
        command = [sys.executable, "-m", "oelm", "run", str(study), "--slots", str(slots), "--runs", str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment_for(sources))
    seconds = time.monotonic() - began
    return seconds, mean(read_json(file)["wall_seconds"] for file in out.glob("*/experiment_result.json"))


def run_study(file: Path, out: Path, *, slots: int, warm: WarmStarts | None) -> None:
    units = units_here(slots, device="cpu", threads=1)
    plan = Controller(load_study(file), LocalSlots(LocalEngine(out), units, warm=warm), Silent()).go()
    assert all(run.state == "finished" for run in plan.runs)


if __name__ == "__main__":
    main()
