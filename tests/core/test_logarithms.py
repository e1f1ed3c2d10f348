"""Back from logarithms: exact while a float has room, infinite beyond, and never clamped."""

import math

import pytest

from oelm.core.logarithms import exponential, nats, percent_change


@pytest.mark.parametrize("loss", [0.0, 10.9, 20.0, 300.0, 705.0])
def test_a_perplexity_is_never_clamped(loss):
    assert exponential(loss) == math.exp(loss)


@pytest.mark.parametrize("loss", [710.0, 1000.0, math.inf])
def test_beyond_floats_it_is_infinite(loss):
    assert exponential(loss) == percent_change(loss) == math.inf


@pytest.mark.parametrize("percent", [-50.0, 0.0, 5.0])
def test_per_cent_and_nats_are_each_others_way_back(percent):
    assert percent_change(nats(percent)) == pytest.approx(percent)
