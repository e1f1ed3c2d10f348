"""Numbers keep their sign, their unit and a sensible number of digits."""

import math

import pytest

from oelm.reporting import numbers


@pytest.mark.parametrize(
    ("show", "value", "text"),
    [
        (numbers.short, 44_896_768, "44.9M"),
        (numbers.short, 999, "999"),
        (numbers.whole, 1234567, "1,234,567"),
        (numbers.nats, 0.04879, "+0.0488"),
        (numbers.nats, -0.04879, "−0.0488"),
        (numbers.nats, -0.00001, "0.0000"),
        (numbers.percent_change, math.log(1.05), "+5.00 %"),
        (numbers.probability, 0.00001, "< 0.0001"),
        (numbers.learning_rate, 3e-4, "3e-4"),
        (numbers.learning_rate, 0.0012, "1.2e-3"),
        (numbers.learning_rate, 200.0, "200"),
        (numbers.seconds, 0.0837, "83.7 ms"),
        (numbers.duration, 16287.72, "4 h 31 min"),
        (numbers.memory, 514 * 2**20, "514 MiB"),
        (numbers.flops, 1.69e13, "16.9 TFLOP"),
        (numbers.perplexity, math.inf, "∞"),
        (numbers.perplexity, 54176.3, "54,176"),
        (numbers.loss, None, "–"),
        (numbers.flops, 0.0, "0 FLOP"),
    ],
)
def test_shown(show, value, text):
    assert show(value) == text


def test_a_huge_loss_has_an_infinite_perplexity():
    assert numbers.perplexity_of(1e4) == math.inf
