"""`oelm report` over runs with metric files of 1,000,000 lines: the aim is 10 s of processor time, in bounded memory.

Two arms of three seeds are invented and stored; then the metrics of none, one, and all six are made long, which is not
timed. Each report is a process of its own, with its imports, both languages and all formats; the first row is what it
takes with short files. Prints processor seconds and the highest resident memory.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

SEEDS = 3
ARMS = ["trained", "frozen_head_orthogonal"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--validations", action="store_true", help="every line a validation record, the harder case")
    arguments = parser.parse_args()
    print(f"processor seconds and memory of a report, metrics of {arguments.lines:,} lines in")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = store(folder, steps=arguments.lines)
        long = write_long(folder / "long.jsonl", lines=arguments.lines, validations=arguments.validations)
        for first, count in ((0, 0), (0, 1), (1, len(runs))):
            for run in runs[first:count]:
                lengthen(run, long)
            seconds, mebibytes = reported(folder)
            print(f"  {count} of {len(runs)} runs: {seconds:.1f} s, {mebibytes:.0f} MiB", flush=True)


def store(folder: Path, *, steps: int) -> list[Path]:
    """A study's file, and its finished runs with a few records each."""
    from oelm.study.reading import study_of
    from stored_runs import store_study

    tree = {
        "name": "long",
        "question": "How long does a report of long runs take?",
        "base": {
            "model": {"seq_len": 16, "d_model": 32, "num_layers": 2, "num_heads": 4},
            "training": {"steps": steps, "batch_size": 4, "learning_rate": 1e-3},
            "data": "data/small",
        },
        "arms": ARMS,
        "seeds": list(range(SEEDS)),
    }
    (folder / "long.yaml").write_text(json.dumps(tree), encoding="utf-8")
    study = study_of(tree, name="long")
    store_study(study, folder / "runs", lambda arm, seed, stage, point: 2.0 + 0.01 * (seed + ARMS.index(arm)))
    return sorted(path.parent for path in (folder / "runs").glob("*/config.json"))


def write_long(file: Path, *, lines: int, validations: bool) -> Path:
    """A record a step, in the order a run writes them."""
    with open(file, "w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(record(step, validation=validations)) + "\n" for step in range(1, lines + 1))
    return file


def lengthen(run: Path, long: Path) -> None:
    """The long stream, and then what the run has; sealed again."""
    from stored_runs import sealed_again

    file = run / "metrics.jsonl"
    short = file.read_bytes()
    shutil.copyfile(long, file)
    with open(file, "ab") as stream:
        stream.write(short)
    sealed_again(run)


def record(step: int, *, validation: bool) -> dict[str, Any]:
    place = {"step": step, "tokens": step * 64, "seconds": round(step * 0.05, 4)}
    loss = 2.0 + 2.0 / (1 + step / 1000)
    if validation:
        return place | {"validation_seconds": place["seconds"] / 10, "val_loss": loss, "perplexity": 7.4}
    return place | {"train_loss": loss, "learning_rate": 1e-3, "gradient_norm": 0.5123, "clipped_fraction": 0.0}


def reported(folder: Path) -> tuple[float, float]:
    """Processor seconds and highest resident memory, in MiB, of `oelm report`."""
    command = ["report", folder / "long.yaml", "--runs", folder / "runs", "--out", folder / "report"]
    process = subprocess.Popen([sys.executable, "-m", "oelm", *command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


if __name__ == "__main__":
    main()
