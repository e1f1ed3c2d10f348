"""A spec applied to a model of the transformers library: its parts start and move as it says."""

from __future__ import annotations

from oelm.models.adaptation.adapting import Adaptation, AdaptedPart, adapt

__all__ = ["Adaptation", "AdaptedPart", "adapt"]
