"""Turns are balanced, paired and repeatable; ratios of known times come out as known."""

from __future__ import annotations

import itertools
import math

import pytest

from oelm.timing.ratios import half_width, interval, paired
from oelm.timing.rounds import rounds_of


def _logging_steps(names: str, log: list[str]):
    def stepping(name: str):
        def step() -> float:
            log.append(name)
            return float(len(log))

        return step

    return {name: stepping(name) for name in names}


def _order_taken(names: str, *, rounds: int, steps_per_round: int) -> list[str]:
    log: list[str] = []
    for _ in rounds_of(_logging_steps(names, log), rounds=rounds, steps_per_round=steps_per_round):
        pass
    return log


def test_every_round_goes_there_and_back():
    log = _order_taken("abc", rounds=6, steps_per_round=2)
    for first in range(0, len(log), 6):
        there, back = log[first : first + 3], log[first + 3 : first + 6]
        assert sorted(there) == ["a", "b", "c"]
        assert back == there[::-1]


@pytest.mark.parametrize("steps_per_round", [1, 2, 3, 4])
def test_every_arm_takes_equally_many_steps(steps_per_round):
    log = _order_taken("abcd", rounds=5, steps_per_round=steps_per_round)
    assert {name: log.count(name) for name in "abcd"} == dict.fromkeys("abcd", 5 * steps_per_round)


def test_the_order_is_repeatable_and_no_arm_is_always_first():
    one, other = (_order_taken("abc", rounds=30, steps_per_round=1) for _ in range(2))
    assert one == other
    firsts = [one[position] for position in range(0, len(one), 3)]
    assert all(firsts.count(name) >= 5 for name in "abc")


def test_a_steady_drift_cancels_in_every_round():
    """A machine that slows down from step to step, by the same each: there and back, all arms wait equally."""
    clock = itertools.count()
    steps = {name: (lambda: 1.0 + 0.01 * next(clock)) for name in "abc"}
    for seconds in rounds_of(steps, rounds=5, steps_per_round=2):
        latest = [seconds[name][-1] for name in "abc"]
        assert latest == pytest.approx([latest[0]] * 3)


def test_times_are_paired_by_round():
    steps = {"fast": lambda: 1.0, "slow": lambda: 2.0}
    rounds = [
        {name: list(times) for name, times in each.items()} for each in rounds_of(steps, rounds=3, steps_per_round=3)
    ]
    assert [len(each["fast"]) for each in rounds] == [1, 2, 3]
    assert paired(rounds[-1]["fast"], rounds[-1]["slow"]) == [0.5, 0.5, 0.5]


def test_interval_is_the_t_interval_of_the_logarithms():
    ratios = [0.9, 1.0, 1.1, 0.95, 1.05]
    middle, low, high = interval(ratios)
    logs = [math.log(ratio) for ratio in ratios]
    mean = sum(logs) / 5
    deviation = math.sqrt(sum((each - mean) ** 2 for each in logs) / 4)
    assert middle == pytest.approx(math.exp(mean))
    assert math.log(high) - mean == pytest.approx(2.776 * deviation / math.sqrt(5), rel=2e-3)
    assert math.log(high) + math.log(low) == pytest.approx(2 * mean)
    assert half_width(ratios) == pytest.approx((high - low) / 2)


def test_one_pair_says_nothing_about_its_spread():
    assert half_width([0.9]) == math.inf
