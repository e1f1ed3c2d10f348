"""The kinds of hypothesis. A row of KINDS is a whole kind: what it needs, between which bounds it holds, what each
outcome is called, its sentence in both languages, and its line in docs/studies.md.

Its bounds are those of the verdict and the edges of the figure. Differences are of costs: below zero the treatment is
better, and a run that diverged is infinitely worse. A row that could not be decided rightly is refused when it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from oelm.core.measures import Phrase
from oelm.study.claims.reasons import REASONS

# Paired runs by a measure: at one size, at one less those at another, over several; by whether and when they solved a
# probe; counting; the bench.
Evidence = Literal["quality", "contrast", "scale", "solved_seeds", "steps_to_solve", "parameters", "speed"]
Settled = Literal["supported", "refuted", "undecided"]
Need = Literal["margin", "least_frozen", "solved_at"]


@dataclass(frozen=True)
class Ground:
    """What claims of one kind of evidence may need stated, and the facts that their reasons may name, beside a margin
    that is stated."""

    needs: tuple[Need | None, ...]
    facts: tuple[str, ...]
    facts_if: dict[Settled, tuple[str, ...]]  # further ones, by outcome; a key for every outcome there is


_ALL_OUTCOMES: dict[Settled, tuple[str, ...]] = {"supported": (), "refuted": (), "undecided": ()}
_OF_PAIRS = ("pairs", "ahead", "behind", "tied", "neither")
_OF_MEANS = Ground(
    needs=(None, "margin"),
    facts=("pairs", "difference", "margin"),
    facts_if=_ALL_OUTCOMES | {"refuted": ("bound",)},
)

GROUNDS: dict[Evidence, Ground] = {
    "quality": _OF_MEANS,
    "contrast": _OF_MEANS,
    "scale": Ground(
        needs=(None, "margin"),
        facts=("sizes", "slope", "margin", "per"),
        facts_if=_ALL_OUTCOMES | {"refuted": ("bound",)},
    ),
    "solved_seeds": Ground(needs=("solved_at",), facts=_OF_PAIRS, facts_if=_ALL_OUTCOMES),
    "steps_to_solve": Ground(needs=("solved_at",), facts=(*_OF_PAIRS, "interval"), facts_if=_ALL_OUTCOMES),
    "parameters": Ground(
        needs=(None, "least_frozen"),
        facts=("frozen", "least_frozen", "fewer", "least_fewer", "percent", "trainable", "control_trainable"),
        facts_if={"supported": (), "refuted": ()},  # a count lies within the bounds or does not
    ),
    "speed": Ground(needs=(None, "margin"), facts=("blocks", "percent"), facts_if=_ALL_OUTCOMES),
}
SOLVING: tuple[Evidence, ...] = ("solved_seeds", "steps_to_solve")
OF_DIFFERENCES: tuple[Evidence, ...] = ("quality", "contrast")  # which the paired test of the measure decides
MEASURED: tuple[Evidence, ...] = (*OF_DIFFERENCES, "scale")  # by the measure of the study
PAIRED: tuple[Evidence, ...] = (*OF_DIFFERENCES, *SOLVING)  # which the seeds of two arms decide
FAMILY: tuple[Evidence, ...] = (*PAIRED, "scale")  # whose p-values are one family
LEAST_PAIRS = 3  # of a t test


@dataclass(frozen=True)
class Bounds:
    """Between which numbers a claim holds: from the lower one on, below the upper one; None: no bound on that side."""

    lower: float | None
    upper: float | None

    def distances(self, value: float) -> list[float]:
        """Of a number from each of them, above zero where it lies within."""
        upper = [] if self.upper is None else [self.upper - value]
        lower = [] if self.lower is None else [value - self.lower]
        return [*upper, *lower]

    def contain(self, low: float, high: float) -> bool:
        """Whether all of an interval lies within."""
        return (self.lower is None or self.lower <= low) and (self.upper is None or high < self.upper)

    def exclude(self, low: float, high: float) -> bool:
        """Whether all of an interval lies beyond one of them."""
        return (self.upper is not None and low > self.upper) or (self.lower is not None and high < self.lower)

    def moved(self, lower: float, upper: float) -> Bounds:
        """Each of them by so much."""
        below, above = self.lower, self.upper
        return Bounds(None if below is None else below + lower, None if above is None else above + upper)


@dataclass(frozen=True)
class OfFewer:
    """What a claim about parameters says where it states `least_fewer`, of what is trained, instead of a count of what
    never is."""

    criterion: Phrase
    reasons: dict[Settled, str]


@dataclass(frozen=True)
class Kind:
    evidence: Evidence
    needs: Need | None  # to be stated
    # From what is stated, or zero: of quality the margin in the units of the difference, of scale the same for each
    # doubling of the size, of speed the margin as a share
    # (0.05 for 5 %) of the ratio of step times, of parameters the count; of solving it is the share of the informative
    # pairs in which the treatment is ahead, whatever is stated.
    bounds: Callable[[float], Bounds]
    reasons: dict[Settled, str]  # of oelm.study.claims.reasons, one for each outcome that its evidence can have
    criterion: Phrase  # when it passes
    documentation: tuple[str, str]  # the claim, and what it is decided by
    criterion_with_margin: Phrase | None = None  # where it needs none and one is stated; None: then none may be stated
    # Of what is measured: how its verdicts go on after the effect with its interval, and where no margin is stated.
    found: Mapping[Settled, Phrase] = field(default_factory=dict)
    found_without_margin: Mapping[Settled, Phrase] = field(default_factory=dict)
    of_fewer: OfFewer | None = None  # for a kind that needs least_frozen; None: then least_fewer may not be stated

    def __post_init__(self) -> None:
        if problems := list(self._problems()):
            raise ValueError(f"a kind that is decided by {self.evidence}: {'; '.join(problems)}")

    def _problems(self) -> Iterator[str]:
        if self.evidence not in GROUNDS:
            yield f"evidence is one of {', '.join(GROUNDS)}"
            return
        ground = GROUNDS[self.evidence]
        if self.needs not in ground.needs:
            yield f"needs is {' or '.join(map(repr, ground.needs))}, not {self.needs!r}"
        if self.criterion_with_margin is not None and (self.needs is not None or "margin" not in ground.needs):
            yield "criterion_with_margin is for a kind whose margin may be left out"
        if self.bounds(0.5) == Bounds(None, None):
            yield "bounds has no bound, so that every claim would hold"
        if self.reasons.keys() != ground.facts_if.keys():
            yield f"reasons has {', '.join(self.reasons)}; its outcomes are {', '.join(ground.facts_if)}"
        if self.of_fewer is not None and self.needs != "least_frozen":
            yield "of_fewer is for a kind that needs least_frozen"
        if self.of_fewer is not None and self.of_fewer.reasons.keys() != ground.facts_if.keys():
            yield f"of_fewer.reasons has {', '.join(self.of_fewer.reasons)}"
        words = [*([self.found] if self.takes_margin else []), *([] if self.needs else [self.found_without_margin])]
        if self.evidence in MEASURED and any(each.keys() != ground.facts_if.keys() for each in words):
            yield "found and found_without_margin say how each outcome is put, where they apply"
        margin = ("margin",) if self.takes_margin else ()
        further = self.of_fewer.reasons.items() if self.of_fewer else ()
        for outcome, reason in (*self.reasons.items(), *further):
            known = (*ground.facts, *ground.facts_if.get(outcome, ()), *margin)
            if reason not in REASONS:
                yield f"reasons.{outcome}: {reason} is not in claims/reasons.py"
            elif unknown := [fact for fact in REASONS[reason].facts if fact not in known]:
                yield f"reasons.{outcome}: {reason} names {', '.join(unknown)}, which such a verdict does not have"

    @property
    def takes_margin(self) -> bool:
        """Whether a claim may state one."""
        return self.needs == "margin" or self.criterion_with_margin is not None

    def verdict(self, *, is_shown: bool, is_excluded: bool, of_fewer: bool = False) -> tuple[Settled, str]:
        """The outcome, and the reason for it."""
        outcome: Settled = "supported" if is_shown else "refuted" if is_excluded else "undecided"
        reasons = self.of_fewer.reasons if of_fewer and self.of_fewer else self.reasons
        return outcome, reasons[outcome]


_OF_SCALE: dict[Settled, str] = {
    "supported": "trend_shown",
    "refuted": "trend_contradicted",
    "undecided": "trend_unclear",
}
_OF_CONTRAST: dict[Settled, str] = {
    "supported": "contrast_shown",
    "refuted": "contrast_contradicted",
    "undecided": "contrast_unclear",
}
_OF_QUALITY: dict[Settled, str] = {"supported": "shown", "refuted": "contradicted", "undecided": "not_shown"}
_NEAR_MARGIN: Phrase = (
    "too near the declared {margin} to say on which side of it",
    "与声明的 {margin} 过于接近，无法判断在哪一侧",
)
_NEAR_ZERO: Phrase = ("too near zero to say on which side of it", "与零过于接近，无法判断在哪一侧")
_WITHIN: dict[Settled, Phrase] = {
    "supported": ("within the declared {margin} either way", "在声明的 ±{margin} 之内"),
    "refuted": ("beyond the declared {margin}", "超出声明的 {margin}"),
    "undecided": _NEAR_MARGIN,
}
_MORE_THAN: dict[Settled, Phrase] = {
    "supported": ("more than the declared {margin}", "超过声明的 {margin}"),
    "refuted": ("not more than the declared {margin}", "未超过声明的 {margin}"),
    "undecided": _NEAR_MARGIN,
}

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
        documentation=("worse than the control by at most the margin", "a one-sided paired test"),
        found={
            "supported": ("below the declared {margin}", "低于声明的 {margin}"),
            "refuted": ("above the declared {margin}", "高于声明的 {margin}"),
            "undecided": _NEAR_MARGIN,
        },
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
        documentation=("within the margin both ways", "two one-sided paired tests"),
        found=_WITHIN,
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
            "“{treatment}”的{quality}{better}于“{control}”，且相差超过 {margin}",
        ),
        documentation=("better than the control, by more than the margin if one is stated", "a one-sided paired test"),
        found=_MORE_THAN,
        found_without_margin={
            "supported": ("so it is better", "因此更好"),
            "refuted": ("so it is not better", "因此并不更好"),
            "undecided": _NEAR_ZERO,
        },
    ),
    "contrast": Kind(
        evidence="contrast",
        needs=None,
        bounds=lambda margin: Bounds(margin, None),
        reasons=_OF_CONTRAST,
        criterion=(
            "{treatment}: what it lacks in {quality} against {control} is larger at {size} than at {against}",
            "“{treatment}”相对“{control}”的{quality}劣势在 {size} 大于在 {against}",
        ),
        criterion_with_margin=(
            "{treatment}: what it lacks in {quality} against {control} is larger at {size} than at {against}, by more "
            "than {margin}",
            "“{treatment}”相对“{control}”的{quality}劣势在 {size} 大于在 {against}，且相差超过 {margin}",
        ),
        documentation=(
            "what the treatment lacks against the control is larger at the size `size` than at the size `against`, by "
            "more than the margin if one is stated",
            "a one-sided paired test of the differences at the one size less those at the other, seed by seed",
        ),
        found=_MORE_THAN,
        found_without_margin={
            "supported": ("so it is larger there", "因此在后者更大"),
            "refuted": ("so it is not larger there", "因此在后者并不更大"),
            "undecided": _NEAR_ZERO,
        },
    ),
    "shrinks": Kind(
        evidence="scale",
        needs=None,
        bounds=lambda margin: Bounds(None, -margin),
        reasons=_OF_SCALE,
        criterion=(
            "{treatment}: what it lacks in {quality} against {control} shrinks with every doubling of {per}",
            "“{treatment}”相对“{control}”的{quality}劣势随{per}每翻一倍而缩小",
        ),
        criterion_with_margin=(
            "{treatment}: what it lacks in {quality} against {control} shrinks by more than {margin} with every "
            "doubling of {per}",
            "“{treatment}”相对“{control}”的{quality}劣势随{per}每翻一倍而缩小，且超过 {margin}",
        ),
        documentation=(
            "what the treatment lacks against the control shrinks as sizes grow (a lead grows), by more than the "
            "margin per doubling if one is stated",
            "a one-sided t test of the slope over the sizes",
        ),
        found=_MORE_THAN,
        found_without_margin={
            "supported": ("so it shrinks", "因此在缩小"),
            "refuted": ("so it does not shrink", "因此并未缩小"),
            "undecided": _NEAR_ZERO,
        },
    ),
    "grows": Kind(
        evidence="scale",
        needs=None,
        bounds=lambda margin: Bounds(margin, None),
        reasons=_OF_SCALE,
        criterion=(
            "{treatment}: what it lacks in {quality} against {control} grows with every doubling of {per}",
            "“{treatment}”相对“{control}”的{quality}劣势随{per}每翻一倍而扩大",
        ),
        criterion_with_margin=(
            "{treatment}: what it lacks in {quality} against {control} grows by more than {margin} with every "
            "doubling of {per}",
            "“{treatment}”相对“{control}”的{quality}劣势随{per}每翻一倍而扩大，且超过 {margin}",
        ),
        documentation=(
            "the same the other way: what it lacks grows (a lead shrinks)",
            "a one-sided t test of the slope over the sizes",
        ),
        found=_MORE_THAN,
        found_without_margin={
            "supported": ("so it grows", "因此在扩大"),
            "refuted": ("so it does not grow", "因此并未扩大"),
            "undecided": _NEAR_ZERO,
        },
    ),
    "holds": Kind(
        evidence="scale",
        needs="margin",
        bounds=lambda margin: Bounds(-margin, margin),
        reasons=_OF_SCALE,
        criterion=(
            "{treatment}: its difference in {quality} from {control} changes by less than {margin}, either way, with "
            "every doubling of {per}",
            "“{treatment}”与“{control}”的{quality}差异随{per}每翻一倍的变化不超过 {margin}",
        ),
        documentation=(
            "the difference changes by less than the margin per doubling, either way",
            "two one-sided t tests of the slope over the sizes",
        ),
        found=_WITHIN,
    ),
    "solves_more": Kind(
        evidence="solved_seeds",
        needs="solved_at",
        bounds=lambda _: Bounds(0.5, None),
        reasons={"supported": "solves_more", "refuted": "solves_fewer", "undecided": "solved_unclear"},
        criterion=(
            "{treatment} solves the probe with more seeds than {control}; solved: {solved} at the end",
            "“{treatment}”解出任务的种子多于“{control}”；解出指结束时{solved}",
        ),
        documentation=(
            "solves the probe with more seeds than the control: accuracy at the end of at least `solved_at`, a share, "
            "the mean or that at one `difficulty`",
            "an exact one-sided sign test over the seeds with which only one arm solves it",
        ),
    ),
    "solves_sooner": Kind(
        evidence="steps_to_solve",
        needs="solved_at",
        bounds=lambda _: Bounds(0.5, None),
        reasons={"supported": "solves_sooner", "refuted": "solves_later", "undecided": "steps_unclear"},
        criterion=(
            "{treatment} solves the probe before {control} in more pairs than after it; solved: {solved} at the end",
            "“{treatment}”先于“{control}”解出任务的配对多于后于它的；解出指结束时{solved}",
        ),
        documentation=(
            "solves the probe, as above, before the control in more pairs than after it (not: a lower mean of steps)",
            "an exact one-sided sign test over the pairs in which at least one arm solves it and the validations tell "
            "which was first",
        ),
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
        documentation=(
            "at least `least_frozen` parameters are never trained (implied ones count), or at least `least_fewer` "
            "fewer are trained than in the control",
            "counting",
        ),
        of_fewer=OfFewer(
            criterion=(
                "{treatment}: at least {least_fewer} fewer parameters are trained than in {control}",
                "“{treatment}”的可训练参数至少比“{control}”少 {least_fewer} 个",
            ),
            reasons={"supported": "enough_fewer", "refuted": "too_few_fewer"},
        ),
    ),
    "faster": Kind(
        evidence="speed",
        needs=None,
        bounds=lambda share: Bounds(None, 1.0 - share),
        reasons={"supported": "faster", "refuted": "not_faster", "undecided": "speed_unclear"},
        criterion=(
            "{treatment}: a step takes less time than one of {control}, measured by oelm bench",
            "“{treatment}”每步用时少于“{control}”（由 oelm bench 测量）",
        ),
        documentation=(
            "a step takes less time",
            "the interval of `oelm bench`, nothing else ([how it measures](speed.md#how-oelm-bench-measures))",
        ),
    ),
}


def kinds_about(*evidence: Evidence) -> list[str]:
    return [key for key, kind in KINDS.items() if kind.evidence in evidence]


def documentation() -> Iterator[str]:
    """The table of docs/studies.md."""
    yield "| `kind` | the claim | decided by |"
    yield "|---|---|---|"
    for key, kind in KINDS.items():
        yield f"| `{key}` | {kind.documentation[0]} | {kind.documentation[1]} |"
