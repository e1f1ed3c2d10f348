"""Ratios of step times from the interleaved bench, the only source of statements about speed."""

from __future__ import annotations

from typing import Any

from oelm.analysis.findings import Ratio
from oelm.analysis.statistics import time_ratio


def bench_ratio(bench: dict[str, Any] | None, treatment: str, control: str) -> Ratio | None:
    """Treatment over control; None if the bench did not measure both, round by round."""
    seconds = (bench or {}).get("seconds")
    if not isinstance(seconds, dict):
        return None
    one, other = seconds.get(treatment), seconds.get(control)
    if not _is_times(one) or not _is_times(other) or len(one) != len(other):
        return None
    return time_ratio(one, other)


def _is_times(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, int | float) and value > 0 for value in values)
