"""A run, or a study's runs by sample or all of them, verified one after another and told as they come."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from oelm.machine.durations import duration
from oelm.machine.errors import UserError
from oelm.machine.plurals import number_of
from oelm.study.archiving import stored_beside_runs
from oelm.study.doubts import same_losses
from oelm.study.remarks import sentence
from oelm.study.shelf import Shelf, StoredRun, read_stored

if TYPE_CHECKING:
    from oelm.execution.verification.recomputing import Recomputation


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


Say = Callable[[str], None]


@dataclass(frozen=True)
class Verification:
    """Everything that was looked at; of a sample, also how it was drawn."""

    folder: Path
    verdicts: list[RunVerdict]
    finished: int  # runs that report a loss
    sampled: int | None = None  # None: all of them
    seed: int | None = None
    copies: tuple[str, ...] = ()  # a line for runs that are one run under several seeds
    beside: dict[str, str | None] = field(default_factory=dict)  # files of the study, with what is wrong with them

    @property
    def failed(self) -> bool:
        return bool(self.copies or self.damaged_beside) or any(verdict.is_failure for verdict in self.verdicts)

    @property
    def damaged_beside(self) -> list[str]:
        return [line for line in self.beside.values() if line]

    def closing_line(self) -> str:
        left_out = self.finished - len(self.verdicts)
        rest = f"; {left_out} not checked (--all checks every run)" if left_out > 0 else ""
        told, unsealed = in_words(counts_of(self.verdicts)), sum(verdict.unsealed for verdict in self.verdicts)
        told += f" ({unsealed} unsealed)" if unsealed else ""
        if self.damaged_beside:
            rest = f"; {number_of(len(self.damaged_beside), 'file')} of the study damaged{rest}"
        return f"{self.folder}: {len(self.verdicts)} of {self.finished} runs: {told}{rest}"

    def reach(self) -> dict[str, list[str]]:
        """What the verdicts rest on, and what nobody computed again."""
        is_recomputed = any(verdict.is_recomputed for verdict in self.verdicts)
        recomputed = list(RECOMPUTED) if is_recomputed else []
        others = [] if is_recomputed else list(RECOMPUTED)
        return {"recomputed": recomputed, "only_sealed": [*others, *ONLY_SEALED, *self.beside]}

    def reach_line(self) -> str:
        reach = self.reach()
        recomputed = "; ".join(reach["recomputed"]) or "nothing"
        return (
            f"recomputed: {recomputed}. Not recomputed, only compared with its seal, which whoever can write the files "
            f"can renew: {', '.join(reach['only_sealed'])}"
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "finished": self.finished,
            "sample": None if self.sampled is None else {"runs": self.sampled, "seed": self.seed},
            "copies": list(self.copies),
            "files": self.beside,
            "reach": self.reach(),
            "counts": counts_of(self.verdicts),
            "runs": [verdict.as_json() for verdict in self.verdicts],
        }


def verify_run(path: Path, *, data: Path | None, say: Say) -> Verification:
    """One run that reports a loss, or is damaged."""
    stored = read_stored(path)
    if stored.state not in ("finished", "damaged"):
        advice = (
            "it is reported as such and not run again" if stored.state == "diverged" else "finish it with `oelm train`"
        )
        raise UserError(f"{path}: reports no loss (state: {stored.state}); {advice}")
    verdict = _recomputation(data).verdict(path)
    say(f"{path}: {verdict.line()}")
    return Verification(path, [verdict], finished=1)


def verify_folder(folder: Path, *, sample: int | None, seed: int, data: Path | None, say: Say) -> Verification:
    """The runs of a study. Every one is read; of those that can be recomputed a sample is drawn, or all are taken."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; give a run directory, a study, or a folder of runs")
    shelf = Shelf(folder)
    remarks = {remark for run in shelf.runs for remark in run.remarks}
    unreadable = [RunVerdict(folder, "damaged", line) for line in shelf.unreadable if line not in remarks]
    for verdict in unreadable:
        say(verdict.line())
    reporting = sorted((run for run in shelf.runs if run.state in ("finished", "damaged")), key=lambda run: run.name)
    if not reporting and not unreadable:
        raise UserError(f"{folder}: no run there reports a loss; start them with `oelm run STUDY`")
    at_once = [run for run in reporting if run.state == "damaged" or not run.directory.stored_checkpoints()]
    recomputable = [run for run in reporting if run not in at_once]
    chosen = recomputable
    if sample is not None and sample < len(recomputable):
        drawn = random.Random(seed).sample(range(len(recomputable)), sample)
        chosen = [recomputable[place] for place in sorted(drawn)]
        say(f"{sample} of {len(recomputable)} runs with checkpoints, chosen with seed {seed}; --all checks every run")
    copies, beside = tuple(sentence(*remark) for remark in same_losses(reporting)), stored_beside_runs(folder)
    for line in (*copies, *beside.values()):
        if line:
            say(line)
    verdicts = [*unreadable, *_told(at_once, chosen, _recomputation(data), say)]
    is_sample = len(chosen) < len(recomputable)
    return Verification(
        folder,
        verdicts,
        finished=len(reporting) + len(unreadable),
        sampled=len(chosen) if is_sample else None,
        seed=seed if is_sample else None,
        copies=copies,
        beside=beside,
    )


def _recomputation(data: Path | None) -> Recomputation:
    """Loads torch, when there is something to compute."""
    from oelm.execution.verification.recomputing import Recomputation

    return Recomputation(data=data)


def _told(
    at_once: list[StoredRun], chosen: list[StoredRun], recomputation: Recomputation, say: Say
) -> Iterator[RunVerdict]:
    """Those that take no time first; what is left of the others' time is foretold from those that are done."""
    for run in at_once:
        verdict = recomputation.verdict(run.directory.path)
        say(f"{run.name}: {verdict.line()}")
        yield verdict
    began = time.monotonic()
    for number, run in enumerate(chosen, start=1):
        verdict = recomputation.verdict(run.directory.path)
        left = (time.monotonic() - began) / number * (len(chosen) - number)
        eta = f"  (ETA {duration(left)})" if number < len(chosen) else ""
        say(f"[{number}/{len(chosen)}] {run.name}: {verdict.line()}{eta}")
        yield verdict
