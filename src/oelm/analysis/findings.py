"""What an analysis finds, as values: the contract between analysis, which computes, and oelm.show, which shows.

Losses are in nats per token, or per example where an encoder is fine-tuned. Differences in quality are of costs
(`Measure.cost`), so that less is better everywhere, whatever a reader is shown. Nothing here is formatted or
translated: reasons are codes of oelm.study.claims.reasons with their numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from oelm.core.floors import Floor
from oelm.core.intervals import LEVEL
from oelm.core.solving import Criterion, Solved
from oelm.study.bench import Ratio
from oelm.study.claims.kinds import KINDS, Bounds, Settled
from oelm.study.confounds import Confound
from oelm.study.declaration import Hypothesis, Per, Study, Text
from oelm.study.kept_looks import Look
from oelm.study.plan import Plan, PlannedRun
from oelm.study.rate_fit import REASONS

Outcome = Settled | Literal["confounded"]

# Notes of findings -> the facts beside them.
NOT_FITTED = tuple(f"not_fitted_{reason}" for reason in REASONS)
NOTES: dict[str, tuple[str, ...]] = {
    "fixed_learning_rate": ("learning_rate",),  # one rate for all arms, not tuned
    "edge_optimum": ("arm", "key", "value"),  # the best value is still the smallest or largest one tried
    "all_points_diverged": ("arm",),
    **dict.fromkeys(NOT_FITTED, ("arm", "value")),  # why the best value of the grid stands in for a fitted optimum
    "tuning_at_floor": ("arm", "reached", "floor"),  # of the best point of the grid: not clearly beyond the floor
    "at_floor": ("arm", "reached", "floor"),  # the same of its finished final runs
    "few_seeds": ("seeds",),  # fewer than three: no p-value is possible
    "mixed_environment": ("key", "values"),  # not the same in all finished final runs
    "not_recorded": ("runs",),  # finished runs without an environment.json
    "uncommitted_sources": ("runs",),  # runs made from a work tree with changes that were not committed
    "sources_not_comparable": ("schemes",),  # source digests of finished final runs were taken in different ways
    "bench_of_other_sources": ("bench", "runs"),  # source digests
    "bench_sources_not_comparable": ("bench", "runs"),  # schemes
    "bench_other_names": ("names",),  # of arms: then, and now
    "bench_other_config": ("differences", "study"),  # than the study has now
    "bench_disturbed": ("disturbed", "blocks"),  # those that were left out
    "bench_not_rebuilt": (),  # the contenders kept their places in memory from block to block
    "damaged": ("line",),  # a run with a file that is not what was stored: part of no number
    "unreadable": ("line",),  # a file that could not be read
    # Finished runs in the folder that the study as it is now does not plan.
    "other_config": ("runs", "differences"),
    "other_arms": ("runs", "names"),
    "other_data": ("runs", "digests", "counted"),
    "other_seeds": ("runs", "seeds"),
    "other_points": ("runs", "points"),  # of the grid
    "unchosen": ("runs", "points"),  # final runs whose choice is gone
    "unlike_copies": ("copies",),  # the run that counts and another one of the same computation, with other numbers
    # Finished runs that count.
    "other_execution": ("runs", "differences"),
    "same_losses": ("copies",),  # runs of one arm with different seeds
    # Stored choices.
    "choice_contradicted": ("arm", "chosen", "made", "now"),  # by the tuning runs as they are now
    "choice_runs_changed": ("arm", "chosen", "made", "changes"),  # which would choose the same
    "round_contradicted": ("arm", "number", "made", "now"),  # what a round of halving would drop now
    "choice_replaced": ("arm", "made", "differences"),  # made for another declaration, and never used
    "choices_other_declaration": ("file", "names", "made", "differences"),
    "choices_damaged": ("line",),
    "choices_not_stored": ("names",),  # arms
    "choices_stored_late": ("made", "runs"),
    # Stored looks.
    "looks_other_declaration": ("file", "made", "differences"),
    "looks_other_runs": ("file", "made", "names"),
    "look_runs_changed": ("made", "changes"),
    "look_stored_late": ("look", "made", "runs"),
    # Pairs whose predictions cannot be compared example by example, by seed.
    "predictions_missing": ("hypothesis", "seeds"),  # one of the two runs, of an older format, stored none
    "predictions_unlike": ("hypothesis", "seeds"),  # of another split, of other examples, or in another order
}


@dataclass(frozen=True)
class PairedDifference:
    """Treatment minus control over the seeds both have finished. Interval fields are None below two pairs."""

    seeds: list[int]
    differences: list[float]  # of costs, by seed
    mean: float | None
    standard_deviation: float | None
    low: float | None  # two-sided 95 % t interval
    high: float | None


@dataclass(frozen=True)
class McNemar:
    """One pair of runs on the same examples: how often each was right."""

    seed: int
    both_right: int
    treatment_only: int
    control_only: int
    both_wrong: int
    p: float  # exact, two-sided

    @property
    def examples(self) -> int:
        return self.both_right + self.treatment_only + self.control_only + self.both_wrong


@dataclass(frozen=True)
class SolvingPairs:
    """The pairs of a claim about solving, each by its seed."""

    ahead: list[int]  # the treatment alone solves it, or solves it sooner
    behind: list[int]  # the control
    tied: list[int]  # both solve it; by steps, in intervals between validations that overlap
    neither: list[int]

    @property
    def informative(self) -> int:
        return len(self.ahead) + len(self.behind)

    @property
    def pairs(self) -> int:
        return self.informative + len(self.tied) + len(self.neither)


@dataclass(frozen=True)
class SignTest(SolvingPairs):
    """What their signs say."""

    p: float  # exact, one-sided, of the claim's null hypothesis
    p_opposite: float  # the same test the other way


@dataclass(frozen=True)
class Span:
    """From the least to the most over some arms; both are equal where the arms agree."""

    least: int
    most: int


@dataclass(frozen=True)
class Scope:
    """How far a result reaches: the size of the models and what one run reads, counted from the runs' configs."""

    parameters: Span
    tokens: Span
    examples: Span | None  # where an encoder is fine-tuned
    data: list[str]  # names of the data folders
    stated: Text | None  # what the study adds in its own words


