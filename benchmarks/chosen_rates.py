"""How often a claim at its margin is falsely supported when the learning rates of its arms were chosen, and what the
rate allowance costs: many studies through the choice, the allowance and the test of oelm itself.

    python benchmarks/chosen_rates.py --studies 4000

Arms are equal: at their own best rates they differ by exactly the margin. The loss of a run is that of its landscape at
its rate, plus an effect of its seed, which paired runs share, plus noise. Grids have steps of two and three values, the
optimum of each arm lies anywhere between them, and the grid grows as in a study.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from oelm.analysis.findings import Rates
from oelm.analysis.many_studies import SUPPORTED, Claim, decided
from oelm.analysis.rate_allowance import excess
from oelm.core.logarithms import nats
from oelm.study.claims.kinds import KINDS
from oelm.study.declaration import RATE_KEY, Tuning
from oelm.study.tuning import Choice, Grid, Tried, chosen, extended, points_of

NOISE, SEED_EFFECT = 0.01, 0.02  # nats, of a run and of a seed
PAIRS = 8
MARGIN = 2.0  # per cent
RATES = [1e-3, 2e-3, 4e-3]

Landscape = Callable[[float], float]  # the loss above the best, at the logarithm of the rate over the best rate


def parabola(below: float, above: float | None = None) -> Landscape:
    """Of one curvature, or of two: skewed."""
    return lambda place: (below if place < 0 or above is None else above) * place**2


def kink(below: float, above: float) -> Landscape:
    return lambda place: -below * place if place < 0 else above * place


LANDSCAPES: dict[str, tuple[Landscape, Landscape]] = {  # of treatment and control
    "equal parabolas": (parabola(0.3), parabola(0.3)),
    "control sharper": (parabola(0.3), parabola(1.0)),
    "control skewed": (parabola(0.3), parabola(0.2, 0.8)),
    "both skewed": (parabola(0.1, 0.4), parabola(0.8, 0.2)),
    "flat": (parabola(0.02), parabola(0.02)),
    "control kinked": (parabola(0.3), kink(0.15, 0.4)),
}
PARABOLAS = ("equal parabolas", "control sharper", "flat")

WAYS: dict[str, Tuning] = {
    way: Tuning(grid={RATE_KEY: RATES}, seeds=list(range(seeds)), choose=choose, beyond=beyond)
    for way, seeds, choose, beyond in (
        ("lowest of 1", 1, "lowest", 1),
        ("lowest of 3", 3, "lowest", 1),
        ("fitted of 3", 3, "fitted", 2),
    )
}


@dataclass(frozen=True)
class TunedArm:
    above: float  # the best, at the chosen rate: what a study does not know
    allowance: float  # zero where there is none


@dataclass
class _Arm:
    landscape: Landscape
    best: float
    draw: np.random.Generator
    seeds: np.ndarray  # effects of the tuning seeds
    runs: dict[float, list[float]] = field(default_factory=dict)

    def above(self, rate: float) -> float:
        return self.landscape(math.log(rate / self.best))

    def losses(self, rate: float) -> list[float]:
        if rate not in self.runs:
            noise = NOISE * self.draw.standard_normal(len(self.seeds))
            self.runs[rate] = (self.above(rate) + self.seeds + noise).tolist()
        return self.runs[rate]

    def choice(self, grid: Grid, tuning: Tuning) -> Choice:
        tried = {point: [Tried(loss) for loss in self.losses(point[0][1])] for point in points_of(grid)}
        return chosen("arm", tried, grid, tuning)

    def tuned(self, choice: Choice) -> TunedArm:
        rate = choice.values[RATE_KEY]
        tried = {rate: dict(enumerate(losses)) for rate, losses in self.runs.items()}
        return TunedArm(self.above(rate), excess(tried, rate) or 0.0)


def tuned(landscapes: tuple[Landscape, Landscape], tuning: Tuning, draw: np.random.Generator) -> list[TunedArm]:
    """One study: both arms on one grid, which grows for both where one needs it."""
    seeds = SEED_EFFECT * draw.standard_normal(len(tuning.seeds))
    span = math.log(RATES[0]), math.log(RATES[-1])
    arms = [_Arm(each, math.exp(draw.uniform(*span)), draw, seeds) for each in landscapes]
    grid = tuning.grid
    while True:
        choices = [arm.choice(grid, tuning) for arm in arms]
        larger = extended(tuning, grid, [each.best_tried for each in choices if each.best_tried])
        if larger == grid:
            return [arm.tuned(choice) for arm, choice in zip(arms, choices, strict=True)]
        grid = larger


@dataclass(frozen=True)
class Studies:
    """Many of one landscape and one way of choosing."""

    errors: np.ndarray  # by study and arm: what the chosen rates cost
    allowances: np.ndarray
    noise: np.ndarray  # by study and pair

    def supported(self, difference: float, *, has_allowance: bool, knows_best: bool = False) -> float:
        """The share of the studies that support `not_worse`, where the arms differ by so much at their best rates."""
        observed = difference + self.noise
        if not knows_best:
            observed = observed + (self.errors[:, 0] - self.errors[:, 1])[:, None]
        bounds = KINDS["not_worse"].bounds(nats(MARGIN))
        if has_allowance:  # moves the bound of each study; the same as moving its differences the other way
            moved = [Rates("allowed", below=one, above=other).moved(bounds)[0].upper for one, other in self.allowances]
            observed = observed - (np.array(moved, dtype=float) - nats(MARGIN))[:, None]
        found = decided(observed[:, None, :], [Claim(bounds, least_apart=nats(MARGIN))], (PAIRS,))
        return float((found.verdicts == SUPPORTED).mean())


def simulated(landscape: str, way: str, studies: int) -> Studies:
    draw = np.random.default_rng([*landscape.encode(), *way.encode()])
    arms = [tuned(LANDSCAPES[landscape], WAYS[way], draw) for _ in range(studies)]
    noise = NOISE * math.sqrt(2) * draw.standard_normal((studies, PAIRS))  # what a pair shares is gone
    errors, allowances = (np.array([[getattr(arm, name) for arm in both] for both in arms]) for name in FIELDS)
    return Studies(errors, allowances, noise)


FIELDS = ("above", "allowance")


COLUMNS = (
    "landscape", "lowest, 1 seed", "lowest, 3 seeds", "fitted", "lowest, allowance", "**fitted, allowance**",
    "allowance (nats)", "power: best rates known", "fitted", "**fitted, allowance**",
)  # fmt: skip


def table(studies: int) -> Iterator[str]:
    at_margin, none = nats(MARGIN), 0.0
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|---" * len(COLUMNS) + "|"
    for landscape in LANDSCAPES:
        one, three, fitted = (simulated(landscape, way, studies) for way in WAYS)
        errors = [each.supported(at_margin, has_allowance=False) for each in (one, three, fitted)]
        errors += [each.supported(at_margin, has_allowance=True) for each in (three, fitted)]
        shown = [
            fitted.supported(none, has_allowance=False, knows_best=True),
            fitted.supported(none, has_allowance=False),
            fitted.supported(none, has_allowance=True),
        ]
        cells = [f"{100 * each:.1f} %" for each in errors]
        cells += [f"{np.median(fitted.allowances[:, 1]):.4f}", *(f"{100 * each:.0f} %" for each in shown)]
        yield f"| {landscape} | {' | '.join(cells)} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--studies", type=int, default=4000)
    options = parser.parse_args()
    print(f"{options.studies} studies of each landscape, {PAIRS} pairs, a margin of {MARGIN:g} %, noise {NOISE} nats")
    for line in table(options.studies):
        print(line, flush=True)
