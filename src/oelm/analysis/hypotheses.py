"""From finished runs to a verdict on each hypothesis.

A verdict on quality (losses, or error rates where accuracy is measured) needs every planned seed of both arms, three
pairs and some spread; whatever is missing is its reason. Holm counts every confirmatory claim about quality, also one
that has no p-value yet: otherwise a verdict could change when another hypothesis is completed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from oelm.analysis import statistics
from oelm.analysis.findings import ArmSummary, Outcome, PairedDifference, Ratio, Verdict
from oelm.analysis.statistics import LEAST_PAIRS, LEVEL
from oelm.study.confounds import SEEDS, Confound
from oelm.study.declaration import QUALITY_KINDS, Hypothesis
from oelm.study.plan import Plan

RatioOf = Callable[[str, str], Ratio | None]  # treatment, control


def verdicts(
    plan: Plan, arms: dict[str, ArmSummary], *, ratio_of: RatioOf, confounds: dict[str, list[Confound]]
) -> list[Verdict]:
    """In the order of the study."""
    hypotheses = plan.study.hypotheses
    tests = {each.name: _quality_test(each, plan, arms) for each in hypotheses if each.kind in QUALITY_KINDS}
    adjusted, level = _family(tests)
    found = []
    for hypothesis in hypotheses:
        if hypothesis.kind == "fewer_parameters":
            verdict = _on_parameters(hypothesis, arms, plan)
        elif hypothesis.kind == "faster":
            verdict = _on_speed(hypothesis, ratio_of(hypothesis.treatment, hypothesis.control))
        else:
            verdict = _on_quality(tests[hypothesis.name], adjusted.get(hypothesis.name), level)
        found.append(_marked(verdict, confounds.get(hypothesis.name, [])))
    return found


def percent(nats: float) -> float | None:
    """A difference of losses as a change of perplexity; None where a float has no room for it."""
    return 100 * math.expm1(nats) if nats < 700 else None


def nats(margin_percent: float) -> float:
    return math.log1p(margin_percent / 100)


def points(error: float) -> float:
    """A difference of error rates as percentage points of accuracy."""
    return 0.0 - 100 * error


def _marked(verdict: Verdict, confounds: list[Confound]) -> Verdict:
    """Different seeds alone confound nothing: pairs are pairs, and an incomplete study is undecided anyway."""
    unexplained = [confound for confound in confounds if confound.explained is None and confound.key != SEEDS]
    outcome: Outcome = "confounded" if unexplained else verdict.outcome
    return replace(verdict, outcome=outcome, confounds=confounds)


def _settled(hypothesis: Hypothesis, outcome: Outcome, reason: str, facts: dict[str, Any], **more: Any) -> Verdict:
    return Verdict(hypothesis, outcome, outcome, reason, facts, **more)


# ---- Quality -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Unit:
    """What a difference in quality is said in."""

    name: str
    shown: Callable[[float], float | None]
    margin_name: str  # of the verdict's field
    reason_prefix: str = ""


_PERCENT = _Unit("percent", percent, "margin_nats")
_POINTS = _Unit("points", points, "margin_error", reason_prefix="accuracy_")


def _unit(hypothesis: Hypothesis) -> _Unit:
    return _POINTS if hypothesis.measure == "accuracy" else _PERCENT


def quality_difference(hypothesis: Hypothesis, treatment: ArmSummary, control: ArmSummary) -> PairedDifference:
    """Of what the hypothesis measures; below zero the treatment is better."""
    if hypothesis.measure == "accuracy":
        return statistics.paired_difference(treatment.errors, control.errors)
    return statistics.paired_difference(treatment.losses, control.losses)


def margin_of(hypothesis: Hypothesis) -> float:
    """In the units of that difference; zero where none is stated."""
    stated = hypothesis.margin or 0.0
    return stated / 100 if hypothesis.measure == "accuracy" else nats(stated)


@dataclass(frozen=True)
class _QualityTest:
    """A claim that the mean difference lies between two bounds, and what the runs allow to say about it."""

    hypothesis: Hypothesis
    difference: PairedDifference
    margin: float
    lower: float | None
    upper: float
    hindrance: tuple[Outcome, str, dict[str, Any]] | None  # why there is no p-value
    p: float | None = None
    sign_flip_p: float | None = None


def _quality_test(hypothesis: Hypothesis, plan: Plan, arms: dict[str, ArmSummary]) -> _QualityTest:
    treatment, control = arms[hypothesis.treatment], arms[hypothesis.control]
    difference = quality_difference(hypothesis, treatment, control)
    margin = margin_of(hypothesis)
    upper = -margin if hypothesis.kind == "better" else margin
    lower = -margin if hypothesis.kind == "equivalent" else None
    hindrance = _hindrance(plan, treatment, control, difference, _unit(hypothesis))
    test = _QualityTest(hypothesis, difference, margin, lower, upper, hindrance)
    if hindrance is not None:
        return test
    if lower is not None:
        p = statistics.p_within(difference.differences, margin)
        return replace(test, p=p, sign_flip_p=statistics.sign_flip_p_within(difference.differences, margin))
    p = statistics.p_below(difference.differences, upper)
    return replace(test, p=p, sign_flip_p=statistics.sign_flip_p_below(difference.differences, upper))


def _hindrance(
    plan: Plan, treatment: ArmSummary, control: ArmSummary, difference: PairedDifference, unit: _Unit
) -> tuple[Outcome, str, dict[str, Any]] | None:
    """Why these runs give no p-value; None if they do."""
    if not plan.is_tuned:
        finished = sum(run.loss is not None for run in plan.tuning)
        return "undecided", "tuning_unfinished", {"finished": finished, "planned": len(plan.tuning)}
    untunable = [arm.arm for arm in (treatment, control) if not plan.by_arm[arm.arm]]
    if untunable:
        return "undecided", "tuning_diverged", {"arms": untunable}
    pairs, planned = len(difference.seeds), len(plan.study.seeds)
    counts = {"pairs": pairs, "planned": planned}
    unfinished = [_without(arm.states, "finished", "diverged") for arm in (treatment, control)]
    diverged = [arm.states.get("diverged", []) for arm in (treatment, control)]
    if any(unfinished):
        each = [_without(arm.states, "finished") for arm in (treatment, control)]
        return "undecided", "incomplete", {**counts, "treatment": each[0], "control": each[1]}
    if len(diverged[0]) == planned >= LEAST_PAIRS and not diverged[1]:
        return "refuted", "all_diverged", {"planned": planned}
    if any(diverged):
        return "undecided", "diverged", {**counts, "treatment": diverged[0], "control": diverged[1]}
    if pairs < LEAST_PAIRS:
        return "undecided", "too_few_pairs", {"pairs": pairs, "least": LEAST_PAIRS}
    if not difference.standard_deviation:
        facts = {"pairs": pairs, unit.name: unit.shown(difference.mean or 0.0)}
        return "undecided", f"{unit.reason_prefix}zero_variance", facts
    return None


def _without(states: dict[str, list[int]], *left_out: str) -> dict[str, list[int]]:
    return {state: seeds for state, seeds in states.items() if state not in left_out}


def _family(tests: dict[str, _QualityTest]) -> tuple[dict[str, float], float]:
    """Adjusted p-values by hypothesis, and the level that the next one to be shown is held to."""
    names = [name for name, test in tests.items() if test.hypothesis.confirmatory]
    p_values = [1.0 if (p := tests[name].p) is None else p for name in names]
    adjusted = dict(zip(names, statistics.holm(p_values), strict=True))
    open_ones = sum(value > LEVEL for value in adjusted.values())
    return {name: value for name, value in adjusted.items() if tests[name].p is not None}, LEVEL / max(1, open_ones)


def _on_quality(test: _QualityTest, p_adjusted: float | None, family_level: float) -> Verdict:
    hypothesis, difference, unit = test.hypothesis, test.difference, _unit(test.hypothesis)
    shared: dict[str, Any] = {"difference": difference, unit.margin_name: test.margin}
    if test.hindrance is not None:
        outcome, reason, facts = test.hindrance
        return _settled(hypothesis, outcome, reason, facts, **shared)
    assert test.p is not None
    assert difference.mean is not None
    low, high = statistics.one_sided_bounds(difference.differences)
    shared |= {"lower_bound": low, "upper_bound": high}
    shared |= {"p": test.p, "p_adjusted": p_adjusted, "sign_flip_p": test.sign_flip_p}
    facts = {
        "pairs": len(difference.seeds),
        unit.name: unit.shown(difference.mean),
        f"margin_{unit.name}": hypothesis.margin or 0.0,
    }

    def settled(outcome: Outcome, reason: str, **more: Any) -> Verdict:
        return _settled(hypothesis, outcome, unit.reason_prefix + reason, facts | more, **shared)

    if (test.p if p_adjusted is None else p_adjusted) <= LEVEL:
        return settled("supported", "shown")
    if low > test.upper or (test.lower is not None and high < test.lower):
        bound = low if low > test.upper else high
        return settled("refuted", "contradicted", **{f"bound_{unit.name}": unit.shown(bound)})
    level = family_level if hypothesis.confirmatory else LEVEL
    needed = statistics.seeds_needed(difference.differences, lower=test.lower, upper=test.upper, level=level)
    return replace(settled("undecided", "not_shown", seeds_needed=needed), seeds_needed=needed)


# ---- Parameters and time -------------------------------------------------------------------------------------------


def _on_parameters(hypothesis: Hypothesis, arms: dict[str, ArmSummary], plan: Plan) -> Verdict:
    """From the closed form; what the runs counted must be the same."""
    treatment, control = arms[hypothesis.treatment], arms[hypothesis.control]
    assert hypothesis.least_frozen is not None
    stored = _stored_counts(plan, treatment.arm)
    if any(count != treatment.frozen for count in stored):
        return _settled(
            hypothesis, "undecided", "counts_disagree", {"computed": treatment.frozen, "stored": list(stored)}
        )
    facts = {
        "frozen": treatment.frozen,
        "least_frozen": hypothesis.least_frozen,
        "percent": 100 * (control.trainable - treatment.trainable) / control.trainable,
        "trainable": treatment.trainable,
        "control_trainable": control.trainable,
    }
    if treatment.frozen >= hypothesis.least_frozen:
        return _settled(hypothesis, "supported", "enough_frozen", facts)
    return _settled(hypothesis, "refuted", "too_few_frozen", facts)


def _stored_counts(plan: Plan, arm: str) -> Sequence[int]:
    runs = [run.stored for run in plan.by_arm[arm] if run.stored]
    return sorted({stored.parameters["frozen"] for stored in runs if "frozen" in stored.parameters})


def _on_speed(hypothesis: Hypothesis, ratio: Ratio | None) -> Verdict:
    """From the interleaved bench alone: times of the runs depend on what else their machines did."""
    if ratio is None:
        return _settled(hypothesis, "undecided", "no_bench", {})
    if ratio.rounds < LEAST_PAIRS:
        facts = {"rounds": ratio.rounds, "least": LEAST_PAIRS}
        return _settled(hypothesis, "undecided", "too_few_rounds", facts, ratio=ratio)
    facts = {"rounds": ratio.rounds, "percent": 100 * (ratio.middle - 1)}
    if ratio.high < 1:
        return _settled(hypothesis, "supported", "faster", facts, ratio=ratio)
    if ratio.low > 1:
        return _settled(hypothesis, "refuted", "not_faster", facts, ratio=ratio)
    return _settled(hypothesis, "undecided", "speed_unclear", facts, ratio=ratio)
