"""What an answer costs with halving and looks, as a share of the training FLOPs of a whole grid and every seed.

    python benchmarks/cost_of_an_answer.py [--studies 5000] [--seed 16]

Studies are simulated like the stored findings (docs/findings/*/runs.zip): their arms, claims, grid and FLOPs, and the
spread of their losses from seed to seed, with its correlation between arms. True differences are those that were found,
or drawn as widely, or lie on the bounds of all claims, where every claim that is supported is an error. A rate that is
not the best one costs what landscapes like the stored ones say; a finding that does not compare losses, for which there
are none, has its whole grid.

Prints for each way to decide: its cost, claims with the opposite verdict (of all), decisions lost (of those that the
whole study makes), and how often any claim of the family is supported on its bound: with equally good rates, which is
what a test can promise, and with the rates chosen, where a rate that is good for one arm and less so for another shifts
all seeds alike. The ratio of the cheapest way within the limits comes last. Ends with 1 where an error rate is above
its level.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oelm.analysis.arm_summaries import runs_by_arm
from oelm.analysis.hypotheses import margin_of
from oelm.analysis.many_studies import REFUTED, SUPPORTED, UNDECIDED, Claim, LevelsOfLooks, Outcomes, decided, levels_of
from oelm.core.accounting import training_flops
from oelm.core.intervals import LEVEL
from oelm.core.measures import LOSS
from oelm.study.archives import runs_folder
from oelm.study.claims.kinds import KINDS
from oelm.study.declaration import Tuning
from oelm.study.halving import judged
from oelm.study.plan import planned
from oelm.study.rate_fit import LEAST_SEEDS, fitted
from oelm.study.reading import load_study
from oelm.study.scaled import at_main_size
from oelm.study.shelf import Shelf

FINDINGS = Path(__file__).parent.parent / "docs" / "findings"
SEEDS = 8  # of every simulated study, however many its finding has
AIM = 0.5
MOST_CONTRADICTED, MOST_LOST = 0.01, 0.05
MARGIN: float = Tuning.model_fields["margin"].default
SHORT: float = Tuning.model_fields["budgets"].default[0]


# ---- What is simulated ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """What the simulated studies have in common. Arms are numbered."""

    name: str
    claims: tuple[Claim, ...]
    treatments: np.ndarray  # the arms of each claim
    controls: np.ndarray
    effects: np.ndarray  # mean costs of the arms
    covariance: np.ndarray  # of the costs of one seed
    final_flops: np.ndarray  # of one run of each arm
    tuning_flops: np.ndarray
    octaves: np.ndarray  # of the grid, above its smallest rate; empty: it tunes nothing
    tuning_seeds: int
    compares_losses: bool

    @property
    def whole_flops(self) -> float:
        runs = np.array([self.rates * self.tuning_seeds])
        return float(self.tuned_flops(runs) + self.final_flops.sum() * SEEDS)

    @property
    def rates(self) -> int:
        return len(self.octaves)

    def tuned_flops(self, runs_of_an_arm: np.ndarray) -> np.ndarray:
        """For so many whole tuning runs of each arm."""
        found: np.ndarray = (runs_of_an_arm * self.tuning_flops).sum(axis=-1)
        return found

    def differences(self, costs: np.ndarray) -> np.ndarray:
        """By study, claim and seed, of costs by study, arm and seed."""
        return costs[:, self.treatments] - costs[:, self.controls]


def stored_findings() -> Iterator[Finding]:
    """Not those of probes: their accuracies are all or nothing, which a normal spread does not describe. Of a study
    with sizes, the main one: claims about scale need all seeds."""
    for folder in sorted(path.parent for path in FINDINGS.glob("*/runs.zip")):
        study = load_study(folder.name)
        if study.probe is not None:
            continue
        plan = planned(study, Shelf(runs_folder(folder / "runs")))
        runs = runs_by_arm(study, plan)
        assert runs is not None
        arms = at_main_size(study)
        values = [runs[arm].values_of(study.measure) for arm in arms]
        seeds = sorted(set.intersection(*map(set, values)))
        costs = np.array([[study.measure.cost(each[seed]) for seed in seeds] for each in values])
        claims = [
            claim
            for claim in study.paired_claims
            if claim.evidence == "quality" and {claim.treatment, claim.control} <= set(arms)
        ]
        rates = np.array(plan.grids[arms[0]].get("training.learning_rate", []) if study.tuning else [])
        chosen_by = plan.last_round
        yield Finding(
            name=study.name,
            claims=tuple(Claim(KINDS[each.kind].bounds(margin_of(each)), each.confirmatory) for each in claims),
            treatments=np.array([arms.index(each.treatment) for each in claims]),
            controls=np.array([arms.index(each.control) for each in claims]),
            effects=costs.mean(axis=1),
            covariance=np.cov(costs),
            final_flops=np.array([training_flops(runs[arm].run) for arm in arms]),
            tuning_flops=np.array(
                [next((training_flops(run.resolved_run) for run in chosen_by if run.arm == arm), 0.0) for arm in arms]
            ),
            octaves=np.log2(rates / rates[0]) if len(rates) else rates,
            tuning_seeds=len(study.tuning.seeds) if study.tuning else 0,
            compares_losses=study.measure is LOSS,
        )


def true_costs(finding: Finding, truth: str, studies: int, generator: np.random.Generator) -> np.ndarray:
    """By study and arm."""
    match truth:
        case "found":
            effects = finding.effects
        case "drawn":
            spread = finding.effects.std(ddof=1)
            return generator.normal(0.0, spread, (studies, len(finding.effects)))
        case "bounds":
            effects = at_the_bounds(finding)
    return np.broadcast_to(effects, (studies, len(finding.effects)))


def at_the_bounds(finding: Finding) -> np.ndarray:
    """Costs with which every claim of the family lies on a bound, as nearly as the claims allow."""
    family = [number for number, claim in enumerate(finding.claims) if claim.confirmatory]
    design = np.zeros((len(family), len(finding.effects)))
    for row, number in enumerate(family):
        design[row, finding.treatments[number]] += 1
        design[row, finding.controls[number]] -= 1
    bounds = [finding.claims[number].bounds for number in family]
    wanted = [bound.upper if bound.upper is not None else bound.lower for bound in bounds]
    effects: np.ndarray = np.linalg.lstsq(design, np.array(wanted), rcond=None)[0]
    return effects


def false_claims(finding: Finding, costs: np.ndarray) -> np.ndarray:
    """By study and claim: those of the family whose true difference is not within their bounds."""
    differences = finding.differences(costs[..., None])[..., 0]
    rounding = 1e-9
    false = np.zeros(differences.shape, dtype=bool)
    for number, claim in enumerate(finding.claims):
        if claim.confirmatory and claim.bounds.upper is not None:
            false[:, number] |= differences[:, number] >= claim.bounds.upper - rounding
        if claim.confirmatory and claim.bounds.lower is not None:
            false[:, number] |= differences[:, number] <= claim.bounds.lower + rounding
    return false


# ---- Rates ---------------------------------------------------------------------------------------------------------


class Landscapes:
    """Losses by rate for every study and arm, like those of the stored tuning runs: a factor of two costs 0.06 to 0.3
    nats below the optimum and up to three times that above it, four times the steps move the optimum by up to 0.6
    octaves, and two rates of one seed differ by 0.01 to 0.024 nats more or less."""

    def __init__(self, finding: Finding, studies: int, generator: np.random.Generator) -> None:
        self.finding, shape = finding, (studies, len(finding.effects))
        highest = finding.octaves[-1]
        common = generator.uniform(0.25 * highest, 0.75 * highest, (studies, 1))
        self.optimum = common + generator.normal(0.0, 0.3, shape)
        self.below = generator.uniform(0.06, 0.3, shape)
        self.above = self.below * generator.uniform(1.0, 3.0, shape)
        self.drift = generator.uniform(-0.2, 0.6, shape)
        self.spread = generator.uniform(0.01, 0.024, shape)
        self.whole = self._measured(1.0, generator)
        self.short = self._measured(SHORT, generator)

    def loss(self, budget: float = 1.0) -> np.ndarray:
        """By study, arm and rate, above the best there is."""
        optimum = self.optimum + self.drift * math.log(1 / budget, 4)
        return self.loss_away(self.finding.octaves - optimum[..., None])

    def loss_away(self, octaves: np.ndarray) -> np.ndarray:
        """So far above the optimum, by study, arm and rate."""
        return np.where(octaves > 0, self.above[..., None], self.below[..., None]) * octaves**2

    def _measured(self, budget: float, generator: np.random.Generator) -> np.ndarray:
        """The same by tuning seed, for as many as any way has."""
        true, seeds = self.loss(budget), max(self.finding.tuning_seeds, LEAST_SEEDS)
        of_seeds = generator.normal(0.0, 0.02, (*true.shape[:2], 1, seeds))
        of_runs = generator.normal(0.0, 1.0, (*true.shape, seeds)) * self.spread[..., None, None]
        return true[..., None] + of_seeds + of_runs

    def kept(self, margin: float, seeds: int) -> np.ndarray:
        """By study, arm and rate: what a short round leaves. By the function that studies use."""
        points = [(("rate", float(octave)),) for octave in self.finding.octaves]
        found = np.zeros(self.short.shape[:3], dtype=bool)
        for place in np.ndindex(*found.shape[:2]):
            losses = dict(zip(points, self.short[place][:, :seeds].tolist(), strict=True))
            kept = judged("arm", 1, steps=1, losses=losses, margin=margin).kept
            found[place] = [point in kept for point in points]
        return found

    def fitted(self, chosen: np.ndarray) -> np.ndarray:
        """By study and arm, in octaves: the optimum by the function that studies use, or else the best rate tried."""
        octaves = self.finding.octaves
        rates = (2.0**octaves).tolist()
        found = octaves[chosen]
        for place in np.ndindex(*found.shape):
            losses = dict(zip(rates, self.whole[place][:, :LEAST_SEEDS].tolist(), strict=True))
            curve = fitted(losses, rates[chosen[place]])
            if not isinstance(curve, str):
                found[place] = math.log2(curve.optimum)
        return found


@dataclass(frozen=True)
class Tuned:
    losses: np.ndarray  # by study and arm, that the chosen rate costs
    flops: np.ndarray  # by study


def tuned(landscapes: Landscapes, way: Way) -> Tuned:
    finding = landscapes.finding
    seeds = LEAST_SEEDS if way.fits else finding.tuning_seeds
    means = landscapes.whole[..., :seeds].mean(axis=-1)
    shape, rates = means.shape[:2], finding.rates
    kept, runs = np.ones(means.shape, dtype=bool), np.zeros(shape)
    if way.margin is not None:
        kept, runs = landscapes.kept(way.margin, seeds), np.full(shape, SHORT * rates)
    chosen = np.where(kept, means, np.inf).argmin(axis=-1)
    if way.fits:  # the neighbours of the best have the whole budget as well
        kept |= np.abs(np.arange(rates) - chosen[..., None]) <= 1
    runs = (runs + kept.sum(axis=-1)) * seeds
    octaves = landscapes.fitted(chosen) if way.fits else finding.octaves[chosen]
    losses = landscapes.loss_away((octaves - landscapes.optimum)[..., None])[..., 0]
    return Tuned(losses if finding.compares_losses else np.zeros(shape), finding.tuned_flops(runs))


# ---- Ways to decide ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    looks: tuple[int, ...] = (SEEDS,)
    margin: float | None = None  # of halving
    fits: bool = False  # the optimum between the rates, with three tuning seeds

    def __str__(self) -> str:
        tuning = "whole grid" if self.margin is None else f"halving {self.margin:g}"
        tuning += ", fitted" if self.fits else ""
        numbers = ",".join(map(str, self.looks)) if len(self.looks) > 1 else "all"
        return f"{tuning}, seeds {numbers}"


WHOLE = Way()
WAYS = (
    Way(looks=(4, 6, 8)),
    Way(margin=MARGIN),
    Way(looks=(4, 6, 8), margin=MARGIN),
    Way(looks=(3, 4, 6, 8), margin=MARGIN),
    Way(looks=(3, 4, 5, 6, 7, 8), margin=MARGIN),
    Way(looks=(4, 6), margin=MARGIN),
    Way(looks=(3, 4, 5, 6), margin=MARGIN),
    Way(looks=(4, 6, 8), margin=MARGIN / 2),
    Way(fits=True),
    Way(looks=(4, 6, 8), margin=MARGIN, fits=True),
)


def ways_for(finding: Finding) -> list[Way]:
    return [way for way in WAYS if finding.compares_losses or (way.margin is None and not way.fits)]


@dataclass(frozen=True)
class Scores:
    cost: float  # as a share of the whole study's
    contradicted: float
    lost: float


@dataclass(frozen=True)
class Errors:
    """How often any false claim of the family is supported, on the bounds of all."""

    of_seeds: float  # with equally good rates
    with_rates: float  # with those chosen


class Simulation:
    """Many studies like one finding, which all ways decide from the same runs."""

    def __init__(self, finding: Finding, studies: int, seed: int, levels: LevelsOfLooks = levels_of) -> None:
        self.finding, self.levels = finding, levels
        generator = np.random.default_rng(seed)
        self.landscapes = Landscapes(finding, studies, generator)
        self.tuned: dict[tuple[float | None, bool], Tuned] = {}
        values, vectors = np.linalg.eigh(finding.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        self.noise = np.einsum("ab,sbn->san", root, generator.standard_normal((studies, len(values), SEEDS)))
        self.truths = {name: true_costs(finding, name, studies, generator) for name in ("found", "drawn", "bounds")}

    def tuned_by(self, way: Way) -> Tuned:
        key = way.margin, way.fits
        if key not in self.tuned:
            self.tuned[key] = tuned(self.landscapes, way)
        return self.tuned[key]

    def outcomes(self, truth: str, way: Way, *, equal_rates: bool = False) -> Outcomes:
        costs = self.truths[truth]
        costs = costs if equal_rates else costs + self.tuned_by(way).losses
        differences = self.finding.differences(costs[..., None] + self.noise)
        return decided(differences, self.finding.claims, way.looks, levels=self.levels)

    def cost(self, way: Way, outcomes: Outcomes) -> float:
        """An arm runs until the last of its claims is settled; one without claims runs every seed."""
        arms = len(self.finding.effects)
        seeds = np.zeros((len(outcomes.seeds), arms))
        for number, sides in enumerate(zip(self.finding.treatments, self.finding.controls, strict=True)):
            for arm in sides:
                seeds[:, arm] = np.maximum(seeds[:, arm], outcomes.seeds[:, number])
        seeds[:, seeds.max(axis=0) == 0] = way.looks[-1]
        flops = self.tuned_by(way).flops + (seeds * self.finding.final_flops).sum(axis=1)
        return float(flops.mean() / self.finding.whole_flops)

    def scores(self, truth: str, way: Way) -> Scores:
        """Beside a whole grid and every seed whose rates are chosen in the same way; the cost beside the lowest's."""
        whole, outcomes = self.outcomes(truth, Way(fits=way.fits)), self.outcomes(truth, way)
        opposite = (whole.verdicts * outcomes.verdicts) == SUPPORTED * REFUTED
        made = whole.verdicts != UNDECIDED
        lost = (made & (outcomes.verdicts == UNDECIDED)).sum() / max(1, made.sum())
        return Scores(self.cost(way, outcomes), float(opposite.mean()), float(lost))

    def errors(self, way: Way) -> Errors:
        false = false_claims(self.finding, self.truths["bounds"])
        found = [
            float(((self.outcomes("bounds", way, equal_rates=equal).verdicts == SUPPORTED) & false).any(axis=1).mean())
            for equal in (True, False)
        ]
        return Errors(*found)


