"""The one place that imports transformers, which is optional, and says how to get it."""

from __future__ import annotations

try:
    import transformers
except ImportError as error:
    raise ImportError(
        "models of the transformers library need it installed: pip install 'oelm[hf]'", name="transformers"
    ) from error

__all__ = ["transformers"]
