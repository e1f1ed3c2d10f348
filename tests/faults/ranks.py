"""Two processes of one run, started by the real torchrun on loopback."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

from forking import ranks_of
from warm import FORKED_RANKS, Ended, WarmServer

STEPS = {"training.steps": 30}  # of the run that nothing disturbed

# What torchrun starts in place of `-m oelm`, where a fault has to be inside a rank.
PATCHED = """
import os
RANK = int(os.environ["RANK"])
{patch}
from oelm.cli import main
main()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Group:
    """A started torchrun, which is warm, and its two ranks: forked from it, or cold, as torchrun starts them."""

    def __init__(
        self, server: WarmServer, folder: Path, *arguments: object, patch: str | None = None, cold: bool = False
    ) -> None:
        folder.mkdir(exist_ok=True)
        program = ["-m", "oelm"]
        if patch is not None:
            (folder / "patched.py").write_text(PATCHED.format(patch=patch))
            program = [str(folder / "patched.py")]
        words = ["--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", str(free_port())]
        torchrun = {"program": "torch.distributed.run", "patch": "" if cold else FORKED_RANKS}
        self._agent = server.start(*words, *program, *arguments, **torchrun)

    @property
    def text(self) -> str:
        return self._agent.written("out") + self._agent.written("err")

    def ranks(self) -> dict[int, int]:
        """rank -> pid of the live ones."""
        return ranks_of(self._agent.pid)

    def send_to_agent(self, number: int) -> None:
        self._agent.send(number)

    def send_to_all(self, number: int) -> None:
        """As a terminal does with Ctrl-C: agent and ranks alike."""
        pids = self._agent.pid, *self.ranks().values()
        for pid in pids:
            os.kill(pid, number)

    def has_ended(self) -> bool:
        return self._agent.has_ended()

    def wait(self, seconds: float = 180) -> Ended:
        try:
            ended = self._agent.wait(seconds)
        except TimeoutError:
            for pid in (*self.ranks().values(), self._agent.pid):
                os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"torchrun did not end within {seconds} s:\n{self.text}") from None
        return Ended(ended.code, self.text, "")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
