"""What the controller itself costs for each run of a grid: runs that end at once, 10, 100 and 1,000 of them.

    python benchmarks/controller_overhead.py [--runs 10 100 1000] [--slots 2]

Each run is a copy of two small files that say "finished". Beside it: the same copies without a controller, one after
another; and, where Slurm's programs are installed, the submission of as many held jobs to a cluster on loopback, and
one look at its queue. Milliseconds a run come last.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import loopback_slurm
from oelm.execution import engine as engine_module
from oelm.execution.controller import Controller
from oelm.execution.engine import Slots
from oelm.execution.local import LocalEngine, LocalSlots, Unit
from oelm.execution.slurm import SlurmEngine, SlurmSlots
from oelm.run.directory import RunDirectory
from oelm.storage.files import write_json
from oelm.study.declaration import Study
from oelm.study.reading import study_of
from oelm.study.slurm_request import SlurmRequest

VOCABULARY = 64
COPY = shutil.which("cp") or "cp"


class Silent:
    def say(self, line: str) -> None: ...
    def show(self, plan: object, active: object) -> None: ...


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--slots", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = [local_line(folder, count, options.slots) for count in options.runs]
        missing = loopback_slurm.missing()
        if missing:
            lines.append(f"Slurm: not measured, {missing}")
        else:
            with loopback_slurm.cluster(folder / "cluster") as cluster:
                os.environ["SLURM_CONF"] = cluster.environment["SLURM_CONF"]
                lines += [slurm_line(folder, count) for count in options.runs]
    print("\n".join(lines))


def local_line(folder: Path, count: int, units: int) -> str:
    finished = finished_files(folder / f"finished-{count}")
    engine_module.train_command = lambda directory, processes: [COPY, *finished, str(directory.path)]
    study = study_of_runs(folder, count)
    began, processor = time.monotonic(), time.process_time()
    engine = LocalEngine(folder / f"local-{count}")
    controller = controller_of(study, LocalSlots(engine, [Unit(n, None) for n in range(units)], warm=None))
    plan = controller.go()
    seconds, processor = time.monotonic() - began, time.process_time() - processor
    assert all(run.state == "finished" for run in plan.runs), controller.given_up
    bare = bare_seconds(finished, folder / f"bare-{count}", count)
    return (
        f"{count} runs on {units} slots: {1000 * seconds / count:.1f} ms a run ({1000 * processor / count:.1f} ms of "
        f"the controller's processor time); without a controller {1000 * bare / count:.1f} ms"
    )


def slurm_line(folder: Path, count: int) -> str:
    study, engine = study_of_runs(folder, count), SlurmEngine(folder / f"slurm-{count}")
    began = time.monotonic()
    controller = controller_of(study, SlurmSlots(engine, study, SlurmRequest(options=["--hold"])))
    controller.go(waits=False)
    submitted = time.monotonic() - began
    engine.queue.look_soon()
    began = time.monotonic()
    assert all(run.handle.is_waiting for run in controller.active)
    looked = time.monotonic() - began
    controller.engines.cancel(run.handle for run in controller.active)
    return (
        f"{count} runs on Slurm: submitted in {submitted:.2f} s, {1000 * submitted / count:.1f} ms a run; "
        f"one look at the queue {looked:.2f} s"
    )


def controller_of(study: Study, slots: Slots) -> Controller:
    return Controller(study, slots, Silent())


def bare_seconds(files: list[str], folder: Path, count: int) -> float:
    began = time.monotonic()
    for number in range(count):
        target = folder / str(number)
        target.mkdir(parents=True)
        subprocess.run([COPY, *files, str(target)], check=True, stdin=subprocess.DEVNULL, start_new_session=True)
    return time.monotonic() - began


def finished_files(folder: Path) -> list[str]:
    """What a finished run leaves behind, as far as the controller reads it."""
    folder.mkdir()
    directory = RunDirectory(folder)
    directory.write_status("finished", steps=4)
    write_json(directory.result_file, {"val_loss": 3.0, "steps": 4, "training_seconds": 0.1})
    return [str(directory.status_file), str(directory.result_file)]


def study_of_runs(folder: Path, count: int) -> Study:
    data = folder / "data"
    if not data.exists():
        data.mkdir()
        for split in ("train", "val"):
            np.random.default_rng(0).integers(0, VOCABULARY, 20_000).astype("<u2").tofile(data / f"{split}.bin")
    tree = {
        "name": "overhead",
        "question": "What does the controller cost?",
        "base": {"preset": "tiny", "data": str(data), "model": {"vocabulary": VOCABULARY}, "execution": {"threads": 1}},
        "arms": ["trained", "frozen_head_orthogonal"],
        "seeds": list(range(count // 2)),
    }
    return study_of(tree, name="overhead")


if __name__ == "__main__":
    main()
