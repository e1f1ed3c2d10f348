"""The diagnosis of any torch module: what it holds, what moves, what a save and a load keep."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from oelm.core.model.parameters import implied_entries
from oelm.run.diagnosis.report import Diagnosis, entry_problems, memory_of, storage_problems, total_problems
from oelm.run.diagnosis.steps import Trial, random_gradient_step, restored, watched
from oelm.run.diagnosis.storage import any_stored_and_loaded
from oelm.run.diagnosis.survey import Surveyed, counted, expected_of_module, survey, survey_notes


def diagnose(
    module: nn.Module,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    should_move: Callable[[str], bool] | None = None,
    step: Callable[[], object] | None = None,
    steps: int = 3,
) -> Diagnosis:
    """What is frozen in a module, and whether it stays so.

    `should_move` says by name what ought to move; without it, what requires a gradient. `step` takes one real training
    step with the module and the optimizer; without it, an optimizer is given drawn gradients. Afterwards module and
    optimizer are what they were before.
    """
    entries = survey(module, expected=expected_of_module(module, should_move), optimizer=optimizer)
    notes = survey_notes(module, entries)
    trial = storage = None
    with restored(module, optimizer):
        if step is not None:
            trial = watched(module, lambda number: step(), range(1, steps + 1), optimizer=optimizer)
        elif optimizer is not None:
            take = partial(random_gradient_step, module, optimizer)
            trial = watched(module, take, range(1, steps + 1), optimizer=optimizer)
        if trial is not None:
            should = {"always": trial.numbers, "never": ()}  # a schedule's steps are not known here
            entries = with_trial(entries, trial, lambda entry: should.get(entry.should_move or ""))
        memory = memory_of(entries, optimizer)
        try:
            storage = any_stored_and_loaded(module, entries)
        except (RuntimeError, TypeError, copy.Error) as error:  # a module need not be copyable
            notes.append(f"saving and loading was not tested: {str(error).splitlines()[0]}")
    if step is None:
        notes.append(
            "no step and no optimizer were given, so whether weights move was not tested"
            if optimizer is None
            else "no step was given, so the optimizer stepped on random gradients"
        )
    implied = sum(implied_entries(module).values())
    counts = {"on the module": counted(entries, implied=implied)}
    if storage:
        counts["in a saved file"] = replace(storage.totals, implied=implied)
    return Diagnosis(
        subject=type(module).__name__,
        entries=entries,
        counts=counts,
        memory=memory,
        trial=trial,
        storage=storage,
        notes=tuple(notes),
        problems=(
            *entry_problems(entries),
            *total_problems(counts),
            *(storage_problems(storage) if storage else ()),
        ),
    )


def with_trial(
    entries: tuple[Surveyed, ...], trial: Trial, should_move_at: Callable[[Surveyed], tuple[int, ...] | None]
) -> tuple[Surveyed, ...]:
    """The entries with what the steps have shown."""
    return tuple(
        replace(
            entry,
            should_move_at=should_move_at(entry),
            moved_at=trial.moved_at[entry.name],
            had_gradient=None if trial.with_gradient is None else entry.name in trial.with_gradient,
        )
        for entry in entries
    )
