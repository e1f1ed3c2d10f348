"""What a task of a Slurm array does: it starts `oelm train` on its run directory and stays beside it.

Slurm sends USR1 before the time limit: the run saves, and the job goes back into the queue. At a preemption or a
cancellation Slurm sends TERM to the run itself and decides what becomes of the job; here it is only waited for.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import IO, Any

from oelm.execution.engine import Start, train_command
from oelm.machine.visible import visible
from oelm.run.directory import RunDirectory
from oelm.storage.files import append_to
from oelm.storage.schemas import JobArray, read_record

REQUEUE_SECONDS = 60.0
# For torchrun with restarts: a store of its own for every start, without the addresses of processes that are gone.
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def main() -> int:
    file, task = Path(sys.argv[1]), int(os.environ["SLURM_ARRAY_TASK_ID"])
    array = read_record(file, JobArray)
    directory = RunDirectory(Path(array["directories"][task]))
    start = Start(start_of(file.stem, task), command(array, directory))
    with io.TextIOWrapper(append_to(directory.output_file), encoding="utf-8", line_buffering=True) as output:
        return ArrayTask(array, directory, start, output).go()


class ArrayTask:
    def __init__(self, array: dict[str, Any], directory: RunDirectory, start: Start, output: IO[str]) -> None:
        self._array, self._directory, self._start, self._output = array, directory, start, output
        self._child: subprocess.Popen[bytes] | None = None
        self._limit_is_near = self._slurm_ends_it = False

    def go(self) -> int:
        signal.signal(signal.SIGUSR1, self._save)
        signal.signal(signal.SIGTERM, self._note)
        number = own_number()
        node, again = socket.gethostname(), int(os.environ.get("SLURM_RESTART_COUNT", 0))
        self._say(f"Slurm job {number} on {node}" + (f", requeued {again} times" if again else ""))
        if not self._limit_is_near:
            self._child = subprocess.Popen(
                self._start.command,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                env=self._start.environment | OWN_STORE,
            )
            code = self._child.wait()
        else:
            code = 128 + signal.SIGUSR1
        if self._limit_is_near and code != 0 and not self._slurm_ends_it:
            self._requeue(number)
        return 128 - code if code < 0 else code

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Preempted or cancelled. The run has had the signal too, and saves."""
        self._slurm_ends_it = True

    def _save(self, number: int, frame: FrameType | None) -> None:
        if self._limit_is_near:
            return
        self._limit_is_near = True
        if self._child is None or self._child.poll() is not None:
            return
        if self._array["nodes"] == 1:
            self._child.send_signal(signal.SIGTERM)
        else:  # srun itself would kill its step at once: the processes of the step are asked instead
            step = f"{own_number()}.0"
            subprocess.Popen([shutil.which("scancel") or "scancel", "--signal=TERM", step], stdin=subprocess.DEVNULL)

    def _requeue(self, number: str) -> None:
        """After the time limit's signal: the run has saved, or what it saved last counts."""
        if (self._directory.status() or {}).get("state") not in ("interrupted", "running", "queued"):
            return
        self._say("the time limit is near: requeueing")
        try:
            subprocess.run(
                [shutil.which("scontrol") or "scontrol", "requeue", number],
                stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT, timeout=REQUEUE_SECONDS,
                check=True,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            if self._slurm_ends_it:  # the request was heard, and ends us all
                return
            self._say(f"could not be requeued ({error}); `oelm run` submits the run again")

    def _say(self, line: str) -> None:
        self._output.write(f"oelm: {visible(line)}\n")


def start_of(array: str, task: int) -> str:
    """The name of the start that a task is, however often Slurm requeues it."""
    return f"{array}/{task}"


def own_number() -> str:
    """Of this task alone. One task's SLURM_JOB_ID is the whole array's: Slurm would take all of them for it."""
    return f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"


def command(array: dict[str, Any], directory: RunDirectory) -> list[str]:
    """`oelm train`, by torchrun for several processes, by one torchrun on each node for several nodes."""
    nodes, processes = array["nodes"], array["processes"]
    if nodes == 1:
        return train_command(directory, processes=processes)
    with socket.socket() as listener:
        listener.bind(("", 0))
        meeting = f"{socket.gethostname()}:{listener.getsockname()[1]}"  # the task's script runs on the first node
    return [
        shutil.which("srun") or "srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1",
        f"--cpus-per-task={array['cpus']}", "--kill-on-bad-exit=0", "--wait=60",
        *over_nodes(directory, nodes=nodes, processes=processes, meeting=meeting, restarts=array["restarts"]),
    ]  # fmt: skip


def over_nodes(directory: RunDirectory, *, nodes: int, processes: int, meeting: str, restarts: int) -> list[str]:
    """What is started on every node: the processes meet at one address, and all start again when one is lost."""
    launcher = [
        "-m", "torch.distributed.run", "--nnodes", str(nodes), "--nproc-per-node", str(processes // nodes),
        "--rdzv-backend", "c10d", "--rdzv-endpoint", meeting, "--rdzv-id", directory.path.name,
        "--max-restarts", str(restarts),
    ]  # fmt: skip
    start = train_command(directory, processes=1)
    return [start[0], *launcher, *start[1:]]


if __name__ == "__main__":
    sys.exit(main())
