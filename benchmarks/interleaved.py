"""Contenders that take turns, step by step, in one run; ratios of neighbouring steps with their spread."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from ratios import interval

HERE = Path(__file__).parent


def environment_for(sources: Path | None) -> dict[str, str]:
    """Of a process that uses these sources of oelm instead of the installed ones."""
    return os.environ | ({"PYTHONPATH": str(sources)} if sources else {})


class Contender:
    """`program` and `sources`: of another version of oelm than this one."""

    def __init__(
        self, name: str, sizes: dict[str, int], *, program: Path = HERE / "contender.py", sources: Path | None = None
    ) -> None:
        self.name = name
        self.seconds: list[float] = []
        self.peak_bytes = 0
        self._process = subprocess.Popen(
            [sys.executable, str(program), name, json.dumps(sizes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment_for(sources),
        )

    def step(self) -> float:
        self._process.stdin.write("step\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        self.peak_bytes = answer["peak_bytes"]
        return answer["seconds"]

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """The tree of another commit, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        then = Path(folder) / "then"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(then), commit], cwd=HERE, check=True)
        try:
            yield then
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(then)], cwd=HERE, check=True)


def take_turns(names: list[str], sizes: dict[str, int], *, rounds: int, warmups: int = 2) -> dict[str, Contender]:
    contenders = {name: Contender(name, sizes) for name in names}
    for contender in contenders.values():
        for _ in range(warmups):
            contender.step()
    for number in range(rounds):
        for contender in contenders.values():
            contender.seconds.append(contender.step())
        took = "  ".join(f"{c.name} {c.seconds[-1]:.2f} s" for c in contenders.values())
        print(f"round {number + 1}/{rounds}: {took}", flush=True)
    for contender in contenders.values():
        contender.close()
    return contenders


def ratio_line(title: str, ratios: list[float], aim: str) -> str:
    middle, low, high = interval(ratios)
    return f"{title}: {middle:.3f} (95 % {low:.3f} to {high:.3f}, median {median(ratios):.3f}, n={len(ratios)}); {aim}"
