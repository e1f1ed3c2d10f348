"""Is what should be frozen frozen? For an arm, a run, a checkpoint and any torch module.

Every weight is listed, counted in independent ways, watched through real training steps, saved and loaded.
"""

from __future__ import annotations

from oelm.run.diagnosis.any_module import diagnose
from oelm.run.diagnosis.report import Diagnosis
from oelm.run.diagnosis.runs import diagnose_arm, diagnose_stored

__all__ = ["Diagnosis", "diagnose", "diagnose_arm", "diagnose_stored"]
