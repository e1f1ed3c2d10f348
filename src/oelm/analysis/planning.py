"""What a study can see with its seeds, and what it will cost: for `oelm plan`, before any run or from finished ones.

The spread of paired differences is given, or pooled over the pairs of finished runs. It decides how many seeds to plan
for, and no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from oelm.analysis import statistics
from oelm.analysis.arm_summaries import ArmRuns, runs_by_arm
from oelm.analysis.floors import floor_of
from oelm.analysis.hypotheses import bounds_of, least_apart, margin_of
from oelm.analysis.lines import line_through
from oelm.analysis.looks import pace
from oelm.analysis.many_studies import Claim, decided, distance_seen_by_looks, power_by_looks
from oelm.analysis.scale import counts_of, varying
from oelm.analysis.spending import union_levels
from oelm.core.accounting import training_flops
from oelm.core.config import ResolvedRun, as_far_as_known
from oelm.core.floors import Floor
from oelm.core.intervals import LEVEL
from oelm.core.solving import by_difficulty
from oelm.machine.errors import UserError
from oelm.study.carrying import tuned_arms
from oelm.study.claims.kinds import LEAST_PAIRS, MEASURED, SOLVING, Bounds
from oelm.study.declaration import Hypothesis, Per, Study, Tuning
from oelm.study.kept_looks import arms_of
from oelm.study.one_run import settings_for
from oelm.study.plan import Plan, planned
from oelm.study.scaled import arms_compared, arms_of_scale, is_carried
from oelm.study.shelf import Shelf
from oelm.study.sizes import STAND_IN
from oelm.study.tuning import points_of

SIMULATED = 4000  # studies, for the seeds that looks need
_SEED = 20262
FAR_BEYOND = 100.0  # standard deviations
LEAST_TO_FIT = 3  # values that a curve goes through


@dataclass(frozen=True)
class Prospect:
    """All that can be said of a study beforehand."""

    study: Study
    spread: Spread | None  # None: nothing says what it is
    spread_from: str | None  # the study whose runs it is pooled over; None: it is given, or unknown
    looks: Looks | None
    claims: list[PlannedClaim]
    costs: list[PlannedCost]
    finished: int  # runs of the study
    floor: Floor | None  # of the baseline's final runs


def prospect_of(
    study: Study,
    shelf: Shelf,
    *,
    deviation: float | None = None,
    like: tuple[Study, Shelf] | None = None,
    difference: float | None = None,
    tokens_per_second: float | None = None,
) -> Prospect:
    """With a deviation and a difference in the unit of the claims: per cent, or points. `tokens_per_second` is how fast
    the baseline trains on one slot, in place of finished runs."""
    plan = planned(study, shelf)
    spread, source = (Spread(study.measure.scale.margin(deviation)) if deviation else None), None
    if spread is None:
        other, runs = like or (study, shelf)
        spread = spread_of(other, plan if like is None else planned(other, runs))
        source = other.name if spread else None
        if like is not None and other.measure.scale is not study.measure.scale:
            theirs, ours = other.measure, study.measure
            raise UserError(f"--like {other.name}: compares {theirs.key}, and {study.name} compares {ours.key}")
        if like is not None and spread is None:
            raise UserError(
                f"--like {other.name}: {runs.folder} has fewer than two finished pairs for each claim about quality"
            )
    claims = planned_claims(study, plan, spread, difference)
    finished = sum(run.state == "finished" for run in plan.runs)
    costs = planned_costs(study, plan, claims, spread, tokens_per_second)
    of_baseline = (runs_by_arm(study, plan) or {}).get(study.baseline)
    floor = None
    if of_baseline is not None:
        digest = plan.digests.get(of_baseline.run.data)
        floor = floor_of(of_baseline.finished, of_baseline.run, study.measure, digest=digest)
    return Prospect(study, spread, source, looks_for(study), claims, costs, finished, floor)


# ---- Spread --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """The standard deviation of a paired difference, in the units of the comparison."""

    deviation: float
    comparisons: int = 0  # pairs of arms that it is pooled over; none: it is given
    degrees_of_freedom: int = 0
    least: float = 0.0  # of one pair of arms
    most: float = 0.0


def spread_of(study: Study, plan: Plan) -> Spread | None:
    """Pooled over the pairs of arms that claims compare; None where no two pairs of one have finished."""
    runs = runs_by_arm(study, plan)
    return None if runs is None else pooled(_differences(study, runs))


def pooled(samples: Iterable[Sequence[float]]) -> Spread | None:
    """Over samples that have a mean of their own each."""
    several = [each for each in samples if len(each) > 1]
    deviations = [statistics.standard_deviation(each) or 0.0 for each in several]
    degrees = sum(len(each) - 1 for each in several)
    squares = math.fsum(own**2 * (len(each) - 1) for own, each in zip(deviations, several, strict=True))
    if squares == 0:
        return None
    return Spread(math.sqrt(squares / degrees), len(several), degrees, min(deviations), max(deviations))


def _differences(study: Study, runs: dict[str, ArmRuns]) -> list[list[float]]:
    """Of each pair of arms once, though several claims may be about it."""
    compared = {
        (*sorted(pair), claim.difficulty): (claim, pair)
        for claim in study.family
        if claim.evidence in MEASURED
        for pair in arms_compared(study, claim)
    }
    return [
        statistics.paired_difference(*(_costs(claim, runs[arm]) for arm in pair), level=None).differences
        for claim, pair in compared.values()
    ]


def _costs(claim: Hypothesis, runs: ArmRuns) -> dict[int, float]:
    measure = claim.quality
    if claim.difficulty is None:
        return {seed: measure.cost(value) for seed, value in runs.values_of(measure).items()}
    name, found = str(claim.difficulty), {}
    for run in runs.finished:
        report = by_difficulty(run.stored.result) if run.stored and run.stored.result else {}
        if name in report:
            found[run.seed] = measure.cost(report[name])
    return found


# ---- Claims --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlannedClaim:
    """What a number of seeds is good for. Distances are those of the true difference from the claim's bound, within it;
    they and deviations are in the units of the comparison, or in standard deviations where the spread is not known. Of
    a claim about scale they are those of the slope, if sizes add nothing to the spread of their seeds."""

    name: str
    kind: str
    level: float  # that Holm's correction leaves it at worst
    assumed: float  # distance, which its power is for
    seen: float | None  # distance: the smallest that the study shows with a probability of 80 %
    seen_by_looks: float | None
    deviation_borne: float | None  # the largest with which the assumed distance is shown with that probability
    seeds_needed: int | None = None  # for that probability; None: unknown, or more than 1,000
    power: float | None = None  # with the seeds of the study
    power_by_looks: float | None = None
    seeds_by_looks: float | None = None  # on average
    least_telling: int | None = None  # of a claim about solving: pairs that tell, all to one side
    per: Per | None = None  # of a claim about scale: with every doubling of what
    sizes: int | None = None  # that it compares
    degrees_of_freedom: int | None = None  # that they leave; None: too few sizes, or nothing says how large they are


@dataclass(frozen=True)
class Looks:
    seeds: tuple[int, ...]
    is_declared: bool


def looks_for(study: Study) -> Looks | None:
    """Those declared, or else after a half and three quarters of the seeds; None where there is no room for one."""
    if study.looks:
        return Looks(tuple(study.looks), True)
    seeds = len(study.seeds)
    early = {math.ceil(seeds * share) for share in (0.5, 0.75)}
    looks = sorted(each for each in early if LEAST_PAIRS <= each < seeds)
    return Looks((*looks, seeds), False) if looks and _of_quality(study) else None


def _of_quality(study: Study) -> list[Hypothesis]:
    return [claim for claim in study.paired_claims if claim.evidence not in SOLVING]


def level_at_worst(study: Study, claim: Hypothesis) -> float:
    """Where no other claim of the family is shown before it."""
    return LEVEL / sum(each.confirmatory for each in study.family) if claim.confirmatory else LEVEL


def assumed_distance(claim: Hypothesis, difference: float | None) -> float:
    """As given in the unit of the claim. Otherwise equal arms, whose bound is a margin away; of a claim to be better,
    one that exceeds its bound by the usual margin. Two bounds cannot both be further away than the margin."""
    scale = claim.quality.scale
    of_equal_arms = max(0.0, min(bounds_of(claim).distances(0.0)))  # how far within its bounds no difference at all is
    assumed = scale.margin(difference) if difference is not None else of_equal_arms or scale.margin(scale.usual_margin)
    return min(assumed, of_equal_arms) if _bounds(claim) > 1 else assumed


def _bounds(claim: Hypothesis) -> int:
    return len(bounds_of(claim).distances(0.0))


def _distances(claim: Hypothesis, distance: float) -> list[float]:
    """From each of its bounds."""
    return [distance, 2 * margin_of(claim) - distance][: _bounds(claim)]


def planned_claims(study: Study, plan: Plan, spread: Spread | None, difference: float | None) -> list[PlannedClaim]:
    looks = looks_for(study)
    found = [
        _planned_slope(study, plan, claim, spread, difference)
        if claim.evidence == "scale"
        else _planned_claim(study, claim, spread, looks, difference)
        for claim in study.family
    ]
    if looks is None:
        return found
    simulated = _simulated_seeds(study, found, spread, looks)
    means = {name: float(seeds.mean()) for name, seeds in simulated.items()}
    return [replace(claim, seeds_by_looks=means.get(claim.name)) for claim in found]


def _planned_claim(
    study: Study, claim: Hypothesis, spread: Spread | None, looks: Looks | None, difference: float | None
) -> PlannedClaim:
    level, seeds = level_at_worst(study, claim), len(study.seeds)
    assumed = assumed_distance(claim, difference)
    if claim.evidence in SOLVING:
        levels = [each.at(level) for each in union_levels(tuple(study.looks))] if study.looks else [level]
        least = statistics.pairs_of_one_sign(max(levels))
        return PlannedClaim(claim.name, claim.kind, level, assumed, None, None, None, least_telling=least)
    can_be_seen = seeds >= LEAST_PAIRS
    unit, bounds = _deviation(claim, spread), _bounds(claim)
    seen = statistics.distance_seen(seeds, bounds=bounds, level=level) if can_be_seen else None
    by_looks = distance_seen_by_looks(looks.seeds, bounds=bounds, level=level) if looks else None
    planned = PlannedClaim(
        name=claim.name,
        kind=claim.kind,
        level=level,
        assumed=assumed,
        seen=None if seen is None else seen * unit,
        seen_by_looks=None if by_looks is None else by_looks * unit,
        deviation_borne=None if seen is None else assumed / (seen * _deviation(claim, None)),
    )
    if spread is None:
        return planned
    distances = [distance / unit for distance in _distances(claim, assumed)]
    return replace(
        planned,
        seeds_needed=statistics.pairs_for_power(distances, level=level),
        power=max(0.0, statistics.power(distances, seeds, level=level)) if can_be_seen else None,
        power_by_looks=power_by_looks(distances, looks.seeds, level=level) if looks else None,
    )


def _deviation(claim: Hypothesis, spread: Spread | None) -> float:
    """Of what is tested: a contrast is the difference of two paired differences, taken to vary independently."""
    return (spread.deviation if spread else 1.0) * (math.sqrt(2) if claim.evidence == "contrast" else 1.0)


def _planned_slope(
    study: Study, plan: Plan, claim: Hypothesis, spread: Spread | None, difference: float | None
) -> PlannedClaim:
    """Of a line through the sizes as they are, by the number of seeds that each has."""
    level, assumed = level_at_worst(study, claim), assumed_distance(claim, difference)
    assert isinstance(claim.over, list)  # as reading it leaves it
    planned = PlannedClaim(claim.name, claim.kind, level, assumed, None, None, None, sizes=len(claim.over))
    arms = [control for _, control in arms_compared(study, claim)]
    runs = [as_far_as_known(settings_for(study, arm, seed=study.seeds[0]).run, STAND_IN | plan.facts) for arm in arms]
    counts = [counts_of(run) for run in runs if isinstance(run, ResolvedRun)]
    per = claim.per or next(iter(varying(counts)), None)
    if per is None or len(counts) < len(runs):
        return planned
    places = [math.log2(each[per]) for each in counts]
    carried = sum(is_carried(study, size) for size in claim.over)
    line = line_through(places, [0.0] * len(places), carried=carried)
    if line is None:
        return replace(planned, per=per)
    seeds, unit = len(study.seeds), _deviation(claim, spread)
    # Carried sizes count no degree of freedom, but their spread about the line is there.
    degrees = len(places) - 2
    critical = line.quantile(1 - level) * math.sqrt(degrees / line.degrees)
    in_errors = statistics.distance_seen_by_t(degrees, bounds=_bounds(claim), critical=critical)
    seen = in_errors / math.sqrt(seeds * line.width)
    planned = replace(
        planned, per=per, degrees_of_freedom=line.degrees, seen=seen * unit, deviation_borne=assumed / seen
    )
    if spread is None:
        return planned

    def power(seeds: int) -> float:
        errors = [distance / unit * math.sqrt(seeds * line.width) for distance in _distances(claim, assumed)]
        return max(0.0, statistics.power_of_t(errors, degrees, critical=critical))

    needed = next((each for each in range(1, statistics.MOST_SEEDS + 1) if power(each) >= statistics.POWER), None)
    return replace(planned, seeds_needed=needed, power=power(seeds))


# ---- Seeds that looks need -----------------------------------------------------------------------------------------


def _simulated_seeds(
    study: Study, claims: list[PlannedClaim], spread: Spread | None, looks: Looks
) -> dict[str, np.ndarray]:
    """By claim, in simulated studies: until a look settles it. Each has its assumed distance; where the spread is not
    known, the smallest that is seen. Claims are drawn apart, which settles the last claim of an arm rather late."""
    declared = {claim.name: claim for claim in _of_quality(study)}
    planned = [claim for claim in claims if claim.name in declared]
    if not planned:
        return {}
    # Claims of the family that are not simulated count in Holm's correction, as if they were never shown.
    others = sum(each.confirmatory for each in study.family if each.name not in declared)
    drawn = np.random.default_rng(_SEED).standard_normal((SIMULATED, len(planned) + others, looks.seeds[-1]))
    drawn[:, len(planned) :] += FAR_BEYOND
    tested = []
    for number, claim in enumerate(planned):
        unit = _deviation(declared[claim.name], spread)
        distance = (claim.assumed if spread else claim.seen or 0.0) / unit
        width = 2 * (margin_of(declared[claim.name]) / unit if spread else distance)
        lower = None if _bounds(declared[claim.name]) == 1 else -width
        drawn[:, number] -= distance
        least = least_apart(declared[claim.name]) / unit if spread else 0.0
        tested.append(Claim(Bounds(lower, 0.0), declared[claim.name].confirmatory, least))
    tested += [Claim(Bounds(None, 0.0))] * others
    outcomes = decided(drawn, tested, looks.seeds)
    return {claim.name: outcomes.seeds[:, number] for number, claim in enumerate(planned)}


# ---- Costs ---------------------------------------------------------------------------------------------------------


Method = Literal["grid", "halving"]


@dataclass(frozen=True)
class PlannedCost:
    """Of all runs of a study, finished or not, on average."""

    tuning: Method | None  # None: it tunes nothing
    looks: tuple[int, ...]
    is_declared: bool
    tuning_runs: float
    final_runs: float
    flops: float | None  # None: the sizes of the models are not known here
    seconds: float | None  # of one slot, at the pace that is given, or that of the finished runs


def planned_costs(
    study: Study,
    plan: Plan,
    claims: list[PlannedClaim],
    spread: Spread | None,
    tokens_per_second: float | None = None,
) -> list[PlannedCost]:
    """With each way of tuning, without looks and with them."""
    runs = runs_by_arm(study, plan)
    counter = _Counter(study, plan, {arm: each.run for arm, each in runs.items()} if runs else {}, tokens_per_second)
    looks = looks_for(study)
    every_seed = dict.fromkeys(study.arms, float(len(study.seeds)))
    by_seeds: list[tuple[tuple[int, ...], dict[str, float]]] = [((), every_seed)]
    if looks is not None:
        simulated = _simulated_seeds(study, claims, spread, looks)
        until = dict(every_seed)  # the last claim of an arm is settled; without one, or with one about solving or scale
        for arm in (each for each in study.arms if each not in arms_of_scale(study)):
            own = [claim.name for claim in study.paired_claims if arm in arms_of(study, [claim])]
            if own and all(name in simulated for name in own):
                until[arm] = float(np.maximum.reduce([simulated[name] for name in own]).mean())
        by_seeds.append((looks.seeds, until))
    return [counter.cost(method, seeds, seen) for method in counter.methods for seen, seeds in by_seeds]


@dataclass(frozen=True)
class _Counter:
    study: Study
    plan: Plan
    runs: dict[str, ResolvedRun]  # a final run of each arm; none where sizes are not known
    tokens_per_second: float | None

    @property
    def methods(self) -> list[Method | None]:
        """Halving needs a second tuning seed, and losses to compare."""
        tuning = self.study.tuning
        if tuning is None:
            return [None]
        can_halve = len(tuning.seeds) > 1 and tuning.rank == "loss"
        return ["grid", "halving"] if can_halve else ["grid"]

    def cost(self, method: Method | None, seeds: dict[str, float], looks: tuple[int, ...]) -> PlannedCost:
        tuning_runs, tuning_flops = self._tuning(method)
        flops = None
        if self.runs:
            flops = tuning_flops + math.fsum(number * training_flops(self.runs[arm]) for arm, number in seeds.items())
        declared = self.study.tuning.method if self.study.tuning else None
        return PlannedCost(
            tuning=method,
            looks=looks,
            is_declared=method == declared and looks == tuple(self.study.looks),
            tuning_runs=tuning_runs,
            final_runs=math.fsum(seeds.values()),
            flops=flops,
            seconds=None if flops is None or self._pace is None else flops * self._pace,
        )

    @cached_property
    def _pace(self) -> float | None:
        """Seconds for each FLOP: other arms and sizes are taken to be as fast in these as the baseline."""
        if self.tokens_per_second is None or not self.runs:
            return pace(self.plan)
        counts = counts_of(self.runs[self.study.baseline])
        return counts["tokens"] / self.tokens_per_second / counts["flops"]

    def _tuning(self, method: Method | None) -> tuple[float, float]:
        """Runs and FLOPs of all arms."""
        if method is None or self.study.tuning is None:
            return 0.0, 0.0
        tuning = self.study.tuning.model_copy(update={"method": method})
        study = self.study.model_copy(update={"tuning": tuning})
        runs = flops = 0.0
        for arm in tuned_arms(study):
            points = points_of(tuning.grid)
            for budget, kept in zip(tuning.rounds, self._rounds(tuning, arm, len(points)), strict=True):
                runs += kept * len(tuning.seeds)
                share = kept / len(points) * len(tuning.seeds)
                settings = (
                    settings_for(study, arm, seed=tuning.seeds[0], values=dict(point), tuning=True, budget=budget)
                    for point in points
                )
                known = (as_far_as_known(each.run, self.plan.facts) for each in settings)
                flops += share * sum(training_flops(run) for run in known if isinstance(run, ResolvedRun))
        return runs, flops

    def _rounds(self, tuning: Tuning, arm: str, points: int) -> list[int]:
        """How many values each round has: as finished rounds, or the losses of finished tuning runs, say; otherwise
        half of them go on."""
        counts = [points]
        for number in range(1, len(tuning.rounds)):
            known = self._kept(tuning, arm, number)
            counts.append(min(counts[-1], known if known is not None else math.ceil(counts[-1] / 2)))
        if tuning.choose == "fitted":
            counts[-1] = max(counts[-1], min(LEAST_TO_FIT, points))
        return counts

    def _kept(self, tuning: Tuning, arm: str, number: int) -> int | None:
        for done in self.plan.rounds:
            if (done.arm, done.number) == (arm, number):
                return len(done.kept)
        choice = self.plan.choices.get(arm)
        losses = [] if choice is None or self.plan.rounds else [*choice.losses.values()]
        if not losses or math.isinf(min(losses)):
            return None
        return sum(loss - min(losses) <= tuning.margin for loss in losses)
