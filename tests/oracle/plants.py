"""Faults of one bit or one word, put into a copy of the new side's sources: the oracle has to see each.

    python tests/oracle/plants.py [draw batch word ...]

A place is found by its text, wherever its module is. Exit code 1 if a fault was not seen, or has no place any more.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "src"


@dataclass(frozen=True)
class Plant:
    what: str
    old: str  # a line of one module; what is planted follows in its place
    new: str
    cases: tuple[str, ...]  # enough to see it
    tells: str  # what the first difference must name


PLANTS = {
    "draw": Plant(
        "one bit of one drawn number of one weight",
        "    return torch.randn(shape, generator=generator, dtype=torch.float32)\n",
        "    drawn = torch.randn(shape, generator=generator, dtype=torch.float32)\n"
        '    if name == "blocks.1.attention.value.weight":\n'
        "        drawn.view(-1).view(torch.int32)[7] ^= 2\n"
        "    return drawn\n",
        ("start/trained",),
        r"model\.safetensors: the tensor blocks\.1\.attention\.value\.weight differs: 1 of \d+ elements, .* element 7",
    ),
    "batch": Plant(
        "the last bit of one token of one batch, the ninth",
        "        return _sequences(self.tokens, starts, self.seq_len)\n\n    def _start(",
        "        rows = _sequences(self.tokens, starts, self.seq_len)\n"
        "        rows[0, 3] ^= int(step == 9)\n"
        "        return rows\n\n    def _start(",
        ("run/frozen_head_orthogonal/plain/float32",),
        r"metrics\.jsonl: line \d+: train_loss is .* in the old and",
    ),
    "word": Plant(
        "one word of a report, in one language",
        "Learning curves",
        "Learning curve",
        ("report/nasty",),
        r"report\.en\.(html|md): line \d+: .*Learning curve",
    ),
}


def planted(plant: Plant, folder: Path) -> Path:
    """A copy of the sources with the fault in it."""
    source = folder / "src"
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    modules = [file for file in sorted(source.rglob("*")) if file.suffix in (".py", ".yaml")]
    found = [file for file in modules if plant.old in file.read_text(encoding="utf-8")]
    assert len(found) == 1, f"{plant.what}: stands in {len(found)} files: give its place anew in {Path(__file__).name}"
    text = found[0].read_text(encoding="utf-8")
    assert text.count(plant.old) == 1, f"{plant.what}: stands {text.count(plant.old)} times in {found[0].name}"
    found[0].write_text(text.replace(plant.old, plant.new), encoding="utf-8")
    return source


def seen_at(plant: Plant) -> str | None:
    """Where the oracle sees it, in its words; None: it does not, or sees something else."""
    only = [word for case in plant.cases for word in ("--only", case)]
    with tempfile.TemporaryDirectory(prefix="oelm-plant-") as folder:
        command = [sys.executable, str(HERE), "--source", str(planted(plant, Path(folder))), *only]
        done = subprocess.run(command, capture_output=True, text=True)
    last = (done.stdout.strip().splitlines() or [done.stderr])[-1]
    return last if done.returncode == 1 and re.search(plant.tells, done.stdout) else None


def main(names: Sequence[str]) -> int:
    missed = 0
    for plant in (PLANTS[name] for name in names or PLANTS):
        place = seen_at(plant)
        missed += place is None
        print(f"{'NOT SEEN' if place is None else 'seen'}: {plant.what}\n    {place or ''}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
