"""The floor of a measure: what is reached without having learnt anything, and with having learnt little.

Of text it is the loss of two tables of the training tokens, of labelled sentences the most common label, of a probe a
guess: one notion, whatever it is called. The measure says how a run's result tells it; nobody else knows the keys.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

STANDARD_ERRORS = 2  # a share of examples is clear of a guess by so many
UNIGRAM, BIGRAM = "unigram_loss", "bigram_loss"  # in a run's result and in floor.json
SEEN = "seen_in_train"  # there too: the share of what is reported that also stands in train


@dataclass(frozen=True)
class Floor:
    """In the values that a measure compares."""

    learnt_nothing: float
    learnt_little: float | None = None  # None: there is no such level
    little_at: Mapping[str, float] = field(default_factory=dict)  # of a probe, at each difficulty
    examples: int | None = None  # of which a guesser is right by chance; None: nothing is guessed
    seen_in_train: float | None = None  # a share of what is reported; None: nobody looked

    def little(self, difficulty: int | None) -> float | None:
        return self.learnt_little if difficulty is None else self.little_at.get(str(difficulty))

    def allowance(self, level: float) -> float:
        """How far beyond a level a guesser may come by chance."""
        return STANDARD_ERRORS * accuracy_standard_error(level, self.examples) if self.examples else 0.0


def accuracy_standard_error(accuracy: float, examples: int) -> float:
    """Of one classifier's accuracy, over the draw of its examples."""
    return math.sqrt(accuracy * (1 - accuracy) / examples)


def of_text(result: Mapping[str, Any], labels: Sequence[int]) -> Floor | None:
    unigram, bigram = result.get(UNIGRAM), result.get(BIGRAM)
    return None if unigram is None or bigram is None else Floor(unigram, bigram, seen_in_train=result.get(SEEN))


def of_labels(result: Mapping[str, Any], labels: Sequence[int]) -> Floor | None:
    """Whoever always names the most common label of the reported split."""
    if not labels:
        return None
    most_common = max(map(labels.count, set(labels))) / len(labels)
    return Floor(most_common, examples=len(labels), seen_in_train=result.get(SEEN))


def of_guesses(result: Mapping[str, Any], labels: Sequence[int]) -> Floor | None:
    """Among all tokens, and among what the context offers."""
    blind, in_context = result.get("chance_blind"), result.get("chance_in_context") or {}
    if blind is None:
        return None
    mean = sum(in_context.values()) / len(in_context) if in_context else None
    return Floor(blind, mean, in_context, result.get("examples"))
