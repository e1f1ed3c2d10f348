"""When a run of a probe counts as solved, and which of two runs solved it sooner.

A run is solved if the accuracy that it reports at its end is at least a stated level; its steps are those to the first
validation that reached it. Between two validations nobody looked, so a run solved it somewhere in an interval of steps,
and two runs whose intervals overlap solved it equally soon as far as anyone can tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from oelm.core.measures import share
from oelm.storage.metric_records import BY_DIFFICULTY

ACCURACY = "accuracy"  # of a result, and of a validation record


@dataclass(frozen=True)
class Criterion:
    """An accuracy that counts as solved: the mean over the difficulties, or that at one of them."""

    level: float
    difficulty: int | None = None

    def accuracy(self, measured: Mapping[str, Any]) -> float | None:
        """Of a result or a validation record; None where it has none."""
        if self.difficulty is None:
            return share(ACCURACY)(measured)
        return share(str(self.difficulty))(by_difficulty(measured))

    def is_met(self, measured: Mapping[str, Any]) -> bool:
        accuracy = self.accuracy(measured)
        return accuracy is not None and accuracy >= self.level


def by_difficulty(measured: Mapping[str, Any]) -> dict[str, float]:
    """The accuracy at every difficulty that is reported, the easiest first."""
    found = measured.get(BY_DIFFICULTY)
    return dict(found) if isinstance(found, dict) else {}


@dataclass(frozen=True)
class Solved:
    """Where a run solved it: after one validation, which had not reached the level, and by the next, which had."""

    after: int
    by: int

    def is_before(self, other: Solved | None) -> bool:
        """Whether it certainly came first; a run that never solved it comes after all that did."""
        return other is None or self.by <= other.after


def solved(
    criterion: Criterion, result: Mapping[str, Any], validations: Iterable[Mapping[str, Any]], *, steps: int
) -> Solved | None:
    """From a run's result and its validation records, by step; None: not solved at the end, whatever it was before.

    The reported accuracy may be of more examples than those of the curve: if only it reaches the level, the run solved
    it by its last step.
    """
    if not criterion.is_met(result):
        return None
    after = 0
    for record in validations:
        if criterion.is_met(record):
            return Solved(after, record["step"])
        if record["step"] < steps:
            after = record["step"]
    return Solved(after, steps)
