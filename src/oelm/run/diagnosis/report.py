"""What a diagnosis found, as a value, as JSON and as text; what of it is wrong, a line for each kind of problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from oelm.core.accounting import Totals
from oelm.machine.exhaustion import mebibytes
from oelm.run.diagnosis.steps import Trial
from oelm.run.diagnosis.storage import Storage
from oelm.run.diagnosis.survey import Surveyed, counted, enumerated

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
        memory, storage = self.memory, self.storage
        names = ("total", "trainable", "frozen", *(("implied",) if self.totals.implied else ()))
        counts = [(way, *(f"{getattr(count, name):,}" for name in names)) for way, count in self.counts.items()]
        state = "no optimizer" if memory.optimizer_state is None else mebibytes(memory.optimizer_state)
        saved = f" ({mebibytes(memory.with_adam_nothing_frozen)} with nothing frozen)" if self.totals.frozen else ""
        checks = [f"steps: {', '.join(map(str, self.trial.numbers)) if self.trial else 'none taken'}"]
        if storage is not None:
            kept = "values and freezing kept" if storage.kept else "NOT kept, see below"
            left_out = f", but {len(storage.left_out)} NOT SAVED, see below" if storage.left_out else ""
            checks.append(f"saved and loaded: {kept}{left_out}")
        if not self.healthy:
            healthy = "NO"
        elif self.trial is None:
            healthy = "as far as can be seen; no step was taken, so no weight had a chance to move"
        else:
            healthy = "yes, except for what is NOT SAVED" if storage and storage.left_out else "yes"
        sections = [
            f"diagnosis of {self.subject}",
            aligned([HEADINGS, *(_cells(entry) for entry in self.entries)], right=(4,)),
            aligned([("counted", *names), *counts], right=(1, 2, 3, 4)),
            f"weights {mebibytes(memory.weights)}, gradients {mebibytes(memory.gradients)}, optimizer state {state}\n"
            f"weights + Adam moments: {mebibytes(memory.with_adam)}{saved}",
            "\n".join(checks),
            "\n".join(f"note: {line}" for line in self.notes),
            "\n".join(f"PROBLEM: {line}" for line in self.problems),
            f"healthy: {healthy}",
        ]
        return "\n\n".join(section for section in sections if section)


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
    scheduled = entry.should_move_at if entry.should_move == "by schedule" else None
    if entry.moved_at:
        always = entry.should_move == "always" and entry.moved_at == entry.should_move_at
        moved = "yes" if always else _at(entry.moved_at)
    else:
        moved = "-" if entry.moved_at is None else "no"
    return (
        entry.name,
        entry.kind,
        entry.role,
        " x ".join(str(size) for size in entry.shape) or "scalar",
        f"{entry.elements:,}",
        entry.dtype,
        "yes" if entry.requires_grad else "no",
        _at(scheduled) if scheduled else entry.should_move or "-",
        {True: "yes", False: "no", None: "-"}[entry.in_optimizer],
        moved,
    )


def _at(numbers: tuple[int, ...]) -> str:
    return f"at {', '.join(str(number) for number in numbers)}"


def aligned(rows: list[tuple[str, ...]], *, right: tuple[int, ...]) -> str:
    """Columns as wide as their widest cell, so that nothing is cut, in a pipe or on a screen."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]

    def line(row: tuple[str, ...]) -> str:
        cells = (f"{t:>{w}}" if i in right else f"{t:<{w}}" for i, (t, w) in enumerate(zip(row, widths, strict=True)))
        return "  ".join(cells).rstrip()

    return "\n".join([line(rows[0]), "  ".join("-" * width for width in widths), *(line(row) for row in rows[1:])])


# ---- What is wrong -------------------------------------------------------------------------------------------------


def entry_problems(entries: tuple[Surveyed, ...]) -> list[str]:
    """What the entries themselves show. The first line that fits an entry is the one it is named in, by group."""
    return [
        *_lines(
            entries,
            (lambda e: e.should_move == "never" and bool(e.moved_at), "should never move, but moved in a step"),
            (_moved_at_rest, "moved in a step in which its schedule freezes it"),
        ),
        *_lines(
            entries,
            (lambda e: e.should_move == "never" and e.requires_grad, "should never move, but requires a gradient"),
            (lambda e: e.should_move != "never" and _off(e), "should move, but requires no gradient"),
        ),
        *_lines(entries, (_held_in_vain, None)),
        *_lines(
            entries,
            (lambda e: _should(e) and e.in_optimizer is False, "should move, but the optimizer does not contain it"),
            (lambda e: _stood_still(e) and e.had_gradient is False, "should have moved, but had no gradient"),
            (lambda e: _stood_still(e) and not _off(e), "should have moved in a step, but did not"),
        ),
    ]


def _lines(entries: tuple[Surveyed, ...], *tests: tuple[Callable[[Surveyed], bool], str | None]) -> list[str]:
    lines, named = [], set()
    for test, text in tests:
        found = [entry for entry in entries if entry.should_move is not None and entry not in named and test(entry)]
        named.update(found)
        if found:
            lines.append(f"{text or _held_text(found)}: {enumerated([entry.name for entry in found])}")
    return lines


def _should(entry: Surveyed) -> bool:
    return entry.should_move in ("always", "by schedule") and entry.kind == "parameter"


def _off(entry: Surveyed) -> bool:
    """A scheduled parameter is switched on and off during training; only the others tell something."""
    return not entry.requires_grad and entry.should_move != "by schedule"


def _moved_at_rest(entry: Surveyed) -> bool:
    return bool(set(entry.moved_at or ()) - set(entry.should_move_at or ())) and entry.should_move_at is not None


def _stood_still(entry: Surveyed) -> bool:
    return bool(set(entry.should_move_at or ()) - set(entry.moved_at or ())) and entry.moved_at is not None


def _held_in_vain(entry: Surveyed) -> bool:
    return entry.should_move == "never" and entry.in_optimizer is True


def _held_text(found: list[Surveyed]) -> str:
    decay = max(entry.weight_decay for entry in found)
    return (
        f"should never move, but the optimizer contains it (weight decay {decay:g}), so that a gradient left from "
        "before, even a zero one, lets decay and momentum move it"
    )


def total_problems(counts: dict[str, Totals]) -> list[str]:
    if len(set(counts.values())) <= 1:
        return []
    ways = "; ".join(f"{way} {t.total:,} / {t.trainable:,} / {t.frozen:,} / {t.implied:,}" for way, t in counts.items())
    return [f"the counts (total / trainable / frozen / implied) disagree: {ways}"]


def storage_problems(storage: Storage) -> list[str]:
    return [
        f"{text}: {enumerated(list(names))}"
        for names, text in (
            (storage.changed, "a save and a load gave back other values"),
            (storage.thawed, "a load thawed what was frozen"),
            (storage.frozen, "a load froze what was trainable"),
        )
        if names
    ]
