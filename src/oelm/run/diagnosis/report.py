"""What a diagnosis found, as a value, as JSON and as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from oelm.core.accounting import Totals
from oelm.machine.exhaustion import mebibytes
from oelm.run.diagnosis.steps import Trial
from oelm.run.diagnosis.storage import Storage
from oelm.run.diagnosis.survey import Surveyed, counted

MOMENTS = 2  # AdamW keeps two numbers for each trainable one


@dataclass(frozen=True)
class Memory:
    """Bytes of weights, of one gradient for each trainable weight, and of the optimizer's moments as found."""

    weights: int
    gradients: int
    optimizer_state: int | None  # None: there was no optimizer

    @property
    def with_adam(self) -> int:
        return self.weights + MOMENTS * self.gradients

    @property
    def with_adam_nothing_frozen(self) -> int:
        return (1 + MOMENTS) * self.weights


def memory_of(entries: tuple[Surveyed, ...], optimizer: torch.optim.Optimizer | None) -> Memory:
    """Call it after the steps: an optimizer has no state before. Update counts are left out."""
    state = None
    if optimizer is not None:
        tensors = [t for s in optimizer.state.values() for t in s.values() if isinstance(t, torch.Tensor) and t.dim()]
        state = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    weights = [entry for entry in entries if entry.is_weight]
    return Memory(
        weights=sum(entry.bytes for entry in weights),
        gradients=sum(entry.bytes for entry in weights if entry.requires_grad),
        optimizer_state=state,
    )


@dataclass(frozen=True)
class Diagnosis:
    subject: str
    entries: tuple[Surveyed, ...]
    counts: dict[str, Totals]  # by the way of counting
    memory: Memory
    trial: Trial | None
    storage: Storage | None
    notes: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        return not self.problems

    def _healthy_in_words(self) -> str:
        if not self.healthy:
            return "NO"
        if self.trial is None:
            return "as far as can be seen; no step was taken, so no weight had a chance to move"
        return "yes, except for what is NOT SAVED" if self.storage and self.storage.left_out else "yes"

    @property
    def totals(self) -> Totals:
        """As counted on the module."""
        implied = next(iter(self.counts.values())).implied if self.counts else 0
        return counted(self.entries, implied=implied)

    def as_json(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "healthy": self.healthy,
            **vars(self.totals),
            "counts": {way: vars(totals) for way, totals in self.counts.items()},
            "bytes": vars(self.memory)
            | {
                "weights_and_adam_moments": self.memory.with_adam,
                "weights_and_adam_moments_nothing_frozen": self.memory.with_adam_nothing_frozen,
            },
            "steps": list(self.trial.numbers) if self.trial else [],
            "saved_and_loaded": None
            if self.storage is None
            else {
                "kept": self.storage.kept,
                "changed": list(self.storage.changed),
                "thawed": list(self.storage.thawed),
                "frozen": list(self.storage.frozen),
                "left_out": list(self.storage.left_out),
            },
            "notes": list(self.notes),
            "problems": list(self.problems),
            "tensors": [_entry_json(entry) for entry in self.entries],
        }

    def as_text(self) -> str:
        sections = [
            f"diagnosis of {self.subject}",
            aligned([HEADINGS, *(_cells(entry) for entry in self.entries)], right=(4,)),
            aligned(self._count_rows(), right=(1, 2, 3, 4)),
            "\n".join(self._memory_lines()),
            "\n".join(self._check_lines()),
            _listed("note", self.notes),
            _listed("PROBLEM", self.problems),
            f"healthy: {self._healthy_in_words()}",
        ]
        return "\n\n".join(section for section in sections if section)

    def _count_rows(self) -> list[tuple[str, ...]]:
        names = ("total", "trainable", "frozen", *(("implied",) if self.totals.implied else ()))
        rows = [(way, *(f"{getattr(count, name):,}" for name in names)) for way, count in self.counts.items()]
        return [("counted", *names), *rows]

    def _memory_lines(self) -> list[str]:
        memory = self.memory
        state = "no optimizer" if memory.optimizer_state is None else mebibytes(memory.optimizer_state)
        saved = f" ({mebibytes(memory.with_adam_nothing_frozen)} with nothing frozen)"
        return [
            f"weights {mebibytes(memory.weights)}, gradients {mebibytes(memory.gradients)}, optimizer state {state}",
            f"weights + Adam moments: {mebibytes(memory.with_adam)}{saved if self.totals.frozen else ''}",
        ]

    def _check_lines(self) -> list[str]:
        steps = ", ".join(str(number) for number in self.trial.numbers) if self.trial else "none taken"
        lines = [f"steps: {steps}"]
        if self.storage is not None:
            kept = "values and freezing kept" if self.storage.kept else "NOT kept, see below"
            left_out = f", but {len(self.storage.left_out)} NOT SAVED, see below" if self.storage.left_out else ""
            lines.append(f"saved and loaded: {kept}{left_out}")
        return lines


def _entry_json(entry: Surveyed) -> dict[str, Any]:
    return {
        "name": entry.name,
        "kind": entry.kind,
        "role": entry.role,
        "shape": list(entry.shape),
        "elements": entry.elements,
        "dtype": entry.dtype,
        "requires_grad": entry.requires_grad,
        "is_weight": entry.is_weight,
        "should_move": entry.should_move,
        "in_optimizer": entry.in_optimizer,
        "should_move_at": None if entry.should_move_at is None else list(entry.should_move_at),
        "moved": None if entry.moved_at is None else bool(entry.moved_at),
        "moved_at": None if entry.moved_at is None else list(entry.moved_at),
    }


# ---- Text ----------------------------------------------------------------------------------------------------------

HEADINGS = ("name", "kind", "role", "shape", "elements", "dtype", "grad", "should move", "optimizer", "moved")


def _cells(entry: Surveyed) -> tuple[str, ...]:
    return (
        entry.name,
        entry.kind,
        entry.role,
        " x ".join(str(size) for size in entry.shape) or "scalar",
        f"{entry.elements:,}",
        entry.dtype,
        "yes" if entry.requires_grad else "no",
        _should_move_cell(entry),
        {True: "yes", False: "no", None: "-"}[entry.in_optimizer],
        _moved_cell(entry),
    )


def _should_move_cell(entry: Surveyed) -> str:
    if entry.should_move == "by schedule" and entry.should_move_at:
        return _at(entry.should_move_at)
    return entry.should_move or "-"


def _moved_cell(entry: Surveyed) -> str:
    if entry.moved_at is None:
        return "-"
    if not entry.moved_at:
        return "no"
    always = entry.should_move == "always" and entry.moved_at == entry.should_move_at
    return "yes" if always else _at(entry.moved_at)


def _at(numbers: tuple[int, ...]) -> str:
    return f"at {', '.join(str(number) for number in numbers)}"


def aligned(rows: list[tuple[str, ...]], *, right: tuple[int, ...]) -> str:
    """Columns as wide as their widest cell, so that nothing is cut, in a pipe or on a screen."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]

    def line(row: tuple[str, ...]) -> str:
        cells = (f"{t:>{w}}" if i in right else f"{t:<{w}}" for i, (t, w) in enumerate(zip(row, widths, strict=True)))
        return "  ".join(cells).rstrip()

    return "\n".join([line(rows[0]), "  ".join("-" * width for width in widths), *(line(row) for row in rows[1:])])


def _listed(word: str, lines: tuple[str, ...]) -> str:
    return "\n".join(f"{word}: {line}" for line in lines)
