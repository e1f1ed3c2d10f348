"""From finished runs to a verdict on each hypothesis.

What a claim asks for, its row of claims/kinds.py says; here is the evidence. A verdict on quality needs every planned
seed of both arms, three pairs and, unless shares are compared, some spread; whatever is missing is its reason. Holm
counts every confirmatory claim that pairs decide, also one that has no p-value yet: otherwise a verdict could change
when another hypothesis is completed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Any, assert_never

import numpy as np

from oelm.analysis import statistics
from oelm.analysis.findings import ArmSummary, Outcome, PairedDifference, Rates, SignTest, SolvingPairs, Trend, Verdict
from oelm.analysis.floors import costs_of, nothing_learnt
from oelm.analysis.lines import Line
from oelm.analysis.rate_allowance import rates_of
from oelm.analysis.scale import line_of, trend_over
from oelm.analysis.speed import Speed, SpeedOf
from oelm.analysis.spending import WITHOUT_LOOKS, AnyLevels
from oelm.analysis.statistics import LEAST_INFORMATIVE, PAIR_TESTS, sign_test, solving_pairs
from oelm.core.intervals import LEVEL
from oelm.core.measures import Measure
from oelm.study.claims.kinds import KINDS, LEAST_PAIRS, SOLVING, Bounds, Settled
from oelm.study.confounds import SEEDS, Confound
from oelm.study.declaration import Hypothesis
from oelm.study.plan import Plan
from oelm.study.scaled import arms_compared
from oelm.study.sizes import LEAST_FOR_A_LINE


@dataclass(frozen=True)
class Stage:
    """How far the pairs have come that a verdict uses: the seeds, and the levels that tests are held to there."""

    seeds: tuple[int, ...]  # the first so many, as declared
    of_t: AnyLevels = WITHOUT_LOOKS
    of_exact: AnyLevels = WITHOUT_LOOKS
    p_before: Mapping[str, float] = field(default_factory=dict)  # of claims at earlier looks: the smallest sequential p

    def sequential_p(self, name: str, p: float, levels: AnyLevels) -> float:
        return min(self.p_before.get(name, 1.0), levels.sequential_p(p))


PairedVerdicts = Callable[[Plan, dict[str, ArmSummary]], dict[str, Verdict]]


def of_all_seeds(plan: Plan, arms: dict[str, ArmSummary]) -> dict[str, Verdict]:
    """The verdicts on the claims that pairs decide, by name, where every planned seed counts."""
    return staged_verdicts(plan, arms, Stage(tuple(plan.study.seeds)), plan.study.paired_claims)


def verdicts(
    plan: Plan,
    arms: dict[str, ArmSummary],
    *,
    speed_of: SpeedOf,
    confounds: dict[str, list[Confound]],
    on_pairs: PairedVerdicts = of_all_seeds,
) -> list[Verdict]:
    """In the order of the study."""
    of_pairs = on_pairs(plan, arms)
    of_scale = _on_scales(plan, arms, {name: each.sequential_p for name, each in of_pairs.items()})
    found = []
    for hypothesis in plan.study.hypotheses:
        match hypothesis.evidence:
            case "parameters":
                verdict = _on_parameters(hypothesis, arms, plan)
            case "speed":
                verdict = _on_speed(hypothesis, speed_of(hypothesis.treatment, hypothesis.control))
            case "quality" | "contrast" | "solved_seeds" | "steps_to_solve":
                verdict = of_pairs[hypothesis.name]
            case "scale":
                verdict = of_scale[hypothesis.name]
            case unknown:
                assert_never(unknown)
        known = confounds.get(hypothesis.name, [])
        # Different seeds alone confound nothing: pairs are pairs, and an incomplete study is undecided anyway.
        is_confounded = any(confound.explained is None and confound.key != SEEDS for confound in known)
        found.append(replace(verdict, outcome="confounded" if is_confounded else verdict.outcome, confounds=known))
    return found


def staged_verdicts(
    plan: Plan, arms: dict[str, ArmSummary], stage: Stage, claims: list[Hypothesis]
) -> dict[str, Verdict]:
    """On these claims, by name. The others of the family count with the p-values that they had.

    At a look, claims about scale count as not shown yet: their runs go on beside it, and what it decides must not
    depend on which of them have ended.
    """
    tests: dict[str, _QualityTest | _SolvingTest] = {}
    for each in claims:
        test = _solving_test if each.evidence in SOLVING else _quality_test
        tests[each.name] = test(each, plan, arms, stage)
    of_scale = {} if plan.study.looks else _scale_tests(plan, arms)
    adjusted = _family(plan.study.family, {**tests, **of_scale}, stage)
    return {
        name: _on_quality(test, adjusted.get(name))
        if isinstance(test, _QualityTest)
        else _on_solving(test, adjusted.get(name))
        for name, test in tests.items()
    }


def _settled(hypothesis: Hypothesis, outcome: Outcome, reason: str, facts: dict[str, Any], **more: Any) -> Verdict:
    return Verdict(hypothesis, outcome, outcome, reason, facts, **more)


# ---- Quality -------------------------------------------------------------------------------------------------------


def margin_of(hypothesis: Hypothesis) -> float:
    """In the units of a difference in quality; zero where none is stated."""
    return hypothesis.quality.scale.margin(hypothesis.margin or 0.0)


def bounds_of(hypothesis: Hypothesis) -> Bounds:
    """Of the mean difference, or of a slope, in the same units."""
    return KINDS[hypothesis.kind].bounds(margin_of(hypothesis))


def least_apart(hypothesis: Hypothesis) -> float:
    """A run that is no further from the others than the margin, or the usual one, has not failed."""
    scale = hypothesis.quality.scale
    return scale.margin(hypothesis.margin or scale.usual_margin)


Hindrance = tuple[Outcome, str, dict[str, Any]]  # why there is no p-value


@dataclass(frozen=True)
class _Tested:
    mean: float
    p: float
    sign_flip_p: float | None
    levels: AnyLevels  # that the test is held to
    sequential_p: float  # over the looks so far; without looks, the p-value itself


@dataclass(frozen=True)
class _QualityTest:
    """A claim that the mean difference lies between two bounds, and what the runs allow to say about it."""

    hypothesis: Hypothesis
    difference: PairedDifference
    to_show: Bounds  # within which the mean must lie
    to_exclude: Bounds
    rates: Rates
    found: _Tested | Hindrance

    @property
    def p(self) -> float | None:
        """By which it is one of its family."""
        return self.found.sequential_p if isinstance(self.found, _Tested) else None


def _quality_test(hypothesis: Hypothesis, plan: Plan, arms: dict[str, ArmSummary], stage: Stage) -> _QualityTest:
    pairs = [(arms[one], arms[other]) for one, other in arms_compared(plan.study, hypothesis)]
    costs = _both_costs(hypothesis, plan, arms, stage.seeds)
    difference = statistics.paired_difference(*costs, level=2 * stage.of_t.at(LEVEL / 2))
    bounds = bounds_of(hypothesis)
    hindrances = [_hindrance(plan, *pair, difference, hypothesis, stage.seeds) for pair in pairs]
    hindrance = next(filter(None, hindrances), None) or _untestable(difference, hypothesis.quality)
    hindrance = hindrance or _standing_apart(hypothesis, costs, difference, bounds)
    if hindrance is None or hindrance[1] == "all_diverged":
        hindrance = _below_the_floor(hypothesis, [control for _, control in pairs], stage.seeds) or hindrance
    rates = rates_of(plan, hypothesis)
    to_show, to_exclude = rates.moved(bounds)
    found = _tested(difference, to_show, hypothesis, stage) if hindrance is None else hindrance
    return _QualityTest(hypothesis, difference, to_show, to_exclude, rates, found)


def mean_of_all_pairs(hypothesis: Hypothesis, plan: Plan, arms: Mapping[str, ArmSummary]) -> tuple[int, float] | None:
    """How many have finished by now, and their mean, whatever a look went by."""
    costs = _both_costs(hypothesis, plan, arms, plan.study.seeds)
    found = statistics.paired_difference(*costs).differences
    return (len(found), fmean(found)) if found else None


def _both_costs(
    hypothesis: Hypothesis, plan: Plan, arms: Mapping[str, ArmSummary], seeds: Sequence[int]
) -> list[dict[int, float]]:
    pairs = [(arms[one], arms[other]) for one, other in arms_compared(plan.study, hypothesis)]
    return [_costs(hypothesis, side, seeds) for side in zip(*pairs, strict=True)]


def _costs(hypothesis: Hypothesis, side: Sequence[ArmSummary], seeds: Sequence[int]) -> dict[int, float]:
    """By seed, of one side of a claim: of a contrast, those at its size less those at the other one."""
    first, *others = (costs_of(hypothesis, arm, seeds) for arm in side)
    return {
        seed: cost - sum(each[seed] for each in others)
        for seed, cost in first.items()
        if all(seed in each for each in others)
    }


def _tested(difference: PairedDifference, bounds: Bounds, hypothesis: Hypothesis, stage: Stage) -> _Tested:
    test, values, levels = PAIR_TESTS[hypothesis.quality.test], difference.differences, stage.of_t
    beside: float | None
    if difference.standard_deviation:
        p, beside = test.p(values, bounds), test.p_beside(values, bounds)
    else:
        p = beside = statistics.same_p_within(values, bounds)
        levels = stage.of_exact
    return _Tested(fmean(values), p, beside, levels, stage.sequential_p(hypothesis.name, p, levels))


def _hindrance(
    plan: Plan,
    treatment: ArmSummary,
    control: ArmSummary,
    difference: PairedDifference,
    hypothesis: Hypothesis,
    seeds: Sequence[int],
) -> Hindrance | None:
    """Why the runs of these two arms give no p-value; None if they do."""
    pairs, planned = len(difference.seeds), len(seeds)
    hindrance = _unfinished(plan, treatment, control, pairs, seeds)
    hindrance = hindrance or _unreported(hypothesis.difficulty, treatment, control)
    if hindrance is not None:
        return hindrance
    diverged = [_of_seeds(arm.states, seeds).get("diverged", []) for arm in (treatment, control)]
    is_one_pair = hypothesis.against is None  # infinitely worse at one size says nothing without the other
    all_diverged = all(run.state == "diverged" for run in plan.by_arm[treatment.arm] if run.seed in seeds)
    if is_one_pair and all_diverged and planned >= LEAST_PAIRS and not diverged[1]:
        outcome, _ = _within_bounds(hypothesis, margin_of(hypothesis), math.inf, math.inf)
        return outcome, "all_diverged", {"planned": planned}
    if any(diverged):
        counts = {"pairs": pairs, "planned": planned}
        return "undecided", "diverged", {**counts, "treatment": diverged[0], "control": diverged[1]}
    return None


def _below_the_floor(hypothesis: Hypothesis, controls: Sequence[ArmSummary], seeds: Sequence[int]) -> Hindrance | None:
    """Neither supported nor refuted by a control that knows nothing."""
    facts = nothing_learnt(hypothesis, controls, seeds)
    return None if facts is None else ("undecided", "nothing_learnt", facts)


def _untestable(difference: PairedDifference, measure: Measure) -> Hindrance | None:
    """Why a test has nothing to go by in these pairs."""
    pairs = len(difference.seeds)
    if pairs < LEAST_PAIRS:
        return "undecided", "too_few_pairs", {"pairs": pairs, "least": LEAST_PAIRS}
    if not difference.standard_deviation and not measure.scale.decides_without_spread:
        shown = measure.shown_difference(difference.mean or 0.0)
        return "undecided", "zero_variance", {"pairs": pairs, "difference": shown}
    return None


def _standing_apart(
    hypothesis: Hypothesis, costs: Sequence[dict[int, float]], difference: PairedDifference, bounds: Bounds
) -> Hindrance | None:
    """A run that failed makes the mean a bad summary of its pairs. Of a pair, that run is named which is further from
    the others of its own arm. No pair is ever left out: it is the verdict that is withheld."""
    is_apart = statistics.standing_apart(np.array([difference.differences]), least_apart(hypothesis))[0]
    apart = [seed for seed, each in zip(difference.seeds, is_apart, strict=True) if each]
    if not apart or difference.mean is None:
        return None
    middles = [median(cost for seed, cost in of_arm.items() if seed not in apart) for of_arm in costs]
    named: list[list[int]] = [[], []]
    for seed in apart:
        treatment, control = (abs(of_arm[seed] - middle) for of_arm, middle in zip(costs, middles, strict=True))
        named[control > treatment].append(seed)
    shown, values = hypothesis.quality.shown_difference, difference.differences
    facts = {
        "pairs": len(values),
        "apart": len(apart),
        "treatment": named[0],
        "control": named[1],
        "difference": shown(difference.mean),
        "median": shown(median(values)),
        "within": sum(bounds.contain(value, value) for value in values),
    }
    return "undecided", "run_failed", facts


def _unfinished(
    plan: Plan, treatment: ArmSummary, control: ArmSummary, pairs: int, seeds: Sequence[int]
) -> Hindrance | None:
    """What has not been run yet, or cannot be; a run that diverged has come to an end."""
    if not (plan.has_values(treatment.arm) and plan.has_values(control.arm)):
        finished = sum(run.loss is not None for run in plan.tuning)
        return "undecided", "tuning_unfinished", {"finished": finished, "planned": len(plan.tuning)}
    untunable = [arm.arm for arm in (treatment, control) if not plan.by_arm[arm.arm]]
    if untunable:
        return "undecided", "tuning_diverged", {"arms": untunable}
    open_seeds = [_of_seeds(arm.states, seeds) for arm in (treatment, control)]
    for states in open_seeds:
        states.pop("finished", None)
    if any(states.keys() - {"diverged"} for states in open_seeds):
        counts = {"pairs": pairs, "planned": len(seeds)}
        return "undecided", "incomplete", {**counts, "treatment": open_seeds[0], "control": open_seeds[1]}
    return None


def _unreported(difficulty: int | None, *arms: ArmSummary) -> Hindrance | None:
    """A difficulty that some finished run does not report."""
    reports = [report for arm in arms if arm.probe for report in arm.probe.by_difficulty.values()]
    if difficulty is None or all(str(difficulty) in report for report in reports):
        return None
    reported = [name for name in reports[0] if all(name in report for report in reports)]
    return "undecided", "no_such_difficulty", {"difficulty": difficulty, "reported": reported}


def _of_seeds(states: dict[str, list[int]], seeds: Sequence[int]) -> dict[str, list[int]]:
    found = {state: [seed for seed in which if seed in seeds] for state, which in states.items()}
    return {state: which for state, which in found.items() if which}


def _family(
    claims: list[Hypothesis], tests: Mapping[str, _QualityTest | _SolvingTest | _ScaleTest], stage: Stage
) -> dict[str, float]:
    """Adjusted p-values by hypothesis."""
    names = [each.name for each in claims if each.confirmatory]
    known = {name: test.p for name, test in tests.items()}
    p_values = [1.0 if (p := known.get(name, stage.p_before.get(name))) is None else p for name in names]
    adjusted = dict(zip(names, statistics.holm(p_values), strict=True))
    return {name: value for name, value in adjusted.items() if known.get(name) is not None}


def _on_quality(test: _QualityTest, p_adjusted: float | None) -> Verdict:
    hypothesis, difference, measure = test.hypothesis, test.difference, test.hypothesis.quality
    shared: dict[str, Any] = {"difference": difference, "margin": margin_of(hypothesis)}
    found = test.found
    if not isinstance(found, _Tested):
        hindered, code, known = found
        return _settled(hypothesis, hindered, code, known, **shared)
    shared |= {"p": found.p, "p_adjusted": p_adjusted, "sign_flip_p": found.sign_flip_p}
    shared |= {"sequential_p": found.sequential_p, "rates": test.rates}
    facts: dict[str, Any] = {
        "pairs": len(difference.seeds),
        "difference": measure.shown_difference(found.mean),
        "margin": hypothesis.margin or 0.0,
    }
    has_crossed = (found.sequential_p if p_adjusted is None else p_adjusted) <= LEVEL
    # A p-value of an earlier look is kept: what it showed must still be so.
    is_shown = has_crossed and test.to_show.contain(found.mean, found.mean)
    if not difference.standard_deviation:  # of pairs that all differ by the same amount the exact test decides
        p_beyond = statistics.same_p_beyond(difference.differences, test.to_exclude)
        is_excluded = p_beyond <= found.levels.at(LEVEL)
        if is_excluded and not is_shown:
            shared["refutation_p"] = found.levels.sequential_p(p_beyond)
        outcome, _ = KINDS[hypothesis.kind].verdict(is_shown=is_shown, is_excluded=is_excluded)
        return _settled(hypothesis, outcome, _WITHOUT_SPREAD[outcome], facts, **shared)
    tested = PAIR_TESTS[measure.test]
    low, high = tested.one_sided_bounds(difference.differences, found.levels.at(LEVEL))
    shared |= {"lower_bound": low, "upper_bound": high}
    is_excluded = test.to_exclude.exclude(low, high)
    outcome, reason = KINDS[hypothesis.kind].verdict(is_shown=is_shown, is_excluded=is_excluded)
    if outcome == "refuted":
        bound = low if test.to_exclude.upper is not None and low > test.to_exclude.upper else high
        facts["bound"] = measure.shown_difference(bound)
        shared["refutation_p"] = found.levels.sequential_p(tested.p_beyond(difference.differences, test.to_exclude))
    if outcome == "undecided" and has_crossed:
        return _settled(hypothesis, outcome, "no_longer_shown", facts, **shared)
    return _settled(hypothesis, outcome, reason, facts, **shared)


_WITHOUT_SPREAD: dict[Settled, str] = {
    "supported": "same_shown", "refuted": "same_contradicted", "undecided": "same_not_shown",
}  # fmt: skip


# ---- Scale ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ScaleTest:
    """A claim that the slope of the difference over sizes lies between two bounds."""

    hypothesis: Hypothesis
    trend: Trend
    bounds: Bounds
    rates: Rates
    found: Line | Hindrance

    @property
    def p(self) -> float | None:
        return self.found.slope_p(self.bounds) if isinstance(self.found, Line) else None


def _on_scales(plan: Plan, arms: dict[str, ArmSummary], of_pairs: Mapping[str, float | None]) -> dict[str, Verdict]:
    """By name. The claims that pairs decide count in the family with the p-values that they have."""
    tests = _scale_tests(plan, arms)
    known = {name: p for name, p in of_pairs.items() if p is not None}
    adjusted = _family(plan.study.family, tests, Stage(tuple(plan.study.seeds), p_before=known))
    return {name: _on_scale(test, adjusted.get(name)) for name, test in tests.items()}


def _scale_tests(plan: Plan, arms: dict[str, ArmSummary]) -> dict[str, _ScaleTest]:
    claims = plan.study.hypotheses
    return {each.name: _scale_test(each, plan, arms) for each in claims if each.evidence == "scale"}


def _scale_test(hypothesis: Hypothesis, plan: Plan, arms: dict[str, ArmSummary]) -> _ScaleTest:
    assert isinstance(hypothesis.over, list)  # as reading it leaves it
    pair = hypothesis.treatment, hypothesis.control
    trend = trend_over(plan.study, arms, *pair, hypothesis.over, per=hypothesis.per)
    found = _line_or_hindrance(trend, hypothesis.quality)
    if isinstance(found, Line):
        controls = [arms[control] for _, control in arms_compared(plan.study, hypothesis)]
        found = _below_the_floor(hypothesis, controls, plan.study.seeds) or found
    return _ScaleTest(hypothesis, trend, bounds_of(hypothesis), rates_of(plan, hypothesis), found)


def _line_or_hindrance(trend: Trend, measure: Measure) -> Line | Hindrance:
    points = trend.points
    distinct = len({point.counts[trend.per] for point in points})
    if distinct < LEAST_FOR_A_LINE:
        return "undecided", "too_few_sizes", {"sizes": distinct, "least": LEAST_FOR_A_LINE}
    unfinished = [point.size for point in points if not point.is_whole]
    if unfinished:
        counts = {"finished": len(points) - len(unfinished), "planned": len(points)}
        return "undecided", "sizes_open", {**counts, "open": unfinished}
    line = line_of(points, trend.per)
    assert line is not None  # of so many whole sizes
    if line.deviation <= statistics.NO_SPREAD:
        return "undecided", "trend_without_spread", _trend_facts(trend, line, measure)
    return line


def _trend_facts(trend: Trend, line: Line, measure: Measure) -> dict[str, Any]:
    return {"sizes": len(trend.points), "slope": measure.shown_difference(line.slope), "per": trend.per}


def _on_scale(test: _ScaleTest, p_adjusted: float | None) -> Verdict:
    hypothesis, line, measure = test.hypothesis, test.found, test.hypothesis.quality
    shared: dict[str, Any] = {"trend": test.trend, "margin": margin_of(hypothesis)}
    if not isinstance(line, Line):
        hindered, code, known = line
        return _settled(hypothesis, hindered, code, known, **shared)
    p = line.slope_p(test.bounds)
    low, high = line.slope_bounds(LEVEL)
    is_excluded = test.bounds.exclude(low, high)
    is_shown = (p if p_adjusted is None else p_adjusted) <= LEVEL  # of one look, so the slope is within
    outcome, reason = KINDS[hypothesis.kind].verdict(is_shown=is_shown, is_excluded=is_excluded)
    facts = _trend_facts(test.trend, line, measure) | {"margin": hypothesis.margin or 0.0}
    if outcome == "refuted":
        bound = low if test.bounds.upper is not None and low > test.bounds.upper else high
        facts["bound"] = measure.shown_difference(bound)
        shared["refutation_p"] = line.slope_p_beyond(test.bounds)
    shared |= {"p": p, "p_adjusted": p_adjusted, "lower_bound": low, "upper_bound": high, "rates": test.rates}
    return _settled(hypothesis, outcome, reason, facts, **shared)


# ---- Solving -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _SolvingTest:
    """A claim that the treatment is ahead in more than half of the pairs that tell, and what the runs say about it."""

    hypothesis: Hypothesis
    bounds: Bounds  # of that share
    interval: int  # steps between validations
    pairs: SolvingPairs | None  # None: not every run reports what it asks for
    found: SignTest | Hindrance
    rates: Rates
    stage: Stage

    @property
    def p(self) -> float | None:
        """By which it is one of its family."""
        if not isinstance(self.found, SignTest):
            return None
        return self.stage.sequential_p(self.hypothesis.name, self.found.p, self.stage.of_exact)


def _solving_test(hypothesis: Hypothesis, plan: Plan, arms: dict[str, ArmSummary], stage: Stage) -> _SolvingTest:
    criterion, bounds = hypothesis.criterion, KINDS[hypothesis.kind].bounds(0.0)
    assert criterion is not None  # which its kind needs
    pair = treatment, control = arms[hypothesis.treatment], arms[hypothesis.control]
    probes = [arm.probe for arm in pair if arm.probe is not None]  # in a study of probes every arm has one
    one, other = (
        {seed: solved for seed, solved in probe.solving_by(criterion).solved.items() if seed in stage.seeds}
        for probe in probes
    )
    pairs = solving_pairs(one, other, by_steps=hypothesis.evidence == "steps_to_solve")
    unreported = _unreported(criterion.difficulty, treatment, control)
    hindrance = _unfinished(plan, treatment, control, pairs.pairs, stage.seeds) or unreported
    found, interval = hindrance or sign_test(pairs, bounds), max(probe.validate_every for probe in probes)
    known = None if unreported else pairs
    return _SolvingTest(hypothesis, bounds, interval, known, found, rates_of(plan, hypothesis), stage)


def _on_solving(test: _SolvingTest, p_adjusted: float | None) -> Verdict:
    hypothesis, found, levels = test.hypothesis, test.found, test.stage.of_exact
    if not isinstance(found, SignTest):
        hindered, code, known = found
        return _settled(hypothesis, hindered, code, known, pairs_so_far=test.pairs)
    sequential_p = test.stage.sequential_p(hypothesis.name, found.p, levels)
    has_crossed = (sequential_p if p_adjusted is None else p_adjusted) <= LEVEL
    share = len(found.ahead) / max(1, found.informative)
    is_shown = has_crossed and test.bounds.contain(share, share)
    is_excluded = found.p_opposite <= levels.at(LEVEL)
    outcome, reason = KINDS[hypothesis.kind].verdict(is_shown=is_shown, is_excluded=is_excluded)
    shared: dict[str, Any] = {"p": found.p, "p_adjusted": p_adjusted, "sign_test": found, "sequential_p": sequential_p}
    shared["rates"] = test.rates
    if outcome == "refuted":
        shared["refutation_p"] = levels.sequential_p(found.p_opposite)
    counts = {"pairs": found.pairs, "tied": len(found.tied), "neither": len(found.neither)}
    if found.informative < LEAST_INFORMATIVE:
        facts = counts | {"informative": found.informative, "least": LEAST_INFORMATIVE}
        return _settled(hypothesis, "undecided", "too_few_informative", facts, **shared)
    facts = counts | {"ahead": len(found.ahead), "behind": len(found.behind)}
    if outcome == "undecided" and has_crossed:
        return _settled(hypothesis, outcome, "no_longer_ahead", facts, **shared)
    by_steps = {"interval": test.interval} if hypothesis.evidence == "steps_to_solve" else {}
    return _settled(hypothesis, outcome, reason, facts | by_steps, **shared)


# ---- Parameters and time -------------------------------------------------------------------------------------------


def _on_parameters(hypothesis: Hypothesis, arms: dict[str, ArmSummary], plan: Plan) -> Verdict:
    """From the closed form; what the runs counted must be the same."""
    treatment, control = arms[hypothesis.treatment], arms[hypothesis.control]
    never_trained, fewer = treatment.frozen + treatment.implied, control.trainable - treatment.trainable
    counted = [run.stored.parameters for run in plan.by_arm[treatment.arm] if run.stored]
    stored = sorted({each["frozen"] + each.get("implied", 0) for each in counted if "frozen" in each})
    if any(count != never_trained for count in stored):
        return _settled(hypothesis, "undecided", "counts_disagree", {"computed": never_trained, "stored": stored})
    of_fewer = hypothesis.least_fewer is not None
    wanted = hypothesis.least_fewer or hypothesis.least_frozen or 0
    facts = {
        **({"fewer": fewer, "least_fewer": wanted} if of_fewer else {"frozen": never_trained, "least_frozen": wanted}),
        "percent": 100 * fewer / control.trainable,
        "trainable": treatment.trainable,
        "control_trainable": control.trainable,
    }
    kind = KINDS[hypothesis.kind]
    count = fewer if of_fewer else never_trained
    is_met = kind.bounds(wanted).contain(count, count)
    outcome, reason = kind.verdict(is_shown=is_met, is_excluded=not is_met, of_fewer=of_fewer)
    return _settled(hypothesis, outcome, reason, facts)


def _within_bounds(hypothesis: Hypothesis, stated: float, low: float, high: float) -> tuple[Settled, str]:
    """Outcome and reason, of a number that lies in an interval."""
    kind = KINDS[hypothesis.kind]
    bounds = kind.bounds(stated)
    return kind.verdict(is_shown=bounds.contain(low, high), is_excluded=bounds.exclude(low, high))


def _on_speed(hypothesis: Hypothesis, speed: Speed) -> Verdict:
    """From the interleaved bench alone: times of the runs depend on what else their machines did."""
    ratio = speed.ratio
    if speed.hindrance is not None or ratio is None:
        return _settled(hypothesis, "undecided", speed.hindrance or "no_bench", speed.facts, ratio=ratio)
    margin = hypothesis.margin or 0.0
    stated = {"margin": margin} if KINDS[hypothesis.kind].takes_margin else {}
    facts = {"blocks": ratio.blocks, "percent": 100 * (ratio.middle - 1), **stated}
    outcome, reason = _within_bounds(hypothesis, margin / 100, ratio.low, ratio.high)
    return _settled(hypothesis, outcome, reason, facts, ratio=ratio)
