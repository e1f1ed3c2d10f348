"""What is timed: the training step of `oelm train`, on the run's own data or, where there is none, on drawn tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oelm.config import Run, resolved
from oelm.data.batches import TrainingBatches
from oelm.data.tokens import GPT2_VOCABULARY, MANIFEST, file_name
from oelm.training.assembly import assembled
from oelm.training.device import Machine
from oelm.training.distributed import World
from oelm.training.freezing import Schedule
from oelm.training.loop import optimization_steps
from oelm.training.run import run_with_data

# Neither changes what a step costs: the loop must not end, and the weights must not run away.
MANY_STEPS, SMALL_LEARNING_RATE = 10**6, 1e-5
DRAWN_TOKENS = 65_536


@dataclass(frozen=True, eq=False)
class Tokens:
    """What the steps read, and how to call it."""

    train: np.ndarray
    held_out: np.ndarray
    vocabulary: int
    digest: str
    description: str


def tokens_of(run: Run, *, assumed: dict[str, Any] | None = None) -> Tokens:
    """The data a run names, checked; where it is not at hand, seeded random tokens of the vocabulary it would have."""
    if _has_data(Path(run.data)):
        run, data = run_with_data(run)
        assert run.model.vocabulary is not None
        held_out = data.splits[run.training.validation_split]
        return Tokens(data.splits["train"], held_out, run.model.vocabulary, data.digest, str(data.folder))
    return drawn_tokens(run, vocabulary=run.model.vocabulary or (assumed or {}).get("vocabulary") or GPT2_VOCABULARY)


def drawn_tokens(run: Run, *, vocabulary: int) -> Tokens:
    count = max(DRAWN_TOKENS, (run.training.batch_size + 2) * run.model.seq_len + 1)
    tokens = np.random.default_rng(0).integers(0, vocabulary, size=count, dtype=np.uint32)
    return Tokens(tokens, tokens, vocabulary, "", f"drawn at random, vocabulary {vocabulary:,}: no data at {run.data}")


def _has_data(path: Path) -> bool:
    folder = path.parent if path.name == file_name("train") else path
    return (folder / MANIFEST).is_file() or (folder / file_name("train")).is_file()


class _FirstStep(Schedule):
    """Whatever moves at step 1 moves at every step: a measurement has one state."""

    def moves(self, name: str, step: int) -> bool:
        return super().moves(name, 1)


class TimedArm:
    """A model with its optimizer, ready to take one training step after another."""

    def __init__(self, run: Run, machine: Machine, tokens: Tokens) -> None:
        run = _endless(resolved(run, {"vocabulary": tokens.vocabulary}))
        self.gpt, self.optimizer, schedule = assembled(run, machine)
        training, seq_len = run.training, run.model.seq_len
        self._steps = optimization_steps(
            self.gpt,
            self.optimizer,
            TrainingBatches(tokens.train, seq_len, training.batch_size, run.seeds.data),
            run,
            schedule=_FirstStep(schedule.rules, steps=schedule.steps, num_layers=schedule.num_layers),
            machine=machine,
            world=World(),
        )

    def step(self) -> float:
        """Seconds of one step, the device synchronised before and after."""
        return next(self._steps).seconds


def _endless(run: Run) -> Run:
    changes = {"steps": MANY_STEPS, "learning_rate": SMALL_LEARNING_RATE}
    return run.model_copy(update={"training": run.training.model_copy(update=changes)})
