"""The rooms and who may import whom; and that nothing on the reading side loads torch."""

import ast
import sys
from pathlib import Path

import oelm
from oelm.run.directory import Named, RunDirectory
from small_runs import finished

PACKAGE = Path(oelm.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
# Room -> the rooms that it may import, all above it in this table. `cli` may import every room, inside its verbs.
ALLOWED = {
    "machine": "",
    "storage": "machine",
    "core": "machine storage",
    "models": "machine storage core",
    "data": "machine storage core models",
    "run": "machine storage core models data",
    "study": "machine storage core data run",
    "analysis": "machine storage core models data run study",
    "execution": "machine storage core data run study analysis",
    "show": "machine storage core models run study analysis execution",
    "compat": "machine storage core data run study analysis execution show",
    "cli": "machine storage core models data run study analysis execution show compat",
}
NOT_ROOMS = {"studies", "__init__.py", "__main__.py", "py.typed"}
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
    "oelm", "oelm.cli", "oelm.core.settings", "oelm.core.keys", "oelm.run.directory", "oelm.data.prepare",
    "oelm.data.prepare_sentences",
    "oelm.execution.controller", "oelm.execution.status",
    "oelm.study.plan", "oelm.study.archiving", "oelm.study.confounds", "oelm.study.registration",
    "oelm.analysis.summary", "oelm.analysis.planning", "oelm.show.plan_table", "oelm.show.report",
    "oelm.execution.remote.verbs", "oelm.execution.remote.check", "oelm.execution.remote.pull",
    "oelm.show.metric_export", "oelm.show.notebook.results", "oelm.execution.remote.on_server",
    "oelm.models.heads.scores", "oelm.run.stored_models.given",
    "oelm.show.board.serving", "oelm.execution.checking.conduct",
]  # fmt: skip


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


def imported_rooms(path: Path) -> set[str]:
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
    return found & set(ALLOWED)


def test_imports_follow_the_table():
    assert {path.name for path in PACKAGE.iterdir()} - {"__pycache__"} == set(ALLOWED) | NOT_ROOMS
    rooms = list(ALLOWED)
    for room, allowed in ALLOWED.items():
        assert set(allowed.split()) <= set(rooms[: rooms.index(room)])
    for path in SOURCES:
        if path.parent != PACKAGE:
            assert imported_rooms(path) - {room_of(path)} <= set(ALLOWED[room_of(path)].split()), path


def test_the_page_shows_the_table():
    page = (Path(__file__).parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for room, allowed in ALLOWED.items():
        shown = "every room, inside its verbs" if room == "cli" else ", ".join(allowed.split()) or "nothing of ours"
        assert f"| {room} | {shown} |" in page


def test_the_command_line_imports_heavy_rooms_only_inside_its_verbs():
    top = set()
    for path in sorted((PACKAGE / "cli").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        top |= {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert {name for name in top if name.startswith("oelm")} <= {
        "oelm.machine.answers", "oelm.machine.errors", "oelm.storage.files", "oelm.machine.plurals",
        "oelm.machine.visible", "oelm.cli",
        "oelm.cli.options", "oelm.cli.getting_started", "oelm.cli.studies", "oelm.execution.engines",
    }  # fmt: skip


ENGINES_OWN = ("local.py", "slurm.py", "slurm_queue.py", "slurm_task.py")  # of execution/
USERS_OF_ENGINES = [
    path
    for room in ("cli", "execution")
    for path in sorted((PACKAGE / room).rglob("*.py"))
    if path.name not in (*ENGINES_OWN, "engines.py")
]


def test_whoever_uses_engines_names_none():
    """A new one is a file and a row of the table, which is the only one that names them."""
    for path in USERS_OF_ENGINES:
        text = path.read_text(encoding="utf-8")
        assert "slurm" not in text.lower(), path
        assert "execution.local" not in text, path


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
    "machine/answers.py", "machine/progress.py", "execution/table.py", "run/training/journal.py", 
    "execution/remote/on_server.py",
    "execution/remote/sent_program.py", "execution/timing/probe.py", "machine/nvml.py",
}  # fmt: skip


def test_only_those_print_who_make_control_characters_visible():
    """S7: verbs speak by cli/options.py, scripts by machine/answers.py; the others here do it themselves, or print JSON
    for a program of ours.
    """
    for path in SOURCES:
        name, calls = str(path.relative_to(PACKAGE)), set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                calls.add(ast.unparse(node.func))
        assert "typer.echo" not in calls or name == "cli/options.py"
        assert "print" not in calls or name in SPEAKERS


def test_transformers_is_imported_in_one_place():
    """Where it is missing, everybody's error is that of models/library.py."""
    importing = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            named += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if [name for name in named if name.split(".")[0] == "transformers"]:
                importing.add(path.relative_to(PACKAGE).as_posix())
    assert importing == {"models/library.py"}


NAMES_OF_A_RUN = {value.name for value in vars(RunDirectory).values() if isinstance(value, Named)}
SHARED_NAMES = {
    "config.json",
    "settings.json",
    "checkpoints",
    "damaged",
    "tensorboard",
    "trackers",
}  # others have such too


def test_only_the_run_directory_knows_the_names_of_its_files():
    """sent_program.py runs where oelm is not; tests/execution/remote/test_connection.py holds its names to these."""
    for path in SOURCES:
        if path.relative_to(PACKAGE).as_posix() in ("run/directory.py", "execution/remote/sent_program.py"):
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
