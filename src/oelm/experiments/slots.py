"""Where runs execute on this machine: groups of cores, or GPUs; a run of several processes takes several.

A started process is a session of its own, so that it outlives its controller. Its handle lies in the run directory:
whoever comes later can tell whether it still lives, and nothing is started twice.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass

from oelm.config import Settings
from oelm.errors import UserError
from oelm.files import read_json, write_json
from oelm.ownership import Process, now
from oelm.run_directory import RunDirectory
from oelm.settings import written_out


@dataclass(frozen=True)
class Unit:
    """One share of the machine: `gpu` None is a group of cores."""

    number: int
    gpu: str | None

    def __str__(self) -> str:
        return f"cpu {self.number}" if self.gpu is None else f"gpu {self.gpu}"


@dataclass(frozen=True)
class Handle:
    """A started run."""

    directory: RunDirectory
    process: Process
    units: tuple[int, ...]
    child: subprocess.Popen[bytes] | None = None  # None: started by an earlier controller

    def is_alive(self) -> bool:
        if self.child is not None:
            return self.child.poll() is None
        return self.process.is_alive_here() is True

    @property
    def exit_code(self) -> int | None:
        return self.child.poll() if self.child is not None else None

    def cancel(self) -> None:
        """Ask the run to save and stop, torchrun's workers too. Only a live process of this very machine is asked."""
        if not self.process.is_alive_here():
            return
        pid = self.process.pid
        with contextlib.suppress(ProcessLookupError):
            leads_a_group = os.getpgid(pid) == pid  # one started by hand may belong to somebody else's
            os.killpg(pid, signal.SIGTERM) if leads_a_group else os.kill(pid, signal.SIGTERM)


def units_here(slots: int | None, *, device: str, threads: int | None) -> list[Unit]:
    """The units of this machine: its GPUs, or as many groups of cores as the study's threads allow."""
    gpus = [] if device == "cpu" else visible_gpus()
    if gpus:
        if slots is not None and slots > len(gpus):
            raise UserError(f"--slots {slots}: this machine shows {len(gpus)} GPUs")
        return [Unit(number, gpu) for number, gpu in enumerate(gpus[:slots])]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return [Unit(number, None) for number in range(slots or max(1, cores // (threads or cores)))]


def visible_gpus() -> list[str]:
    """GPUs of this machine as CUDA_VISIBLE_DEVICES would name them; none without the driver's tool."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name.strip() for name in chosen.split(",") if name.strip() not in ("", "-1")]
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        listed = subprocess.run(
            [tool, "--query-gpu=index", "--format=csv,noheader"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in listed.stdout.splitlines() if line.strip()]


def train_command(directory: RunDirectory, *, processes: int) -> list[str]:
    """Exactly what is started. Standalone rendezvous takes a free port each time, so that ports never collide."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return [
        sys.executable, *(launcher if processes > 1 else []), "-m", "oelm", "train", str(directory.settings_file),
        "--out", str(directory.path),
    ]  # fmt: skip


def submit(directory: RunDirectory, settings: Settings, *, processes: int, units: list[Unit]) -> Handle:
    """Start a run on some units."""
    write_json(directory.settings_file, written_out(settings))
    gpus = [unit.gpu for unit in units if unit.gpu is not None]
    environment = os.environ | ({"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {})
    with open(directory.output_file, "ab") as output:
        child = subprocess.Popen(
            train_command(directory, processes=processes),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )
    handle = Handle(directory, Process.of(child.pid), tuple(unit.number for unit in units), child)
    stored = {
        **handle.process.__dict__,
        "units": [str(unit) for unit in units],
        "numbers": handle.units,
        "started": now(),
    }
    write_json(directory.handle_file, stored)
    return handle


def living(directory: RunDirectory) -> Handle | None:
    """The handle of a run that an earlier controller started on this machine and that still runs."""
    try:
        stored = read_json(directory.handle_file)
        handle = Handle(directory, Process.stored(stored), tuple(stored.get("numbers", ())))
    except (OSError, UserError, AttributeError):
        return None
    return handle if handle.is_alive() else None
