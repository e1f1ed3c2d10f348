"""Which sources these are: the commit, whether anything was changed since, and a digest of those that decide numbers.

An installed package has no commit: a repository that its environment happens to lie in is another project's. The digest
covers the modules that a training step is made of, found by following their imports, as syntax: a comment, a docstring
or another layout is no other source. It loads none of them.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from oelm.machine.errors import UserError
from oelm.storage.files import read_json

PACKAGE = Path(__file__).parent.parent
STUDIES = "studies"  # in the package: declarations, which have a digest of their own
SYNCED_FILE = ".oelm-synced.json"
# How the digest is taken: digests of different schemes say nothing about each other. Stored runs without a number are
# of scheme 1, which hashed the files of model, training and data as they stood; in 2 they had other paths.
SCHEME, FIRST_SCHEME = 3, 1
SOURCE_DIGEST, SOURCE_SCHEME = "source_digest", "source_scheme"  # the keys in environment.json
# What puts the parts of a run together, what steps, and what an arm is; they import the rest.
ROOTS = ("run/training/assembly.py", "run/training/loop.py", "core/arms.py")


def commit_and_changes() -> dict[str, Any]:
    """`commit` and `dirty`; where `oelm remote` brought the sources, it wrote them down."""
    try:
        synced = read_json(_root() / SYNCED_FILE)
        return {"commit": synced["commit"], "dirty": synced["dirty"]}
    except (OSError, UserError, KeyError, TypeError):
        pass
    top = _git("rev-parse", "--show-toplevel")
    if top is None or Path(top) != _root().resolve():
        return {"commit": None, "dirty": False}
    changed = _git("status", "--porcelain", "--", ".", f":(exclude){STUDIES}")
    return {"commit": _git("rev-parse", "HEAD"), "dirty": bool(changed)}


def _root() -> Path:
    return PACKAGE.parent.parent


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=PACKAGE, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


# ---- What decides a run's numbers ----------------------------------------------------------------------------------


@functools.cache
def source_digest(package: Path = PACKAGE) -> str:
    digest = hashlib.sha256()
    for path, tree in computing_modules(package).items():
        digest.update(f"{path.relative_to(package).as_posix()}\0{_syntax(tree)}\0".encode(errors="surrogatepass"))
    return digest.hexdigest()


def computing_modules(package: Path = PACKAGE) -> dict[Path, ast.Module]:
    """Every module of the package that the roots import, directly or through others, parsed."""
    found: dict[Path, ast.Module] = {}
    waiting = [package / root for root in ROOTS]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path] = ast.parse(path.read_bytes())
            waiting += _imported(found[path], package)
    return dict(sorted(found.items()))


def _imported(tree: ast.AST, package: Path) -> Iterator[Path]:
    """The files of ours behind every import, inside functions too. The package's own __init__ only knows names."""
    for node in _executed(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=aliases):
                names = [module, *(f"{module}.{alias.name}" for alias in aliases)]
            case ast.Import(names=aliases):
                names = [alias.name for alias in aliases]
            case _:
                continue
        for name in names:
            first, *inner = name.split(".")
            if first == package.name and inner:
                base = package.joinpath(*inner)
                yield from filter(Path.is_file, (base.with_name(f"{base.name}.py"), base / "__init__.py"))


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements but those that only a type checker sees."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for name in ("handlers", "cases", "body", "orelse", "finalbody"):
            inner = getattr(node, name, None)  # of an expression, like a lambda, a body is no list
            if isinstance(inner, list) and not (name == "body" and _is_for_type_checkers(node)):
                waiting += inner


def _is_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _syntax(value: Any) -> str:
    """A tree as text, without docstrings. Empty fields are left out: each Python has more of them than the last."""
    if isinstance(value, list):
        return ",".join([_syntax(each) for each in value if not _is_docstring(each)])
    if not isinstance(value, ast.AST):
        return repr(value)
    fields = []
    for name in value._fields:
        if name not in ("ctx", "kind") and (text := _syntax(getattr(value, name, None))) not in ("", "None"):
            fields.append(f"{name}=[{text}]")
    return f"{type(value).__name__}({','.join(fields)})"


def _is_docstring(node: Any) -> bool:
    """Any text that stands alone as a statement."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


# ---- Stored digests ------------------------------------------------------------------------------------------------


def scheme_of(environment: Mapping[str, Any]) -> int:
    """Of what a run or a bench recorded."""
    return environment.get(SOURCE_SCHEME) or FIRST_SCHEME


def differ(key: str, environments: Iterable[Mapping[str, Any]]) -> bool:
    """Whether environments differ in a key; of source digests only those of one scheme are compared."""
    seen: dict[int, Any] = {}
    for each in environments:
        value = each.get(key)
        if seen.setdefault(scheme_of(each) if key == SOURCE_DIGEST else 0, value) != value:
            return True
    return False
