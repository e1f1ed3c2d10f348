"""The Auto classes know our model once oelm is imported, before or after transformers.

Importing oelm must load neither torch nor transformers, so nothing is registered until transformers itself loads
AutoConfig: a finder waits for that one module, adds OELMConfig when it is whole, and is gone. OELMConfig brings
the model class when the first config of ours is made, which every way of loading does before it asks for the class.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

AUTO_CONFIG = "transformers.models.auto.configuration_auto"


def register_with_transformers() -> None:
    """Now if AutoConfig is there, else when it comes. Nothing happens where transformers is not installed."""
    if AUTO_CONFIG in sys.modules:
        _register(sys.modules[AUTO_CONFIG])
    else:
        sys.meta_path.insert(0, _Waiting())


class _Waiting:
    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != AUTO_CONFIG:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            setattr(spec.loader, "exec_module", _then_register(spec.loader.exec_module))  # noqa: B010 - a method
        return spec


def _then_register(exec_module: Any) -> Any:
    def exec_and_register(module: ModuleType) -> None:
        exec_module(module)
        _register(module)

    return exec_and_register


def _register(module: ModuleType) -> None:
    from oelm.models.gpt_config import OELMConfig

    OELMConfig.model_module = "oelm.models.gpt"  # which registers its classes
    module.AutoConfig.register(OELMConfig.model_type, OELMConfig, exist_ok=True)
