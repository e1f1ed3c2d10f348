"""What an analysis finds, as values: the contract between analysis, which computes, and reporting, which shows.

Losses are in nats per token, or per example where the runs classify. Their quality is then the error rate, 1 minus
accuracy, so that less is better everywhere; a reader is shown accuracy. Nothing here is formatted or translated:
reasons are codes with their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from oelm.study.confounds import Confound
from oelm.study.declaration import Hypothesis, Study
from oelm.study.plan import Plan, PlannedRun

Outcome = Literal["supported", "refuted", "undecided", "confounded"]

# Reasons of a verdict -> the facts beside it. A confounded verdict keeps the reason of the outcome it would have had.
REASONS: dict[str, tuple[str, ...]] = {
    # Of a loss. `percent` is the mean difference in perplexity, `bound_percent` the one-sided bound that decides.
    "shown": ("pairs", "percent", "margin_percent"),  # supported
    "contradicted": ("pairs", "percent", "margin_percent", "bound_percent"),  # refuted
    "not_shown": ("pairs", "percent", "margin_percent", "seeds_needed"),  # undecided
    "zero_variance": ("pairs", "percent"),  # undecided: all differences are equal, nothing to measure chance by
    # The same of accuracy, in percentage points: a gain is above zero.
    "accuracy_shown": ("pairs", "points", "margin_points"),
    "accuracy_contradicted": ("pairs", "points", "margin_points", "bound_points"),
    "accuracy_not_shown": ("pairs", "points", "margin_points", "seeds_needed"),
    "accuracy_zero_variance": ("pairs", "points"),
    # Of either.
    "too_few_pairs": ("pairs", "least"),  # one or two pairs give no p-value
    "incomplete": ("pairs", "planned", "treatment", "control"),  # the last two: state -> seeds that are not finished
    "tuning_unfinished": ("finished", "planned"),  # tuning runs
    "tuning_diverged": ("arms",),  # every point of the grid diverged for these arms
    "diverged": ("pairs", "planned", "treatment", "control"),  # the last two: seeds that diverged
    "all_diverged": ("planned",),  # refuted: every run of the treatment, none of the control
    # Of parameters. `percent`: fewer trainable ones than the control, in percent of the control's.
    "enough_frozen": ("frozen", "least_frozen", "percent", "trainable", "control_trainable"),  # supported
    "too_few_frozen": ("frozen", "least_frozen", "percent", "trainable", "control_trainable"),  # refuted
    "counts_disagree": ("computed", "stored"),  # undecided: parameters.json and the closed form
    # Of time. `percent`: change of the time per step.
    "faster": ("rounds", "percent"),  # supported
    "not_faster": ("rounds", "percent"),  # refuted
    "speed_unclear": ("rounds", "percent"),  # undecided
    "no_bench": (),
    "too_few_rounds": ("rounds", "least"),
}

# Notes of findings -> the facts beside them.
NOTES: dict[str, tuple[str, ...]] = {
    "fixed_learning_rate": ("learning_rate",),  # one rate for all arms, not tuned
    "edge_optimum": ("arm", "key", "value"),  # the best value is still the smallest or largest one tried
    "all_points_diverged": ("arm",),
    "tuning_at_chance": ("arm", "accuracy"),  # the best point of the grid is no better than naming one label always
    "at_chance": ("arm", "accuracy"),  # the same of all its finished final runs
    "few_seeds": ("seeds",),  # fewer than three: no p-value is possible
    "mixed_environment": ("key", "values"),  # not the same in all finished final runs
    "not_recorded": ("runs",),  # finished runs without an environment.json
    "uncommitted_sources": ("runs",),  # runs made from a work tree with changes that were not committed
    "bench_of_other_sources": ("bench", "runs"),  # source digests
    "unreadable": ("line",),  # a folder that could not be read
    # Pairs whose predictions cannot be compared example by example, by seed.
    "predictions_missing": ("hypothesis", "seeds"),  # one of the two runs stored none that can be read
    "predictions_unlike": ("hypothesis", "seeds"),  # of another split, of other examples, or in another order
    "predictions_disagree": ("hypothesis", "seeds"),  # another accuracy than the run's own result says
}


@dataclass(frozen=True)
class PairedDifference:
    """Treatment minus control over the seeds both have finished. Interval fields are None below two pairs."""

    seeds: list[int]
    differences: list[float]  # nats or error rates, by seed
    mean: float | None
    standard_deviation: float | None
    low: float | None  # two-sided 95 % t interval
    high: float | None


@dataclass(frozen=True)
class Ratio:
    """A ratio of times, treatment over control, with its 95 % interval: below 1 is faster."""

    middle: float
    low: float
    high: float
    rounds: int


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
class Verdict:
    """What the runs say about one hypothesis."""

    hypothesis: Hypothesis
    outcome: Outcome
    regardless: Outcome  # the outcome if no confound stood in the way
    reason: str  # a code; reporting has its sentence in each language
    facts: dict[str, Any] = field(default_factory=dict)  # the numbers the sentence needs
    difference: PairedDifference | None = None
    margin_nats: float | None = None
    margin_error: float | None = None  # the same where accuracy is measured, as a difference of error rates
    lower_bound: float | None = None  # one-sided 95 % bounds of the mean difference
    upper_bound: float | None = None
    p: float | None = None  # one-sided t, of the claim's null hypothesis
    p_adjusted: float | None = None  # Holm over the confirmatory family
    sign_flip_p: float | None = None
    seeds_needed: int | None = None  # so many pairs would probably decide it
    ratio: Ratio | None = None  # of kind faster
    confounds: list[Confound] = field(default_factory=list)
    mcnemar: list[McNemar] = field(default_factory=list)  # by seed, where accuracy is measured

    @property
    def margin(self) -> float | None:
        """In the units of the difference."""
        return self.margin_nats if self.margin_error is None else self.margin_error


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
class ArmSummary:
    arm: str
    spec: str  # how Q and K start and move, in words
    total: int
    trainable: int
    frozen: int
    parts: list[dict[str, Any]]  # role, layer, total, trainable, frozen
    learning_rate: float | None  # chosen or fixed; None while tuning goes on
    values: dict[str, float]  # every tuned key
    losses: dict[int, float]  # by seed, finished runs
    states: dict[str, list[int]]  # state -> seeds, of every planned run, missing ones included
    mean_loss: float | None
    standard_deviation: float | None
    difference: PairedDifference | None  # against the baseline; None for the baseline itself
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
    # Where the runs classify:
    batch_size: int = 1  # examples of one update
    training_examples: int | None = None  # of one run
    accuracies: dict[int, float] = field(default_factory=dict)  # by seed, finished runs
    accuracy: float | None = None  # mean over the seeds
    accuracy_deviation: float | None = None
    examples: int | None = None  # of the reported split, if all runs agree on it
    error_difference: PairedDifference | None = None  # against the baseline, of error rates
    accuracy_curve: Curve | None = None

    @property
    def errors(self) -> dict[int, float]:
        return {seed: 1 - accuracy for seed, accuracy in self.accuracies.items()}


@dataclass(frozen=True)
class Decomposition:
    """The documents' ablation: baseline -> frozen, baseline -> random, random -> orthogonal, where those arms exist."""

    step: str  # a code
    treatment: str
    control: str
    difference: PairedDifference  # of losses, or of error rates where the runs classify


