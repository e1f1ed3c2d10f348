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
    named, root = f"[{','.join(extras)}]" if extras else "", clone()
    if root is None:
        return f"{_pip()} install {shlex.quote(f'oelm{named}')}"
    place = "." if Path.cwd() == root else str(root)
    return f"{_pip()} install -e {shlex.quote(place + named)}"


def what_cannot_be_imported(error: BaseException | None) -> str | None:
    """A package of others that is missing or broken, in one line; None: another error, or a fault of ours."""
    if not isinstance(error, ImportError):
        return None
    if error.name is None:
        return what_cannot_be_imported(error.__cause__)  # numpy says at length what its own import said
    package = error.name.partition(".")[0]
    said = (str(error).splitlines() or ["no reason given"])[0]
    if package == PACKAGE.name:
        return None
    again = "" if isinstance(error, ModuleNotFoundError) else " --force-reinstall"
    return f"{package}: cannot be imported ({said}), and oelm needs it: {install_command()}{again}"


def _pip() -> str:
    """The pip of this environment: a bare `pip` is another's where the environment was not activated."""
    found = shutil.which("pip")
    is_ours = found is not None and Path(found).parent == Path(sysconfig.get_path("scripts"))
    return "pip" if is_ours else shlex.join([sys.executable, "-m", "pip"])
