"""Sources of labelled sentences for the tests: small files as users have them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path

from small_encoders import WORDS

NLI = ("entailment", "neutral", "contradiction")


def written(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def sentence(draw: random.Random, *, longest: int = 9) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(2, longest)))


def pairs(count: int, *, seed: int = 0, labels: Iterable[str] = NLI) -> list[tuple[str, str, str]]:
    """Three hypotheses a premise, as in MNLI."""
    draw, labels = random.Random(seed), list(labels)
    rows, premise = [], ""
    for number in range(count):
        premise = premise if number % 3 else sentence(draw)
        rows.append((premise, sentence(draw), labels[number % len(labels)]))
    return rows


def table(path: Path, rows: Iterable[tuple], header: tuple[str, ...] = ("premise", "hypothesis", "label")) -> Path:
    return written(path, "".join("\t".join(map(str, row)) + "\n" for row in (header, *rows)))


def json_lines(path: Path, rows: Iterable[dict]) -> Path:
    return written(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def nli_folder(folder: Path, *, train: int = 120, val: int = 30, seed: int = 0, **more: int) -> Path:
    """A folder of one's own: train, val and what else is asked for."""
    for place, (name, count) in enumerate({"train": train, "val": val, **more}.items()):
        table(folder / f"{name}.tsv", pairs(count, seed=1000 * seed + place))
    return folder