# What of a size is counted: a slope is the change with every doubling of one of them.
COUNTS: tuple[Per, ...] = ("parameters", "tokens", "flops")


@dataclass(frozen=True)
class SizePoint:
    """Two arms at one size."""

    size: str
    treatment: str
    control: str
    counts: dict[Per, float]  # of the control
    difference: PairedDifference
    is_whole: bool  # every seed has its pair
    is_carried: bool = False  # its rates follow from those of other sizes


@dataclass(frozen=True)
class Slope:
    """How a difference changes with every doubling of a count, over the sizes that are whole."""

    sizes: int
    slope: float  # in the units of the difference
    low: float  # two-sided 95 % interval, by the spread of the sizes about the line
    high: float
    lower_bound: float  # one-sided 95 %
    upper_bound: float
    deviation: float  # of a size about the line
    line: list[Height]  # between the first size and the last


@dataclass(frozen=True)
class Height:
    """Of a fitted line at some count, with its 95 % interval."""

    count: float
    middle: float
    low: float
    high: float


@dataclass(frozen=True)
class Trend:
    """Two arms, as they were declared, over several sizes, the smallest first."""

    treatment: str
    control: str
    dial: str | None  # None: sizes that a claim lists
    per: Per  # what the sizes are ordered by
    points: list[SizePoint]
    slopes: dict[Per, Slope]  # by each count that differs, as soon as three sizes are whole


@dataclass(frozen=True)
class Law:
    """The loss of an arm against its training FLOPs, as a power law without a floor: a description of these sizes."""

    arm: str  # as it was declared
    dial: str
    flops: list[float]
    losses: list[float]  # means over seeds
    exponent: float | None  # the loss is multiplied by 2 to this with every doubling; None below three sizes
    low: float | None
    high: float | None
    line: list[Height]


@dataclass(frozen=True)
class Multiplier:
    """How many times the tokens an arm needs for the loss that the control has at one budget."""

    treatment: str
    control: str
    budgets: int
    tokens: float  # of the control
    ratio: float
    low: float | None  # 95 %; None: the arm's loss may not fall at all
    high: float | None
    flops_ratio: float  # of a token of the treatment against one of the control
    is_beyond: bool  # so many tokens were not tried