def highest_error(studies: int) -> float:
    """What an error rate of 5 % hardly ever exceeds in so many studies."""
    return LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / studies)


# ---- Printing ------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=16)
    options = parser.parse_args()
    too_high, best = [], {}
    for finding in stored_findings():
        simulation = Simulation(finding, options.studies, options.seed)
        print(f"{finding.name}: {options.studies} simulated studies of {SEEDS} seeds, {len(finding.claims)} claims")
        print(f"{'':48}  cost  opposite  lost |  cost  opposite  lost | family error, with rates chosen")
        print(f"{'':48}  as found             |  drawn as widely      | on the bounds of all claims")
        whole = simulation.errors(WHOLE)
        print(
            f"{WHOLE!s:48}  1.000                |  1.000                | {whole.of_seeds:.4f}  {whole.with_rates:.4f}"
        )
        points = {}
        for way in ways_for(finding):
            scores, errors = [simulation.scores(truth, way) for truth in ("found", "drawn")], simulation.errors(way)
            points[way] = scores
            columns = [f"{each.cost:.3f}  {each.contradicted:8.4f}  {each.lost:.3f}" for each in scores]
            print(f"{way!s:48}  {columns[0]} |  {columns[1]} | {errors.of_seeds:.4f}  {errors.with_rates:.4f}")
            if errors.of_seeds > highest_error(options.studies):
                too_high.append(f"{finding.name}, {way}: {errors.of_seeds:.4f}")
        best[finding.name] = cheapest(points)
        print()
    for line in too_high:
        print(f"family error above {LEVEL:g}: {line}")
    for name, (way, cost) in best.items():
        limits = f"opposite at most {MOST_CONTRADICTED:g}, lost at most {MOST_LOST:g}"
        print(f"cheapest way within the limits ({limits}): {name}: {way}: {cost:.3f}")
    ratio = np.mean([cost for _, cost in best.values()])
    print(f"cost of an answer, training FLOPs / those of the whole study: {ratio:.3f} (aim: at most {AIM})")
    return 1 if too_high else 0


def cheapest(points: dict[Way, list[Scores]]) -> tuple[Way, float]:
    """By its mean cost, of the ways that keep to the limits; the whole study does."""
    costs = {WHOLE: 1.0}
    for way, scores in points.items():
        opposite, lost = (max(getattr(each, name) for each in scores) for name in ("contradicted", "lost"))
        if opposite <= MOST_CONTRADICTED and lost <= MOST_LOST:
            costs[way] = float(np.mean([each.cost for each in scores]))
    return min(costs.items(), key=lambda each: each[1])


if __name__ == "__main__":
    sys.exit(main())
