"""Real runs by `oelm train`: repeated, killed and resumed, on one process and on two. No torch here, only files."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from oelm.execution.checking.outcomes import (
    CheckFailed,
    Here,
    Outcome,
    compiled_on_a_gpu,
    finished,
    last_line,
    started,
    stop,
)
from oelm.execution.engine import several_processes
from oelm.run.directory import CHECKPOINT_FILES, RunDirectory
from oelm.storage.files import read_object, sha256_of, write_json

MODEL, MOMENTS = CHECKPOINT_FILES[:2]
STEPS, CHECKPOINT_EVERY = 24, 6
ARM = "frozen_half"  # rows that move and rows that rest, in one matrix
BATCH = 9  # two processes get parts of different size, so that a mean of means would show
# Small for a processor; on a GPU as wide as a real model, whose products use other kernels than small ones do.
SIZES: dict[str, dict[str, int]] = {
    "cpu": {"vocabulary": 512, "seq_len": 64, "d_model": 64, "num_layers": 2, "num_heads": 4},
    "cuda": {"vocabulary": 50257, "seq_len": 512, "d_model": 512, "num_layers": 6, "num_heads": 8},
}
FLOAT_LAW = 1e-10  # of a weight, in float64, after all steps
CHECKPOINT_SECONDS = 240.0  # until the first one: the start of CUDA and the compiler take most of it
POLL_SECONDS = 0.01


def repeated(here: Here) -> Outcome:
    first, second = _reference(here), _trained(here, "again", _settings(here))
    return _equal(first, second, f"{STEPS} steps of {ARM}, twice: weights and moments are equal to the last bit")


def resumed(here: Here) -> Outcome:
    first, killed = _reference(here), _prepared(here, "killed", _settings(here))
    process = started(_command(killed), log=here.folder / "killed.txt", here=here)
    try:
        at = _killed_after_a_checkpoint(process, killed, here.folder / "killed.txt")
    finally:
        stop(process)
    second = _ended(here, killed, "killed, resumed")
    resumes = read_object(second.result_file)["resumes"]
    if resumes != 1:
        raise CheckFailed(f"the second start resumed {resumes} times instead of once")
    return _equal(first, second, f"killed with signal 9 after step {at} of {STEPS}, resumed: equal to the last bit")


def in_two_processes(here: Here) -> Outcome:
    settings = _settings(here)
    settings["model"] |= SIZES["cpu"]
    settings["execution"] |= {"precision": "float64", "compile": "off"}
    one, two = _trained(here, "one", settings), _trained(here, "two", settings, processes=2)
    weights = [load_file(each.checkpoint_folder(STEPS) / MODEL) for each in (one, two)]
    apart = float(np.max([np.abs(weights[1][name] - value).max() for name, value in weights[0].items()]))
    said = (
        f"after {STEPS} steps in float64 no weight differs by more than {apart:.1e}; "
        f"at most {FLOAT_LAW:.0e} is accepted"
    )
    return Outcome("pass" if apart <= FLOAT_LAW else "fail", said, {"largest_difference": apart})


# ---- Runs ----------------------------------------------------------------------------------------------------------


def _settings(here: Here) -> dict[str, Any]:
    """A config file: everything that is not said is as any run has it."""
    return {
        "arm": ARM,
        "data": str(_data(here)),
        "model": dict(SIZES[here.kind]),
        "training": {
            "steps": STEPS, "batch_size": BATCH, "learning_rate": 1e-3, "validate_every": STEPS,
            "validation_sequences": 4, "final_validation_sequences": 4,
        },
        "execution": {
            "device": here.kind, "compile": compiled_on_a_gpu(here.kind), "checkpoint_every": CHECKPOINT_EVERY,
        },
    }  # fmt: skip


def _data(here: Here) -> Path:
    """Drawn tokens as bare files, below the smallest vocabulary in use."""
    folder = here.folder / "tokens"
    if not folder.exists():
        folder.mkdir()
        drawn, most = np.random.default_rng(0), min(size["vocabulary"] for size in SIZES.values())
        for split in ("train", "val"):
            drawn.integers(0, most, size=20_000).astype("<u2").tofile(folder / f"{split}.bin")
    return folder


def _reference(here: Here) -> RunDirectory:
    made: RunDirectory = here.once("reference run", lambda: _trained(here, "reference", _settings(here)))
    return made


def _trained(here: Here, name: str, settings: dict[str, Any], *, processes: int = 1) -> RunDirectory:
    return _ended(here, _prepared(here, name, settings), name, processes=processes)


def _prepared(here: Here, name: str, settings: dict[str, Any]) -> RunDirectory:
    write_json(here.folder / f"{name}.yaml", settings)
    return RunDirectory(here.folder / name)


def _command(run: RunDirectory, processes: int = 1) -> list[str]:
    config = run.path.with_suffix(".yaml")
    launcher = several_processes(processes)
    return [sys.executable, *launcher, "-m", "oelm", "train", str(config), "--out", str(run.path)]


def _ended(here: Here, run: RunDirectory, name: str, *, processes: int = 1) -> RunDirectory:
    code, words = finished(_command(run, processes), log=here.folder / f"{name}.txt", here=here)
    if code:
        raise CheckFailed(f"the run ended with code {code}: {words}")
    return run


def _killed_after_a_checkpoint(process: Any, run: RunDirectory, log: Path) -> int:
    """The step of its newest checkpoint when it was killed."""
    first, until = run.checkpoint_folder(CHECKPOINT_EVERY), time.monotonic() + CHECKPOINT_SECONDS
    while not first.exists():
        if process.poll() is not None:
            raise CheckFailed(f"the run ended before its first checkpoint: {last_line(log)}")
        if time.monotonic() > until:
            raise CheckFailed(f"no checkpoint within {CHECKPOINT_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)
    process.kill()
    process.wait()
    if run.result_file.exists():
        raise CheckFailed("the run was over before it could be killed, so nothing was shown; run the check again")
    return max(step for step in range(1, STEPS + 1) if run.checkpoint_folder(step).exists())


def _equal(first: RunDirectory, second: RunDirectory, said: str) -> Outcome:
    unlike = [
        name
        for name in (MODEL, MOMENTS)
        if sha256_of(first.checkpoint_folder(STEPS) / name) != sha256_of(second.checkpoint_folder(STEPS) / name)
    ]
    losses = [read_object(each.result_file)["val_loss"] for each in (first, second)]
    if unlike or losses[0] != losses[1]:
        differ = " and ".join(unlike) if unlike else "only the validation loss"
        return Outcome("fail", f"{differ} differ after step {STEPS}; validation losses {losses[0]!r} and {losses[1]!r}")
    return Outcome("pass", said, {"val_loss": losses[0]})
