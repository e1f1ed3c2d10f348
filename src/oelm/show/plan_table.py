"""What `oelm plan` prints: two tables with what they mean, or one JSON object."""

from __future__ import annotations

import dataclasses
import io
import shutil
from collections.abc import Iterator
from typing import Any

from oelm.analysis.planning import PlannedClaim, PlannedCost, Prospect
from oelm.analysis.statistics import MOST_SEEDS
from oelm.core.measures import LOSS, Scale
from oelm.machine.durations import duration
from oelm.machine.plurals import number_of
from oelm.show import quality
from oelm.study.scaled import families_of, sizes_of
from oelm.study.sizes import LEAST_FOR_A_LINE

WIDTH = 120  # where there is no terminal
UNKNOWN = "-"


def plan_lines(prospect: Prospect) -> Iterator[str]:
    study = prospect.study
    arms = number_of(len(families_of(study)), "arm")
    sizes = f" at up to {number_of(len(sizes_of(study)), 'size')}, {len(study.arms)} in all" if study.sizes else ""
    yield f"study {study.name}: {arms}{sizes}, {number_of(len(study.seeds), 'seed')}"
    yield f"floor: {quality.floor(study, prospect.floor, 'en')}"
    yield from _spread_lines(prospect)
    if prospect.claims:
        yield ""
        seeds = len(study.seeds)
        columns = ["claim", "level", "assumed", f"smallest seen, {seeds} seeds", "with looks", "deviation borne"]
        if prospect.spread is not None:
            columns = ["claim", "level", "assumed", "seeds for 80 %", f"power, {seeds} seeds", "with looks"]
            columns += [f"smallest seen, {seeds} seeds", "with looks"]
        yield from _table([*columns, "seeds with looks"], [_claim_row(claim, prospect) for claim in prospect.claims])
        yield from _claim_notes(prospect)
    else:
        yield "no hypothesis is decided by seeds"
    yield ""
    columns = ["tuning", "seeds", "tuning runs", "final runs", "TFLOP", "share", "time on one slot", ""]
    yield from _table(columns, [_cost_row(cost, prospect.costs[0]) for cost in prospect.costs])
    yield from _cost_notes(prospect)


def plan_tree(prospect: Prospect) -> dict[str, Any]:
    """Distances and deviations in the units of the comparison: nats, or shares of a whole."""
    return {
        "study": prospect.study.name,
        "seeds": len(prospect.study.seeds),
        "measure": prospect.study.measure.key,
        "spread": prospect.spread and dataclasses.asdict(prospect.spread) | {"study": prospect.spread_from},
        "floor": prospect.floor and dataclasses.asdict(prospect.floor),
        "in_deviations": prospect.spread is None,
        "looks": prospect.looks and dataclasses.asdict(prospect.looks),
        "claims": [dataclasses.asdict(claim) for claim in prospect.claims],
        "costs": [dataclasses.asdict(cost) for cost in prospect.costs],
        "finished_runs": prospect.finished,
    }


# ---- Spread --------------------------------------------------------------------------------------------------------


def _spread_lines(prospect: Prospect) -> Iterator[str]:
    spread, scale = prospect.spread, prospect.study.measure.scale
    if not any(claim.least_telling is None for claim in prospect.claims):
        return
    if spread is None:
        yield "spread unknown: differences are in standard deviations of a paired difference;"
        unit = "per cent" if scale.is_logarithmic else "points"
        yield f"  --deviation X states it in {unit}, --like STUDY takes it from the runs of another study"
        return
    deviation = f"standard deviation of a paired difference: {_amount(spread.deviation, scale)}"
    if not spread.comparisons:
        yield f"{deviation}, as given"
        return
    of = f"the runs of {prospect.spread_from}"
    pairs = number_of(spread.comparisons, "pair")
    yield f"{deviation}, pooled over {pairs} of arms in {of}, {spread.degrees_of_freedom} degrees of freedom"
    yield f"  (single ones {_amount(spread.least, scale)} to {_amount(spread.most, scale)}); for planning only"


def _amount(value: float | None, scale: Scale) -> str:
    if value is None:
        return UNKNOWN
    return f"{scale.shown_difference(value):.3g} {'%' if scale.is_logarithmic else 'points'}"


# ---- Claims --------------------------------------------------------------------------------------------------------


def _claim_row(claim: PlannedClaim, prospect: Prospect) -> list[str]:
    scale, is_known = prospect.study.measure.scale, prospect.spread is not None
    level, needed = f"{claim.level:.4f}", claim.seeds_needed
    if claim.least_telling is not None:
        of_pairs = [UNKNOWN] * (7 if is_known else 5)
        if is_known:
            of_pairs[1] = f"at least {claim.least_telling}"
        return [claim.name, level, *of_pairs]
    mean = UNKNOWN if claim.seeds_by_looks is None else f"{claim.seeds_by_looks:.1f}"
    assumed = _amount(claim.assumed, scale)
    if claim.sizes is not None and claim.degrees_of_freedom is None:
        return [claim.name, level, assumed, *[UNKNOWN] * (6 if is_known else 4)]
    if not is_known:
        seen = [UNKNOWN if each is None else f"{each:.2f} sd" for each in (claim.seen, claim.seen_by_looks)]
        return [claim.name, level, assumed, *seen, _amount(claim.deviation_borne, scale), mean]
    seen = [_amount(each, scale) for each in (claim.seen, claim.seen_by_looks)]
    powers = [UNKNOWN if each is None else f"{each:.2f}" for each in (claim.power, claim.power_by_looks)]
    return [claim.name, level, assumed, str(needed or f"over {MOST_SEEDS:,}"), *powers, *seen, mean]


