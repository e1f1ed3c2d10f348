"""The advice on what to install fits whoever reads it: in a clone or not, in an active environment or not."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import oelm
from oelm.machine import installation
from oelm.machine.installation import clone, install_command, what_cannot_be_imported
from small_runs import REPOSITORY, child_environment


@pytest.fixture
def pip_is_ours(tmp_path, monkeypatch):
    pip = tmp_path / "scripts" / "pip"
    pip.parent.mkdir()
    pip.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(pip.parent))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(pip.parent))


def test_in_a_clone_the_clone_is_installed_again(pip_is_ours, tmp_path, monkeypatch):
    assert clone() == REPOSITORY
    monkeypatch.chdir(REPOSITORY)
    assert install_command("hub") == "pip install -e '.[hub]'"
    monkeypatch.chdir(tmp_path)
    assert install_command("hub", "hf") == f"pip install -e '{REPOSITORY}[hub,hf]'"


@pytest.mark.parametrize("place", ["lib/python3.11/site-packages", "src"])
def test_with_a_wheel_the_extra_is_named(pip_is_ours, tmp_path, monkeypatch, place):
    """A copy of the package in somebody's src/ is in no clone of ours."""
    monkeypatch.setattr(installation, "PACKAGE", tmp_path / place / "oelm")
    assert clone() is None
    assert install_command("hub") == "pip install 'oelm[hub]'"


@pytest.mark.parametrize("path", ["", "another/bin"])
def test_where_pip_is_not_this_environments_python_is_named(tmp_path, monkeypatch, path):
    monkeypatch.setenv("PATH", str(tmp_path / path))
    monkeypatch.setattr(installation, "PACKAGE", tmp_path / "oelm")
    if path:
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "pip").touch(mode=0o755)
    assert install_command("report") == f"{sys.executable} -m pip install 'oelm[report]'"


def test_no_other_line_gives_that_advice():
    for path in Path(oelm.__file__).parent.rglob("*.py"):
        assert path.name == "installation.py" or "pip install 'oelm" not in path.read_text(encoding="utf-8"), path


NUMPY = "raise ImportError('see the manual') from ImportError('no symbol x', name='numpy._core')"


@pytest.mark.parametrize(
    ("package", "found", "said", "is_broken"),
    [
        ("typer", "import no_such_package", "No module named 'no_such_package'", False),
        ("yaml", "import no_such_package", "No module named 'no_such_package'", False),
        ("numpy", NUMPY, "no symbol x", True),
    ],
)
def test_a_required_package_that_is_missing_or_broken_is_one_line(tmp_path, package, found, said, is_broken):
    (tmp_path / f"{package}.py").write_text(found)
    environment = child_environment(PYTHONPATH=f"{tmp_path}:{REPOSITORY / 'src'}")
    done = subprocess.run(
        [sys.executable, "-m", "oelm", "report", "demo"],
        capture_output=True, text=True, env=environment, cwd=tmp_path, check=False,
    )  # fmt: skip
    (line,) = done.stderr.splitlines()
    named = package if is_broken else "no_such_package"
    assert line.startswith(f"oelm: {named}: cannot be imported ({said}), and oelm needs it: ")
    assert line.endswith(f"install -e {REPOSITORY}" + (" --force-reinstall" if is_broken else ""))
    assert done.returncode == 2


def test_an_import_that_fails_in_our_own_code_is_no_missing_package():
    assert what_cannot_be_imported(ImportError("cannot import name 'x'", name="oelm.core.settings")) is None
    assert what_cannot_be_imported(ValueError("x")) is None
