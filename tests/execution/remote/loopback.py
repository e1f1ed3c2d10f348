"""A real OpenSSH server on loopback with a host key, a port and a folder of its own; a small project to send there."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from small_runs import PATIENCE, REPOSITORY, VOCABULARY, child_environment, free_port, oelm_command

SSHD = shutil.which("sshd") or next((path for path in ("/usr/sbin/sshd",) if Path(path).exists()), None)
MISSING = [name for name, path in (("openssh-server", SSHD), ("rsync", shutil.which("rsync"))) if path is None]
needs_a_server = pytest.mark.skipif(
    bool(MISSING) or shutil.which("git") is None, reason=f"apt-get install -y {' '.join(MISSING)} git"
)
HOST = "loopback"


@dataclass(frozen=True)
class Loopback:
    """The server, and how a client finds it."""

    folder: Path  # keys and configs
    port: int
    sshd: subprocess.Popen[bytes]

    @property
    def client_config(self) -> Path:
        return self.folder / "ssh_config"

    def connections(self) -> list[int]:
        """Server-side processes of open connections."""
        return _descendants(self.sshd.pid, name="sshd")

    def cut(self) -> int:
        """Kill the server's end of every open connection."""
        return _kill(self.connections())


def start_sshd(folder: Path) -> Loopback:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("host_key", "client_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    shutil.copy(folder / "client_key.pub", folder / "authorized_keys")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd of root insists on it
    (folder / "banner").write_text("Unauthorised use is\nreported.\n")  # as universities like it
    port = free_port()
    home, path = folder / "home", f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    home.mkdir()  # with nothing in it: no shell there reads, and waits for, what the user of this machine has set up
    # A login knows none of our variables; the processor that we simulate must be the same over there.
    names = (
        "ATEN_CPU_CAPABILITY",
        "MKL_CBWR",
        "NPY_DISABLE_CPU_FEATURES",
        "OPENBLAS_CORETYPE",
        "TORCHINDUCTOR_CACHE_DIR",
    )
    simulated = "".join(f' "{name}={os.environ[name]}"' for name in names if name in os.environ)
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nPidFile none\nUsePAM no\nStrictModes no\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        "PermitRootLogin prohibit-password\nMaxStartups 100\n"
        f'Banner {folder}/banner\nSetEnv "HOME={home}" "PATH={path}"{simulated}\n'
    )
    host_key = (folder / "host_key.pub").read_text()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}")
    write_client_config(folder, port)
    log = open(folder / "sshd.log", "wb")  # noqa: SIM115 - as long as the server lives
    sshd = subprocess.Popen([SSHD, "-f", str(folder / "sshd_config"), "-D", "-e"], stderr=log, start_new_session=True)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return Loopback(folder, port, sshd)
        time.sleep(0.05)
    raise AssertionError((folder / "sshd.log").read_text())


def write_client_config(folder: Path, port: int, *, known_hosts: str = "known_hosts", key: str = "client_key") -> None:
    (folder / "ssh_config").write_text(
        f"Host {HOST} {HOST}-*\n  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n"
        f'  IdentityFile "{folder}/{key}"\n  IdentitiesOnly yes\n  UserKnownHostsFile "{folder}/{known_hosts}"\n'
        "  GlobalKnownHostsFile /dev/null\n"
    )


@dataclass(frozen=True)
class World:
    """A user's project on this side, and a folder on the other."""

    server: Loopback
    project: Path
    there: Path

    def environment(self) -> dict[str, str]:
        return child_environment(OELM_SSH_CONFIG=str(self.server.client_config), HOME=str(self.server.folder))

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "oelm", *map(str, arguments)],
            cwd=self.project,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def oelm(self, *arguments: object) -> tuple[int, str]:
        done = oelm_command(*arguments, timeout=PATIENCE, cwd=self.project, variables=self.environment())
        return done.returncode, done.stdout + done.stderr

    def remote(self, *arguments: object) -> tuple[int, str]:
        return self.oelm("remote", HOST, *arguments)

    def must(self, *arguments: object) -> str:
        code, out = self.remote(*arguments)
        assert code == 0, out
        return out


def make_project(folder: Path, data: Path, package: str = "oelm") -> Path:
    """A git repository with the package, or a part of it, and whatever a test adds; its data is not tracked."""
    source, ignored = REPOSITORY / "src", shutil.ignore_patterns("__pycache__")
    folder.mkdir(parents=True)
    shutil.copytree(source / package, folder / "src" / package, ignore=ignored)
    (folder / "studies").mkdir()
    (folder / ".gitignore").write_text("/data/\n/runs/\n/reports/\n__pycache__/\nremotes.yaml\n")
    shutil.copytree(data, folder / "data" / "tokens")
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    git_add(folder)
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    subprocess.run(["git", *identity, "commit", "-q", "-m", "The project"], cwd=folder, check=True)
    return folder


def add_study(world: World, name: str = "little", *, steps: int = 4, arms=("trained",), **execution) -> None:
    tree = {
        "question": "Does it run there as it runs here?",
        "base": {
            "preset": "tiny",
            "data": "data/tokens",
            "model": {"vocabulary": VOCABULARY, "seq_len": 16, "d_model": 32, "num_layers": 2, "num_heads": 4},
            "training": {"steps": steps, "batch_size": 4, "learning_rate": 0.01, "validation_sequences": 4},
            "execution": {"device": "cpu", "precision": "float32", "compile": "off", "threads": 1, "log_every": 1}
            | execution,
        },
        "arms": list(arms),
        "seeds": [0],
    }
    (world.project / "studies" / f"{name}.yaml").write_text(yaml.safe_dump(tree))
    git_add(world.project)


def results(folder: Path) -> dict[str, dict]:
    return {file.parent.name: json.loads(file.read_text()) for file in folder.glob("*/experiment_result.json")}


def git_add(folder: Path) -> None:
    subprocess.run(["git", "add", "-A"], cwd=folder, check=True)


# ---- Processes -----------------------------------------------------------------------------------------------------


def _descendants(root: int, *, name: str) -> list[int]:
    """Live processes below one, by name. A child's number may be the smaller one: numbers begin anew."""
    children: dict[int, list[tuple[int, str]]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue
        children.setdefault(int(rest.split()[1]), []).append((int(stat.parent.name), head.partition("(")[2]))
    found, below = [], [root]
    while below:
        for pid, program in children.get(below.pop(), []):
            below.append(pid)
            if program.startswith(name):
                found.append(pid)
    return found


def ssh_clients(process: subprocess.Popen) -> list[int]:
    return _descendants(process.pid, name="ssh")


def _kill(pids: list[int]) -> int:
    killed = 0
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
            killed += 1
        except ProcessLookupError:
            continue
    return killed


def kill_clients(process: subprocess.Popen) -> int:
    """Kill the ssh client of a command under way."""
    return _kill(ssh_clients(process))
