"""Turns are balanced and random, blocks independent: equal contenders are seldom told apart under any load."""

from __future__ import annotations

import itertools
import random

import pytest
from simulated_machine import SimulatedMachine, is_decided

from oelm.execution.timing.blocks import Reading, blocks_of

BENCHES = 150


def _logging(names: str, log: list[str]):
    def building(name: str):
        def step() -> float:
            log.append(name)
            return 1.0

        return lambda: step

    return {name: building(name) for name in names}


def _order_taken(names: str, *, blocks: int, steps: int, seed: int = 0) -> list[str]:
    log: list[str] = []
    for _ in blocks_of(_logging(names, log), blocks=blocks, steps=steps, seed=seed, forget=lambda: None):
        pass
    return log


def test_every_block_goes_there_and_back():
    log = _order_taken("abc", blocks=6, steps=2)
    assert len(log) == 6 * 6
    for first in range(0, len(log), 6):
        there, back = log[first : first + 3], log[first + 3 : first + 6]
        assert sorted(there) == ["a", "b", "c"]
        assert back == there[::-1]


def test_the_order_is_that_of_its_seed_and_nobody_is_always_first():
    one, again, other = (_order_taken("abc", blocks=30, steps=1, seed=seed) for seed in (1, 1, 2))
    assert one == again != other
    firsts = [one[position] for position in range(0, len(one), 3)]
    assert all(firsts.count(name) >= 5 for name in "abc")


def test_a_steady_drift_cancels_in_every_block():
    """A machine that slows down from step to step: there and back, all contenders wait about equally."""
    clock = itertools.count()
    contenders = {name: (lambda: lambda: 1.0 + 1e-4 * next(clock)) for name in "abc"}
    for block in blocks_of(contenders, blocks=5, steps=2, forget=lambda: None):
        seconds = list(block.seconds.values())
        assert seconds == pytest.approx([seconds[0]] * 3, rel=1e-6)


@pytest.mark.parametrize(
    ("building_seconds", "may", "anew"), [(1, True, 4), (150, True, 4), (170, True, 1), (1, False, 1)]
)
def test_contenders_are_built_anew_where_that_does_not_take_too_long(building_seconds, may, anew):
    now, built = [0.0], []

    def passing(seconds: float) -> float:
        now[0] += seconds
        return seconds

    def building(name: str):
        def build():
            passing(building_seconds)
            built.append(name)
            return lambda: passing(10)

        return build

    blocks = blocks_of(
        {name: building(name) for name in "ab"}, blocks=4, steps=4, may_rebuild=may, clock=lambda: now[0],
        read=lambda: Reading(now[0], now[0], None, None, None, None, None), forget=lambda: None,
    )  # fmt: skip
    assert sum(block.built_anew for block in blocks) == anew
    assert sorted(built) == sorted("ab" * anew)


def test_one_slow_step_weighs_as_one_step_does():
    seconds = itertools.chain([1.0, 1.0, 1.0, 16.0], itertools.repeat(1.0))
    block = next(blocks_of({"a": lambda: lambda: next(seconds)}, blocks=1, steps=4, forget=lambda: None))
    assert block.seconds["a"] == pytest.approx(2.0)


# ---- How often a bench errs ----------------------------------------------------------------------------------------


def _decided(load_seconds: float | None, *, benches: int = BENCHES, first: int = 0, **settings) -> int:
    machines = (SimulatedMachine(seed, load_seconds) for seed in range(first, first + benches))
    return sum(is_decided(machine.bench(**settings)) for machine in machines)


@pytest.mark.parametrize("load_seconds", [0.005, 0.1, 0.5, 3.0])
def test_under_a_load_that_comes_and_goes_unseen_equal_contenders_are_seldom_told_apart(load_seconds):
    """A block takes about 0.15 s: loads shorter, as long, and many blocks long, of which the machine says nothing."""
    assert _decided(load_seconds) <= 0.04 * BENCHES  # designed for 0.02


def test_that_needs_the_random_order():
    """In one order, and a load as long as the contenders are slow to take their turns: one of them waits more often."""

    class InOneOrder(random.Random):
        def sample(self, population, k, *, counts=None):
            return list(population)

    def always_alike(contenders, **settings):
        settings["steps"] = 1
        return blocks_of(contenders, **settings)

    def told_apart(seed: int) -> bool:
        machine = SimulatedMachine(seed)
        pace = itertools.cycle([1.0, 1.1, 1.0])  # a load with the period of a block
        machine.work = lambda seconds: seconds * next(pace)
        return is_decided(machine.bench(blocks_of=always_alike))

    with pytest.MonkeyPatch.context() as patch:
        assert sum(told_apart(seed) for seed in range(20)) <= 1
        patch.setattr("oelm.execution.timing.blocks.random.Random", InOneOrder)
        assert sum(told_apart(seed) for seed in range(20)) >= 15


def test_a_slowdown_of_a_twentieth_is_seen_on_an_idle_machine():
    assert _decided(None, benches=40, factor=1.05) >= 36
    assert _decided(None, benches=40, factor=0.95) >= 36


def test_stopping_when_the_ratio_is_known_well_does_not_make_it_wrong():
    assert _decided(0.5, rounds=40, until_half_width=0.02) <= 0.04 * BENCHES
