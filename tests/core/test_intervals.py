"""The 95 % interval of a mean, by the table and by an exact quantile."""

import math

import numpy as np
import pytest
from scipy import stats

from oelm.core.intervals import mean_and_half_width


@pytest.mark.parametrize("count", [2, 3, 8, 9, 16, 33, 60, 500])
def test_the_interval_is_the_t_interval_or_a_little_wider(count):
    values = list(np.random.default_rng(count).normal(size=count))
    exact = stats.t.ppf(0.975, count - 1) * stats.sem(values)
    assert exact <= mean_and_half_width(values)[1] <= 1.03 * exact
    found = mean_and_half_width(values, lambda degrees: float(stats.t.ppf(0.975, degrees)))
    assert found == pytest.approx((np.mean(values), exact))
    assert mean_and_half_width([0.1]) == (0.1, math.inf)
