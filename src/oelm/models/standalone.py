"""Our Hugging Face classes as one file of source that needs no oelm, linked from our own modules at each export.

Taken are the definitions that the classes reach by name, as they are written, in the order in which modules import each
other; where two modules give one name to two things, the later one gets its module's name too. Nothing is run.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = "oelm"
HOME = f"{PACKAGE}.models.gpt"
FILE = "modeling_oelm.py"
CLASSES = {
    "AutoConfig": "OELMConfig",
    "AutoModel": "OELMModel",
    "AutoModelForCausalLM": "OrthogonalELMTransformer",
    "AutoModelForSequenceClassification": "OELMForSequenceClassification",
}
AUTO_MAP = {auto: f"{FILE.removesuffix('.py')}.{name}" for auto, name in CLASSES.items()}


class CannotLink(Exception):
    """Our sources are not as linking needs them: a mistake of ours, not of a user."""


@functools.cache
def modeling_file(version: str) -> str:
    """The source; the same sources give the same text."""
    linker = _Linker()
    for name in CLASSES.values():
        linker.need(HOME, name)
    body = linker.text()
    digest = hashlib.sha256(body.encode()).hexdigest()
    title = (
        f'"""The model of this folder, for transformers where oelm is not installed (trust_remote_code=True).\n\n'
        f"Generated from the sources of oelm {version}; do not edit. Needs {', '.join(linker.packages)}.\n"
        f'SHA-256 of what follows this text: {digest}\n"""\n\n'
    )
    return title + body


@dataclass
class _Module:
    """One source file: what each of its names is."""

    lines: list[str]
    defined: dict[str, ast.stmt] = field(default_factory=dict)
    imported: dict[str, tuple[str, str | None]] = field(default_factory=dict)  # module, name in it; None: the module


Origin = tuple[str, str | None]  # a module, and what is meant in it; None: the module itself


