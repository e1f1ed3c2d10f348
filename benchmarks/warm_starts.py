"""Warm starts against cold ones: the same study of short one-thread runs, by turns. The ratio comes last.

    python benchmarks/warm_starts.py [--runs 16] [--seconds 4] [--slots 2] [--rounds 3]

A first run, not counted, says how many steps take so many seconds of training. Each round then runs the study twice
from nothing, once cold and once warm, the first of them changing. Aim: warm takes at most 0.6 of the time of cold on
two otherwise idle cores.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean

from interleaved import ratio_line
from oelm.experiments.controller import Controller
from oelm.experiments.local import LocalEngine, LocalSlots, units_here
from oelm.experiments.warm_starts import WarmStarts
from oelm.files import read_json
from oelm.study.reading import load_study
from two_slots import write_study

STEPS_TO_MEASURE = 40
STARTS = ("cold", "warm")


class Silent:
    def say(self, line: str) -> None: ...
    def show(self, plan: object, active: object) -> None: ...


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=4.0, help="of training in a run")
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=3, metavar=("STARTS", "STUDY", "OUT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        starts, study, out = options.one
        run_study(Path(study), Path(out), slots=options.slots, warm=WarmStarts() if starts == "warm" else None)
        return
    with tempfile.TemporaryDirectory() as name:
        ratios = measured(Path(name), options)
    print(ratio_line("study of short runs, warm / cold", ratios, "at most 0.6"))


def measured(folder: Path, options: argparse.Namespace) -> list[float]:
    first = folder / "first"
    first.mkdir()
    took = study_seconds("cold", write_study(first, runs=1, steps=STEPS_TO_MEASURE), first / "out", slots=1)[1]
    steps = max(1, round(STEPS_TO_MEASURE * options.seconds / took))
    print(f"{options.runs} runs of {steps} steps on {options.slots} slots", flush=True)
    study, ratios = write_study(folder, runs=options.runs, steps=steps), []
    for number in range(options.rounds):
        order = STARTS if number % 2 == 0 else STARTS[::-1]
        seconds = {
            starts: study_seconds(starts, study, folder / f"{number}-{starts}", slots=options.slots) for starts in order
        }
        ratios.append(seconds["warm"][0] / seconds["cold"][0])
        told = ", ".join(f"{starts} {seconds[starts][0]:.1f} s ({seconds[starts][1]:.1f} s a run)" for starts in STARTS)
        print(f"round {number + 1}: {told}", flush=True)
    return ratios


def study_seconds(starts: str, study: Path, out: Path, *, slots: int) -> tuple[float, float]:
    """Of the whole study, by a controller of its own, and the mean of what its runs say that training took."""
    began = time.monotonic()
    command = [sys.executable, __file__, "--slots", str(slots), "--one", starts, str(study), str(out)]
    subprocess.run(command, check=True)
    seconds = time.monotonic() - began
    return seconds, mean(read_json(file)["training_seconds"] for file in out.glob("*/experiment_result.json"))


def run_study(file: Path, out: Path, *, slots: int, warm: WarmStarts | None) -> None:
    units = units_here(slots, device="cpu", threads=1)
    plan = Controller(load_study(file), LocalSlots(LocalEngine(out), units, warm=warm), Silent()).go()
    assert all(run.state == "finished" for run in plan.runs)


if __name__ == "__main__":
    main()
