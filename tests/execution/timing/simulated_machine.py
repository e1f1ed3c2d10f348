"""A machine with a clock of its own and a load that comes and goes: benches of known contenders in no time."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from oelm.execution.timing.blocks import Build, Reading, Step, blocks_of
from oelm.execution.timing.interleaved import TWIN, _take, _Taken
from oelm.study.bench import Bench

EQUAL, BASELINE = "equal", "baseline"
STEP_SECONDS = 0.01


@dataclass
class SimulatedMachine:
    """`load_seconds`: mean length of a time with load and of one without; None: idle. Nobody is told of the load."""

    seed: int
    load_seconds: float | None = None
    slowdown: float = 0.5  # of a step under load
    noise: float = 0.03  # of a single step
    layout: float = 0.01  # what a contender's place in memory does to all its steps
    drawn: random.Random = field(init=False)
    now: float = 0.0
    loaded: bool = False
    until: float = 0.0

    def __post_init__(self) -> None:
        self.drawn = random.Random(self.seed)

    def work(self, seconds: float) -> float:
        """Seconds that pass while so much is computed."""
        began = self.now
        while self.load_seconds is not None:
            pace = 1 + self.slowdown * self.loaded
            if self.now + seconds * pace < self.until:
                break
            seconds -= max(0.0, self.until - self.now) / pace
            self.now, self.loaded = max(self.now, self.until), not self.loaded
            self.until += self.drawn.expovariate(1 / self.load_seconds)
        self.now += max(0.0, seconds) * (1 + self.slowdown * self.loaded)
        return self.now - began

    def building(self, factor: float = 1.0) -> Build:
        def build() -> Step:
            place = self.drawn.gauss(1, self.layout)
            for _ in range(2):
                self.work(STEP_SECONDS)
            return lambda: self.work(factor * place * STEP_SECONDS * self.drawn.lognormvariate(0, self.noise))

        return build

    def read(self) -> Reading:
        return Reading(self.now, self.now, None, None, None, None, None)

    def bench(
        self, *, factor: float = 1.0, rounds: int = 12, steps: int = 4, until_half_width: float | None = None,
        blocks_of: Callable = blocks_of,
    ) -> Bench:  # fmt: skip
        """Of a baseline, its twin, and a contender whose steps take `factor` of the baseline's time."""
        contenders = {BASELINE: self.building(), EQUAL: self.building(factor), TWIN: self.building()}
        blocks = blocks_of(
            contenders, blocks=rounds, steps=steps, seed=self.seed, clock=lambda: self.now, read=self.read,
            forget=lambda: None,
        )  # fmt: skip
        taken = _Taken(BASELINE, [BASELINE, EQUAL])
        pairs = [(EQUAL, BASELINE)]
        _take(taken, blocks, pairs, rounds=rounds, until_half_width=until_half_width, say=lambda line: None)
        return taken.bench


def is_decided(bench: Bench) -> bool:
    ratio = bench.ratio(EQUAL, BASELINE)
    return ratio is not None and not ratio.low <= 1 <= ratio.high
