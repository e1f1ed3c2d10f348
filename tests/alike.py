"""Stored trees of numbers against numbers computed here: another machine may compute another last digit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

TOLERANCE = 1e-12  # relative; what the order of a sum or another library's exponential may change


def differences(found: Any, stored: Any, place: str = "") -> Iterator[str]:
    """Where two trees of JSON differ by more than the last digits of a float; the rest is equal or not."""
    if isinstance(found, dict) and isinstance(stored, dict):
        for key in [*stored, *(key for key in found if key not in stored)]:
            if key not in found or key not in stored:
                yield f"{place}.{key}: {'missing' if key in stored else 'new'}"
            else:
                yield from differences(found[key], stored[key], f"{place}.{key}")
    elif isinstance(found, list) and isinstance(stored, list) and len(found) == len(stored):
        for index, (one, other) in enumerate(zip(found, stored, strict=True)):
            yield from differences(one, other, f"{place}[{index}]")
    elif isinstance(found, float) and isinstance(stored, float):
        if not math.isclose(found, stored, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            yield f"{place}: {found!r}, stored {stored!r}"
    elif type(found) is not type(stored) or found != stored:
        yield f"{place}: {found!r}, stored {stored!r}"
