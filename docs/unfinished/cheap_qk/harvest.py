"""Pack what a study's runs came to into one more archive, or lay all archives out as folders again. No packages.

    python harvest.py pack RUNS          # of RUNS/STUDY/...: what no archive here holds, as the next harvest-NNN.tar.xz
    python harvest.py restore RUNS       # every archive here, in order; what RUNS already holds stays as it is

An archive is never written again. A run is packed when it is sealed, with the files that `oelm archive` keeps: no
weights, no logs. The files of a study itself (registration, choices) are packed again when they have changed; the
latest one counts.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

OF_STUDY = ("registration.json", "choices.json", "bench.json", "check.json")
OF_RUN = (
    "config.json", "environment.json", "parameters.json", "metrics.jsonl", "predictions.json", "experiment_result.json",
    "timing_stats.json", "status.json", "seal.json",
)  # fmt: skip
ENDED = ("finished", "diverged")


def archives(here: Path) -> list[Path]:
    return sorted(here.glob("harvest-*.tar.xz"))


def held(here: Path) -> dict[str, str]:
    """Name -> SHA-256 of what the archives hold; of a name that several hold, the latest."""
    found = {}
    for archive in archives(here):
        with tarfile.open(archive) as tar:
            for member in tar:
                content = tar.extractfile(member)
                assert content is not None, f"{archive}: {member.name} is no file"
                found[member.name] = hashlib.sha256(content.read()).hexdigest()
    return found


def results(runs: Path) -> Iterator[Path]:
    """Of each study its own files, and those of every run, final or of tuning, that has ended and is sealed."""
    for study in sorted(path for path in runs.iterdir() if path.is_dir()):
        yield from (study / name for name in OF_STUDY if (study / name).is_file())
        for run in sorted([*study.glob("*/seal.json"), *study.glob("tuning/*/seal.json")]):
            if json.loads((run.parent / "status.json").read_text())["state"] in ENDED:
                yield from (run.parent / name for name in OF_RUN if (run.parent / name).is_file())


def pack(runs: Path, here: Path) -> None:
    known, new = held(here), {}
    for path in results(runs):
        name, content = path.relative_to(runs).as_posix(), path.read_bytes()
        is_of_study = path.name in OF_STUDY
        if name not in known or (is_of_study and known[name] != hashlib.sha256(content).hexdigest()):
            new[name] = content
    if not new:
        print("nothing new")
        return
    target = here / f"harvest-{len(archives(here)) + 1:03}.tar.xz"
    part = target.with_suffix(".part")
    with tarfile.open(part, "w:xz", preset=9) as tar:
        for name, content in sorted(new.items(), key=lambda each: (each[0].rpartition("/")[2], each[0])):
            member = tarfile.TarInfo(name)  # no owner, no date: the same results give the same bytes
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    os.replace(part, target)
    total = sum(name.endswith("/seal.json") for name in known.keys() | new.keys())
    added = sum(name.endswith("/seal.json") for name in new)
    print(f"{target.name}: {added} runs, {target.stat().st_size:,} bytes; {total} in all")


def restore(runs: Path, here: Path) -> None:
    """Of files of a study the latest. A run that is here already, begun or ended, is left alone."""
    there = {path.parent for path in [*runs.glob("*/*/config.json"), *runs.glob("*/tuning/*/config.json")]}
    of_studies = {runs / study / name for study in os.listdir(runs) for name in OF_STUDY} if runs.is_dir() else set()
    there_before = {path for path in of_studies if path.exists()}
    written = set()
    for archive in archives(here):
        with tarfile.open(archive) as tar:
            for member in tar:
                path, content = runs / member.name, tar.extractfile(member)
                assert content is not None
                if path.parent in there or path in there_before:
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())
                written.add(path)
    print(f"{sum(path.name == 'seal.json' for path in written)} runs restored in {runs}, {len(there)} were there")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("act", choices=("pack", "restore"))
    parser.add_argument("runs", type=Path)
    parser.add_argument("--here", type=Path, default=Path(__file__).parent, help="the folder of the archives")
    given = parser.parse_args()
    (pack if given.act == "pack" else restore)(given.runs, given.here)


if __name__ == "__main__":
    sys.exit(main())
