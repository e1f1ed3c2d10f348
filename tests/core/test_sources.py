"""What the digest of the sources covers: every token that decides a run's numbers, and nothing else."""

import ast
import functools
import shutil
import subprocess

import pytest

from oelm.core import sources
from oelm.core.sources import PACKAGE, commit_and_changes, computing_modules, differ, scheme_of
from oelm.core.sources import source_digest as remembered_digest

source_digest = remembered_digest.__wrapped__  # which is taken again although the path is the same

COMPUTING = [
    "core/seeding.py", "core/config.py", "core/arms.py", "run/training/loop.py", "run/training/next_token.py",
    "run/training/classification.py",    "run/training/optimizer.py", "run/training/loss.py", "core/model/freezing.py",
    "run/training/assembly.py", "data/batches.py", "core/model/attention.py",
    "core/model/transformer.py", "core/model/projection.py", "core/model/initialization.py", "models/encoder.py",
    "models/adaptation/adapting.py",
]  # fmt: skip
OTHERS = [
    "run/training/journal.py", "data/stories.py", "data/readers.py", "cli/__init__.py", "cli/one_run.py",
    "show/words.py", "run/directory.py", "run/stored_models/loading.py", "run/training/run.py", "study/plan.py",
    "study/archives.py", "__init__.py",
]  # fmt: skip


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return shutil.copytree(
        PACKAGE, tmp_path_factory.mktemp("copy") / "oelm", ignore=shutil.ignore_patterns("__pycache__")
    )


@pytest.fixture
def edited(package):
    """Change modules of the copy, and put them back afterwards."""
    before = {}

    def edit(change, *names):
        for name in names:
            before[name] = (package / name).read_text(encoding="utf-8")
            (package / name).write_text(change(before[name]), encoding="utf-8")
        return source_digest(package)

    yield edit
    for name, text in before.items():
        (package / name).write_text(text, encoding="utf-8")


class _OtherDocstrings(ast.NodeTransformer):
    def visit_Expr(self, node):
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return ast.Expr(ast.Constant("Other words.")) if is_text else node


def otherwise_written(text: str) -> str:
    """The same statements with other docstrings, comments, quotes, brackets and line ends."""
    lines = ast.unparse(_OtherDocstrings().visit(ast.parse(text))).splitlines()
    return "# A comment.\n" + "".join(
        f"{line}  # and another\n" if line == "import os" else f"{line}\n" for line in lines
    )


def test_comments_docstrings_and_layout_do_not_count(package, edited):
    names = [path.relative_to(package).as_posix() for path in computing_modules(package)]
    digest = source_digest(package)
    assert edited(otherwise_written, *names) == digest == remembered_digest()
    assert all((package / name).read_bytes() != (PACKAGE / name).read_bytes() for name in COMPUTING)


def with_another_token(text: str) -> str:
    return text + "\nANOTHER = 1\n"


def test_a_token_of_what_computes_counts(package, edited, monkeypatch):
    monkeypatch.setattr(ast, "parse", functools.cache(ast.parse))  # all modules but one are as they were
    for name in COMPUTING:
        assert edited(with_another_token, name) != remembered_digest(), name
        (package / name).write_bytes((PACKAGE / name).read_bytes())


def test_a_token_of_anything_else_does_not_count(edited):
    assert edited(with_another_token, *OTHERS) == remembered_digest()


def test_one_word_in_a_function_counts(edited):
    def with_another_word(text: str) -> str:
        return text.replace("    return ", "    return not ", 1)

    assert edited(with_another_word, "run/training/loop.py") != remembered_digest()


def test_imports_are_followed_inside_functions_and_not_where_only_a_type_checker_looks(tmp_path):
    package = tmp_path / "oelm"
    texts = {
        "core/arms.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from oelm.unseen import Type\n"
        "else:\n    import oelm.instead\n",
        "run/training/loop.py": "def step():\n    from oelm.core.model import parts\n",
        "run/training/assembly.py": "from oelm.core.model.parts import build\n",
        "core/model/__init__.py": "",
        "core/model/parts.py": "import torch\nfrom oelm.core import seeding\n",
        "core/seeding.py": "",
        "instead.py": "",
        "unseen.py": "",
        "__init__.py": "",
    }
    for name, text in texts.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    found = {path.relative_to(package).as_posix() for path in computing_modules(package)}
    assert found == set(texts) - {"unseen.py", "__init__.py"}


# ---- Stored digests ------------------------------------------------------------------------------------------------


def test_digests_of_different_schemes_are_not_compared():
    old, new, other = {"source_digest": "a"}, {"source_digest": "b", "source_scheme": 2}, {"source_digest": "c"}
    assert (scheme_of(old), scheme_of(new)) == (1, 2)
    assert not differ("source_digest", [old, new])
    assert differ("source_digest", [old, new, other])
    assert differ("source_digest", [new, new | {"source_digest": "c"}])
    assert differ("threads", [old | {"threads": 1}, new | {"threads": 2}])


# ---- The commit ----------------------------------------------------------------------------------------------------


def git(folder, *words: str) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    done = subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def package_in(tmp_path, monkeypatch):
    """A repository with the package, or something called so, at a place in it."""

    def made(place: str):
        package = tmp_path / place / "oelm"
        (package / "studies").mkdir(parents=True)
        for name in ("loop.py", "studies/demo.yaml"):
            (package / name).write_text("one\n")
        git(tmp_path, "init", "-q")
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-q", "-m", "The project")
        monkeypatch.setattr(sources, "PACKAGE", package)
        return package

    return made


def test_a_clone_has_its_commit_and_its_changes(package_in, tmp_path):
    package = package_in("src")
    clean = {"commit": git(tmp_path, "rev-parse", "HEAD"), "dirty": False}
    assert commit_and_changes() == clean
    (package / "studies" / "demo.yaml").write_text("two\n")
    (package / "studies" / "mine.yaml").write_text("new\n")
    assert commit_and_changes() == clean  # a declaration has a digest of its own
    (package / "loop.py").write_text("two\n")
    assert commit_and_changes() == clean | {"dirty": True}


def test_a_package_that_was_installed_inside_a_repository_has_no_commit(package_in):
    package_in(".venv/lib/python3.11/site-packages")
    assert commit_and_changes() == {"commit": None, "dirty": False}