@dataclass(frozen=True)
class Predicted:
    """The mean difference at a size that the line was not fitted to: an extrapolation."""

    size: str
    counts: dict[Per, float]
    middle: float
    low: float
    high: float


@dataclass(frozen=True)
class Forecast:
    """What a trend says of a larger size, and of its own largest one if that is left out."""

    treatment: str
    control: str
    per: Per
    sizes: int
    size: str
    predicted: Predicted | None  # None: fewer than five sizes are complete
    left_out: Predicted | None = None
    observed: float | None = None  # at the size that was left out

    @property
    def is_covered(self) -> bool | None:
        if self.left_out is None or self.observed is None:
            return None
        return self.left_out.low <= self.observed <= self.left_out.high


@dataclass(frozen=True)
class AtLook:
    """Where a verdict was reached, or where its claim stands."""

    number: int  # from 1 on; 0: before the first
    seeds: int  # that the look uses of each arm
    made: str | None  # when it was stored
    is_settled: bool  # whether the claim asks for no further seeds


# What a verdict says of the learning rates of its arms: an allowance, or why it has none.
RATES = (
    "allowed", "one_rate", "fixed_rates", "carried_rates", "one_seed", "few_seeds", "in_spread", "other_measure",
    "several_settings", "few_values", "look_without",
)  # fmt: skip


@dataclass(frozen=True)
class Rates:
    """How far a mean difference may lie from that of the two arms at their own best rates, where that can be said."""

    code: str  # of RATES
    facts: dict[str, Any] = field(default_factory=dict)
    arms: dict[str, float] = field(default_factory=dict)  # in nats: the loss at the chosen rate above the best
    below: float = 0.0  # the true difference may be lower by so much: the treatment is not at its best
    above: float = 0.0  # or higher: the control is not

    def moved(self, bounds: Bounds) -> tuple[Bounds, Bounds]:
        """Where a mean difference must lie for the claim to hold, and beyond what for it to fail, whatever the true
        difference is that the allowance admits."""
        return bounds.moved(self.below, -self.above), bounds.moved(-self.above, self.below)


@dataclass(frozen=True)
class Verdict:
    """What the runs say about one hypothesis."""

    hypothesis: Hypothesis
    outcome: Outcome
    regardless: Outcome  # the outcome if no confound stood in the way
    reason: str  # a code; show has its sentence in each language
    facts: dict[str, Any] = field(default_factory=dict)  # the numbers the sentence needs
    difference: PairedDifference | None = None
    margin: float | None = None  # in the units of the difference
    lower_bound: float | None = None  # one-sided 95 % bounds of the mean difference
    upper_bound: float | None = None
    p: float | None = None  # one-sided, of the claim's null hypothesis: t, or exact where signs or equal pairs decide
    p_adjusted: float | None = None  # Holm over the confirmatory family
    sign_flip_p: float | None = None
    ratio: Ratio | None = None  # of kind faster
    confounds: list[Confound] = field(default_factory=list)
    reservations: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # of oelm.study.claims.reservations
    mcnemar: list[McNemar] = field(default_factory=list)  # by seed, where predictions are compared
    sign_test: SignTest | None = None  # of a claim about solving
    pairs_so_far: SolvingPairs | None = None  # of one that is not tested yet
    refutation_p: float | None = None  # of a refuted claim that it holds; over all looks, not corrected for the family
    sequential_p: float | None = None  # the smallest error rate over all looks at which it is shown; else `p`
    look: AtLook | None = None  # where the study has looks
    trend: Trend | None = None  # of a claim about scale
    rates: Rates | None = None  # of one that is tested

    @property
    def allowance(self) -> float | None:
        """By how much the rates of its arms moved the bound that decides, in the units of the difference; of two, the
        one that was moved further. On the far side of the bound, that is what refuting it allows for."""
        if self.rates is None or self.rates.code != "allowed" or self.difference is None:
            return None
        bounds, mean = KINDS[self.hypothesis.kind].bounds(self.margin or 0.0), self.difference.mean or 0.0
        is_beyond = not bounds.contain(mean, mean)
        upper = [] if bounds.upper is None else [self.rates.below if is_beyond else self.rates.above]
        lower = [] if bounds.lower is None else [self.rates.above if is_beyond else self.rates.below]
        return max([*upper, *lower])

    @property
    def doubt(self) -> Literal["few", "near"] | None:
        """Why a tested claim is undecided. Few: the interval reaches further from the mean than the margin (the usual
        one, where none is stated), so that such pairs or sizes could not tell it from nothing, or they are all alike;
        of signs, three quarters of them would not show it, or more are of one side. Near: they could, and the claim is
        near its bound."""
        of_doubt = (KINDS[self.hypothesis.kind].reasons.get("undecided"), "same_not_shown", "too_few_informative")
        if self.p is None or self.reason not in of_doubt:
            return None
        if (signs := self.sign_test) is not None:
            pairs, share = signs.informative, len(signs.ahead) / max(1, signs.informative)
            so_often = sum(math.comb(pairs, each) for each in range(math.ceil(0.75 * pairs), pairs + 1)) / 2**pairs
            return "near" if 0.25 < share < 0.75 and so_often <= LEVEL else "few"
        measured: PairedDifference | Slope | None = self.difference
        if self.trend is not None:
            measured = self.trend.slopes.get(self.trend.per)
        if measured is None or measured.low is None or measured.high is None:
            return "few"
        scale = self.hypothesis.quality.scale
        telling = scale.margin(self.hypothesis.margin or scale.usual_margin)
        return "few" if (measured.high - measured.low) / 2 > telling else "near"


