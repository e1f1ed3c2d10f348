"""The rooms and who may import whom; and that nothing on the reading side loads torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import oelm
from small_runs import child_environment, finished

PACKAGE = Path(oelm.__file__).parent
BOTTOM = {"errors", "files", "seeding"}
WAIST = {"config", "arms", "settings", "accounting", "ownership", "run_directory"}

# Unit -> units of ours it may import. `cli` may import all, inside its verbs; the package itself imports by name.
ALLOWED = {
    "errors": set(),
    "seeding": set(),
    "files": {"errors"},
    "answers": {"errors"},
    "config": set(),
    "arms": {"errors", "config"},
    "settings": {"errors", "config", "arms"},
    "accounting": {"config"},
    "ownership": set(),
    "run_directory": {"errors", "files", "config", "ownership"},
    "data": BOTTOM | {"config"},
    "model": BOTTOM | {"config"},
    "training": BOTTOM | WAIST | {"data", "model"},
    "huggingface": BOTTOM | WAIST | {"answers", "data", "model", "training"},
    "diagnosis": BOTTOM | WAIST | {"data", "model", "training", "huggingface"},
    "sampling": BOTTOM | WAIST | {"data", "model", "training"},
    "side_by_side": BOTTOM | {"run_directory"},
    "progress": set(),
    "study": BOTTOM | WAIST,
    "analysis": BOTTOM | WAIST | {"study"},
    "reporting": BOTTOM | WAIST | {"study", "analysis"},
    "timing": BOTTOM | WAIST | {"study", "data", "model", "training"},
    "experiments": BOTTOM | WAIST | {"study", "data", "timing"},
    "remote": BOTTOM | WAIST | {"study", "experiments"},
    "documents": BOTTOM
    | WAIST
    | {
        "answers",
        "data",
        "training",
        "diagnosis",
        "study",
        "experiments",
        "analysis",
        "reporting",
        "remote",
    },
}
VERBS = [
    "prepare",
    "train",
    "diagnose",
    "generate",
    "export",
    "arms",
    "compare",
    "run",
    "stop",
    "status",
    "logs",
    "bench",
    "report",
    "remote",
]
WITHOUT_TORCH = [
    "oelm", "oelm.cli", "oelm.settings", "oelm.run_directory", "oelm.side_by_side", "oelm.data.prepare",
    "oelm.data.prepare_sentences",
    "oelm.experiments.controller", "oelm.experiments.status", "oelm.experiments.forecast",
    "oelm.study.plan", "oelm.study.confounds", "oelm.analysis.summary",
    "oelm.reporting.report", "oelm.remote.verbs", "oelm.remote.check", "oelm.remote.pull", "oelm.remote.there",
]  # fmt: skip


def unit_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_units(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "oelm" else [f"oelm.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path}: write absolute imports"
        found |= {name.split(".")[1] for name in names if name.startswith("oelm.")}
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_follow_the_table(path):
    unit = unit_of(path)
    if unit in ("cli", "__init__", "__main__"):
        return
    assert unit in ALLOWED, f"{unit} has no row in the table of allowed imports"
    assert imported_units(path) - {unit} <= ALLOWED[unit]


@pytest.mark.parametrize("path", sorted((PACKAGE / "cli").glob("*.py")), ids=lambda p: p.name)
def test_the_command_line_imports_heavy_rooms_only_inside_its_verbs(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert {name for name in top if name.startswith("oelm")} <= {
        "oelm.answers", "oelm.errors", "oelm.files", "oelm.cli", "oelm.cli.options",
    }  # fmt: skip


@pytest.mark.parametrize("module", WITHOUT_TORCH)
def test_importing_the_reading_side_loads_no_torch(module):
    code = f"import {module}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=child_environment(), check=False).returncode == 0


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb_loads_no_torch(verb):
    code = (
        f"import sys; sys.argv = ['oelm', {verb!r}, '--help']\n"
        "import oelm.cli\n"
        "try:\n    oelm.cli.main()\n"
        "except SystemExit as done:\n    sys.exit(done.code or ('torch' in sys.modules))"
    )
    done = finished([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    assert "Usage: oelm" in done.stdout


def test_no_pickle_and_no_shell_in_the_sources():
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for forbidden in ("import pickle", "torch.load(", "shell=True", "os.system"):
            assert forbidden not in text, f"{path}: {forbidden}"
