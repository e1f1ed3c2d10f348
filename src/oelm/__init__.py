"""oelm: a laboratory that finds out, honestly and fast, whether a part of a transformer can stay frozen.

Importing the package loads no torch; a name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from oelm.compat.arm_names import ARM_NAMES
from oelm.core.aliases import ALIASES
from oelm.models.registration import register_with_transformers

# OpenMP threads that spin while they wait make a step ten times slower as soon as another process wants a core.
# libgomp reads this when torch is first imported.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

__version__ = "0.5.0"

_HOME_OF = {
    "ALIASES": "oelm.core.aliases",
    "ARMS": "oelm.core.arms",
    "Execution": "oelm.core.config",
    "FreezeCallback": "oelm.models.trainer",
    "GPT": "oelm.core.model.transformer",
    "Model": "oelm.core.config",
    "OELMConfig": "oelm.models.gpt",
    "OELMForSequenceClassification": "oelm.models.gpt",
    "OELMModel": "oelm.models.gpt",
    "OELMMultiHeadAttention": "oelm.compat.modules",
    "OELMTransformerBlock": "oelm.compat.modules",
    "OrthogonalELMTransformer": "oelm.models.gpt",
    "OrthogonalLinear": "oelm.compat.modules",
    "OrthogonalMultiHeadAttention": "oelm.compat.modules",
    "PRESETS": "oelm.core.config",
    "Part": "oelm.core.parts",
    "Parts": "oelm.core.parts",
    "Repairs": "oelm.core.repairs",
    "Run": "oelm.core.config",
    "Scores": "oelm.core.scores",
    "Seeds": "oelm.core.config",
    "Training": "oelm.core.config",
    "Treatment": "oelm.core.arms",
    "UserError": "oelm.machine.errors",
    "apply": "oelm.models.applying",
    "arm": "oelm.core.arms",
    "build": "oelm.core.model.initialization",
    "diagnose": "oelm.run.diagnosis",
    "export": "oelm.run.stored_models.export",
    "load": "oelm.models.applying",
    "load_settings": "oelm.core.settings",
    "load_stored": "oelm.run.stored_models.loading",
    "prepare": "oelm.data.prepare",
    "results": "oelm.show.notebook.results",
    "train": "oelm.run.training.run",
}

__all__ = sorted(_HOME_OF)

ALIASES.update(ARM_NAMES)
register_with_transformers()


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'oelm' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
