"""One of a thing is not several."""

import pytest

from oelm.machine.plurals import number_of


@pytest.mark.parametrize(("number", "text"), [(0, "0 runs"), (1, "1 run"), (2, "2 runs"), (12_000, "12,000 runs")])
def test_one_alone_is_singular(number, text):
    assert number_of(number, "run") == text
