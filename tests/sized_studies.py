"""Studies with sizes and invented losses: a known slope, a spread of seeds, a shift of single sizes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from oelm.study.declaration import Study
from stored_runs import Losses, hypothesis, small_study

PAIR = ["trained", "frozen_head_orthogonal"]
WIDTHS = [16, 32, 48, 64, 96]
STEPS = [20, 40, 80, 160]


def sized_study(**changes: Any) -> Study:
    """Five widths, and four budgets at the width of the base, which is one of the five."""
    claims = [hypothesis("grows", over="width"), hypothesis(size="width32"), hypothesis("shrinks", over="steps")]
    given = {"arms": PAIR, "seeds": [0, 1, 2], "sizes": {"width": WIDTHS, "steps": STEPS}, "hypotheses": claims}
    return small_study(**given | {"main_size": "width32"} | changes)


def number_in(size: str) -> int:
    return int("".join(character for character in size if character.isdigit()))


def losses_with_slope(
    slope: float = 0.02, *, noise: float = 0.002, shifts: Callable[[str], float] = lambda size: 0.0
) -> Losses:
    """Of the frozen arm above the trained one: 0.1 nats and so much with every doubling of width or of steps."""

    def loss(arm: str, seed: int, stage: str, point: Any) -> float:
        family, _, size = arm.partition("+")
        is_steps = size.startswith("steps")
        doublings = math.log2(number_in(size) / (40 if is_steps else 32))
        own = random.Random(f"{arm} {seed} {stage}").gauss(0, noise)
        above = 0.1 + slope * doublings + shifts(size) if family.startswith("frozen") else 0.0
        return 4.0 * 2 ** (-0.05 * doublings) + random.Random(seed).gauss(0, 0.01) + own + above

    return loss