@dataclass(frozen=True)
class ScopedVerdict(Verdict):
    """The same with how far it reaches: as a whole analysis gives it."""

    scope: Scope = field(kw_only=True)  # of the two arms


@dataclass(frozen=True)
class Curve:
    """Mean over an arm's finished seeds at common steps, with the spread."""

    steps: list[int]
    tokens: list[int]
    seconds: list[float]  # mean training time at that step
    mean: list[float]
    low: list[float]  # smallest and largest over the seeds
    high: list[float]


@dataclass(frozen=True)
class Reached:
    """What it took to reach the target perplexity, mean over the seeds that did."""

    seeds: int
    steps: float
    tokens: float
    seconds: float
    flops: float


@dataclass(frozen=True)
class Quality:
    """An arm by the measure of its study."""

    values: dict[int, float]  # by seed
    costs: dict[int, float]  # the same where less is better
    mean: float | None
    standard_deviation: float | None
    difference: PairedDifference | None  # of costs, against the baseline; None for the baseline itself
    curve: Curve | None  # None also where runs record none


@dataclass(frozen=True)
class SolvedSeeds:
    """The final runs of an arm by when they count as solved: those that finished or diverged, by seed."""

    criterion: Criterion
    accuracies: dict[int, float | None]  # at the end; None: it diverged, or does not report this difficulty
    solved: dict[int, Solved | None]  # between which validations; None: it is not solved

    @property
    def runs(self) -> int:
        return len(self.solved)

    @property
    def steps(self) -> list[int]:
        """Of the runs that solve it, by the validation that found it."""
        return sorted(each.by for each in self.solved.values() if each is not None)


@dataclass(frozen=True)
class ProbeSummary:
    """What the runs of an arm make of a probe."""

    validate_every: int
    accuracies: dict[int, float]  # by seed: the mean over the difficulties
    by_difficulty: dict[int, dict[str, float]]  # the same at each difficulty, the easiest first
    solving: list[SolvedSeeds]  # for each accuracy that the study calls solved

    def solving_by(self, criterion: Criterion) -> SolvedSeeds:
        return next(each for each in self.solving if each.criterion == criterion)


@dataclass(frozen=True)
class Heads:
    """What an arm's attention heads look at, over the finished seeds that recorded it."""

    strongest: dict[str, Curve]  # by kind: the head with the largest score of it, at every validation
    last: dict[str, list[list[float]]]  # by kind, layers by heads sorted by it: mean over the seeds at the last step
    seeds: int


