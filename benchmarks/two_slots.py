"""Two slots against one: the same study of equal one-thread runs, by turns. The speed-up comes last.

    python benchmarks/two_slots.py [--runs 4] [--steps 400] [--rounds 3]

Each round runs the study twice from nothing, once with one slot and once with two, the first of them changing. Aim: at
least 1.9 on two otherwise idle cores.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from interleaved import ratio_line

VOCABULARY = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as name:
        study = write_study(Path(name), runs=options.runs, steps=options.steps)
        for number in range(options.rounds):
            order = (1, 2) if number % 2 == 0 else (2, 1)
            seconds = {slots: run_seconds(study, Path(name) / f"{number}-{slots}", slots) for slots in order}
            ratios.append(seconds[1] / seconds[2])
            print(f"round {number + 1}: one slot {seconds[1]:.1f} s, two slots {seconds[2]:.1f} s", flush=True)
    print(ratio_line("study, one slot / two slots", ratios, "at least 1.9"))


def write_study(folder: Path, *, runs: int, steps: int) -> Path:
    """Equal runs over random tokens; JSON is YAML."""
    data = folder / "data"
    data.mkdir()
    generator = np.random.default_rng(0)
    for split, length in (("train", 400_000), ("val", 40_000)):
        generator.integers(0, VOCABULARY, length).astype("<u2").tofile(data / f"{split}.bin")
    tree = {
        "question": "How much faster are two slots?",
        "base": {
            "preset": "tiny",
            "data": str(data),
            "model": {"vocabulary": VOCABULARY},
            "training": {"steps": steps, "batch_size": 8},
            "execution": {"device": "cpu", "precision": "float32", "compile": "off", "threads": 1},
        },
        "arms": ["trained"],
        "seeds": list(range(runs)),
    }
    file = folder / "two_slots.yaml"
    file.write_text(json.dumps(tree))
    return file


def run_seconds(study: Path, out: Path, slots: int) -> float:
    began = time.monotonic()
    command = [sys.executable, "-m", "oelm", "run", str(study), "--slots", str(slots), "--runs", str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
