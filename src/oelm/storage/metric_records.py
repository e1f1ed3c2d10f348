"""The metric stream of a run: one checked record a line, read in bounded memory however long the file is.

Up to MOST_POINTS steps of a kind everything is kept. Of a longer stream every second, fourth, eighth ... step is: which
ones depends on the steps alone, so runs that recorded the same steps keep the same.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

Record = dict[str, Any]  # a line of metrics.jsonl
HeadTables = dict[str, list[list[float]]]  # by name, layers by heads

MOST_POINTS = 4096  # of each kind, training and validation: more than a figure can show
MOST_LINE_BYTES = 2**17  # ours have some hundred; with head scores of 1,024 heads, up to 110,000
BLOCK_BYTES = 2**20
LARGEST_STEP = 2**53
LARGEST = 1e100  # of a number that is averaged; sums stay finite
BY_DIFFICULTY = "accuracy_by_difficulty"  # of a probe's validation record and result: a number for each
HEAD_SCORES = "head_scores"  # of a validation record: by name, layers by heads
USUAL_STEP = re.compile(rb'\{"step": (\d{1,15}), ')
_USUAL_LOSS = re.compile(rb'"val_loss": (\d+\.\d+)[,}]')


def read_records(file: Path, *, target_loss: float | None = None, also: Collection[int] = ()) -> list[Record]:
    """Records by step; for a step written twice (before and after a kill) the last one of its kind counts.

    However long the stream, the last step is kept, the steps in `also`, and the validation record that first comes
    down to `target_loss` with the one before it. Of head scores only the largest of each name is, as a number of the
    record: `strongest_head(name)`.
    """
    training, validation = _Thinned(also), _Thinned(also, _Crossing(target_loss))
    for line in _lines(file):
        kind = validation if b'"val_loss"' in line else training
        if not kind.drops(line) and (record := _record(line)) is not None:
            kind.add(record)
    found = [((step, kind is validation), record) for kind in (training, validation) for step, record in kind.all()]
    return [record for _, record in sorted(found, key=lambda each: each[0])]


def last_record(file: Path, name: str) -> Record | None:
    """The last one that holds a number of this name, read from the end of the file."""
    lines = list(_lines(file, from_the_end=MOST_LINE_BYTES))
    records = (_record(line) for line in reversed(lines))
    return next((record for record in records if record and record.get(name) is not None), None)


def strongest_head(name: str) -> str:
    return f"{HEAD_SCORES}.{name}"


def with_strongest_heads(record: Record) -> Record:
    """In the place of head scores the largest of each name, as a number of the record."""
    tables = record.get(HEAD_SCORES) or {}
    strongest = {strongest_head(name): max(map(max, table)) for name, table in tables.items()}
    return {name: value for name, value in record.items() if name != HEAD_SCORES} | strongest


def last_head_scores(file: Path) -> HeadTables | None:
    """Of the last validation that recorded them."""
    for line in reversed(list(_lines(file, from_the_end=2 * MOST_LINE_BYTES))):
        if b'"val_loss"' in line and _record(line) is not None:
            return json.loads(line).get(HEAD_SCORES) or None
    return None


# ---- Lines and records ---------------------------------------------------------------------------------------------


def _lines(file: Path, *, from_the_end: int | None = None) -> Iterator[bytes]:
    """What is far too long is cut, and no record."""
    stream = _opened(file)
    if stream is None:
        return
    with stream:
        if from_the_end is not None:
            stream.seek(-min(from_the_end, os.fstat(stream.fileno()).st_size), os.SEEK_END)
        rest = b""
        while block := stream.read(BLOCK_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            yield from lines
            rest = rest[: MOST_LINE_BYTES + 1]
        yield rest


def _opened(file: Path) -> BinaryIO | None:
    """None where there is no file; a pipe in its place must not hold a reader up."""
    try:
        return open(file, "rb") if file.is_file() else None
    except OSError:
        return None


def _record(line: bytes) -> Record | None:
    """A step and finite numbers, some under names or in lists; None of a torn line, and of what we did not write."""
    if len(line) > MOST_LINE_BYTES:
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not is_step(record.get("step")):
        return None
    if HEAD_SCORES in record:
        if not _are_head_scores(record[HEAD_SCORES]):
            return None
        record = with_strongest_heads(record)
    return record if all(_is_value(name, value) for name, value in record.items()) else None


def _parsed(seen: Record | bytes) -> Record | None:
    return _record(seen) if isinstance(seen, bytes) else seen


def is_step(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_STEP


def is_finite(value: Any) -> bool:
    return type(value) in (int, float) and -LARGEST < value < LARGEST


def _are_head_scores(tables: Any) -> bool:
    """Tables by name, each with a row of finite numbers for every layer."""
    return isinstance(tables, dict) and all(
        isinstance(table, list)
        and table
        and all(isinstance(row, list) and row and all(map(is_finite, row)) for row in table)
        for table in tables.values()
    )


def _is_value(name: str, value: Any) -> bool:
    """A number; of a probe, an accuracy for each difficulty."""
    if name == BY_DIFFICULTY:
        return isinstance(value, dict) and all(map(is_finite, value.values()))
    return _is_number(name, value)


def _is_number(name: str, value: Any) -> bool:
    """`null` is a number that a float has no room for; a perplexity that it has room for may be very large."""
    if type(value) is float or type(value) is int:
        return is_finite(value) or (name == "perplexity" and 0 < value < float("inf"))
    return value is None


# ---- What is kept --------------------------------------------------------------------------------------------------


@dataclass
class _Crossing:
    """Where a loss first comes down to a target: the record before, or its line, and the one at or below it."""

    target: float | None = None
    before: Record | bytes = b""
    after: Record | None = None

    @property
    def open_up_to(self) -> float:
        """The step up to which a record may still decide; a run may be taken up again from before the crossing."""
        return -1 if self.target is None else math.inf if self.after is None else self.after["step"]

    def passes(self, step: int, line: bytes) -> bool:
        """Whether a line plainly is no crossing: it may be the one before."""
        if self.target is None or step > self.open_up_to:
            return True
        loss = _USUAL_LOSS.search(line)
        if loss is None or float(loss[1]) <= self.target:
            return False
        self.before, self.after = line, None
        return True

    def see(self, record: Record) -> None:
        loss = record.get("val_loss")
        if loss is None or record["step"] > self.open_up_to:
            return
        if loss <= self.target:
            self.after = record
        else:
            self.before, self.after = record, None

    def found(self) -> Iterator[Record]:
        if self.after is not None:
            before = _parsed(self.before)
            yield from [before] if before and before["step"] < self.after["step"] else []
            yield self.after


@dataclass
class _Thinned:
    """Records of one kind: at every multiple of a stride, which doubles whenever there are too many; and the last."""

    also: Collection[int]
    crossing: _Crossing = field(default_factory=_Crossing)
    kept: dict[int, Record] = field(default_factory=dict)
    stride: int = 1
    last_step: int = -1
    last: Record | bytes = b""  # the record of the highest step, or its line

    def drops(self, line: bytes) -> bool:
        """Whether a line need not be parsed: of a long stream, that is nearly all of them."""
        if self.stride == 1:
            return False
        start = USUAL_STEP.match(line)
        if start is None or self._keeps(step := int(start[1])) or not self.crossing.passes(step, line):
            return False
        if step >= self.last_step and line.endswith(b"}"):
            self.last_step, self.last = step, line
        return True

    def _keeps(self, step: int) -> bool:
        return step % self.stride == 0 or step in self.also

    def add(self, record: Record) -> None:
        step = record["step"]
        self.crossing.see(record)
        if self._keeps(step):
            self.kept[step] = record
        if step >= self.last_step:
            self.last_step, self.last = step, record
        while len(self.kept) > MOST_POINTS + len(self.also):
            self.stride *= 2
            self.kept = {step: record for step, record in self.kept.items() if self._keeps(step)}

    def all(self) -> Iterable[tuple[int, Record]]:
        last = _parsed(self.last)
        deciding = [*self.crossing.found(), *([last] if last else [])]
        return (self.kept | {record["step"]: record for record in deciding}).items()
