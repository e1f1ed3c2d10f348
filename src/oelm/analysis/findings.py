"""What an analysis finds, as values: the contract between analysis, which computes them, and reporting, which shows them.

Losses are in nats per token. Nothing here is formatted or translated: reasons are codes with their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from oelm.study.declaration import Hypothesis, Study
from oelm.study.plan import Plan, PlannedRun

Outcome = Literal["supported", "refuted", "undecided", "confounded"]


@dataclass(frozen=True)
class PairedDifference:
    """Treatment minus control over the seeds both have finished. Interval fields are None below two pairs."""

    seeds: list[int]
    differences: list[float]  # nats, by seed
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
class Confound:
    """A difference between the arms of a hypothesis that is not its declared treatment."""

    key: str  # dotted setting, or environment.<key>, or tuning, seeds, start.scale, ...
    treatment: str
    control: str
    explained: str | None = None  # the study's own reason, if it gives one


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
    lower_bound: float | None = None  # one-sided 95 % bounds of the mean difference
    upper_bound: float | None = None
    p: float | None = None  # one-sided t, of the claim's null hypothesis
    p_adjusted: float | None = None  # Holm over the confirmatory family
    sign_flip_p: float | None = None
    seeds_needed: int | None = None  # so many pairs would probably decide it
    ratio: Ratio | None = None  # of kind faster
    confounds: list[Confound] = field(default_factory=list)


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
    """What it took to reach the target perplexity, mean over the seeds that did; None: none did."""

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
    reached: Reached | None


@dataclass(frozen=True)
class Decomposition:
    """The documents' ablation: baseline -> frozen, baseline -> random, random -> orthogonal, where those arms exist."""

    step: str  # a code
    treatment: str
    control: str
    difference: PairedDifference


@dataclass(frozen=True)
class Findings:
    study: Study
    plan: Plan
    arms: dict[str, ArmSummary]
    verdicts: list[Verdict]
    decomposition: list[Decomposition]
    target_perplexity: float | None
    scenario: Literal["better", "equal", "worse", "unknown"]  # of the documents' table of next steps
    unfinished: list[PlannedRun]  # missing, queued, running, interrupted, failed, diverged
    provenance: dict[str, Any]  # commits, versions, data digests, compute used, study digest
    notes: list[tuple[str, dict[str, Any]]]  # codes with facts: an optimum at the edge, mixed sources, ...
