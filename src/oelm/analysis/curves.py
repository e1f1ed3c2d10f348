"""Curves of an arm: seeds at the steps they share, and what it took to reach a target."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from oelm.analysis.findings import Curve, Reached
from oelm.storage.metric_records import Record

PLACE = ("step", "tokens", "seconds")


def with_value(records: Sequence[Record], name: str) -> list[Record]:
    """The records that hold a finite number of this name, and their place, by step."""
    kept = [record for record in records if all(_is_finite(record.get(key)) for key in (name, *PLACE))]
    return sorted(kept, key=lambda record: record["step"])


def mean_curve(runs: Sequence[Sequence[Record]], name: str) -> Curve | None:
    """Over the steps that all runs recorded; None if there are none."""
    by_step = [{record["step"]: record for record in with_value(records, name)} for records in runs]
    if not by_step:
        return None
    steps = sorted(set.intersection(*(set(run) for run in by_step)))
    if not steps:
        return None
    values = [[run[step][name] for run in by_step] for step in steps]
    return Curve(
        steps=steps,
        tokens=[by_step[0][step]["tokens"] for step in steps],
        seconds=[fmean(run[step]["seconds"] for run in by_step) for step in steps],
        mean=[fmean(at_step) for at_step in values],
        low=[min(at_step) for at_step in values],
        high=[max(at_step) for at_step in values],
    )


def reached(runs: Sequence[Sequence[Record]], target_loss: float, *, flops_per_token: float) -> Reached | None:
    """Where the validation curves first come down to a loss; None if none does."""
    crossings = [place for records in runs if (place := _crossing(with_value(records, "val_loss"), target_loss))]
    if not crossings:
        return None
    steps, tokens, seconds = (fmean(column) for column in zip(*crossings, strict=True))
    return Reached(len(crossings), steps, tokens, seconds, tokens * flops_per_token)


def _crossing(curve: list[Record], target_loss: float) -> tuple[float, ...] | None:
    """Step, tokens and seconds, between two records in proportion."""
    if not curve:
        return None
    if curve[0]["val_loss"] <= target_loss:
        return tuple(float(curve[0][place]) for place in PLACE)
    for before, after in itertools.pairwise(curve):
        if after["val_loss"] <= target_loss:
            part = (before["val_loss"] - target_loss) / (before["val_loss"] - after["val_loss"])
            return tuple(before[place] + part * (after[place] - before[place]) for place in PLACE)
    return None


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
