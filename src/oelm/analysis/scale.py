"""Effects against scale: paired differences by size, their slope, loss against compute, and what follows from them.

A slope needs three sizes of which every pair has finished, a forecast five. What of a size is counted (parameters,
tokens, FLOPs) is counted of the control, so that a matrix that the treatment does not store makes no model smaller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from oelm.analysis.findings import (
    COUNTS,
    ArmSummary,
    Forecast,
    Height,
    Law,
    Multiplier,
    Predicted,
    Scale,
    SizePoint,
    Slope,
    Trend,
)
from oelm.analysis.lines import Line, line_through, sideways
from oelm.analysis.spending import interval_level
from oelm.analysis.statistics import NO_SPREAD, paired_difference
from oelm.core.accounting import totals, training_flops
from oelm.core.config import ResolvedRun, resolved
from oelm.core.intervals import LEVEL
from oelm.core.logarithms import exponential
from oelm.study.at_sizes import larger_runs
from oelm.study.declaration import Per, Study
from oelm.study.scaled import dials_of, families_of, family_of, is_carried, sized_arms
from oelm.study.sizes import LEAST_FOR_A_FORECAST, cell_name

PLACES = 24  # on a line that is drawn


def scale_of(study: Study, arms: dict[str, ArmSummary], facts: dict[str, Any]) -> Scale | None:
    """None where the study has no sizes. `facts` is what the data says of the model."""
    if not sized_arms(study):
        return None
    baseline = family_of(study, study.baseline)
    others = [each for each in families_of(study) if each != baseline]
    found = [
        trend_over(study, arms, family, baseline, sizes, dial=dial)
        for dial, sizes in dials_of(study).items()
        for family in others
    ]
    trends = [trend for trend in found if trend.points]
    laws = [
        law
        for dial, sizes in dials_of(study).items()
        for family in families_of(study)
        if (law := _law(study, arms, family, dial, sizes))
    ]
    return Scale(
        arms=arms,
        trends=trends,
        laws=laws,
        multipliers=[each for trend in trends for each in _multipliers(arms, trend)],
        forecasts=[each for trend in trends for each in _forecasts(study, trend, facts)],
    )


# ---- Trends --------------------------------------------------------------------------------------------------------


def trend_over(
    study: Study,
    arms: dict[str, ArmSummary],
    treatment: str,
    control: str,
    sizes: Iterable[str],
    *,
    dial: str | None = None,
    per: Per | None = None,
) -> Trend:
    """Of two arms over those of the sizes that both have."""
    pairs = [(size, cell_name(treatment, size), cell_name(control, size)) for size in sizes]
    points = [
        _point(study, size, arms[one], arms[other]) for size, one, other in pairs if one in arms and other in arms
    ]
    differing = varying([point.counts for point in points])
    ordered_by: Per = per or (differing[0] if differing else "parameters")
    points.sort(key=lambda point: point.counts[ordered_by])
    whole = [point for point in points if point.is_whole]
    slopes = {count: slope for count in differing if (slope := _slope(whole, count))}
    return Trend(treatment, control, dial, ordered_by, points, slopes)


def _point(study: Study, size: str, treatment: ArmSummary, control: ArmSummary) -> SizePoint:
    """Its interval holds over all looks, as that of the arm in the table of sizes does."""
    costs = treatment.quality.costs, control.quality.costs
    pairs = len(costs[0].keys() & costs[1].keys())
    difference = paired_difference(*costs, level=interval_level(study.looks, pairs))
    counts: dict[Per, float] = {"parameters": control.total, "tokens": control.tokens, "flops": control.flops}
    is_whole = set(difference.seeds) == set(study.seeds)
    carried = is_carried(study, size)
    return SizePoint(size, treatment.arm, control.arm, counts, difference, is_whole, carried)


def counts_of(run: ResolvedRun) -> dict[Per, float]:
    return {
        "parameters": totals(run.model).total,
        "tokens": run.training.steps * run.training.batch_size * run.model.tokens_per_example,
        "flops": training_flops(run),
    }


def varying(counts: list[dict[Per, float]]) -> list[Per]:
    """What sizes differ in: a slope is with every doubling of the first, where a claim names nothing else."""
    return [count for count in COUNTS if len({each[count] for each in counts}) > 1]


def line_of(points: list[SizePoint], per: Per) -> Line | None:
    """Through the mean differences, by the logarithm of a count to base 2."""
    means = [point.difference.mean for point in points]
    known = [mean for mean in means if mean is not None]
    if len(known) < len(means):
        return None
    carried = sum(point.is_carried for point in points)
    return line_through([math.log2(point.counts[per]) for point in points], known, carried=carried)


def _slope(points: list[SizePoint], per: Per) -> Slope | None:
    line = line_of(points, per)
    if line is None:
        return None
    low, high = line.slope_bounds(LEVEL / 2)
    lower, upper = line.slope_bounds(LEVEL)
    deviation = line.deviation if line.deviation > NO_SPREAD else 0.0
    return Slope(len(points), line.slope, low, high, lower, upper, deviation, list(_heights(line)))


def _heights(line: Line, shown: Callable[[float], float] = float) -> Iterator[Height]:
    """From the first size to the last, at places that are as far apart as a figure needs."""
    first, last = min(line.xs), max(line.xs)
    for place in range(PLACES + 1):
        x = first + (last - first) * place / PLACES
        yield Height(2**x, shown(line.at(x)), *map(shown, line.interval(x)))


# ---- Loss against compute ------------------------------------------------------------------------------------------


def _law(study: Study, arms: dict[str, ArmSummary], family: str, dial: str, sizes: list[str]) -> Law | None:
    """Over the sizes of which every seed has finished; in logarithms on both sides, so without losses of zero."""
    found = [(size, arms[name]) for size in sizes if (name := cell_name(family, size)) in arms]
    known = sorted((arm.flops, arm.mean_loss, size) for size, arm in found if arm.mean_loss and _is_whole(arm))
    if not known:
        return None
    flops, losses = [each for each, _, _ in known], [loss for _, loss, _ in known]
    carried = sum(is_carried(study, size) for _, _, size in known)
    line = line_through([math.log2(each) for each in flops], [math.log2(loss) for loss in losses], carried=carried)
    if line is None:
        return Law(family, dial, flops, losses, None, None, None, [])
    heights = _heights(line, lambda logarithm: 2**logarithm)
    return Law(family, dial, flops, losses, line.slope, *line.slope_bounds(LEVEL / 2), list(heights))


def _is_whole(arm: ArmSummary) -> bool:
    return not [state for state, seeds in arm.states.items() if state != "finished" and seeds]


# ---- Compute multiplier --------------------------------------------------------------------------------------------


def _multipliers(arms: dict[str, ArmSummary], trend: Trend) -> Iterator[Multiplier]:
    """At every budget, where at least three were run with one model."""
    if len({point.counts["parameters"] for point in trend.points}) > 1:
        return
    losses = [(point, arms[point.treatment].mean_loss, arms[point.control].mean_loss) for point in trend.points]
    known = [
        (point, math.log2(one), math.log2(other)) for point, one, other in losses if point.is_whole and one and other
    ]
    points = [point for point, *_ in known]
    tokens = [math.log2(point.counts["tokens"]) for point in points]
    carried = sum(point.is_carried for point in points)
    treated = line_through(tokens, [one for _, one, _ in known], carried=carried)
    control = line_through(tokens, [other for *_, other in known], carried=carried)
    if treated is None or control is None or treated.slope >= 0:  # then no number of tokens would do
        return
    for point, place in zip(points, tokens, strict=True):
        distance, low, high = sideways(treated, control, place)
        per_token = [arms[arm].flops / arms[arm].tokens for arm in (point.treatment, point.control)]
        yield Multiplier(
            treatment=trend.treatment,
            control=trend.control,
            budgets=len(points),
            tokens=point.counts["tokens"],
            ratio=_to_the_power(distance),
            low=None if low is None else _to_the_power(low),
            high=None if high is None else _to_the_power(high),
            flops_ratio=per_token[0] / per_token[1],
            is_beyond=place + distance > max(tokens),
        )


def _to_the_power(doublings: float) -> float:
    """Of two; infinite beyond what a float can be."""
    return exponential(doublings * math.log(2))


# ---- Forecast ------------------------------------------------------------------------------------------------------


def _forecasts(study: Study, trend: Trend, facts: dict[str, Any]) -> Iterator[Forecast]:
    for name, dial, run in larger_runs(study):
        if dial != trend.dial:
            continue
        points = [point for point in trend.points if point.is_whole]
        sizes = len({point.counts[trend.per] for point in points})  # that differ along the line
        if sizes < LEAST_FOR_A_FORECAST:
            yield Forecast(trend.treatment, trend.control, trend.per, sizes, name, None)
            continue
        counts = counts_of(resolved(run, facts))
        *others, largest = points
        yield Forecast(
            treatment=trend.treatment,
            control=trend.control,
            per=trend.per,
            sizes=len(points),
            size=name,
            predicted=_predicted(points, trend.per, name, counts),
            left_out=_predicted(others, trend.per, largest.size, largest.counts),
            observed=largest.difference.mean,
        )


def _predicted(points: list[SizePoint], per: Per, size: str, counts: dict[Per, float]) -> Predicted:
    line = line_of(points, per)
    assert line is not None  # of at least four
    place = math.log2(counts[per])
    return Predicted(size, counts, line.at(place), *line.prediction(place))
