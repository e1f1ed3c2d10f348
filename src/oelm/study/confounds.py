"""Every difference between the arms of a hypothesis that is not its declared treatment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Confound:
    """A difference between the arms of a hypothesis that is not its declared treatment."""

    key: str  # dotted setting, or environment.<key>, or tuning, seeds, start.scale, ...
    treatment: str
    control: str
    explained: str | None = None  # the study's own reason, if it gives one
