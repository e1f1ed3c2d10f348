"""Small runs on real text, trained for a few steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from oelm.core.config import Model, Run, Training
from oelm.core.settings import load_settings
from oelm.data.prepare import prepare
from oelm.run.training.run import train
from small_runs import quiet_execution


@pytest.fixture(scope="session")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "stories"
    prepare("stories", out=folder, stories=300, tokenizer="bpe:300")
    return folder


@pytest.fixture(scope="session")
def trained(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The run directory of an arm, its output layer tied or not, trained when first asked for."""
    runs, home = {}, tmp_path_factory.mktemp("runs")

    def run_directory(arm: str, *, tied: bool = True) -> Path:
        if (arm, tied) not in runs:
            sizes = {"seq_len": 48, "d_model": 32, "num_layers": 2, "num_heads": 4, "d_ff": 64}
            spec = load_settings(preset="tiny", arm=arm).run.model
            run = Run(
                arm=arm,
                model=Model(**sizes, parts=spec.parts, scores=spec.scores, repairs=spec.repairs, tied=tied),
                training=Training(steps=30, batch_size=8, learning_rate=1e-2),
                data=str(stories),
            )
            out = home / (arm if tied else f"{arm}_untied")
            runs[arm, tied] = train(run, quiet_execution(), out=out).directory.path
        return runs[arm, tied]

    return run_directory
