"""Which test holds each law that the tests held at a base commit: tests/laws.md, written by `make laws`.

A law is a test function. One that has kept its name is found by it, wherever it stands now; of the others, laws.tsv
says which test holds them, or why they went. A law that is in neither place is an error.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

BASE = "20da272"  # the last commit before the removals
TESTS = Path(__file__).resolve().parent
MOVED = TESTS / "laws.tsv"
PAGE = TESTS / "laws.md"


def laws_in(text: str) -> list[str]:
    """The names of the test functions of a file, those of classes too."""
    return [
        node.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]


def laws_at(commit: str) -> dict[str, list[str]]:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=TESTS.parent, capture_output=True, text=True, check=True).stdout

    files = [file for file in git("ls-tree", "-r", "--name-only", commit, "tests").split() if file.endswith(".py")]
    return {file.removeprefix("tests/"): laws_in(git("show", f"{commit}:{file}")) for file in files}


def laws_now() -> dict[str, list[str]]:
    return {file.relative_to(TESTS).as_posix(): laws_in(file.read_text()) for file in sorted(TESTS.rglob("*.py"))}


def moved() -> dict[str, str]:
    """`file::law` of the base -> `file::law` now, or `gone: reason`."""
    rows = [line.split("\t") for line in MOVED.read_text(encoding="utf-8").splitlines() if line]
    return dict(rows)


def holder(file: str, name: str, *, now: dict[str, list[str]], told: dict[str, str]) -> str | None:
    """Where a law of the base stands: by what laws.tsv says of it, step by step, else by its name."""
    law = f"{file}::{name}"
    for _ in range(len(told) + 1):
        place, _, held = law.partition("::")
        if law.startswith("gone: ") or held in now.get(place, ()):
            return law
        elsewhere = [other for other, names in now.items() if held in names]
        said = told.get(law) or next((new for old, new in told.items() if old.endswith(f"::{held}")), None)
        law = said if said and not elsewhere else f"{elsewhere[0]}::{held}" if elsewhere else ""
        if not law:
            return None
    return None


def main() -> int:
    before, now, told = laws_at(BASE), laws_now(), moved()
    lines, lost, gone = [], [], 0
    for file, names in sorted(before.items()):
        rows = []
        for name in names:
            held = holder(file, name, now=now, told=told)
            if held is None:
                lost.append(f"{file}::{name}")
                continue
            gone += held.startswith("gone: ")
            place = held.removesuffix(f"::{name}").replace("::", ", ")
            rows.append(f"- {name.removeprefix('test_').replace('_', ' ')}: {place}")
        if rows:
            lines += [f"## {file}", "", *rows, ""]
    if lost:
        print(
            f"{len(lost)} laws are in no test, and {MOVED.name} does not say where:", *lost, sep="\n", file=sys.stderr
        )
        return 1
    PAGE.write_text(
        "# Laws of the tests\n\n"
        f"Written by `make laws`: what every test of commit {BASE} stated, and the test that holds it now. Of "
        f"{sum(map(len, before.values()))} laws then, {gone} went with what they were about; there are "
        f"{sum(map(len, now.values()))} test functions now.\n\n" + "\n".join(lines),
        encoding="utf-8",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
