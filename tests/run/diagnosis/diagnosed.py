"""Small runs, and what a diagnosis says of them."""

from __future__ import annotations

from oelm.core.arms import GPT_ARMS
from oelm.core.config import Model, Run, Training
from oelm.run.diagnosis import Diagnosis, diagnose_arm

SIZES = {"vocabulary": 101, "seq_len": 16, "d_model": 32, "num_layers": 2, "num_heads": 4, "d_ff": 64}
QUERY = "blocks.0.attention.query.weight"


def small_gpt_run(arm: str, *, steps: int = 40) -> Run:
    return Run(arm=arm, model=Model(**SIZES | dict(GPT_ARMS[arm])), training=Training(steps=steps, batch_size=4))


def diagnosed(arm: str, **settings) -> Diagnosis:
    return diagnose_arm(small_gpt_run(arm, **settings), data_given=False, steps=2)


def moved_at(diagnosis: Diagnosis, name: str) -> tuple[int, ...] | None:
    return next(entry.moved_at for entry in diagnosis.entries if entry.name == name)


def says(diagnosis: Diagnosis, *words: str) -> bool:
    """Unhealthy, and one problem holds all the words."""
    return not diagnosis.healthy and any(all(word in problem for word in words) for problem in diagnosis.problems)
