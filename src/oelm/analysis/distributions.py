"""The distribution functions of scipy, which only the analysis needs: without it, one line says what to install."""

from __future__ import annotations

from oelm.machine.errors import UserError
from oelm.machine.installation import install_command

try:
    from scipy import special  # its Student distributions; scipy.stats would take a second to import
except ModuleNotFoundError as error:
    raise UserError(f"the analysis of a study needs scipy: {install_command('report')}") from error

__all__ = ["special"]
