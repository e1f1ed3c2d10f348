"""What is timed: the training step of `oelm train`, on the run's own data or, where there is none, on drawn tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oelm.core.config import Encoder, GptRun, ResolvedRun, Run, facts_of, resolved
from oelm.core.model.freezing import Schedule
from oelm.core.probes.probe import is_probe
from oelm.data.folders import Data, ProbeData
from oelm.data.prepared import MANIFEST
from oelm.data.sentences import SentenceData
from oelm.data.tokens import GPT2_VOCABULARY, TokenData, file_name
from oelm.run.training.assembly import assembled, gpt_on_device, with_optimizer
from oelm.run.training.device import Machine
from oelm.run.training.distributed import World
from oelm.run.training.loop import optimization_steps
from oelm.run.training.next_token import NextToken
from oelm.run.training.run import run_with_data

# Neither changes what a step costs: the loop must not end, and the weights must not run away.
MANY_STEPS, SMALL_LEARNING_RATE = 10**6, 1e-5
DRAWN_TOKENS = 65_536


@dataclass(frozen=True, eq=False)
class Workload:
    """What the steps read, and how to call it: a folder of data, or drawn tokens."""

    data: Data | np.ndarray
    facts: dict[str, Any]  # what it says of the model
    digest: str
    description: str


def workload_of(run: Run, *, assumed: dict[str, Any] | None = None) -> Workload:
    """The data a run names, checked; where it is not at hand, seeded random tokens of the vocabulary it would have.

    An encoder's weights come with its data: without it there is nothing to measure.
    """
    path = Path(run.data)
    folder = path.parent if path.name == file_name("train") else path
    has_data = (folder / MANIFEST).is_file() or (folder / file_name("train")).is_file()
    if isinstance(run.model, Encoder) or is_probe(run.data) or has_data:
        known, data = run_with_data(run)
        return Workload(data, facts_of(known.model), data.digest, run.data)
    vocabulary = run.model.vocabulary or (assumed or {}).get("vocabulary") or GPT2_VOCABULARY
    return drawn_tokens(run, vocabulary=vocabulary, seq_len=run.model.seq_len)


def drawn_tokens(run: Run, *, vocabulary: int, seq_len: int) -> Workload:
    count = max(DRAWN_TOKENS, (run.training.batch_size + 2) * seq_len + 1)
    tokens = np.random.default_rng(0).integers(0, vocabulary, size=count, dtype=np.uint32)
    description = f"drawn at random, vocabulary {vocabulary:,}: no data at {run.data}"
    return Workload(tokens, {"vocabulary": vocabulary}, "", description)


class _FirstStep(Schedule):
    """Whatever moves at step 1 moves at every step: a measurement has one state."""

    def moves(self, name: str, step: int) -> bool:
        return super().moves(name, 1)


class TimedArm:
    """A model with its optimizer, ready to take one training step after another."""

    def __init__(self, run: Run, machine: Machine, workload: Workload, *, world: World | None = None) -> None:
        world = world or World()
        match _endless(resolved(run, workload.facts)), workload.data:
            case known, (TokenData() | SentenceData() | ProbeData()) as data:
                self.objective, self.optimizer, schedule = assembled(known, data, machine=machine, world=world)
            case GptRun() as known, tokens:
                gpt = gpt_on_device(known, machine)
                objective = NextToken(gpt, known, train=tokens, held_out=tokens, machine=machine, world=world)
                self.objective, self.optimizer, schedule = with_optimizer(objective, known)
            case _:
                raise TypeError("an encoder reads no drawn tokens")
        first = _FirstStep(schedule.rules, steps=schedule.steps, num_layers=schedule.num_layers)
        self._steps = optimization_steps(
            self.objective, self.optimizer, known, schedule=first, machine=machine, world=world
        )

    def step(self) -> float:
        """Seconds of one step, the device synchronised before and after."""
        return next(self._steps).seconds


def _endless(run: ResolvedRun) -> ResolvedRun:
    changes = {"steps": MANY_STEPS, "learning_rate": SMALL_LEARNING_RATE}
    return run.model_copy(update={"training": run.training.model_copy(update=changes)})
