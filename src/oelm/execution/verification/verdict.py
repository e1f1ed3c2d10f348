"""What came of one run, and of several together. No torch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

State = Literal["bit-equal", "within tolerance", "differs", "damaged", "not recomputable"]
STATES: tuple[State, ...] = ("bit-equal", "within tolerance", "differs", "damaged", "not recomputable")
FAILURES: tuple[State, ...] = ("differs", "damaged")
RECOMPUTED = (
    "the reported loss and what was measured with it (accuracy, bits, predictions)",
    "the counts of parameters",
    "the weights that had to stay as the seeds gave them",
)
ONLY_SEALED = ("the records of the curve", "the best loss", "the training loss", "times and memory")  # of every run


@dataclass(frozen=True)
class RunVerdict:
    """One run: what it reports, what was recomputed, and how the two compare."""

    path: Path
    state: State
    reason: str = ""  # why it differs, is damaged or cannot be recomputed
    reported: float | None = None
    recomputed: float | None = None
    tolerance: float = 0.0  # relative, of the loss; 0: every bit
    other_machine: tuple[str, ...] = field(default=())  # why bit-equality is not asked for
    unsealed: bool = False

    @property
    def is_recomputed(self) -> bool:
        return self.recomputed is not None

    @property
    def is_failure(self) -> bool:
        return self.state in FAILURES

    def line(self) -> str:
        """For a person, without the path."""
        parts = [self.state + (" (unsealed)" if self.unsealed else "")]
        if self.reported is not None and self.recomputed is not None:
            same = self.reported == self.recomputed
            losses = f"{self.reported}" if same else f"{self.reported} reported, {self.recomputed} recomputed"
            parts.append(f"validation loss {losses}")
        if self.other_machine and self.state != "bit-equal":
            why = ", ".join(self.other_machine)
            parts.append(f"tolerance {self.tolerance:g} of it, because this is another kind of machine ({why})")
        return ": ".join(part for part in ("; ".join(parts), self.reason) if part)

    def as_json(self) -> dict[str, Any]:
        return {
            "run": str(self.path),
            "state": self.state,
            "reason": self.reason or None,
            "reported": _finite(self.reported),
            "recomputed": _finite(self.recomputed),
            "tolerance": self.tolerance,
            "other_machine": list(self.other_machine),
            "unsealed": self.unsealed,
        }


def _finite(value: float | None) -> float | None:
    """JSON has no infinity."""
    return value if value is not None and math.isfinite(value) else None


def counts_of(verdicts: Iterable[RunVerdict]) -> dict[str, int]:
    counted = Counter(verdict.state for verdict in verdicts)
    return {state: counted[state] for state in STATES}


def in_words(counts: dict[str, int]) -> str:
    """Failures are always told, the others where there are some."""
    words = {state: "differ" if state == "differs" and count != 1 else state for state, count in counts.items()}
    return ", ".join(f"{count} {words[state]}" for state, count in counts.items() if count or state in FAILURES)
