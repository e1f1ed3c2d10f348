"""An attention spec applied to a model of the transformers library: its queries and keys start and move as it says."""

from __future__ import annotations

from oelm.model.adaptation.adapting import Adaptation, AdaptedProjection, adapt

__all__ = ["Adaptation", "AdaptedProjection", "adapt"]
