"""Small worlds for the laws: tiny runs, and real processes."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oelm.core.config import Execution, Model, Run, Seeds, Training, resolved
from oelm.core.settings import load_settings
from warm import BELOW_TRANSFORMERS, FORKED_PARTS, FORKED_RANKS, Running, shared_server

REPOSITORY = Path(__file__).parent.parent
VOCABULARY = 64


SMALL = {"vocabulary": VOCABULARY, "seq_len": 16, "d_model": 32, "num_layers": 4, "num_heads": 4, "d_ff": 64}


def small_model(arm: str = "trained", **settings: object) -> Model:
    """4 heads and 4 layers at width 32, so that every share of heads and layers is whole; as the arm says."""
    whole = load_settings(preset="tiny", arm=arm).run.model
    of_the_arm = {"parts": whole.parts, "scores": whole.scores, "repairs": whole.repairs}
    return Model(**SMALL | of_the_arm | settings)


def small_run(arm: str = "trained", *, data: Path | str = "unused", seed: int = 0, **training: object) -> Run:
    """A resolved run of a small model."""
    settings = {"steps": 20, "batch_size": 4, "learning_rate": 1e-2, "warmup_steps": 2} | training
    return resolved(
        Run(
            arm=arm,
            model=small_model(arm),
            training=Training(**settings),
            seeds=Seeds(weights=seed, projections=seed, data=seed),
            data=str(data),
        )
    )


def quiet_execution(**settings: object) -> Execution:
    return Execution(**({"device": "cpu", "precision": "float32", "compile": "off", "threads": 1} | settings))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def torchrun(*arguments: str, processes: int = 2, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    """torchrun on loopback, with gloo. The agent is warm, and its ranks are forked from it."""
    words = ["--nproc-per-node", processes, "--master-addr", "127.0.0.1", "--master-port", free_port()]
    return warm_script("torch.distributed.run", *words, *arguments, timeout=timeout, patch=FORKED_RANKS)


def child_environment(**changes: str) -> dict[str, str]:
    """For children that must find the package also where it is not installed."""
    return os.environ | {"PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY / 'tests'}", "OMP_NUM_THREADS": "1"} | changes


def finished(command: list[str], *, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    """Run to the end, with what it printed."""
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, env=child_environment(), check=False
    )


def oelm_command(*arguments: object, timeout: float = 240, **place: Any) -> subprocess.CompletedProcess[str]:
    return warm_script("oelm.__main__", *arguments, timeout=timeout, **place)


def warm_script(
    program: str,
    *arguments: object,
    timeout: float = 240,
    cwd: Path | None = None,
    variables: dict[str, str] | None = None,
    patch: str = FORKED_PARTS,
) -> subprocess.CompletedProcess[str]:
    """A script, or a module with a `main`, in a process that has torch already; in this folder and environment. Parts
    that it starts are forked from it."""
    running = shared_server().start(*arguments, program=program, patch=patch, **_place(cwd, variables))
    return _ended(running, program, timeout)


def warm_python(code: str, *arguments: object, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    """`python -c CODE`, in a process that has what transformers needs and neither it nor oelm."""
    running = shared_server(BELOW_TRANSFORMERS).start(*arguments, program="", patch=code, **_place())
    return _ended(running, "-c", timeout)


def _place(cwd: Path | None = None, variables: dict[str, str] | None = None) -> dict[str, Any]:
    return {"cwd": cwd or Path.cwd(), "variables": variables or child_environment()}


def _ended(running: Running, program: str, timeout: float) -> subprocess.CompletedProcess[str]:
    ended = running.wait(timeout)
    return subprocess.CompletedProcess([program], ended.code, ended.out, ended.err)


PATIENCE = 400.0  # seconds, on a busy machine


def eventually(condition: Callable[[], Any], *, what: str) -> Any:
    """The first true value of a condition."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"waited in vain for: {what}")
