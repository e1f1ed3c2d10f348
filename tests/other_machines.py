"""The tests as other machines would run them: `make machines`, or this file with names of rows.

A row simulates another processor (by what torch, MKL, OpenBLAS and numpy are told to use), number of threads, locale
and time zone, home, user or path. Each runs all tests that neither start a process nor compile (`--alone`) in a copy of
the repository; words after `--` go to pytest. `--environment NAME` prints a row's variables, for a whole `make test`.
What the libraries say of the processor then, and what cannot be simulated, is said.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
NOBODY = 65534
# Whether the libraries went by what they were told: names that one does not know it passes over.
TOLD = """
import numpy, torch
from numpy._core._multiarray_umath import __cpu_dispatch__ as known, __cpu_features__ as features
used = [name for name in known if features[name]]
print(f"torch {torch.backends.cpu.get_cpu_capability()}, numpy {' '.join(used) or 'as built'}")
"""
READ_ONLY = "/proc"  # where nobody can write, root neither


@dataclass(frozen=True)
class Machine:
    """One row: what is set, and how the tests are started."""

    name: str
    sets: dict[str, str] = field(default_factory=dict)
    needs: str | None = None  # of the processor, as /proc/cpuinfo calls it
    as_nobody: bool = False
    folder: str = "oelm"  # where the copy is

    @property
    def cannot(self) -> str | None:
        """Why this machine cannot pass for it."""
        if self.needs is not None and self.needs not in Path("/proc/cpuinfo").read_text().split():
            return f"this processor has no {self.needs}"
        if self.as_nobody and os.geteuid() != 0:
            return "only root can become somebody else"
        try:
            subprocess.run([sys.executable, "-c", ""], check=True, **self.user)
        except (PermissionError, subprocess.CalledProcessError):
            return f"somebody else may not run {sys.executable}"
        return None

    @property
    def user(self) -> dict[str, Any]:
        """For a process."""
        return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if self.as_nobody else {}


# As numpy calls them since 2.4, then as it did before.
WITHOUT_AVX512 = "X86_V4 AVX512_ICL AVX512_SPR AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL"
WITHOUT_AVX2 = f"X86_V3 {WITHOUT_AVX512} AVX2 FMA3 F16C AVX"
MACHINES = {
    machine.name: machine
    for machine in (
        Machine(
            "plain",
            {
                "ATEN_CPU_CAPABILITY": "default", "OPENBLAS_CORETYPE": "Prescott", "MKL_CBWR": "COMPATIBLE",
                "NPY_DISABLE_CPU_FEATURES": WITHOUT_AVX2, "OMP_NUM_THREADS": "1",
            },
        ),
        Machine(
            "avx2",
            {
                "ATEN_CPU_CAPABILITY": "avx2", "OPENBLAS_CORETYPE": "Zen", "MKL_CBWR": "AVX2",
                "NPY_DISABLE_CPU_FEATURES": WITHOUT_AVX512, "TZ": "Asia/Shanghai", "LC_ALL": "C",
            },
            needs="avx2",
        ),
        Machine(
            "avx512",
            {"ATEN_CPU_CAPABILITY": "avx512", "OPENBLAS_CORETYPE": "SkylakeX", "TZ": "America/St_Johns"},
            needs="avx512f",
        ),
        Machine("threads", {"OMP_NUM_THREADS": "4", "OPENBLAS_CORETYPE": "Haswell"}),
        Machine("nobody", {"OMP_NUM_THREADS": "1", "LC_ALL": "C.UTF-8"}, as_nobody=True),
        Machine("read_only_home", {"HOME": READ_ONLY, "XDG_CACHE_HOME": f"{READ_ONLY}/cache"}),
        Machine("path", {"TZ": "Pacific/Kiritimati", "LANG": "zh_CN.UTF-8"}, folder="a path 含空格"),
    )
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(MACHINES)}; all if none is given")
    parser.add_argument("--environment", metavar="NAME", help="print the variables of a row and do nothing else")
    parser.add_argument("-n", default="auto", help="how many tests at once (pytest-xdist)")
    words = sys.argv[1:]
    own, further = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    asked = parser.parse_args(own)
    if unknown := {*asked.names, *filter(None, [asked.environment])} - {*MACHINES}:
        parser.error(f"{', '.join(sorted(unknown))}: the rows are {', '.join(MACHINES)}")
    if asked.environment:
        # Kernels that were compiled for the processor as it is are not those of the simulated one.
        kernels = {"TORCHINDUCTOR_CACHE_DIR": f"{tempfile.gettempdir()}/oelm-kernels-{asked.environment}"}
        print("\n".join(f"{name}={value}" for name, value in (MACHINES[asked.environment].sets | kernels).items()))
        return 0
    ends = [_run(MACHINES[name], [f"-n{asked.n}", *further]) for name in asked.names or MACHINES]
    return max(ends, default=0)


def _run(machine: Machine, further: list[str]) -> int:
    if machine.cannot:
        print(f"{machine.name}: not simulated: {machine.cannot}", flush=True)
        return 0
    began = time.monotonic()
    place = Path(tempfile.mkdtemp(prefix="other-machine-"))
    try:
        copy, temporary = place / machine.folder, place / "tmp"
        subprocess.run(["git", "clone", "--quiet", "--shared", str(REPOSITORY), str(copy)], check=True)
        temporary.mkdir()
        if machine.as_nobody:
            for each in (place, *place.rglob("*")):
                os.chown(each, NOBODY, NOBODY, follow_symlinks=False)
        # OMP_NUM_THREADS is set by tests/conftest.py where nobody has set it.
        environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "TMPDIR": str(temporary)}
        if machine.as_nobody:
            environment["HOME"] = str(temporary)
        pytest = ["pytest", "--alone", "-q", "--dist", "loadfile", "-p", "no:cacheprovider", *further]
        told, done = (
            subprocess.run(
                [sys.executable, *words],
                cwd=copy,
                env=environment | machine.sets,
                capture_output=True,
                text=True,
                encoding="utf-8",
                errors="replace",
                **machine.user,
            )
            for words in (["-c", TOLD], ["-m", *pytest])
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if done.returncode:
        print(done.stdout[-20_000:], done.stderr[-4_000:], sep="\n")
    last = (done.stdout.strip().splitlines() or ["no output"])[-1].strip("= ")
    outcome = "FAILED" if done.returncode else "passed"
    print(f"{machine.name}: {told.stdout.strip()}")
    print(f"{machine.name}: {outcome} in {time.monotonic() - began:.0f} s: {last}", flush=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
