"""Who is running: one process of one boot of one host; and locks that go with their process."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEARTBEAT_SECONDS = 15.0
STALE_SECONDS = 120.0  # another host's lock without a heartbeat for so long is stale
RETRY_SECONDS = 1.0


class Owned(Exception):
    """A lock is held; the message says by whom."""


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class Process:
    """One process of one boot of one host: a reused pid is another process."""

    host: str
    boot_id: str
    pid: int
    pid_started: str

    @classmethod
    def current(cls) -> Process:
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Process:
        """A process of this machine; a dead one has no start time."""
        return cls(host=socket.gethostname(), boot_id=_boot_id(), pid=pid, pid_started=_pid_started(pid) or "")

    @classmethod
    def stored(cls, tree: dict[str, Any]) -> Process:
        return cls(**{name: tree.get(name, "") for name in cls.__dataclass_fields__})

    def is_alive_here(self) -> bool | None:
        """None: another host's process, which cannot be seen from here."""
        if self.host != socket.gethostname():
            return None
        return self.boot_id == _boot_id() and self.pid_started == (_pid_started(self.pid) or None)


def _boot_id() -> str:
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""


def _pid_started(pid: int) -> str | None:
    """The kernel's start time of a live process; None if there is none (or it is a zombie)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


@contextlib.contextmanager
def owning(lock_file: Path, *, patience_seconds: float = 0.0) -> Iterator[None]:
    """Hold a lock for the block, or raise Owned, after a while of trying where patience is given."""
    deadline = time.monotonic() + patience_seconds
    with contextlib.ExitStack() as held:
        while True:
            try:
                held.enter_context(_owning(lock_file))
                break
            except Owned:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(RETRY_SECONDS)
        yield


@contextlib.contextmanager
def _owning(lock_file: Path) -> Iterator[None]:
    """The kernel's lock goes with the process: a dead owner never blocks."""
    # Not opened for appending: there pwrite ignores its offset.
    with os.fdopen(os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Owned(_owner_line(_stored_lock(stream))) from error
        owner = _stored_lock(stream)  # we hold the kernel's lock, so one on this host is dead
        if owner is not None and _owned_elsewhere(owner):
            raise Owned(_owner_line(owner))
        os.ftruncate(stream.fileno(), 0)
        try:
            with _beating(stream.fileno()):
                yield
        finally:
            os.ftruncate(stream.fileno(), 0)


def owner_of(lock_file: Path) -> dict[str, Any] | None:
    """Who holds a lock, read without taking it: a live process of this host, or one elsewhere with a heartbeat."""
    try:
        with open(lock_file, "rb") as stream:
            owner = _stored_lock(stream)
    except OSError:
        return None
    if owner is None:
        return None
    alive = Process.stored(owner).is_alive_here()
    return owner if (_owned_elsewhere(owner) if alive is None else alive) else None


def _owner_line(owner: dict[str, Any] | None) -> str:
    return f"host {owner['host']}, pid {owner['pid']}, since {owner['since']}" if owner else "another process"


@contextlib.contextmanager
def _beating(descriptor: int) -> Iterator[None]:
    """Rewrite the lock's content now and then, however long a step takes: another host tells a live owner by it."""
    owner = Process.current().__dict__ | {"since": now()}
    ended = threading.Event()

    def beat() -> None:
        content = json.dumps(owner | {"heartbeat": time.time()}).encode()
        with contextlib.suppress(OSError):  # a full disk must not end the run here
            os.pwrite(descriptor, content.ljust(512), 0)

    def keep_beating() -> None:
        while not ended.wait(HEARTBEAT_SECONDS):
            beat()

    beat()
    thread = threading.Thread(target=keep_beating, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _stored_lock(stream: Any) -> dict[str, Any] | None:
    stream.seek(0)
    try:
        owner = json.loads(stream.read())
    except ValueError:
        return None
    return owner if isinstance(owner, dict) and {"host", "pid", "since", "heartbeat"} <= owner.keys() else None


def _owned_elsewhere(owner: dict[str, Any]) -> bool:
    """Whether the owner is on another host, with a fresh heartbeat."""
    return owner["host"] != socket.gethostname() and time.time() - owner["heartbeat"] < STALE_SECONDS
