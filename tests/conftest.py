"""Small worlds for the laws: a tiny token folder, tiny runs, and real processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import oelm  # noqa: F401 - sets how OpenMP threads wait, before torch is imported
from oelm.config import Execution, Model, Run, Seeds, Training, resolved
from oelm.settings import load_settings

REPOSITORY = Path(__file__).parent.parent
VOCABULARY = 64

# One thread everywhere: tests share their cores with the processes they start.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def token_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bare token files with some structure: a noisy walk, so that a model can learn from it."""
    folder = tmp_path_factory.mktemp("tokens")
    generator = np.random.default_rng(0)
    for name, length in (("train", 20_000), ("val", 4_000)):
        steps = generator.integers(0, 4, size=length)
        (np.cumsum(steps) % VOCABULARY).astype("<u2").tofile(folder / f"{name}.bin")
    return folder


def small_run(arm: str = "trained", *, data: Path | str = "unused", seed: int = 0, **training: object) -> Run:
    """A resolved run with 4 heads and 4 layers at width 32, so that every share of heads and layers is whole."""
    spec = load_settings(preset="tiny", arm=arm).run.model.attention
    settings = {"steps": 20, "batch_size": 4, "learning_rate": 1e-2, "warmup_steps": 2} | training
    return resolved(
        Run(
            arm=arm,
            model=Model(
                vocabulary=VOCABULARY, seq_len=16, d_model=32, num_layers=4, num_heads=4, d_ff=64, attention=spec
            ),
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
    """`torchrun ... -m oelm ...` on loopback with gloo."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes),
        "--master-addr", "127.0.0.1", "--master-port", str(free_port()), "-m", "oelm", *arguments,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=child_environment(), check=False)


def child_environment(**changes: str) -> dict[str, str]:
    """For children that must find the package also where it is not installed."""
    return os.environ | {"PYTHONPATH": str(REPOSITORY / "src"), "OMP_NUM_THREADS": "1"} | changes
