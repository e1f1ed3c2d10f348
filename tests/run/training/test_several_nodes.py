"""One run over several nodes: two agents of torchrun on loopback, a rank killed, an elastic restart."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from forking import ranks_of
from oelm.core.config import Settings
from oelm.core.settings import written_out
from oelm.execution.slurm_task import OWN_STORE, over_nodes
from oelm.machine.errors import UserError
from oelm.run.directory import Locked, RunDirectory
from oelm.run.training.distributed import World, joined, patience_seconds
from oelm.run.training.run import train
from oelm.storage.files import read_json, write_json
from oelm.storage.ownership import HEARTBEAT_SECONDS, STALE_SECONDS
from small_runs import child_environment, free_port, quiet_execution, small_run
from warm import FORKED_RANKS, shared_server

STEPS = 150


class Nodes:
    """What the originals' command starts on each of two machines, here both on one."""

    def __init__(self, directory: RunDirectory) -> None:
        command = over_nodes(directory, nodes=2, processes=2, meeting=f"127.0.0.1:{free_port()}", restarts=2)
        assert command[1:3] == ["-m", "torch.distributed.run"]
        place = {"cwd": Path.cwd(), "variables": child_environment(**OWN_STORE)}
        self._agents = [
            shared_server().start(*command[3:], program="torch.distributed.run", patch=FORKED_RANKS, **place)
            for _ in range(2)
        ]

    @property
    def text(self) -> str:
        return "\n".join(agent.written("out") + agent.written("err") for agent in self._agents)

    def ranks(self) -> dict[int, int]:
        """rank -> pid of the live ones of both agents."""
        return {rank: pid for agent in self._agents for rank, pid in ranks_of(agent.pid).items()}

    def have_ended(self) -> bool:
        return any(agent.has_ended() for agent in self._agents)

    def wait(self, seconds: float) -> list[int]:
        deadline = time.monotonic() + seconds
        try:
            return [agent.wait(max(0.1, deadline - time.monotonic())).code for agent in self._agents]
        except TimeoutError:
            raise AssertionError(f"torchrun did not end within {seconds} s:\n{self.text}") from None
        finally:
            for agent in self._agents:
                if not agent.has_ended():
                    agent.send(signal.SIGKILL)


def test_a_killed_rank_of_two_nodes_is_started_again_and_the_run_ends_as_if_nothing_had_happened(
    token_folder, tmp_path
):
    run = small_run("frozen_head_orthogonal", data=token_folder, steps=STEPS)
    directory = RunDirectory(tmp_path / "run")
    directory.path.mkdir()
    execution = quiet_execution(checkpoint_every=20, log_every=1)
    write_json(directory.settings_file, written_out(Settings(run=run, execution=execution)))
    nodes = Nodes(directory)
    deadline = time.monotonic() + 300
    while (directory.last_metrics() or {}).get("step", 0) < 25:
        assert time.monotonic() < deadline, nodes.text
        assert not nodes.have_ended(), nodes.text
        time.sleep(0.01)
    os.kill(nodes.ranks()[1], signal.SIGKILL)
    assert nodes.wait(300) == [0, 0], nodes.text
    result = read_json(directory.result_file)
    assert result["resumes"] == 1, nodes.text
    assert result["world_size"] == 2
    assert "resuming from step" in nodes.text
    whole = train(run, execution, out=tmp_path / "whole").result
    assert result["val_loss"] == pytest.approx(whole["val_loss"], rel=1e-4)
    assert result["frozen_digest"] == whole["frozen_digest"]


def test_restarts_over_a_shared_store_are_refused_before_anything_waits(monkeypatch):
    for name, value in {"MAX_RESTARTS": "3", "USE_AGENT_STORE": "True"}.items():
        monkeypatch.setenv(f"TORCHELASTIC_{name}", value)
    with pytest.raises(UserError, match="TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"), joined(World(0, 2), device="cpu"):
        pass


# ---- The lock of a node that is gone -------------------------------------------------------------------------------


def test_a_restarted_run_waits_until_its_lost_nodes_lock_is_stale_and_patience_has_an_end(tmp_path):
    directory = RunDirectory(tmp_path)

    def lock_of_another_host(*, age: float) -> None:
        owner = {"host": "lost-node", "boot_id": "b", "pid": 1, "pid_started": "1", "since": "before"}
        directory.lock_file.write_text(json.dumps(owner | {"heartbeat": time.time() - age}))

    for age, patience in (STALE_SECONDS - 1.5, 0.0), (0, 1.2):
        lock_of_another_host(age=age)
        with pytest.raises(Locked, match="lost-node"), directory.locked(patience_seconds=patience):
            pass
    lock_of_another_host(age=STALE_SECONDS - 1.5)
    began = time.monotonic()
    with directory.locked(patience_seconds=20):
        assert 1.0 < time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, 0.0),
        ({"TORCHELASTIC_MAX_RESTARTS": "0", "SLURM_RESTART_COUNT": "0"}, 0.0),
        ({"TORCHELASTIC_MAX_RESTARTS": "3"}, STALE_SECONDS + HEARTBEAT_SECONDS),
        ({"SLURM_RESTART_COUNT": "1"}, STALE_SECONDS + HEARTBEAT_SECONDS),
    ],
)
def test_only_what_is_started_again_by_itself_is_patient(monkeypatch, variables, expected):
    for name in ("TORCHELASTIC_MAX_RESTARTS", "SLURM_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert patience_seconds() == expected
