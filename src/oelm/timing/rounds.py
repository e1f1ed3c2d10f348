"""Contenders that take turns: in every round each takes its steps, half of them on the way there, half on the way back.

A drift of the machine (heat, another process) then weighs on all alike. No torch.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping

Step = Callable[[], float]  # takes one step and returns its seconds


def rounds_of(
    steps: Mapping[str, Step], *, rounds: int, steps_per_round: int, seed: int = 0
) -> Iterator[dict[str, list[float]]]:
    """Yield after every round the mean seconds of a step so far: one number a round, paired by round."""
    shuffled = random.Random(seed)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        order = shuffled.sample(list(steps), len(steps))
        for name, mean in _one_round(steps, order, steps_per_round).items():
            seconds[name].append(mean)
        yield seconds


def _one_round(steps: Mapping[str, Step], order: list[str], steps_per_round: int) -> dict[str, float]:
    back = steps_per_round // 2
    took = dict.fromkeys(order, 0.0)
    for names, count in ((order, steps_per_round - back), (order[::-1], back)):
        for name in names:
            took[name] += sum(steps[name]() for _ in range(count))
    return {name: total / steps_per_round for name, total in took.items()}
