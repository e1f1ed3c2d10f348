"""Which labelled example goes into which split, as which label.

Every choice is a pure function of the texts. What is held out of train or halved goes by the hash of the first text,
so that the pairs of one premise stay together; a training subset is the first N in the order of the hash of the whole
example, so that a smaller subset lies within a larger one, whatever the seed. Subsets are not balanced.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass

import numpy as np

from oelm.data.corpora import content_hash, is_empty
from oelm.data.tasks import ENTAILMENT, SENTIMENT, TUNE_SHARE, TUNE_TEXTS, Source, SourcePart, Task
from oelm.data.tokens import SPLITS
from oelm.machine.errors import UserError

OTHER_NAMES = {"contradictory": "contradiction"}  # as XNLI's translated training files write it
UNLABELLED = "-"  # where MNLI's annotators did not agree
MOST_LABELS = 1_000


@dataclass(frozen=True, eq=False)
class Survey:
    """What a first reading of a part finds; one entry an example."""

    place: str
    written_labels: list[str]
    lines: np.ndarray
    keys: np.ndarray  # hashes of the whole examples
    first_keys: np.ndarray  # of their first texts
    empty: np.ndarray  # whether a text is blank

    def __len__(self) -> int:
        return len(self.lines)


@dataclass(frozen=True, eq=False)
class Division:
    """Which examples of a part go into which split, by their place in SPLITS; -1: into none."""

    labels: np.ndarray
    splits: np.ndarray
    unlabelled: int
    empty: int


def surveyed(part: SourcePart) -> Survey:
    known: dict[str, str] = {}  # a label is kept once, not once an example
    labels: list[str] = []
    lines, keys, first_keys, empty = array("q"), array("Q"), array("Q"), array("b")
    for example in part.read():
        labels.append(known.setdefault(example.label, example.label))
        lines.append(example.line)
        keys.append(content_hash("\t".join(example.texts)))
        first_keys.append(content_hash(example.texts[0]))
        empty.append(any(map(is_empty, example.texts)))
    if not labels:
        raise UserError(f"{part.place}: contains no examples")
    numbers = [np.frombuffer(column, dtype=column.typecode) for column in (lines, keys, first_keys)]
    return Survey(part.place, labels, numbers[0], numbers[1], numbers[2], np.frombuffer(empty, bool))


def label_names(task: Task, train: Survey) -> tuple[str, ...]:
    """The task's, or else those of the training examples: numbers by value, known names as known, others by name."""
    if task.labels is not None:
        return task.labels
    found = set(train.written_labels) - {UNLABELLED}
    if not 2 <= len(found) <= MOST_LABELS:
        raise UserError(f"{train.place}: {len(found)} different labels; a task has 2 to {MOST_LABELS}")
    if all(re.fullmatch(r"-?[0-9]+", label) for label in found):
        return tuple(sorted(found, key=int))
    for known in (ENTAILMENT, SENTIMENT):
        if found <= set(known):
            return tuple(label for label in known if label in found)
    return tuple(sorted(found))


def label_numbers(task: Task, survey: Survey, names: tuple[str, ...]) -> np.ndarray:
    """Each example's place among the names; -1 for one without a label."""
    numbers = {name: number for number, name in enumerate(names)} | {UNLABELLED: -1}
    if task.labels is not None:  # the published files write numbers too, and -1 for none
        numbers |= {str(number): number for number in range(-1, len(names))}
        numbers |= {other: numbers[name] for other, name in OTHER_NAMES.items() if name in numbers}
    unknown = set(survey.written_labels) - set(numbers)
    if unknown:
        at = next(place for place, label in enumerate(survey.written_labels) if label in unknown)
        where, label = f"{survey.place}, line {survey.lines[at]}", survey.written_labels[at]
        raise UserError(f"{where}: label {label!r:.60} is not one of {', '.join(names)}")
    return np.fromiter((numbers[label] for label in survey.written_labels), np.int16, len(survey))


def divided(
    source: Source, surveys: dict[str, Survey], names: tuple[str, ...], *, train_examples: int | None = None
) -> dict[str, Division]:
    """For each part of the source, which of its examples go where."""
    divisions = {}
    for part, survey in surveys.items():
        labels = label_numbers(source.task, survey, names)
        usable = (labels >= 0) & ~survey.empty
        splits = np.where(usable, SPLITS.index(part), -1).astype(np.int8)
        lower = 0
        for split in held_out_of(part, source):
            bound = held_out_bound(source, survey, usable, above=lower)
            splits[usable & (lower <= survey.first_keys) & (survey.first_keys < bound)] = SPLITS.index(split)
            lower = bound
        if part == "train" and train_examples is not None:
            splits[left_out(survey, splits == SPLITS.index("train"), train_examples)] = -1
        divisions[part] = Division(
            labels, splits, unlabelled=int((labels < 0).sum()), empty=int((survey.empty & (labels >= 0)).sum())
        )
    return divisions


def held_out_of(part: str, source: Source) -> list[str]:
    """The splits that the source lacks and that come of this part of it."""
    halved = source.task.val_is_halved
    found = ["tune"] if "tune" not in source.parts and part == ("val" if halved else "train") else []
    return [*found, "val"] if "val" not in source.parts and part == "train" else found


def held_out_bound(source: Source, survey: Survey, usable: np.ndarray, *, above: int = 0) -> int:
    """First texts whose hash lies below, and not below `above`, leave the part."""
    hashes = np.unique(survey.first_keys[usable])
    share = 0.5 if source.task.val_is_halved else min(TUNE_SHARE, TUNE_TEXTS / max(1, len(hashes)))
    end = int((hashes < above).sum()) + max(1, round(share * len(hashes)))
    if len(hashes) <= end:
        raise UserError(
            f"{survey.place}: {len(hashes)} different texts are too few to hold some out for tuning; add a tune file"
        )
    return int(hashes[end])


def left_out(survey: Survey, train: np.ndarray, wanted: int) -> np.ndarray:
    """Places of the training examples beyond the first `wanted` in the order of their hashes."""
    places = np.flatnonzero(train)
    if not 1 <= wanted <= len(places):
        raise UserError(f"train-examples {wanted}: {survey.place} has 1 to {len(places)} to choose from")
    return places[np.argsort(survey.keys[places], kind="stable")[wanted:]]
