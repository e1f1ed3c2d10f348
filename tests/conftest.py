"""What every test may use, and how threads behave while tests share their cores with processes they start."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

import oelm  # noqa: F401 - sets how OpenMP threads wait, before torch is imported
from small_runs import VOCABULARY

os.environ.setdefault("OMP_NUM_THREADS", "1")

# Started in the background of a script, or under nohup, we ignore these signals, and so would every process we start.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)


# Their tests wait for real processes, servers and clusters. Begun last, one such file would go on alone at the end.
FIRST = {"experiments", "remote", "faults", "compat", "test_wheel.py"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: FIRST.isdisjoint((item.path.parent.name, item.path.name)))


@pytest.fixture(scope="session")
def token_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bare token files with some structure: a noisy walk, so that a model can learn from it."""
    folder = tmp_path_factory.mktemp("tokens")
    generator = np.random.default_rng(0)
    for name, length in (("train", 20_000), ("val", 4_000)):
        steps = generator.integers(0, 4, size=length)
        (np.cumsum(steps) % VOCABULARY).astype("<u2").tofile(folder / f"{name}.bin")
    return folder
