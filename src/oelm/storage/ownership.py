"""Who is running: one process of one boot of one host; and locks that go with their process.

The kernel's lock decides on one host. Another host's owner is judged by the heartbeat that it writes, and by nothing
else: a lock whose content is damaged is nobody's.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any

from oelm.machine.errors import UserError
from oelm.machine.system import boot_id, lock, process_started
from oelm.storage.files import open_own, read_json

HEARTBEAT_SECONDS = 15.0
STALE_SECONDS = 120.0  # another host's lock without a heartbeat for so long is stale
RETRY_SECONDS = 1.0
START_VARIABLE = "OELM_START"  # names one start of a run by a controller, which knows by it whose words a status holds


class Owned(Exception):
    """A lock is held; the message says by whom."""

    def __init__(self, owner: Owner | None) -> None:
        super().__init__(str(owner or "another process"))
        self.owner = owner


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def time_of(text: Any) -> datetime.datetime | None:
    """What `now` wrote, read; None for anything else than a time with its zone."""
    try:
        time = datetime.datetime.fromisoformat(text)
        return time.astimezone(datetime.UTC) if time.tzinfo else None
    except (TypeError, ValueError, OverflowError):
        return None


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
        return cls(host=socket.gethostname(), boot_id=boot_id(), pid=pid, pid_started=process_started(pid) or "")

    @classmethod
    def stored(cls, tree: dict[str, Any]) -> Process:
        """As a file says, whatever it says: what is not of its kind names nobody."""
        texts = {name: _of_kind(tree.get(name), str, "") for name in ("host", "boot_id", "pid_started")}
        return cls(pid=_of_kind(tree.get("pid"), int, 0), **texts)

    def is_alive_here(self) -> bool | None:
        """None: another host's process, which cannot be seen from here."""
        if self.host != socket.gethostname():
            return None
        return self.boot_id == boot_id() and self.pid_started == process_started(self.pid)


def _of_kind(value: Any, kind: type | UnionType, otherwise: Any) -> Any:
    return value if isinstance(value, kind) and not isinstance(value, bool) else otherwise


# ---- Locks ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Owner:
    """Who wrote a lock, and when its heart last beat by its own clock."""

    process: Process
    since: str
    heartbeat: float
    lock_file: Path

    @property
    def seconds_ahead(self) -> float:
        """By how much its clock is before ours, at least."""
        return self.heartbeat - time.time()

    @property
    def has_another_clock(self) -> bool:
        """So far ahead that the age of its heartbeat says nothing: only whether it moves would tell."""
        return self.seconds_ahead > STALE_SECONDS

    def is_alive(self) -> bool:
        """A process of this host, or one elsewhere with a fresh heartbeat, or one that cannot be judged."""
        alive = self.process.is_alive_here()
        return self.seconds_ahead > -STALE_SECONDS if alive is None else alive

    def __str__(self) -> str:
        line = f"host {self.process.host}, pid {self.process.pid}, since {self.since}"
        if self.process.is_alive_here() is not None or not self.has_another_clock:
            return line
        ahead = _in_words(self.seconds_ahead)
        return (
            f"{line}; its clock is {ahead} ahead of this host's, so the age of its last heartbeat is unknown: make "
            f"sure that it is no longer running there, then delete {self.lock_file} to take over"
        )


def _in_words(seconds: float) -> str:
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{min(seconds / size, 1e9):.0f} {unit}"
    return f"{seconds:.0f} s"


@contextlib.contextmanager
def owning(lock_file: Path, *, patience_seconds: float = 0.0) -> Iterator[None]:
    """Hold a lock for the block, or raise Owned, after a while of trying where patience is given.

    Patience also settles the case of a clock ahead of ours: an owner whose heartbeat stands still meanwhile is dead.
    """
    deadline = time.monotonic() + patience_seconds
    seen, seen_since = None, time.monotonic()
    with contextlib.ExitStack() as held:
        while True:
            stands_still = time.monotonic() - seen_since >= STALE_SECONDS
            try:
                held.enter_context(_owning(lock_file, dead=seen if stands_still else None))
                break
            except Owned as error:
                if error.owner != seen:
                    seen, seen_since = error.owner, time.monotonic()
                if time.monotonic() >= deadline:
                    raise
                time.sleep(RETRY_SECONDS)
        yield


@contextlib.contextmanager
def _owning(lock_file: Path, *, dead: Owner | None) -> Iterator[None]:
    """The kernel's lock goes with the process: a dead owner never blocks."""
    # Not opened for appending: there pwrite ignores its offset.
    with os.fdopen(open_own(lock_file, os.O_RDWR), "r+b") as stream:
        try:
            lock(stream.fileno())
        except (BlockingIOError, PermissionError) as error:
            raise Owned(_stored_owner(lock_file)) from error
        except OSError as error:
            raise UserError(
                f"{lock_file}: cannot be locked ({error.strerror}): this file system has no locks, and without "
                "them two processes could write the same files; choose another folder, for example on a local disk"
            ) from error
        owner = _stored_owner(lock_file)  # we hold the kernel's lock, so one on this host is dead
        if (
            owner is not None
            and owner.process.is_alive_here() is None  # it is elsewhere
            and owner.is_alive()
            and not (owner.has_another_clock and owner == dead)
        ):
            raise Owned(owner)
        os.ftruncate(stream.fileno(), 0)
        try:
            with _beating(stream.fileno()):
                yield
        finally:
            os.ftruncate(stream.fileno(), 0)


def owner_of(lock_file: Path) -> Owner | None:
    """Who holds a lock, read without taking it: a live process of this host, or one elsewhere with a heartbeat."""
    owner = _stored_owner(lock_file)
    return owner if owner is not None and owner.is_alive() else None


def _stored_owner(lock_file: Path) -> Owner | None:
    """None where there is none, and where the content is not what a lock holds."""
    try:
        tree = read_json(lock_file)
    except (OSError, UserError):
        return None
    if not isinstance(tree, dict):
        return None
    since, heartbeat = _of_kind(tree.get("since"), str, None), _of_kind(tree.get("heartbeat"), int | float, None)
    if not isinstance(tree.get("host"), str) or _of_kind(tree.get("pid"), int, None) is None:
        return None
    if since is None or heartbeat is None:
        return None
    return Owner(Process.stored(tree), since, float(heartbeat), lock_file)


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
