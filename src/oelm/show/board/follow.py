"""The records of one kind in the metric file of a run, read from where reading stopped, in bounded memory.

A line of the other kind is not parsed: a page that draws validation does not pay for training. A file that was cut or
replaced is read anew. Of a long stream every second, fourth, eighth ... step is kept, as metric_records.py does, so
that runs which recorded the same steps keep the same.
"""

from __future__ import annotations

import bisect
import itertools
import json
import os
import stat
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oelm.storage.files import FOR_READING
from oelm.storage.metric_records import BLOCK_BYTES, MOST_LINE_BYTES, USUAL_STEP, is_finite, is_step

POINTS = 400  # of each kind at most: more than the width of a curve shows
PLACE = ("tokens", "seconds")
TRAINING, VALIDATION = "training", "validation"
VALUES = {TRAINING: ("train_loss",), VALIDATION: ("val_loss", "accuracy")}
KIND_OF = {name: kind for kind, names in VALUES.items() for name in names}
CHECKED_BYTES = 64  # before the place where reading stopped: other bytes there are another file
NOTHING = float("nan")  # a number that a record does not have

Point = tuple[int, float, float, float]  # step, tokens, seconds, value


@dataclass
class Series:
    """The kept records of one kind, by step, as columns."""

    names: tuple[str, ...]
    stride: int = 1
    steps: array[int] = field(default_factory=lambda: array("q"))
    columns: tuple[array[float], ...] = ()
    is_extra: bool = False  # whether the last one is kept only because it is the last

    def __post_init__(self) -> None:
        self.columns = tuple(array("d") for _ in (*PLACE, *self.names))

    def extend(self, records: list[dict[str, Any]]) -> None:
        """Of a run that was taken up again from before, what was recorded later goes. Many are thinned before they are
        kept."""
        rising: list[dict[str, Any]] = []
        for record in records:
            while rising and rising[-1]["step"] >= record["step"]:
                rising.pop()
            rising.append(record)
        if self.is_extra:
            self._cut(len(self.steps) - 1)
        self._cut(bisect.bisect_left(self.steps, rising[0]["step"]))
        self.make_room([record["step"] for record in rising])
        last = rising[-1]
        kept = [record for record in rising if record["step"] % self.stride == 0 or record is last]
        self.steps.extend(record["step"] for record in kept)
        for name, column in zip((*PLACE, *self.names), self.columns, strict=True):
            values: list[Any] = [record.get(name) for record in kept]
            column.extend([float(value) if is_finite(value) else NOTHING for value in values])
        self.is_extra = last["step"] % self.stride != 0

    def goes_on_with(self, steps: list[int]) -> bool:
        """Whether they rise from the last one on."""
        known = [*self.steps[-1:], *steps]
        return all(one < next for one, next in itertools.pairwise(known))

    def make_room(self, steps: list[int]) -> None:
        """For these, which rise from the last one that is kept: keep every second of those that are, and so on."""
        while steps:
            multiples = sum(step % self.stride == 0 for step in (*self.steps, *steps))
            if multiples + (steps[-1] % self.stride != 0) <= POINTS:
                return
            self.stride *= 2
            kept = [place for place, step in enumerate(self.steps) if step % self.stride == 0]
            self.steps = array("q", (self.steps[place] for place in kept))
            self.columns = tuple(array("d", (column[place] for place in kept)) for column in self.columns)

    def skips(self, line: bytes) -> bool:
        """Whether a line need not be parsed: of a long stream, that is nearly all of them."""
        start = USUAL_STEP.match(line)
        return start is not None and int(start[1]) % self.stride != 0

    def _cut(self, length: int) -> None:
        del self.steps[length:]
        for column in self.columns:
            del column[length:]

    def points(self, name: str) -> Iterator[Point]:
        rows: Iterator[Any] = zip(*self.columns_of(name), strict=True)
        return (row for row in rows if row[-1] == row[-1])

    def columns_of(self, name: str) -> tuple[array[Any], ...]:
        """Steps, tokens, seconds and values."""
        return (self.steps, *self.columns[: len(PLACE)], self.columns[len(PLACE) + self.names.index(name)])


class Follower:
    """One kind of record in one file, as far as it has been read."""

    def __init__(self, file: Path, kind: str) -> None:
        self.file, self.kind = file, kind
        self.version = 0  # of what has been read
        self._forget()

    def _forget(self) -> None:
        self.series = Series(VALUES[self.kind])
        self._identity: tuple[int, int] | None = None
        self._size = 0
        self._offset = 0
        self._before = b""  # the last bytes that were read
        self._last: bytes | None = None  # a line that was skipped

    def poll(self) -> None:
        """Read what is new."""
        try:
            descriptor = os.open(self.file, FOR_READING | getattr(os, "O_NOFOLLOW", 0))
        except OSError:
            self.start_again()
            return
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                return
            identity = found.st_dev, found.st_ino
            if identity == self._identity and found.st_size == self._size:
                return
            before = os.pread(descriptor, len(self._before), self._offset - len(self._before))
            if identity != self._identity or found.st_size < self._offset or before != self._before:
                self.start_again()
            self._identity, self._size = identity, found.st_size
            self._read(descriptor)
        finally:
            os.close(descriptor)

    def start_again(self) -> None:
        """As if nothing had been read."""
        if self._identity is not None:
            self._forget()
            self.version += 1

    def _read(self, descriptor: int) -> None:
        """As far as the file went when it was looked at; what has come since is read next time."""
        rest, at = b"", self._offset
        while at < self._size and (block := os.pread(descriptor, min(BLOCK_BYTES, self._size - at), at)):
            at += len(block)
            whole, newline, rest = (rest + block).rpartition(b"\n")
            if newline:
                self._take(whole.split(b"\n"))
                self._before = (self._before + whole[-CHECKED_BYTES:] + newline)[-CHECKED_BYTES:]
            if len(rest) > MOST_LINE_BYTES:  # no record of ours
                self._before, rest = rest[-CHECKED_BYTES:], b""
            self._offset = at - len(rest)
        if self._last is not None:
            self._keep([self._last])
            self._last = None

    def _take(self, lines: list[bytes]) -> None:
        is_validation = self.kind == VALIDATION
        lines = [line for line in lines if (b'"val_loss"' in line) == is_validation]
        if len(lines) > POINTS and not self.series.is_extra:  # most of them need not be parsed
            steps = [int(start[1]) for line in lines if (start := USUAL_STEP.match(line))]
            if self.series.goes_on_with(steps):
                self.series.make_room(steps)
        if self.series.stride > 1:
            lines = [line for line in lines if not self._skips(line)]
        self._keep(lines)

    def _keep(self, lines: list[bytes]) -> None:
        records = [each for each in _records(lines) if isinstance(each, dict) and is_step(each.get("step"))]
        if records:
            self.series.extend(records)
            self.version += 1

    def _skips(self, line: bytes) -> bool:
        is_skipped = self.series.skips(line)
        self._last = line if is_skipped else None  # it may turn out to be the last one
        return is_skipped


def _records(lines: list[bytes]) -> Iterator[Any]:
    """All at once where all are whole, which is four times as fast."""
    usual = [line for line in lines if line and len(line) <= MOST_LINE_BYTES]
    try:
        yield from json.loads(b"[" + b",".join(usual) + b"]")
    except (ValueError, RecursionError):
        for line in usual:
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                continue
