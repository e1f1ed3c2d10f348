"""transformers as this room imports it: it is optional, and where it is missing the error says how to get it."""

from __future__ import annotations

from oelm.machine.errors import UserError
from oelm.machine.installation import install_command


class MissingTransformers(UserError, ImportError):
    """One line for whoever gave a command; a failed import for whoever wrote one."""


try:
    import transformers
except ImportError as error:
    raise MissingTransformers(
        f"models of the transformers library need it installed: {install_command('hf')}"
    ) from error

__all__ = ["transformers"]
