"""The examination of one of our models: the arm's own rules, optimizer, loop and checkpoints are put to the test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from oelm.core.accounting import Totals, totals
from oelm.core.config import GptRun, Seeds
from oelm.core.model.freezing import Schedule
from oelm.core.model.parameters import implied_entries, rules
from oelm.core.model.transformer import GPT
from oelm.run.diagnosis.any_module import with_trial
from oelm.run.diagnosis.report import Diagnosis, Memory, memory_of
from oelm.run.diagnosis.steps import Trial, schedule_of, telling_steps, training_step, watched
from oelm.run.diagnosis.storage import Storage, header_shapes, stored_and_loaded, totals_by_spec
from oelm.run.diagnosis.survey import Surveyed, counted, enumerated, expected_of, survey, survey_notes
from oelm.run.diagnosis.verdict import entry_problems, storage_problems, total_problems
from oelm.run.training.loop import Diverged
from oelm.run.training.optimizer import build_optimizer


def examined(
    gpt: GPT,
    run: GptRun,
    tokens: np.ndarray,
    *,
    subject: str,
    steps: int,
    notes: list[str],
    problems: list[str],
    weights_file: Path | None = None,
) -> Diagnosis:
    """Survey, steps, save and load. `notes` and `problems` are what is known already; the steps change `gpt`."""
    optimizer, schedule = build_optimizer(gpt, run.training), schedule_of(gpt, run)
    entries = _surveyed(gpt, optimizer)
    notes = [*notes, *survey_notes(gpt, entries)]
    trial, failure = _trial(gpt, optimizer, run, tokens, schedule=schedule, steps=steps)
    if trial is not None:
        entries = with_trial(entries, trial, lambda entry: _steps_to_move_at(entry, trial, schedule))
    memory = memory_of(entries, optimizer)
    storage = _stored(gpt, run)
    counts = _counts(run, gpt, entries, storage, weights_file)
    return Diagnosis(
        subject=subject,
        entries=entries,
        counts=counts,
        memory=memory,
        trial=trial,
        storage=storage,
        notes=(*notes, *_idle_notes(entries, schedule)),
        problems=(
            *problems,
            *failure,
            *entry_problems(entries),
            *total_problems(counts),
            *_moment_problems(entries, memory),
            *storage_problems(storage),
        ),
    )


def _surveyed(gpt: GPT, optimizer: torch.optim.Optimizer) -> tuple[Surveyed, ...]:
    by_name = rules(gpt)
    # A buffer has no rule: one that looks like a weight can only be frozen.
    return survey(
        gpt,
        expected=lambda name: expected_of(by_name[name].moves) if name in by_name else "never",
        optimizer=optimizer,
    )


def _trial(
    gpt: GPT,
    optimizer: torch.optim.Optimizer,
    run: GptRun,
    tokens: np.ndarray,
    *,
    schedule: Schedule,
    steps: int,
) -> tuple[Trial | None, list[str]]:
    take = training_step(gpt, optimizer, run, tokens, schedule=schedule)
    try:
        return watched(gpt, take, telling_steps(schedule, at_least=steps), optimizer=optimizer), []
    except Diverged as error:
        return None, [f"a real step failed: {error}"]


def _steps_to_move_at(entry: Surveyed, trial: Trial, schedule: Schedule) -> tuple[int, ...]:
    if entry.kind == "buffer":
        return ()
    return tuple(number for number in trial.numbers if schedule.moves(entry.name, number))


def _stored(gpt: GPT, run: GptRun) -> Storage:
    seeds = run.seeds
    other_seeds = Seeds(weights=seeds.weights + 1, projections=seeds.projections + 1, data=seeds.data)
    return stored_and_loaded(gpt, run.model, other_seeds=other_seeds)


def _counts(
    run: GptRun, gpt: GPT, entries: tuple[Surveyed, ...], storage: Storage, weights_file: Path | None
) -> dict[str, Totals]:
    """Three ways that share no code: arithmetic on the config, the model's flags, a file's header.

    Of what is implied a file has nothing; for it the model answers.
    """
    in_file = storage.totals if weights_file is None else totals_by_spec(header_shapes(weights_file), run.model)
    implied = sum(implied_entries(gpt).values())
    return {
        "closed form": totals(run.model),
        "on the model": counted(entries, implied=implied),
        "in a checkpoint": replace(in_file, implied=implied),
    }


def _idle_notes(entries: tuple[Surveyed, ...], schedule: Schedule) -> list[str]:
    idle = [entry.name for entry in entries if entry.should_move == "by schedule" and entry.should_move_at == ()]
    if not idle:
        return []
    return [f"never moves within {schedule.steps} steps, though its schedule is not `never`: {enumerated(idle)}"]


def _moment_problems(entries: tuple[Surveyed, ...], memory: Memory) -> list[str]:
    """Where everything that may move has moved, the optimizer's state must have the size that the counts foretell."""
    if not all(entry.moved_at for entry in entries if entry.should_move in ("always", "by schedule")):
        return []
    expected = memory.with_adam - memory.weights
    if memory.optimizer_state == expected:
        return []
    return [f"the optimizer's moments take {memory.optimizer_state:,} bytes, not the {expected:,} of the counts"]