@dataclass(frozen=True)
class Beside:
    """A study in one line: its main frozen arm against its baseline. Of a neighbour that cannot be read, why not."""

    study: str
    problem: str | None = None
    classifies: bool = False
    model: dict[str, Any] = field(default_factory=dict)  # sizes
    data: str = ""
    baseline: str = ""
    treatment: str = ""
    label: tuple[str, str] = ("", "")  # of the treatment, English and Chinese
    baseline_quality: float | None = None  # mean loss or accuracy
    treatment_quality: float | None = None
    difference: PairedDifference | None = None
    outcomes: dict[str, Outcome] = field(default_factory=dict)  # of the claims about the quality of these two arms
    ratio: Ratio | None = None
    trainable_share: float | None = None


@dataclass(frozen=True)
class Findings:
    study: Study
    plan: Plan
    arms: dict[str, ArmSummary]
    verdicts: list[Verdict]
    decomposition: list[Decomposition]
    target_perplexity: float | None  # None also where the runs classify
    main_arm: str  # the frozen arm that the documents' questions are about
    scenario: Literal["better", "equal", "worse", "unknown"]  # of the documents' table of next steps
    unfinished: list[PlannedRun]  # missing, queued, running, interrupted, failed, diverged
    provenance: dict[str, Any]  # commits, versions, data digests, compute used, study digest
    notes: list[tuple[str, dict[str, Any]]]  # codes with facts: an optimum at the edge, mixed sources, ...
    beside: list[Beside] = field(default_factory=list)  # this study first; empty unless it names a neighbour
