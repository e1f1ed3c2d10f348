"""Our Hugging Face classes as one file of source that needs no oelm: linked from our own modules when a model is exported.

Taken are the definitions that the classes reach by name, as they are written, in the order in which modules import each
other. Nothing is run and nothing is renamed: two modules that give one name to two things cannot be linked.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = "oelm"
HOME = f"{PACKAGE}.huggingface.gpt"
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


class _Linker:
    def __init__(self) -> None:
        self.modules: dict[str, _Module] = {}
        self.order: list[str] = []  # what a module imports comes before it
        self.taken: dict[str, set[ast.stmt]] = {}
        self.owner: dict[str, tuple[str, str | None]] = {}  # name -> where it comes from
        self.outside: set[tuple[str, str | None, str]] = set()

    @property
    def packages(self) -> list[str]:
        """Packages beyond Python's own."""
        import sys

        found = {module.partition(".")[0] for module, _, _ in self.outside}
        return sorted(found - sys.stdlib_module_names)

    def need(self, module: str, name: str) -> None:
        """Take what defines `name` in `module`, and all that it reaches."""
        here = self._read(module)
        if name in here.imported:
            origin, original = here.imported[name]
            if original is not None and _is_ours(origin):
                if original != name:
                    raise CannotLink(f"{module}: {original} is imported as {name}")
                self.need(origin, original)
            else:
                self._own(name, (origin, original))
                self.outside.add((origin, original, name))
        elif name in here.defined:
            self._own(name, (module, None))
            self._take(module, here.defined[name])

    def _take(self, module: str, statement: ast.stmt) -> None:
        if statement in self.taken[module]:
            return
        self.taken[module].add(statement)
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                self.need(module, node.id)
            elif isinstance(node, ast.ImportFrom | ast.Import) and any(_is_ours(name) for name in _modules_of(node)):
                raise CannotLink(f"{module}, line {node.lineno}: an import of ours inside a definition")

    def _own(self, name: str, origin: tuple[str, str | None]) -> None:
        if self.owner.setdefault(name, origin) != origin:
            raise CannotLink(f"{name}: is one thing in {origin[0]} and another in {self.owner[name][0]}")

    def _read(self, name: str) -> _Module:
        if name not in self.modules:
            source = _path(name).read_text()
            module = self.modules[name] = _Module(lines=source.splitlines())
            self.taken[name] = set()
            for statement in _statements(ast.parse(source).body):
                _enter(module, statement)
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
                pieces.append("\n" + "\n".join(_lines_of(self.modules[name].lines, statement)) + "\n")
        return "\n".join(pieces)

    def _imports(self) -> Iterator[str]:
        for module, original, name in sorted(self.outside, key=str):
            if original is None:
                yield f"import {module}" + ("" if module == name else f" as {name}")
            else:
                yield f"from {module} import {original}" + ("" if original == name else f" as {name}")


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == PACKAGE


def _path(module: str) -> Path:
    place = Path(__file__).parents[1].joinpath(*module.split(".")[1:])
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """With the imports of a `try` or an `if`, which are tried or meant for type checkers only."""
    for statement in body:
        if isinstance(statement, ast.Try | ast.If):
            yield from (each for each in statement.body if isinstance(each, ast.Import | ast.ImportFrom))
        else:
            yield statement


def _enter(module: _Module, statement: ast.stmt) -> None:
    match statement:
        case ast.Import():
            for alias in statement.names:
                module.imported[alias.asname or alias.name.partition(".")[0]] = (alias.name, None)
        case ast.ImportFrom() if statement.module != "__future__":
            for alias in statement.names:
                module.imported[alias.asname or alias.name] = (statement.module or "", alias.name)
        case ast.FunctionDef() | ast.ClassDef():
            module.defined[statement.name] = statement
        case ast.Assign() | ast.AnnAssign():
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for node in (each for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)):
                module.defined[node.id] = statement


def _modules_of(node: ast.Import | ast.ImportFrom) -> list[str]:
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]


def _lines_of(lines: list[str], statement: ast.stmt) -> list[str]:
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(each.lineno for each in decorators)])
    return lines[first - 1 : statement.end_lineno]
