"""A small run, stored."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy
import pytest
from diagnosed import small_gpt_run

from oelm.core.config import Execution
from oelm.run.training.run import train


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name in ("train", "val"):
        numpy.random.default_rng(0).integers(101, size=600).astype("<u2").tofile(folder / f"{name}.bin")
    return folder


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "frozen"
    run = small_gpt_run("frozen_half", steps=4).model_copy(update={"data": str(data)})
    train(run, Execution(precision="float32", compile="off", threads=1), out=out)
    return out


@pytest.fixture
def run_copy(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "copy"))
