"""Where this package is, in a clone or installed; and the command that installs an optional part there."""

from __future__ import annotations

import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

PACKAGE = Path(__file__).parent.parent


def clone() -> Path | None:
    """The clone that the package runs from; None: it was installed."""
    root = PACKAGE.parent.parent
    return root if PACKAGE.parent.name == "src" and (root / "pyproject.toml").is_file() else None


def install_command(*extras: str) -> str:
    """For the Python that runs now: `pip install 'oelm[hub]'`; in a clone `pip install -e '.[hub]'`."""
    named, root = f"[{','.join(extras)}]", clone()
    if root is None:
        return f"{_pip()} install 'oelm{named}'"
    place = "." if Path.cwd() == root else str(root)
    return f"{_pip()} install -e {shlex.quote(place + named)}"


def _pip() -> str:
    """The pip of this environment: a bare `pip` is another's where the environment was not activated."""
    found = shutil.which("pip")
    is_ours = found is not None and Path(found).parent == Path(sysconfig.get_path("scripts"))
    return "pip" if is_ours else shlex.join([sys.executable, "-m", "pip"])
