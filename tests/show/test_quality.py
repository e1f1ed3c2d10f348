"""A value of quality as a table has it."""

import math

from oelm.core.measures import MEASURES
from oelm.show import quality


def test_the_deviation_of_a_perplexity_is_that_of_the_loss_times_the_perplexity():
    """To first order; that of a share is its own."""
    assert quality.value(MEASURES["loss"], math.log(40), spread=0.05) == "40.000 ± 2.000"
    assert quality.value(MEASURES["accuracy"], 0.6, spread=0.05) == "60.00 % ± 5.00 %"
