"""The oracle: the code here against the code of a base commit, both run on this machine, everything compared.

    make oracle               all cases; TENTH=1 for a tenth of them, BASE=COMMIT for another base
    python tests/oracle --only 'run/frozen_*' --stop

What the two sides leave (weights, moments, losses, counts, identities, reports) must be equal bit for bit, but for what
intended.py lists with its reason. The first difference is told in plain words, and the exit code is then 1.
"""

from __future__ import annotations

import argparse
import fcntl
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path

from cases import Case, Refused, World, all_cases, prepare, slug
from compare import Difference
from side import Side

BASE = "20da272"  # the last commit before the removals
REPOSITORY = Path(__file__).resolve().parents[2]
COSTLY = 25  # not in a tenth
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oelm-oracle"


def main(words: Sequence[str] | None = None) -> int:
    options = _options(words)
    began = time.monotonic()
    base = worktree_of(options.base)
    root = options.keep.resolve() if options.keep else Path(tempfile.mkdtemp(prefix="oelm-oracle-"))
    source = copied((options.source or REPOSITORY / "src").resolve(), root / "sources")
    with ThreadPoolExecutor() as starting:
        old, new = starting.map(
            lambda given: Side(given[0], given[1], root / given[0]), (("old", base / "src"), ("new", source))
        )
    try:
        print(f"old: {old.imported}\nnew: {new.imported}, of {options.source or REPOSITORY / 'src'}", flush=True)
        world = World(old, new, base)
        prepare(world)
        arms, studies = listed(world, "arms"), listed(world, "studies")
        cases = chosen(all_cases(arms, studies), tenth=options.tenth, only=options.only)
        if options.list:
            print("\n".join(case.name for case in cases))
            return 0
        found = played(world, cases, jobs=options.jobs, stop=options.stop, keep=options.keep is not None)
    finally:
        for side in (old, new):
            side.close()
        if options.keep is None:
            shutil.rmtree(root, ignore_errors=True)
    print(f"processor time of the commands: {old.seconds:.0f} s old, {new.seconds:.0f} s new")
    return told(found, len(cases), time.monotonic() - began)


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=BASE, metavar="COMMIT", help=f"what to compare with (default {BASE})")
    parser.add_argument("--tenth", action="store_true", help="every tenth case of each kind")
    parser.add_argument("--only", action="append", metavar="PATTERN", help="cases of these names; repeatable")
    parser.add_argument("--stop", action="store_true", help="end at the first case that differs")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what both sides write, in this new folder")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="cases at once (default: one a core)")
    parser.add_argument("--source", type=Path, metavar="SRC", help="the new side's source tree (default: src here)")
    parser.add_argument("--list", action="store_true", help="name the cases, play none")
    return parser.parse_args(words)


def worktree_of(commit: str) -> Path:
    """The base, checked out once in the cache."""
    whole = _git("rev-parse", "--verify", f"{commit}^{{commit}}")
    folder = CACHE / whole[:12]
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of two oracles one checks it out
        if not (folder / "src/oelm/__init__.py").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            _git("worktree", "prune")
            _git("worktree", "add", "--detach", str(folder), whole)
    changed = subprocess.run(
        ["git", "status", "--porcelain", "--", "src", "tests"], cwd=folder, capture_output=True, text=True, check=True
    ).stdout
    if changed:
        raise SystemExit(
            f"{folder}: is the base, and was changed; remove it with: git worktree remove --force {folder}"
        )
    return folder.resolve()


def copied(source: Path, folder: Path) -> Path:
    """The new side as it is now: an edit while the oracle plays is not half in it."""
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for part in (source, *(source.parent / name for name in ("scripts", "models"))):
        if part.is_dir():
            shutil.copytree(part, folder / part.name, ignore=leave)
    return (folder / source.name).resolve()


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


NAMES = {
    "arms": "import oelm; print(*oelm.ARMS, sep='\\n')",
    "studies": "from pathlib import Path; import oelm\n"
    "print(*sorted(file.stem for file in (Path(oelm.__file__).parent / 'studies').glob('*.yaml')), sep='\\n')",
}


def listed(world: World, what: str) -> list[str]:
    """What the base has, and in its order; what is new here has nothing to be compared with."""
    script = world.old.root / f"{what}.py"
    script.write_text(NAMES[what])
    world.old.run([], cwd=world.old.root, log=what, script=script)
    return (world.old.root / f"{what}.out").read_text().split()


def chosen(cases: list[Case], *, tenth: bool, only: Sequence[str] | None) -> list[Case]:
    if only:
        return [case for case in cases if any(fnmatch(case.name, pattern) for pattern in only)]
    if not tenth:
        return cases
    kinds = itertools.groupby(cases, key=lambda case: case.name.split("/")[0])
    return [
        case
        for _, kind in kinds
        for place, case in enumerate(kind)
        if case.always or (place % 10 == 3 and case.cost < 25)
    ]


# ---- Playing ---------------------------------------------------------------------------------------------------------


def played(world: World, cases: list[Case], *, jobs: int, stop: bool, keep: bool) -> dict[str, list[Difference]]:
    """Every case that differs, with its differences, in the order of the cases."""
    found: dict[str, list[Difference]] = {}
    clock, lock, ended = Clock(cases), threading.Lock(), threading.Event()

    def play(case: Case) -> None:
        if ended.is_set():
            return
        try:
            apart = list(case.play(world, case.name))
        except Refused as refusal:
            apart = [Difference("the case itself", str(refusal))]
        except Exception:
            apart = [Difference("the oracle itself", traceback.format_exc(limit=4))]
        with lock:
            line = clock.done(case)
            if apart:
                found[case.name] = apart
                print(f"DIFFERS  {case.name}: {apart[0]}", flush=True)
                if stop:
                    ended.set()
            elif not keep and case.name != "data":  # which the others read
                for side in (world.old, world.new):
                    shutil.rmtree(side.root / slug(case.name), ignore_errors=True)
            if line:
                print(line, flush=True)

    with ThreadPoolExecutor(jobs) as threads:
        list(threads.map(play, cases))
    places = {case.name: place for place, case in enumerate(cases)}
    return dict(sorted(found.items(), key=lambda each: places[each[0]]))


class Clock:
    """How far it is, and how long it still takes; a line about every ten seconds."""

    def __init__(self, cases: list[Case]) -> None:
        self.began = self.said = time.monotonic()
        self.number, self.all = 0, len(cases)
        self.cost, self.whole = 0.0, sum(case.cost for case in cases)

    def done(self, case: Case) -> str | None:
        self.number, self.cost, now = self.number + 1, self.cost + case.cost, time.monotonic()
        if now - self.said < 10 and self.number < self.all:
            return None
        self.said = now
        left = (now - self.began) * (self.whole - self.cost) / self.cost
        return f"[{self.number}/{self.all}] {case.name}  (ETA {left / 60:.1f} min)"


def told(found: dict[str, list[Difference]], count: int, seconds: float) -> int:
    if not found:
        print(f"all {count} cases are equal ({seconds / 60:.1f} min)")
        return 0
    print(f"\n{len(found)} of {count} cases differ ({seconds / 60:.1f} min):")
    for case, apart in found.items():
        print(f"  {case}")
        for difference in apart[:4]:
            print(f"    {difference}")
        if len(apart) > 4:
            print(f"    ... and {len(apart) - 4} files more")
    case, apart = next(iter(found.items()))
    print(f"\nThe first difference: in the case {case}, the file {apart[0]}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
