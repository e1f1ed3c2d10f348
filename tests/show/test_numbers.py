"""Numbers keep their sign, their unit and a sensible number of digits."""

import math

import pytest

from oelm.show import numbers


@pytest.mark.parametrize(
    ("show", "value", "text"),
    [
        (numbers.short, 44_896_768, "44.9M"),
        (numbers.spoken, 1_331_968, "1.3M"),
        (numbers.spoken, 499_999, "500K"),
        (numbers.spoken, 99_949, "99.9K"),
        (numbers.spoken, 99_950, "100K"),
        (numbers.spoken, 10_000, "10.0K"),
        (numbers.spoken, 4_800, "4,800"),
        (numbers.whole, 1234567, "1,234,567"),
        (numbers.to_half, 102.5, "102.5"),
        (numbers.to_half, 1387.0, "1,387"),
        (numbers.nats, 0.04879, "+0.0488"),
        (numbers.nats, -0.04879, "−0.0488"),
        (numbers.nats, -0.00001, "0.0000"),
        (numbers.percent, 5.0, "+5.00 %"),
        (numbers.percent, math.inf, "+∞ %"),
        (numbers.points, -1.08, "−1.08"),
        (numbers.probability, 0.00001, "< 0.0001"),
        (numbers.learning_rate, 3e-4, "3e-4"),
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


@pytest.mark.parametrize(
    ("show", "column", "texts"),
    [
        (numbers.seconds, [0.483, 0.46, 0.0871], ["0.483 s", "0.460 s", "0.087 s"]),
        (numbers.seconds, [0.0873, 0.02, None], ["87.3 ms", "20.0 ms", "–"]),
        (numbers.memory, [540 * 2**20, 1.12 * 2**30], ["0.53 GiB", "1.12 GiB"]),
        (numbers.flops, [1.17e13, 4.91e12], ["11.7 TFLOP", "4.9 TFLOP"]),
        (numbers.perplexity, [82.4661, 101.5, math.inf], ["82.5", "101.5", "∞"]),
    ],
)
def test_a_column_has_one_unit_and_one_number_of_decimals(show, column, texts):
    assert [show(value, column=column) for value in column] == texts
