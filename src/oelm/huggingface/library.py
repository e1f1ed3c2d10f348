"""transformers as this room imports it: it is optional, and where it is missing the error says how to get it."""

from __future__ import annotations

from oelm.installation import install_command

try:
    import transformers
except ImportError as error:
    raise ImportError(
        f"models of the transformers library need it installed: {install_command('hf')}", name="transformers"
    ) from error

__all__ = ["transformers"]
