"""The rooms and who may import whom; and that nothing on the reading side loads torch."""

import ast
import sys
from pathlib import Path

import oelm
from oelm.run_directory import RunDirectory
from small_runs import finished

PACKAGE = Path(oelm.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
BOTTOM = {
    "durations", "errors", "exhaustion", "files", "installation", "intervals", "logarithms", "plurals", "probes",
    "seeding", "sections", "system", "trackers", "treatment", "visible",
}  # fmt: skip
WAIST = {
    "config", "claims", "arms", "arm_words", "settings", "accounting", "ownership", "schemas",
    "metric_records", "run_directory", "sealing", "sources", "prepared",
}  # fmt: skip

# Unit -> units of ours it may import. `cli` may import all, inside its verbs; the package itself imports by name.
ALLOWED = {
    "errors": set(),
    "visible": set(),
    "seeding": set(),
    "sections": set(),
    "treatment": {"sections"},
    "probes": {"errors", "seeding", "sections"},
    "durations": set(),
    "plurals": set(),
    "intervals": set(),
    "logarithms": set(),
    "installation": set(),
    "system": {"errors"},
    "exhaustion": {"errors", "system"},
    "files": {"errors", "exhaustion", "system", "visible"},
    "answers": {"errors", "exhaustion", "visible"},
    "sources": {"errors", "visible", "files"},
    "trackers": {"errors", "installation"},
    "config": {"probes", "sections", "trackers", "treatment"},
    "aliases": set(),
    "claims": {"logarithms", "metric_records"},
    "arms": {"errors", "aliases", "treatment"},
    "arm_words": {"treatment"},
    "settings": {"errors", "files", "sections", "treatment", "config", "arms"},
    "keys": {"errors", "sections", "treatment", "config", "settings"},
    "accounting": {"treatment", "config"},
    "arm_list": {"errors", "aliases", "treatment", "config", "arms", "arm_words", "settings", "accounting"},
    "whole_folder": {"errors", "files", "system"},
    "ownership": {"errors", "files", "system"},
    "schemas": {"errors", "files"},
    "prepared": {"errors", "files"},
    "metric_records": set(),
    "archives": {"errors", "exhaustion", "visible", "files", "schemas", "run_directory"},
    "run_directory": {
        "errors",
        "exhaustion",
        "files",
        "config",
        "claims",
        "ownership",
        "schemas",
        "metric_records",
        "trackers",
    },
    "sealing": {
        "errors",
        "files",
        "logarithms",
        "config",
        "claims",
        "settings",
        "schemas",
        "metric_records",
        "run_directory",
    },
    "data": BOTTOM | {"claims", "config", "prepared", "whole_folder", "huggingface"},
    "model": BOTTOM | {"config"},
    "huggingface": BOTTOM | {"config", "aliases", "arms", "answers", "model"},
    "heads": BOTTOM | WAIST | {"model", "huggingface"},
    "training": BOTTOM | WAIST | {"data", "model", "huggingface", "heads"},
    "stored_models": BOTTOM | WAIST | {"whole_folder", "data", "model", "huggingface", "heads", "training"},
    "diagnosis": BOTTOM | WAIST | {"data", "model", "huggingface", "training", "stored_models"},
    "progress": {"visible"},
    "study": BOTTOM | WAIST | {"archives"},
    "analysis": BOTTOM | WAIST | {"archives", "study", "heads", "data"},
    "reporting": BOTTOM | WAIST | {"whole_folder", "study", "analysis", "heads"},
    "metric_export": BOTTOM | WAIST | {"archives", "study"},
    "notebook": BOTTOM | WAIST | {"archives", "study", "analysis", "heads", "reporting", "metric_export"},
    "board": BOTTOM | WAIST | {"archives", "study", "analysis", "heads", "reporting", "experiments"},
    "timing": BOTTOM | WAIST | {"study", "data", "model", "training"},
    "verification": BOTTOM | WAIST | {"study", "data", "model", "training"},
    "checking": BOTTOM | WAIST | {"answers", "study", "data", "model", "training", "timing", "experiments"},
    "experiments": BOTTOM | WAIST | {"study", "data", "timing", "analysis"},
    "remote": BOTTOM | WAIST | {"archives", "study", "experiments"},
    "compat": BOTTOM  # which nobody imports but the package and the command line
    | WAIST
    | {
        "answers",
        "data",
        "model",
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
    "demo",
    "studies",
    "new",
    "prepare",
    "train",
    "diagnose",
    "generate",
    "probe",
    "export",
    "arms",
    "keys",
    "plan",
    "register",
    "run",
    "stop",
    "status",
    "logs",
    "board",
    "bench",
    "report",
    "archive",
    "export-metrics",
    "verify",
    "check",
    "remote",
]
WITHOUT_TORCH = [
    "oelm", "oelm.cli", "oelm.settings", "oelm.keys", "oelm.run_directory", "oelm.data.prepare",
    "oelm.data.prepare_sentences",
    "oelm.experiments.controller", "oelm.experiments.status", "oelm.experiments.forecast",
    "oelm.study.plan", "oelm.study.archiving", "oelm.study.confounds", "oelm.study.registration",
    "oelm.analysis.summary", "oelm.analysis.planning", "oelm.reporting.plan_table", "oelm.reporting.report",
    "oelm.remote.verbs", "oelm.remote.check", "oelm.remote.pull",
    "oelm.metric_export", "oelm.notebook.results", "oelm.remote.on_server", "oelm.heads.scores", "oelm.heads.given",
    "oelm.board.serving", "oelm.checking.conduct",
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


def test_imports_follow_the_table():
    for path in SOURCES:
        unit = unit_of(path)
        if unit not in ("cli", "__init__", "__main__"):
            assert unit in ALLOWED, f"{unit} has no row in the table of allowed imports"
            assert imported_units(path) - {unit} <= ALLOWED[unit], path


def test_the_command_line_imports_heavy_rooms_only_inside_its_verbs():
    top = set()
    for path in sorted((PACKAGE / "cli").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        top |= {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert {name for name in top if name.startswith("oelm")} <= {
        "oelm.answers", "oelm.errors", "oelm.files", "oelm.plurals", "oelm.visible", "oelm.cli",
        "oelm.cli.engine_options", "oelm.cli.getting_started", "oelm.cli.given", "oelm.cli.options",
        "oelm.cli.studies", "oelm.experiments.engines",
    }  # fmt: skip


ENGINES_OWN = ("local.py", "slurm.py", "slurm_queue.py", "slurm_task.py")  # of experiments/
USERS_OF_ENGINES = [
    path
    for room in ("cli", "experiments", "remote")
    for path in sorted((PACKAGE / room).glob("*.py"))
    if path.name not in (*ENGINES_OWN, "engines.py")
]


def test_whoever_uses_engines_names_none():
    """A new one is a file and a row of the table, which is the only one that names them."""
    for path in USERS_OF_ENGINES:
        text = path.read_text(encoding="utf-8")
        assert "slurm" not in text.lower(), path
        assert "experiments.local" not in text, path


IMPORT_EACH = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    print(name, 'torch' in sys.modules)
"""


def test_importing_the_reading_side_loads_no_torch():
    done = finished([sys.executable, "-c", IMPORT_EACH, *WITHOUT_TORCH])
    assert done.stdout.splitlines() == [f"{module} False" for module in WITHOUT_TORCH], done.stderr


HELP_OF_EACH = """
import sys
import oelm.cli
for verb in sys.argv[1:]:
    sys.argv = ['oelm', verb, '--help']
    try:
        oelm.cli.main()
    except SystemExit as done:
        print('-- ended', verb, done.code or 0, 'torch' in sys.modules)
"""


def test_help_of_every_verb_loads_no_torch():
    done = finished([sys.executable, "-c", HELP_OF_EACH, *VERBS])
    ended = [line for line in done.stdout.splitlines() if line.startswith("-- ended")]
    assert ended == [f"-- ended {verb} 0 False" for verb in VERBS], done.stderr
    for verb in VERBS:
        assert f"Usage: oelm {verb}" in done.stdout


SPEAKERS = {
    "answers.py", "progress.py", "experiments/table.py", "training/journal.py", "remote/on_server.py",
    "remote/sent_program.py", "timing/probe.py", "experiments/nvml.py",
}  # fmt: skip


def test_only_those_print_who_make_control_characters_visible():
    """S7: verbs speak by oelm.cli.options.echo, scripts by oelm.answers.say; the others here do it themselves, or print
    JSON for a program of ours.
    """
    for path in SOURCES:
        name, calls = str(path.relative_to(PACKAGE)), set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                calls.add(ast.unparse(node.func))
        assert "typer.echo" not in calls or name == "cli/options.py"
        assert "print" not in calls or name in SPEAKERS


def test_transformers_is_imported_in_one_place():
    """Where it is missing, everybody's error is that of huggingface/library.py."""
    importing = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            named += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if [name for name in named if name.split(".")[0] == "transformers"]:
                importing.add(path.relative_to(PACKAGE).as_posix())
    assert importing == {"huggingface/library.py"}


NAMES_OF_A_RUN = {
    value.fget(RunDirectory(Path())).name for value in vars(RunDirectory).values() if isinstance(value, property)
}
SHARED_NAMES = {
    "config.json",
    "settings.json",
    "checkpoints",
    "damaged",
    "tensorboard",
    "trackers",
}  # others have such too


def test_only_the_run_directory_knows_the_names_of_its_files():
    """remote/sent_program.py runs where oelm is not; tests/remote/test_connection.py holds its names to these."""
    for path in SOURCES:
        if path.relative_to(PACKAGE).as_posix() in ("run_directory.py", "remote/sent_program.py"):
            continue
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
        constants = {node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        texts = {node.value for node in constants - docstrings if " " not in node.value}
        named = {Path(text).name for text in texts} & NAMES_OF_A_RUN
        assert not named - SHARED_NAMES, path
        assert not any(text.endswith("/config.json") for text in texts), path


def test_no_pickle_and_no_shell_in_the_sources():
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for forbidden in ("import pickle", "torch.load(", "shell=True", "os.system"):
            assert forbidden not in text, f"{path}: {forbidden}"