class _Linker:
    def __init__(self) -> None:
        self.modules: dict[str, _Module] = {}
        self.order: list[str] = []  # what a module imports comes before it
        self.taken: dict[str, set[ast.stmt]] = {}
        self.names: dict[Origin, str] = {}  # what each thing is called in the file
        self.outside: set[Origin] = set()

    @property
    def packages(self) -> list[str]:
        """Packages beyond Python's own."""
        found = {module.partition(".")[0] for module, _ in self.outside}
        return sorted(found - sys.stdlib_module_names)

    def need(self, module: str, name: str) -> None:
        """Take what defines `name` in `module`, and all that it reaches."""
        origin = self._origin(module, name)
        if origin is None:
            return
        home, original = origin
        if origin not in self.names:
            is_free = name not in self.names.values()
            self.names[origin] = name if is_free else f"{name}_of_{home.rpartition('.')[2]}"
        if not _is_ours(home):
            self.outside.add(origin)
        elif original is None:
            self._read(home)
            for each in list(self.modules[home].defined):
                self.need(home, each)
        else:
            self._take(home, self.modules[home].defined[original])

    def _origin(self, module: str, name: str) -> Origin | None:
        """Where a name of a module comes from; None: it is Python's own, or local."""
        here = self._read(module)
        if name in here.imported:
            home, original = here.imported[name]
            if _is_ours(home) and _path(f"{home}.{original}").is_file():
                return f"{home}.{original}", None
            return self._origin(home, original) if original is not None and _is_ours(home) else (home, original)
        return (module, name) if name in here.defined else None

    def _take(self, module: str, statement: ast.stmt) -> None:
        if statement in self.taken[module]:
            return
        self.taken[module].add(statement)
        for inner in _own_imports(statement):
            _enter(self.modules[module], inner, inner)
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                self.need(module, node.id)

    def _read(self, name: str) -> _Module:
        if name not in self.modules:
            source = _path(name).read_text()
            module = self.modules[name] = _Module(lines=source.splitlines())
            self.taken[name] = set()
            for statement, whole in _statements(ast.parse(source).body):
                _enter(module, statement, whole)
            for origin, original in module.imported.values():
                if _is_ours(origin) and original is not None:
                    self._read(origin)
            self.order.append(name)
        return self.modules[name]

    def text(self) -> str:
        pieces = ["from __future__ import annotations\n", "\n".join(self._imports()) + "\n"]
        for name in self.order:
            if self.taken[name]:
                pieces.append(f"\n# ---- {name}\n")
            for statement in sorted(self.taken[name], key=lambda each: each.lineno):
                pieces.append("\n" + "\n".join(self._written(name, statement)) + "\n")
            if (name, None) in self.names:
                pieces.append(self._namespace(name))
        return "\n".join(pieces)

    def _namespace(self, module: str) -> str:
        """A module that is used as a whole."""
        members = ", ".join(f"{name}={self._name(module, name)}" for name in self.modules[module].defined)
        return f"\n{self.names[module, None]} = types.SimpleNamespace({members})\n"

    def _imports(self) -> Iterator[str]:
        if any(_is_ours(module) and original is None for module, original in self.names):
            yield "import types"
        for module, original in sorted(self.outside, key=str):
            name = self.names[module, original]
            if original is None:
                yield f"import {module}" + ("" if module == name else f" as {name}")
            else:
                yield f"from {module} import {original}" + ("" if original == name else f" as {name}")

    def _written(self, module: str, statement: ast.stmt) -> list[str]:
        """The lines of a statement, with the names that its things have in the file."""
        lines = self.modules[module].lines.copy()
        for inner in _own_imports(statement):
            indent = " " * inner.col_offset
            number = (inner.end_lineno or inner.lineno) - inner.lineno + 1
            lines[inner.lineno - 1 : inner.end_lineno] = [f"{indent}pass"] * number
        renamed = {node.id: self._name(module, node.id) for node in ast.walk(statement) if isinstance(node, ast.Name)}
        renamed = {old: new for old, new in renamed.items() if new != old}
        for node in ast.walk(statement):
            if isinstance(node, ast.arg | ast.keyword) and node.arg in renamed:
                raise CannotLink(f"{module}, line {node.lineno}: {node.arg} is an argument here and a name elsewhere")
        places = [(n.lineno, n.col_offset, n.id) for n in ast.walk(statement) if isinstance(n, ast.Name)]
        for line, column, old in sorted(places, reverse=True):
            if old in renamed:
                text = lines[line - 1].encode()
                lines[line - 1] = (text[:column] + renamed[old].encode() + text[column + len(old.encode()) :]).decode()
        first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", []))])
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            words = "class" if isinstance(statement, ast.ClassDef) else "def"
            old, new = f"{words} {statement.name}", f"{words} {self._name(module, statement.name)}"
            lines[statement.lineno - 1] = lines[statement.lineno - 1].replace(old, new, 1)
        return lines[first - 1 : statement.end_lineno]

    def _name(self, module: str, name: str) -> str:
        origin = self._origin(module, name)
        return name if origin is None else self.names.get(origin, name)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == PACKAGE


def _path(module: str) -> Path:
    place = Path(__file__).parents[1].joinpath(*module.split(".")[1:])
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def _statements(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, ast.stmt]]:
    """Every statement, with the one at the top that contains it: imports may be tried, a definition have two ways, of
    which that of a type checker does not count."""
    for statement in body:
        yield statement, statement
        if isinstance(statement, ast.Try | ast.If):
            is_executed = not (isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING")
            inside = (*(statement.body if is_executed else ()), *statement.orelse)
            yield from ((inner, statement) for inner in inside)


def _enter(module: _Module, statement: ast.stmt, whole: ast.stmt) -> None:
    match statement:
        case ast.Import():
            for alias in statement.names:
                module.imported[alias.asname or alias.name.partition(".")[0]] = (alias.name, None)
        case ast.ImportFrom() if statement.module != "__future__":
            for alias in statement.names:
                module.imported[alias.asname or alias.name] = (statement.module or "", alias.name)
        case ast.FunctionDef() | ast.ClassDef():
            module.defined[statement.name] = whole
        case ast.Assign() | ast.AnnAssign():
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for node in (each for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)):
                module.defined[node.id] = whole


def _own_imports(statement: ast.stmt) -> list[ast.ImportFrom]:
    """Imports of ours inside a definition: what they name stands in the same file."""
    inside = (node for node in ast.walk(statement) if isinstance(node, ast.ImportFrom))
    return [node for node in inside if _is_ours(node.module or "")]
