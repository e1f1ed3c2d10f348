"""What `oelm bench` measured, block by block: its sealed file, and the ratios that may be read from it. No torch.

A block is the unit: every contender takes its steps in it, the baseline twice. The second of them, the twin, differs
from the baseline by nothing, so whatever its ratio says beside 1 no other ratio of the same bench can be trusted with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from oelm.core.config import STEP_EXECUTION, ResolvedRun
from oelm.core.intervals import mean_and_half_width
from oelm.core.logarithms import exponential
from oelm.core.settings import stored_run
from oelm.core.sources import FIRST_SCHEME
from oelm.machine.errors import UserError
from oelm.storage.files import Damaged, read_sealed
from oelm.storage.schemas import Stored, checked
from oelm.study.remarks import Differences

BENCH_FILE = "bench.json"
REJECTED_FILE = "bench-rejected.json"  # a measurement that did not replace a better one
FORMAT_VERSION = 3
LEAST_BLOCKS = 8  # undisturbed ones; from fewer nothing is decided

Seconds = Annotated[float, Field(ge=1e-9, le=1e9)]


@dataclass(frozen=True)
class Ratio:
    """A ratio of times, treatment over control, with its 95 % interval: below 1 is faster."""

    middle: float
    low: float
    high: float
    blocks: int
    smallest: float | None = None  # that any single component of the step allows, by arithmetic

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    @property
    def is_implausible(self) -> bool:
        """Smaller than arithmetic allows, by more than the interval."""
        return self.smallest is not None and self.high < self.smallest


def ratio_of_logarithms(logarithms: Sequence[float], *, twin: Sequence[float] = ()) -> Ratio:
    """Geometric mean with its interval, which is never narrower than what the twin's logarithms leave open."""
    middle, half = mean_and_half_width(logarithms)
    if twin:
        off, uncertain = mean_and_half_width(twin)
        half = max(half, abs(off) + uncertain)
    return Ratio(math.exp(middle), math.exp(middle - half), exponential(middle + half), len(logarithms))


# ---- The file ------------------------------------------------------------------------------------------------------


class BlockRecord(Stored):
    """What went on around one block. Shares are of 1; None: this system does not say."""

    seconds: Seconds  # that the block took
    share: Annotated[float, Field(ge=0)] | None = None  # of the processors it uses that this process got
    waited: Annotated[float, Field(ge=0, le=1)] | None = None  # of the time it could have run, for a processor
    others: Annotated[float, Field(ge=0)] | None = None  # of all processors, used by other processes
    steal: Annotated[float, Field(ge=0)] | None = None  # of all processors, taken by other guests of the host
    load: float | None = None  # average over a minute, at the end
    pressure: float | None = None  # of the time, in which some process waited for a processor
    disturbed: list[str] = Field(default_factory=list)  # by what; codes


class _InBlocks(Stored):
    """What both formats have."""

    baseline: str
    seconds: Annotated[dict[str, list[Seconds]], Field(min_length=1)]
    source_digest: str | None = None
    source_scheme: Annotated[int, Field(ge=1)] = FIRST_SCHEME
    data_digest: str | None = None  # empty: the tokens were drawn
    created: str | None = None
    twin: list[Seconds]
    blocks: list[BlockRecord]
    work: dict[str, dict[str, Annotated[float, Field(gt=0)]]]
    rebuilt: bool
    device: str | None = None
    precision: str | None = None
    compile: bool | None = None
    threads: int | None = None
    micro_batch_size: int | None = None
    deterministic: bool | None = None
    tf32: bool | None = None


class _Format2(_InBlocks):
    format_version: Literal[2]


class _Format3(_InBlocks):
    """Also knows what it measured."""

    format_version: Literal[3]
    runs: dict[str, dict[str, Any]]  # of every arm, as a run's config.json has it
    execution: dict[str, str | bool | int | None]  # as the study declared it