@dataclass(frozen=True)
class ArmSummary:
    """One arm. It has losses by whatever it is compared: every run has one, and tuning goes by it."""

    arm: str
    spec: str  # how Q and K start and move, in words
    total: int
    trainable: int
    frozen: int
    implied: int  # entries of matrices that nobody stores
    parts: list[dict[str, Any]]  # role, layer, total, trainable, frozen, implied
    learning_rate: float | None  # chosen or fixed; None while tuning goes on
    values: dict[str, float]  # every tuned key
    losses: dict[int, float]  # by seed, of those that have finished
    states: dict[str, list[int]]  # state -> seeds, missing ones included
    mean_loss: float | None
    standard_deviation: float | None
    difference: PairedDifference | None  # against the baseline; None for the baseline itself
    data: str  # name of its folder
    tokens: int
    flops: float  # of one run, arithmetic
    seconds_per_step: float | None  # mean over runs: indicative only, see `ratio`
    training_seconds: float | None  # of all finished runs
    ratio: Ratio | None  # from the interleaved bench, against the baseline
    peak_memory_bytes: int | None
    weight_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    validation_curve: Curve | None
    training_curve: Curve | None
    learning_rate_curve: list[tuple[int, float]]
    reached: Reached | None  # None: no seed did, or there is no target
    quality: Quality
    floor: Floor | None = None  # of what is compared, where a run stored it or the data are here
    heads: Heads | None = None  # None where no run recorded them
    # Where an encoder is fine-tuned:
    batch_size: int = 1  # examples of one update
    training_examples: int | None = None  # of one run
    examples: int | None = None  # of the reported split, if all runs agree on it
    probe: ProbeSummary | None = None  # where the study is one of probes


@dataclass(frozen=True)
class Scale:
    """A study over all of its sizes."""

    arms: dict[str, ArmSummary]  # at every size, each compared with the baseline at its own
    trends: list[Trend]  # of every other arm against the baseline, for every dial
    laws: list[Law]
    multipliers: list[Multiplier]
    forecasts: list[Forecast]


@dataclass(frozen=True)
class Decomposition:
    """A step of the ablation: baseline -> frozen, baseline -> random, random -> orthogonal, where those arms exist."""

    step: str  # a code
    treatment: str
    control: str
    difference: PairedDifference


@dataclass(frozen=True)
class Beside:
    """A study in one line: its main frozen arm against its baseline. Of a neighbour that cannot be read, why not."""

    study: str
    problem: str | None = None
    measure: str = ""
    fine_tunes: bool = False
    model: dict[str, Any] = field(default_factory=dict)  # sizes
    data: str = ""
    scope: Scope | None = None  # of the two arms
    baseline: str = ""
    treatment: str = ""
    label: tuple[str, str] = ("", "")  # of the treatment, English and Chinese
    baseline_quality: float | None = None  # mean of what is compared
    treatment_quality: float | None = None
    difference: PairedDifference | None = None
    outcomes: dict[str, Outcome] = field(default_factory=dict)  # of the claims about the quality of these two arms
    ratio: Ratio | None = None
    trainable_share: float | None = None


@dataclass(frozen=True)
class Findings:
    study: Study
    plan: Plan
    arms: dict[str, ArmSummary]  # of a study with sizes, at the main one
    scope: Scope  # of all arms
    verdicts: list[ScopedVerdict]
    decomposition: list[Decomposition]
    target_perplexity: float | None  # None also where the measure has no target
    main_arm: str  # the frozen arm that the conclusions are about
    unfinished: list[PlannedRun]  # missing, queued, running, interrupted, failed, diverged, damaged
    provenance: dict[str, Any]  # commits, versions, data digests, compute used, study digest
    notes: list[tuple[str, dict[str, Any]]]  # codes with facts: an optimum at the edge, mixed sources, ...
    looks: tuple[Look, ...] = ()  # that were taken, where the study has some
    beside: list[Beside] = field(default_factory=list)  # this study first; empty unless it names a neighbour or a claim
    scale: Scale | None = None  # None where the study has no sizes

    @property
    def at_all_sizes(self) -> dict[str, ArmSummary]:
        return self.scale.arms if self.scale else self.arms
