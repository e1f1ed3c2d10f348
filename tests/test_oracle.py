"""The oracle sees a fault of one bit in a draw or a batch, and of one word in a report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PLANTS = Path(__file__).parent / "oracle" / "plants.py"


@pytest.mark.trial
@pytest.mark.parametrize("fault", ["draw", "batch", "word"])
def test_a_planted_fault_is_seen_and_its_place_is_named(fault):
    done = subprocess.run([sys.executable, PLANTS, fault], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
