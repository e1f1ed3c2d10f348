"""How far the loss at a chosen rate may lie above an arm's best, from its tuning runs; claims are tested with it.

Near its lowest value, up to two values to each side, a loss is taken to be two half-lines or two half-parabolas in the
logarithm of the rate that meet anywhere between the neighbours, one side up to twenty times as steep as the other.
Every such shape is fitted with the tuning seeds as blocks and weighs as much as the data are likely under it, with the
noise unknown (the residual sum of squares to minus half its degrees of freedom: also what no shape explains is noise).
Of the excess of the chosen rate over the place where the sides meet, the allowance is the weighted 95 % quantile. A
kink that the values cannot tell from a curve counts; one that they exclude does not. Nothing is drawn at random.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from oelm.analysis.findings import Rates
from oelm.core.intervals import LEVEL
from oelm.core.measures import LOSS
from oelm.study.claims.kinds import SOLVING
from oelm.study.declaration import RATE_KEY, Hypothesis
from oelm.study.plan import Plan
from oelm.study.rate_fit import LEAST_SEEDS, REACH
from oelm.study.scaled import arms_compared, is_carried, sized_arms

LEAST_VALUES = 3
_POWERS = (1.0, 2.0)
_LOG_RATIOS = np.linspace(-3.0, 3.0, 25)  # of the steepness of the two sides
_PLACES = 121
_PARAMETERS = 3  # of a shape, beside the level of each seed: its place, its steepness, the ratio
_ROUNDING = 1e-18


def rates_of(plan: Plan, hypothesis: Hypothesis) -> Rates:
    """What a claim rests on: the allowance for the rates of its arms, or why there is none."""
    study, tuning = plan.study, plan.study.tuning
    pairs = arms_compared(study, hypothesis)
    arms = list(dict.fromkeys(arm for pair in pairs for arm in pair))
    if tuning is None or RATE_KEY not in tuning.grid:
        rates = {run.run.training.learning_rate for arm in arms for run in plan.by_arm[arm]}
        return Rates("one_rate" if len(rates) < 2 else "fixed_rates")
    seeds, sized = len(tuning.seeds), sized_arms(study)
    if any(arm in sized and is_carried(study, sized[arm].size) for arm in arms):
        return Rates("carried_rates")
    if seeds < LEAST_SEEDS:
        return Rates("one_seed" if seeds == 1 else "few_seeds", {"seeds": seeds})
    if hypothesis.evidence == "scale":
        return Rates("in_spread")
    if hypothesis.evidence in SOLVING or hypothesis.quality is not LOSS:
        return Rates("other_measure", {"seeds": seeds})
    if len(tuning.grid) > 1:
        return Rates("several_settings")
    found = {arm: _of_arm(plan, arm) for arm in arms}
    known = {arm: each for arm, each in found.items() if each is not None}
    if len(known) < len(found):
        return Rates("few_values", {"arms": [arm for arm in arms if arm not in known]})
    (treatment, control), *others = pairs
    return Rates(
        "allowed",
        arms=known,
        below=known[treatment] + sum(known[other] for _, other in others),
        above=known[control] + sum(known[other] for other, _ in others),
    )


def _of_arm(plan: Plan, arm: str) -> float | None:
    choice = plan.choices.get(arm)
    if choice is None or choice.best is None:
        return None
    tried: dict[float, dict[int, float]] = {}
    for run in plan.last_round:
        if run.arm == arm and run.loss is not None:
            tried.setdefault(dict(run.point)[RATE_KEY], {})[run.seed] = run.loss
    return excess(tried, choice.values[RATE_KEY])


def excess(tried: Mapping[float, Mapping[int, float]], chosen: float) -> float | None:
    """Of a rate, in nats: from the losses by value and seed. None where too few values have them all, or too few seeds.
    A value at which a seed diverged is none of them."""
    seeds = sorted(set().union(*tried.values()))
    whole = {
        value: tuple(of_seeds[seed] for seed in seeds)
        for value, of_seeds in tried.items()
        if value > 0 and of_seeds.keys() == set(seeds) and all(map(math.isfinite, of_seeds.values()))
    }
    if len(seeds) < LEAST_SEEDS or len(whole) < LEAST_VALUES or chosen <= 0:
        return None
    return _excess(tuple(sorted(whole.items())), chosen)


@lru_cache(maxsize=1024)
def _excess(tried: tuple[tuple[float, tuple[float, ...]], ...], chosen: float) -> float:
    values = [math.log(value / chosen) for value, _ in tried]
    losses_SK = np.array([of_seeds for _, of_seeds in tried]).T
    lowest = int(losses_SK.mean(axis=0).argmin())
    near = slice(max(0, lowest - REACH), lowest + REACH + 1)
    places_K, losses_SK = np.array(values[near]), losses_SK[:, near]
    # Sides meet between the neighbours of the lowest value; at an end of those tried, two steps beyond it.
    first, last = values[max(0, lowest - 1)], values[min(lowest + 1, len(values) - 1)]
    if lowest == 0:
        first = values[0] - REACH * (values[1] - values[0])
    if lowest == len(values) - 1:
        last = values[-1] + REACH * (values[-1] - values[-2])
    shapes = _Shapes(places_K, first, last)
    means_K = losses_SK.mean(axis=0)
    centred_K = means_K - means_K.mean()
    noise = losses_SK - losses_SK.mean(axis=1, keepdims=True) - centred_K
    seeds, count = losses_SK.shape
    along = shapes.heights @ centred_K
    steepness = np.maximum(along / shapes.squares, 0.0)
    misfit = (centred_K**2).sum() - 2 * steepness * along + steepness**2 * shapes.squares
    residual = np.maximum(seeds * misfit + (noise**2).sum(), _ROUNDING)
    weights = -(seeds * (count - 1) - _PARAMETERS) / 2 * np.log(residual)
    weights = np.exp(weights - weights.max())
    above = steepness * shapes.at_chosen
    order = np.argsort(above)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(above[order][min(np.searchsorted(share, 1 - LEVEL), len(above) - 1)])


class _Shapes:
    """Each of steepness one: its centred heights at the values, and its height at the chosen one, which is at zero."""

    def __init__(self, places_K: np.ndarray, first: float, last: float) -> None:
        grid = np.meshgrid(_POWERS, _LOG_RATIOS, np.linspace(first, last, _PLACES), indexing="ij")
        power, ratio, meeting = (each.ravel() for each in grid)

        def height(distance: np.ndarray, power: np.ndarray, ratio: np.ndarray) -> np.ndarray:
            return np.asarray(np.abs(distance) ** power * np.exp(np.sign(distance) * ratio / 2))

        heights = height(places_K - meeting[:, None], power[:, None], ratio[:, None])
        self.heights = heights - heights.mean(axis=1, keepdims=True)
        self.squares = (self.heights**2).sum(axis=1)
        self.at_chosen = height(-meeting, power, ratio)
