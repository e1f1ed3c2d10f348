"""A length of time reads the same in a log, a table and a report."""

import pytest

from oelm.machine.durations import duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "unknown"),
        (5, "5.0 s"),
        (65, "1 min 05 s"),
        (3599.6, "1 h 00 min"),
        (16287.72, "4 h 31 min"),
        (3600 * 1234, "1,234 h 00 min"),
    ],
)
def test_durations_are_read_at_a_glance(seconds, text):
    assert duration(seconds) == text
