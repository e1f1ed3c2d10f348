"""The package as others get it: a wheel built from the sdist, installed outside the clone, used in an empty folder."""

import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import yaml

import oelm
from small_runs import REPOSITORY

pytest.importorskip("setuptools", reason="pip install setuptools")
PACKAGE = REPOSITORY / "src" / "oelm"
FEWER_STORIES = 300


def python(code: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    """Built from a copy of what is in the clone, so that building leaves nothing there."""
    folder = tmp_path_factory.mktemp("sources")
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        (folder / name).write_bytes((REPOSITORY / name).read_bytes())
    for file in package_files():
        copy = folder / "src" / "oelm" / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((PACKAGE / file).read_bytes())
    return folder / "dist" / python("from setuptools import build_meta; print(build_meta.build_sdist('dist'))", folder)


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory) -> Path:
    """From the sdist alone: it has everything that building needs."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (inner,) = folder.iterdir()
    return inner / "dist" / python("from setuptools import build_meta; print(build_meta.build_wheel('dist'))", inner)


def package_files() -> set[str]:
    return {
        file.relative_to(PACKAGE).as_posix()
        for file in PACKAGE.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    inside = {name for name in names if ".dist-info/" not in name}
    assert inside == {f"oelm/{file}" for file in package_files()}
    endings = {Path(name).suffix for name in inside}
    assert endings == {".py", ".css", ".html", ".js", ".typ", ".sh", ".yaml", ".typed"}


def test_the_metadata_say_what_it_is(wheel):
    with zipfile.ZipFile(wheel) as archive:
        files = {name.partition(".dist-info/")[2]: name for name in archive.namelist() if ".dist-info/" in name}
        told = Parser().parsestr(archive.read(files["METADATA"]).decode())
        commands = archive.read(files["entry_points.txt"]).decode()
    assert "oelm = oelm.__main__:main" in commands
    assert "licenses/LICENSE" in files
    assert (told["Name"], told["Version"], told["Requires-Python"]) == ("oelm", oelm.__version__, ">=3.11")
    assert told["Description-Content-Type"] == "text/markdown"
    assert "# oelm" in told.get_payload()
    assert {"Typing :: Typed", "Operating System :: MacOS"} <= set(told.get_all("Classifier"))


# ---- Installed, with no clone ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> Path:
    """An environment with the wheel, and with the libraries that are here: only the package itself is under test."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    venv.create(folder, symlinks=True)
    (libraries,) = folder.glob("lib/python*/site-packages")
    here = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (libraries / "libraries.pth").write_text("".join(f"{path}\n" for path in here))  # their own .pth files do not count
    words = ["--python", folder / "bin" / "python", "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *words], check=True)
    return folder


@pytest.fixture(scope="module")
def at_home(environment, tmp_path_factory):
    """A command in an empty folder, in which nothing leads to the clone."""
    folder = tmp_path_factory.mktemp("home")

    def command(program: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(environment / "bin" / program), *words],
            cwd=folder,
            env={"PATH": f"{environment / 'bin'}:{os.environ['PATH']}", "HOME": str(folder), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )

    command.folder = folder
    return command


def test_the_clone_cannot_be_imported_there(at_home, environment):
    done = at_home("python", "-c", "import oelm, sys; print(oelm.__file__, *sys.path)")
    assert done.returncode == 0, done.stderr
    place, *paths = done.stdout.split()
    assert Path(place).is_relative_to(environment)
    assert str(REPOSITORY / "src") not in paths


def test_every_study_of_the_package_is_there(at_home):
    done = at_home("oelm", "studies", "--json")
    assert done.returncode == 0, done.stderr
    listed = {each["name"]: each for each in json.loads(done.stdout)["studies"]}
    assert set(listed) == {file.stem for file in (PACKAGE / "studies").glob("*.yaml")}
    assert all(each["where"] == "comes with oelm" for each in listed.values())
    assert listed["demo"]["size"] == "4 arms x 4 seeds"
    assert listed["demo"]["runs"] == "no runs here"


def test_what_the_package_advises_to_install_can_be_installed(at_home):
    """The package itself is satisfied by the one that is there, wherever it came from."""
    code = "from oelm.machine.installation import install_command; print(install_command('report'))"
    advice = at_home("python", "-c", code).stdout.strip()
    assert advice.endswith("install 'oelm[report]'")
    words = shlex.split(advice)
    done = at_home(words[0], *words[1:], "--dry-run", "--no-index", "--disable-pip-version-check")
    assert done.returncode == 0, done.stderr
    assert "Would install" not in done.stdout  # what it needs is here


def test_the_demo_is_one_command(at_home):
    """Of studies of one's own, made smaller: they replace those that come with oelm."""
    assert at_home("oelm", "prepare", "stories", "--stories", str(FEWER_STORIES)).returncode == 0
    done = at_home("oelm", "new", "mine")
    assert done.returncode == 0, done.stderr
    file = at_home.folder / "studies" / "mine.yaml"
    tree = yaml.safe_load(file.read_text())
    fewer = {"batch_size": 4, "validation_sequences": 4, "final_validation_sequences": 8}
    tree["base"]["training"] |= {"steps": 3, "learning_rate": 0.004} | fewer
    tree["seeds"] = [0]
    file.with_name("demo.yaml").write_text(yaml.safe_dump(tree))
    probe = yaml.safe_load((PACKAGE / "studies" / "demo_recall.yaml").read_text(encoding="utf-8"))
    probe["base"]["training"] |= {"steps": 2, "validate_every": 1} | fewer
    probe |= {"seeds": [0], "arms": ["frozen_orthogonal", "frozen_orthogonal_shift"], "baseline": "frozen_orthogonal"}
    probe["hypotheses"] = probe["hypotheses"][:1]
    file.with_name("demo_recall.yaml").write_text(yaml.safe_dump(probe))
    first, then = (at_home("oelm", *words) for words in (("run", "demo"), ("demo",)))
    for done, arms in ((first, tree["arms"]), (then, probe["arms"])):  # what is done is not repeated
        assert done.returncode == 0, done.stderr
        assert done.stdout.count(" started on ") == len(arms)
    assert re.findall(r"^\d/2 (\w+)", then.stdout, flags=re.MULTILINE) == ["demo", "demo_recall"]
    assert then.stdout.splitlines()[-2].startswith("done: open reports/demo/report.en.html")
    report = at_home.folder / "reports" / "demo"
    assert "Can the query and key projections" in (report / "report.en.html").read_text(encoding="utf-8")
    assert {path.name for path in report.glob("report.*")} >= {"report.en.md", "report.zh.html", "report.en.pdf"}
    told = json.loads(next(at_home.folder.glob("runs/demo/*/environment.json")).read_text())
    assert (told["commit"], told["versions"]["oelm"]) == (None, oelm.__version__)
    listed = at_home("oelm", "studies").stdout
    assert "studies/demo.yaml; 3 arms x 1 seed; in runs/demo: 3 finished; report in reports/demo" in listed
