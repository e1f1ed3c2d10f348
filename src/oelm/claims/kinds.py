"""The kinds of hypothesis. A row of KINDS is a whole kind: what it needs, between which bounds it holds, what each
outcome is called, its sentence in both languages, and its line in docs/studies.md.

Its bounds are those of the verdict and the edges of the figure. Differences are of costs: below zero the treatment is
better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from oelm.claims.measures import Phrase

Evidence = Literal["quality", "parameters", "speed"]  # paired runs, counting, the bench
Settled = Literal["supported", "refuted", "undecided"]


@dataclass(frozen=True)
class Bounds:
    """Between which numbers a claim holds; None: no bound on that side."""

    lower: float | None
    upper: float | None

    def contain(self, low: float, high: float) -> bool:
        """Whether all of an interval lies within."""
        return (self.lower is None or self.lower <= low) and (self.upper is None or high < self.upper)

    def exclude(self, low: float, high: float) -> bool:
        """Whether all of an interval lies beyond one of them."""
        return (self.upper is not None and low > self.upper) or (self.lower is not None and high < self.lower)


@dataclass(frozen=True)
class Kind:
    evidence: Evidence
    needs: Literal["margin", "least_frozen"] | None  # to be stated
    bounds: Callable[[float], Bounds]  # from what is stated: a margin, in the units of the difference, or a count
    reasons: dict[Settled, str]  # of oelm.claims.reasons
    criterion: Phrase  # when it passes
    criterion_with_margin: Phrase | None  # where it needs none and one is stated
    documentation: tuple[str, str]  # the claim, and what it is decided by

    def verdict(self, *, is_shown: bool, is_excluded: bool) -> tuple[Settled, str]:
        """The outcome, and the reason for it."""
        outcome: Settled = "supported" if is_shown else "refuted" if is_excluded else "undecided"
        return outcome, self.reasons[outcome]


_OF_QUALITY: dict[Settled, str] = {"supported": "shown", "refuted": "contradicted", "undecided": "not_shown"}

KINDS: dict[str, Kind] = {
    "not_worse": Kind(
        evidence="quality",
        needs="margin",
        bounds=lambda margin: Bounds(None, margin),
        reasons=_OF_QUALITY,
        criterion=(
            "{treatment}: {quality} at most {margin} {worse} that of {control}",
            "“{treatment}”的{quality}最多比“{control}”{worse} {margin}",
        ),
        criterion_with_margin=None,
        documentation=("worse than the control by at most the margin", "a one-sided paired test"),
    ),
    "equivalent": Kind(
        evidence="quality",
        needs="margin",
        bounds=lambda margin: Bounds(-margin, margin),
        reasons=_OF_QUALITY,
        criterion=(
            "{treatment}: {quality} within {margin} of that of {control}, either way",
            "“{treatment}”与“{control}”的{quality}相差不超过 {margin}",
        ),
        criterion_with_margin=None,
        documentation=("within the margin both ways", "two one-sided paired tests"),
    ),
    "better": Kind(
        evidence="quality",
        needs=None,
        bounds=lambda margin: Bounds(None, -margin),
        reasons=_OF_QUALITY,
        criterion=(
            "{treatment}: {quality} {better} that of {control}",
            "“{treatment}”的{quality}{better}于“{control}”",
        ),
        criterion_with_margin=(
            "{treatment}: {quality} {better} that of {control} by more than {margin}",
            "“{treatment}”的{quality}比“{control}”{better} {margin} 以上",
        ),
        documentation=("better than the control, by more than the margin if one is stated", "a one-sided paired test"),
    ),
    "fewer_parameters": Kind(
        evidence="parameters",
        needs="least_frozen",
        bounds=lambda least: Bounds(least, None),
        reasons={"supported": "enough_frozen", "refuted": "too_few_frozen"},
        criterion=(
            "{treatment}: at least {least_frozen} parameters are never trained (compared with {control})",
            "“{treatment}”中至少有 {least_frozen} 个参数始终不变（与“{control}”相比）",
        ),
        criterion_with_margin=None,
        documentation=("at least `least_frozen` parameters are never trained", "counting"),
    ),
    "faster": Kind(
        evidence="speed",
        needs=None,
        bounds=lambda _: Bounds(None, 1.0),  # of the ratio of step times
        reasons={"supported": "faster", "refuted": "not_faster", "undecided": "speed_unclear"},
        criterion=(
            "{treatment}: a step takes less time than one of {control}, measured by oelm bench",
            "“{treatment}”每步用时少于“{control}”（由 oelm bench 测量）",
        ),
        criterion_with_margin=None,
        documentation=(
            "a step takes less time",
            "the interval of `oelm bench`, nothing else ([how it measures](speed.md#how-oelm-bench-measures))",
        ),
    ),
}


def kinds_about(evidence: Evidence) -> list[str]:
    return [key for key, kind in KINDS.items() if kind.evidence == evidence]


def documentation() -> Iterator[str]:
    """The table of docs/studies.md."""
    yield "| `kind` | the claim | decided by |"
    yield "|---|---|---|"
    for key, kind in KINDS.items():
        yield f"| `{key}` | {kind.documentation[0]} | {kind.documentation[1]} |"