def _claim_notes(prospect: Prospect) -> Iterator[str]:
    looks = prospect.looks
    yield "level: what Holm's correction leaves the claim if no other one is shown first"
    yield "assumed: how far the true difference lies within the claim's bound; by default the arms are equal, or for"
    yield "  `better` exceed the bound by the usual margin; --difference X changes it"
    yield "smallest seen: how far it must lie within the bound to be shown with a probability of 80 %"
    if prospect.spread is None:
        yield "deviation borne: with a larger one, the assumed difference is seen with a lower probability than 80 %"
    if looks is not None:
        numbers = ", ".join(map(str, looks.seeds))
        yield f"looks: after {numbers} seeds" + ("" if looks.is_declared else ", which the study does not declare")
    for claim in prospect.claims:
        if claim.sizes is not None:
            yield from _slope_notes(claim)
    if prospect.study.learning_rate_is_tuned and prospect.study.measure is LOSS:
        yield "rates are taken for the best ones: what they may be off by is known after tuning and takes from a margin"
    if any(claim.kind == "contrast" for claim in prospect.claims):
        yield "a contrast is taken to vary by sqrt(2) times as much as the difference at one size"
    least = max(claim.least_telling or 0 for claim in prospect.claims)
    if least:
        yield f"claims about solving need at least {least} seeds with which only one arm solves it, always the same one"


def _slope_notes(claim: PlannedClaim) -> Iterator[str]:
    sizes = number_of(claim.sizes or 0, "size")
    if claim.degrees_of_freedom is None:
        least = f"; a slope needs {LEAST_FOR_A_LINE} that differ in it" if claim.per else ", whose data are not here"
        yield f"{claim.name}: no slope over {sizes}{least}"
        return
    degrees = number_of(claim.degrees_of_freedom, "degree")
    yield f"{claim.name}: with every doubling of {claim.per}; {sizes}, {degrees} of freedom; this is the best case,"
    yield "  since what a badly fitting rate adds at one size is not known beforehand, and seeds do not reduce it"


# ---- Costs ---------------------------------------------------------------------------------------------------------


def _cost_row(cost: PlannedCost, first: PlannedCost) -> list[str]:
    """Beside the first one, which has no looks."""
    share = f"{cost.flops / first.flops:.2f}" if cost.flops and first.flops else UNKNOWN
    return [
        cost.tuning or "none",
        "looks" if cost.looks else "all",
        f"{cost.tuning_runs:,.0f}",
        f"{cost.final_runs:,.1f}" if cost.looks else f"{cost.final_runs:,.0f}",
        UNKNOWN if cost.flops is None else f"{cost.flops / 1e12:,.1f}",
        share,
        UNKNOWN if cost.seconds is None else duration(cost.seconds),
        "as declared" if cost.is_declared else "",
    ]


def _cost_notes(prospect: Prospect) -> Iterator[str]:
    costs = prospect.costs
    yield f"expected for the whole study; finished so far: {number_of(prospect.finished, 'run')}"
    if any(cost.flops is None for cost in costs):
        yield "FLOPs unknown: the data, which say how large the models are, are not here"
    elif any(cost.seconds is None for cost in costs):
        yield "time unknown: no run has finished; --pace X states it in tokens per second of the baseline,"
        yield "  and `oelm run --dry-run` measures a few steps"
    if any(cost.looks for cost in costs):
        assumed = "the assumed differences are true" if prospect.spread else "the smallest differences seen are true"
        yield f"looks: if {assumed}"
    if any(cost.tuning == "halving" for cost in costs):
        yield "halving: as many values go on as finished tuning runs suggest; without any, half of them"
    if any(cost.tuning == "grid" for cost in costs):
        yield "an extended grid takes more"


# ---- Tables --------------------------------------------------------------------------------------------------------


def _table(columns: list[str], rows: list[list[str]]) -> Iterator[str]:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        # Names stay whole; titles of numbers are wrapped.
        table.add_column(column, justify="right" if number else "left", no_wrap=not number, vertical="bottom")
    for row in rows:
        table.add_row(*map(Text, row))
    text = io.StringIO()
    width = shutil.get_terminal_size((WIDTH, 0)).columns
    Console(file=text, width=width, color_system=None, highlight=False).print(table)
    yield from (line.rstrip() for line in text.getvalue().splitlines())
