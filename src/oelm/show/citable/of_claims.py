"""Numbers of a claim."""

from __future__ import annotations

from collections.abc import Iterator

from oelm.analysis.findings import Findings, McNemar, SolvingPairs, Verdict
from oelm.show import numbers, quality
from oelm.show.citable.of_scale import of_slope
from oelm.show.citable.rows import Row, of_difference, of_ratio
from oelm.show.examples import COUNTS, gain
from oelm.show.macro_names import spelled_out
from oelm.show.words import say


def rows(findings: Findings, verdict: Verdict) -> Iterator[Row]:
    hypothesis, measure = verdict.hypothesis, verdict.hypothesis.quality
    yield "outcome", say("en", f"outcome.{verdict.outcome}"), "the verdict"
    yield from of_difference(measure, verdict.difference, "between treatment and control")
    if verdict.margin:
        yield "margin", quality.FORMATS[measure.scale.key].margin(hypothesis.margin or 0.0), "margin as stated"
        if measure.scale.is_logarithmic:
            yield "logMargin", f"{verdict.margin:.4f}", "margin in nats"
    if "bound" in verdict.facts:
        bound = quality.FORMATS[measure.scale.key].difference(verdict.facts["bound"])
        yield "bound", bound, "the one-sided bound that decides"
    yield from _p_values(verdict)
    yield from _allowances(verdict)
    if (ratio := verdict.ratio) is not None:
        yield from of_ratio(ratio, "of the treatment against the control")
        yield "timeBlocks", numbers.whole(ratio.blocks), "blocks of the bench that the ratio rests on"
        if ratio.is_implausible:
            yield "smallestTimeRatio", numbers.ratio(ratio.smallest), "smallest ratio that arithmetic allows"
    if hypothesis.evidence == "parameters":
        treatment, control = (findings.at_all_sizes[arm] for arm in (hypothesis.treatment, hypothesis.control))
        change = numbers.percent(100 * (treatment.trainable / control.trainable - 1))
        yield "trainableChange", change, "trainable parameters of the treatment against the control's"
    if (pairs := verdict.sign_test or verdict.pairs_so_far) is not None:
        yield from _pairs(pairs)
    if verdict.trend is not None:
        whole = sum(point.is_whole for point in verdict.trend.points)
        yield "sizes", str(whole), "sizes at which every pair is complete"
        if (slope := verdict.trend.slopes.get(verdict.trend.per)) is not None:
            yield from of_slope(measure, slope, verdict.trend.per)
    for pair in verdict.mcnemar:
        yield from _examples(pair)


def _p_values(verdict: Verdict) -> Iterator[Row]:
    yield "p", numbers.probability(verdict.p), "p, one-sided, not adjusted"
    yield "adjustedP", numbers.probability(verdict.p_adjusted), "p, adjusted by Holm over the confirmatory claims"
    yield "signFlipP", numbers.probability(verdict.sign_flip_p), "p of the exact sign-flip test"
    yield "refutationP", numbers.probability(verdict.refutation_p), "p of a refuted claim that it holds, not adjusted"
    yield "sequentialP", numbers.probability(verdict.sequential_p if verdict.look else None), "p over all looks"


def _allowances(verdict: Verdict) -> Iterator[Row]:
    """For the rates of the arms; of a contrast, at the size that it is about."""
    rates, claim = verdict.rates, verdict.hypothesis
    for side, arm in (("Treatment", claim.treatment), ("Control", claim.control)):
        if rates is not None and arm in rates.arms:
            shown = quality.in_direction(claim.quality, rates.arms[arm], is_cost=True)
            yield f"rateAllowance{side}", shown, f"what the rate of the {side.lower()} may cost"
    if verdict.allowance is not None:
        shown = quality.in_direction(claim.quality, verdict.allowance, is_cost=True)
        yield "rateAllowance", shown, "rate allowance of the bound that decides"


def _pairs(pairs: SolvingPairs) -> Iterator[Row]:
    for name, seeds in (("ahead", pairs.ahead), ("behind", pairs.behind), ("tied", pairs.tied)):
        yield f"{name}Pairs", str(len(seeds)), f"pairs in which the treatment is {name}"
    yield "neitherPairs", str(len(pairs.neither)), "pairs in which neither solves it"
    yield "solvingPairs", str(pairs.pairs), "pairs of runs that have ended"


def _examples(pair: McNemar) -> Iterator[Row]:
    """Of one pair of runs, by its seed."""
    at, what = f"AtSeed{spelled_out(str(pair.seed))}", f"of the pair of seed {pair.seed}"
    for count in COUNTS:
        first, second = count.split("_")
        name = f"{first}{second.capitalize()}Examples{at}"
        yield name, numbers.whole(getattr(pair, count)), f"examples, {_WHO_IS_RIGHT[count]}, {what}"
    yield f"accuracyGain{at}", numbers.points(gain(pair)), f"difference in accuracy, in percentage points, {what}"
    yield f"mcnemarP{at}", numbers.probability(pair.p), f"McNemar's p, exact, two-sided, {what}"


_WHO_IS_RIGHT = {
    "both_right": "both right",
    "treatment_only": "only the treatment right",
    "control_only": "only the control right",
    "both_wrong": "both wrong",
}
