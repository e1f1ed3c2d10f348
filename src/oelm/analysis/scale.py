"""Effects against scale: paired differences by size, their slope, loss against compute, and what follows from them.

A slope needs three sizes of which every pair has finished, a forecast five. What of a size is counted (parameters,
tokens, FLOPs) is counted of the control, so that a matrix that the treatment does not store makes no model smaller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from oelm.analysis.findings import (
    COUNTS,
    ArmSummary,
    Height,
    Law,
    Scale,
    SizePoint,
    Slope,
    Trend,
)
from oelm.analysis.lines import Line, line_through
from oelm.analysis.statistics import NO_SPREAD, paired_difference
from oelm.intervals import LEVEL
from oelm.study.declaration import Per, Study
from oelm.study.scaled import dials_of, families_of, family_of, sized_arms
from oelm.study.sizes import cell_name

LEAST_FOR_A_FORECAST = 5
PLACES = 24  # on a line that is drawn


def scale_of(study: Study, arms: dict[str, ArmSummary]) -> Scale | None:
    """None where the study has no sizes."""
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
        if (law := _law(arms, family, dial, sizes))
    ]
    return Scale(arms=arms, trends=trends, laws=laws, multipliers=[], forecasts=[])


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
    varying = _varying(points)
    per = per or next(iter(varying), "parameters")
    points.sort(key=lambda point: point.counts[per])
    whole = [point for point in points if point.is_whole]
    slopes = {count: slope for count in varying if (slope := _slope(whole, count))}
    return Trend(treatment, control, dial, per, points, slopes)


def _point(study: Study, size: str, treatment: ArmSummary, control: ArmSummary) -> SizePoint:
    difference = paired_difference(treatment.quality.costs, control.quality.costs)
    counts: dict[Per, float] = {"parameters": control.total, "tokens": control.tokens, "flops": control.flops}
    is_whole = set(difference.seeds) == set(study.seeds)
    return SizePoint(size, treatment.arm, control.arm, counts, difference, is_whole)


def _varying(points: list[SizePoint]) -> list[Per]:
    return [count for count in COUNTS if len({point.counts[count] for point in points}) > 1]


def line_of(points: list[SizePoint], per: Per) -> Line | None:
    """Through the mean differences, by the logarithm of a count to base 2."""
    means = [point.difference.mean for point in points]
    known = [mean for mean in means if mean is not None]
    return line_through([math.log2(point.counts[per]) for point in points], known) if len(known) == len(means) else None


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


def _law(arms: dict[str, ArmSummary], family: str, dial: str, sizes: list[str]) -> Law | None:
    """Over the sizes of which every seed has finished; logarithms on both sides."""
    found = [arms[name] for size in sizes if (name := cell_name(family, size)) in arms]
    known = sorted((arm.flops, arm.mean_loss) for arm in found if arm.mean_loss is not None and _is_whole(arm))
    if not known:
        return None
    flops, losses = [each for each, _ in known], [loss for _, loss in known]
    line = line_through([math.log2(each) for each in flops], [math.log2(loss) for loss in losses])
    if line is None:
        return Law(family, dial, flops, losses, None, None, None, [])
    heights = _heights(line, lambda logarithm: 2**logarithm)
    return Law(family, dial, flops, losses, line.slope, *line.slope_bounds(LEVEL / 2), list(heights))


def _is_whole(arm: ArmSummary) -> bool:
    return not [state for state, seeds in arm.states.items() if state != "finished" and seeds]
