"""Contenders that take turns, step by step, in one run; ratios of neighbouring steps with their spread."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from statistics import mean, median, stdev

HERE = Path(__file__).parent
T_95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26, 12: 2.20, 15: 2.14, 20: 2.09,
        30: 2.05, 40: 2.02, 60: 2.00}  # fmt: skip


class Contender:
    def __init__(self, name: str, sizes: dict[str, int]) -> None:
        self.name = name
        self.seconds: list[float] = []
        self.peak_bytes = 0
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "contender.py"), name, json.dumps(sizes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
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


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Geometric mean of paired ratios with its 95 % t interval."""
    logs = [math.log(ratio) for ratio in ratios]
    count = len(logs)
    t = next((value for size, value in sorted(T_95.items(), reverse=True) if size <= count), 12.71)
    half = t * stdev(logs) / math.sqrt(count) if count > 1 else math.inf
    return math.exp(mean(logs)), math.exp(mean(logs) - half), math.exp(mean(logs) + half)


def paired(numerator: list[float], denominator: list[float]) -> list[float]:
    return [a / b for a, b in zip(numerator, denominator, strict=True)]


def ratio_line(title: str, ratios: list[float], aim: str) -> str:
    middle, low, high = interval(ratios)
    return f"{title}: {middle:.3f} (95 % {low:.3f} to {high:.3f}, median {median(ratios):.3f}, n={len(ratios)}); {aim}"
