"""oelm: a laboratory that finds out, honestly and fast, whether a part of a transformer can stay frozen.

Importing the package loads no torch; a name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from oelm.aliases import ALIASES
from oelm.compat.arm_names import ARM_NAMES
from oelm.huggingface.registration import register_with_transformers

# OpenMP threads that spin while they wait make a step ten times slower as soon as another process wants a core.
# libgomp reads this when torch is first imported.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

__version__ = "0.5.0"

_HOME_OF = {
    "ALIASES": "oelm.aliases",
    "ARMS": "oelm.arms",
    "Execution": "oelm.config",
    "FreezeCallback": "oelm.huggingface.trainer",
    "GPT": "oelm.model.transformer",
    "Model": "oelm.config",
    "OELMConfig": "oelm.huggingface.gpt",
    "OELMForSequenceClassification": "oelm.huggingface.gpt",
    "OELMModel": "oelm.huggingface.gpt",
    "OELMMultiHeadAttention": "oelm.compat.modules",
    "OELMTransformerBlock": "oelm.compat.modules",
    "OrthogonalELMTransformer": "oelm.huggingface.gpt",
    "OrthogonalLinear": "oelm.compat.modules",
    "OrthogonalMultiHeadAttention": "oelm.compat.modules",
    "PRESETS": "oelm.config",
    "Part": "oelm.treatment.parts",
    "Parts": "oelm.treatment.parts",
    "Repairs": "oelm.treatment.repairs",
    "Run": "oelm.config",
    "Scores": "oelm.treatment.scores",
    "Seeds": "oelm.config",
    "Training": "oelm.config",
    "Treatment": "oelm.treatment.treatments",
    "UserError": "oelm.errors",
    "apply": "oelm.huggingface.applying",
    "arm": "oelm.arms",
    "build": "oelm.model.initialization",
    "diagnose": "oelm.diagnosis",
    "export": "oelm.stored_models.export",
    "load": "oelm.huggingface.applying",
    "load_settings": "oelm.settings",
    "load_stored": "oelm.stored_models.loading",
    "prepare": "oelm.data.prepare",
    "results": "oelm.notebook.results",
    "train": "oelm.training.run",
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