@dataclass(frozen=True)
class Bench:
    """Seconds of a step, one number a block, of every arm and of the baseline's twin."""

    baseline: str
    seconds: dict[str, list[float]]
    twin: list[float]
    disturbed: tuple[tuple[str, ...], ...] = ()  # what disturbed each block
    work: dict[str, dict[str, float]] | None = None  # of a step of each arm, by component
    rebuilt: bool = False  # contenders were built anew for every block
    source_digest: str | None = None
    source_scheme: int = FIRST_SCHEME
    data_digest: str | None = None
    created: str | None = None
    runs: dict[str, ResolvedRun] | None = None  # what was timed; None: of a format that knows its work only
    declared: dict[str, Any] | None = None  # execution as the study had it, `auto` included; None as above
    execution: dict[str, Any] = field(default_factory=dict)  # as it was, in the words of a study
    names: dict[str, str] = field(default_factory=dict)  # arms of the study that were measured under another name
    other_config: dict[str, Differences] = field(default_factory=dict)  # arms that are no longer what was measured

    @property
    def blocks(self) -> int:
        return len(self.disturbed)

    @property
    def quiet(self) -> list[int]:
        """The blocks that nothing disturbed, by number."""
        return [number for number, causes in enumerate(self.disturbed) if not causes]

    @property
    def is_busy(self) -> bool:
        """Enough was measured, too little of it undisturbed."""
        return len(self.quiet) < LEAST_BLOCKS <= self.blocks

    @property
    def can_decide(self) -> bool:
        """Whatever its ratios say: it has enough undisturbed blocks."""
        return len(self.quiet) >= LEAST_BLOCKS

    def has(self, *arms: str) -> bool:
        return set(arms) <= self.seconds.keys()

    def ratio(self, treatment: str, control: str) -> Ratio | None:
        """From the undisturbed blocks; None if the bench does not have both arms, or fewer than two such blocks."""
        if not self.has(treatment, control) or len(self.quiet) < 2:
            return None
        one, other = self.seconds[treatment], self.seconds[control]
        found = ratio_of_logarithms(self._logarithms(one, other), twin=self._of_the_twin())
        smallest = smallest_ratio(self.work[treatment], self.work[control]) if self.work else None
        return replace(found, smallest=smallest)

    @property
    def control(self) -> Ratio | None:
        """The twin over the baseline, by its own spread: 1 is in it unless the machine plays tricks."""
        logarithms = self._of_the_twin()
        return ratio_of_logarithms(logarithms) if len(logarithms) > 1 else None

    def _of_the_twin(self) -> list[float]:
        return self._logarithms(self.twin, self.seconds[self.baseline])

    def _logarithms(self, numerator: Sequence[float], denominator: Sequence[float]) -> list[float]:
        return [math.log(numerator[number] / denominator[number]) for number in self.quiet]


def smallest_ratio(treatment: dict[str, float], control: dict[str, float]) -> float:
    """A step is its components one after another, so its ratio lies between the smallest and the largest of theirs."""
    return min(treatment[name] / control[name] for name in treatment)


def bench_of(tree: dict[str, Any], path: Path) -> Bench:
    """From what a bench file holds, without its seal; Damaged if its parts are not what they should be."""
    shape: type[_Format2] | type[_Format3] = _Format2 if tree.get("format_version") == 2 else _Format3
    stored = shape.model_validate(checked(path, tree, shape))
    if stored.baseline not in stored.seconds:
        raise Damaged(path, f"seconds: none of the baseline {stored.baseline!r}")
    lengths = {*map(len, stored.seconds.values()), len(stored.twin), len(stored.blocks)}
    if len(lengths) > 1 or 0 in lengths:
        raise Damaged(path, "seconds: not equally many blocks of every contender")
    components = {tuple(sorted(each)) for each in stored.work.values()}
    if stored.work.keys() != stored.seconds.keys() or len(components) != 1 or components == {()}:
        raise Damaged(path, "work: not the same components of every arm that was measured")
    execution = {key: getattr(stored, key) for key in STEP_EXECUTION if getattr(stored, key) is not None}
    if "compile" in execution:  # in the words of a study
        execution["compile"] = "on" if stored.compile else "off"
    alike = set(_InBlocks.model_fields) - {"blocks", *STEP_EXECUTION}
    return Bench(
        **stored.model_dump(include=alike),
        disturbed=tuple(tuple(block.disturbed) for block in stored.blocks),
        runs=_runs(stored, path) if isinstance(stored, _Format3) else None,
        declared=stored.execution if isinstance(stored, _Format3) else None,
        execution=execution,
    )


def _runs(stored: _Format3, path: Path) -> dict[str, ResolvedRun]:
    if stored.runs.keys() != stored.seconds.keys():
        raise Damaged(path, "runs: not of every arm that was measured")
    try:
        return {arm: stored_run(tree, name=str(path)) for arm, tree in stored.runs.items()}
    except UserError as error:  # damaged, or a newer oelm's
        reason = error.reason if isinstance(error, Damaged) else str(error).removeprefix(f"{path}: ")
        raise Damaged(path, f"runs: {reason}") from error


def stored_bench(folder: Path) -> Bench | Damaged | None:
    """What a study's folder holds; None if it was never measured."""
    path = folder / BENCH_FILE
    try:
        return bench_of(read_sealed(path), path)
    except Damaged as damage:
        return damage
    except FileNotFoundError:
        return None
