"""A real Slurm on loopback, in a folder of its own: one controller, two nodes, two partitions, preemption by requeue.

Nothing of it listens beyond 127.0.0.1, where it trusts whoever asks. For root its nodes have host names of their own,
as on a cluster: what runs there is another host's.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from small_runs import child_environment, free_port

INSTALL = "apt-get install -y slurmctld slurmd slurm-client"
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "srun")
# Starts a program as another host: name, hosts file, program and its words. In namespaces of its own.
RENAMED = """
import os, socket, subprocess, sys
name, hosts, *words = sys.argv[1:]
subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
socket.sethostname(name)
os.execv(words[0], words)
"""
REQUEUE_SECONDS = 5  # a requeued job waits until its old credential is stale; Slurm's default is 120

CONFIGURATION = """\
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
AuthInfo=cred_expire={requeue_seconds}
CredType=cred/none
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=100000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
MaxArraySize={largest_array}
SlurmdParameters=config_overrides
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 State=UNKNOWN
NodeName=node2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 State=UNKNOWN
PartitionName=work Nodes=node1,node2 Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=node1,node2 MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


def missing() -> str | None:
    """Why there can be no cluster here."""
    absent = [name for name in PROGRAMS if program(name) is None]
    return f"without {', '.join(absent)}: {INSTALL}" if absent else None


def program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@dataclass(frozen=True)
class Cluster:
    folder: Path
    environment: dict[str, str]  # for everything that talks to it

    def ask(self, *words: str) -> str:
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def jobs(self) -> list[list[str]]:
        """name, task, state of every job it knows."""
        lines = self.ask("squeue", "--states=all", "--array", "--noheader", "--format=%j|%K|%T").splitlines()
        return [line.split("|") for line in lines]

    def cancel_everything(self) -> None:
        """Until the queue is empty; what runs is killed at once."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.ask("squeue", "--noheader"):
            for more in ([], ["--signal=KILL", "--full"]):
                self.ask("scancel", f"--user={os.geteuid()}", *more)
            time.sleep(0.2)

    def log(self) -> str:
        return "\n".join(file.read_text(errors="replace")[-3000:] for file in self.folder.glob("*.log"))


@contextlib.contextmanager
def cluster(folder: Path, *, requeue_seconds: int = REQUEUE_SECONDS, largest_array: int = 2001) -> Iterator[Cluster]:
    """A running cluster; everything it started is gone afterwards."""
    (folder / "state").mkdir(parents=True)
    file = folder / "slurm.conf"
    file.write_text(
        CONFIGURATION.format(
            host=socket.gethostname(),
            user=pwd.getpwuid(os.geteuid()).pw_name,
            ports=[free_port() for _ in range(3)],
            folder=folder,
            requeue_seconds=requeue_seconds,
            largest_array=largest_array,
        )
    )
    (folder / "cgroup.conf").write_text(_without_cgroups(folder))
    environment = child_environment(SLURM_CONF=str(file))
    daemons = []
    try:
        for words in (["slurmctld"], ["slurmd", "-N", "node1"], ["slurmd", "-N", "node2"]):
            with open(folder / f"{'-'.join(words)}.out", "wb") as output:
                daemons.append(
                    subprocess.Popen(
                        [*_as_host(folder, *words[2:]), program(words[0]), "-D", "-f", str(file), *words[1:]],
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                    )
                )
        started = Cluster(folder, environment)
        _wait_for_nodes(started)
        yield started
        started.cancel_everything()
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            daemon.wait(30)


def _as_host(folder: Path, name: str | None = None) -> list[str]:
    unshare = program("unshare")
    if name is None or unshare is None or os.geteuid() != 0:
        return []
    hosts = folder / "hosts"
    hosts.write_text(Path("/etc/hosts").read_text() + "\n127.0.0.1 node1 node2\n")
    return [unshare, "--uts", "--mount", sys.executable, "-c", RENAMED, name, str(hosts)]


def _without_cgroups(folder: Path) -> str:
    """Version 22 knows no `disabled`, but leaves an unused cgroup/v1 alone."""
    version = subprocess.run([program("slurmd"), "-V"], capture_output=True, text=True, check=True).stdout
    if int(re.search(r"(\d+)\.", version)[1]) >= 23:
        return "CgroupPlugin=disabled\n"
    return f"CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nCgroupMountpoint={folder}/cgroup\n"


def _wait_for_nodes(started: Cluster) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if started.ask("sinfo", "--noheader", "--format=%T %D", "--partition=work").split() == ["idle", "2"]:
                return
        except AssertionError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"the nodes did not come up:\n{started.log()}")
