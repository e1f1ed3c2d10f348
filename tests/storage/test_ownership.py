"""Locks: a damaged one is nobody's, a link is refused, and a clock that is ahead blocks nobody for ever."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import socket
import time
from pathlib import Path

import pytest

from oelm.machine.errors import UserError
from oelm.storage import ownership
from oelm.storage.ownership import STALE_SECONDS, Owned, Process, owner_of, owning

HOUR = 3600.0


def lock_of(heartbeat: object, **changes: object) -> dict:
    process = {"host": "elsewhere", "boot_id": "another boot", "pid": 4711, "pid_started": "7"}
    return process | {"since": "2024-01-01T00:00:00+00:00", "heartbeat": heartbeat} | changes


def written(folder: Path, content: object) -> Path:
    file = folder / "lock.json"
    file.write_text(json.dumps(content).ljust(512))
    return file


# ---- A clock that is ahead -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ahead", "words"),
    [(3 * HOUR, "3 h"), (STALE_SECONDS + 200, "5 min"), (1e300, "days")],
)
def test_the_message_says_how_far_ahead_and_how_to_take_over(tmp_path, ahead, words):
    file = written(tmp_path, lock_of(time.time() + ahead + 1))
    with pytest.raises(Owned) as refused, owning(file):
        pass
    assert "host elsewhere, pid 4711, since 2024-01-01" in str(refused.value)
    assert f"{words} ahead of this host's" in str(refused.value)
    assert f"delete {file} to take over" in str(refused.value)
    assert str(owner_of(file)) == str(refused.value)
    file.unlink()
    with owning(file):
        assert owner_of(file).process.pid == os.getpid()


def test_a_clock_that_is_a_little_ahead_only_delays(tmp_path, monkeypatch):
    monkeypatch.setattr(ownership, "STALE_SECONDS", 1.0)
    monkeypatch.setattr(ownership, "RETRY_SECONDS", 0.05)
    file = written(tmp_path, lock_of(time.time() + 0.9))
    with pytest.raises(Owned) as refused, owning(file):
        pass
    assert "ahead" not in str(refused.value)
    with owning(file, patience_seconds=10):
        pass


def test_with_patience_a_heartbeat_that_stands_still_is_a_dead_owners(tmp_path, monkeypatch):
    monkeypatch.setattr(ownership, "STALE_SECONDS", 1.0)
    monkeypatch.setattr(ownership, "RETRY_SECONDS", 0.05)
    file = written(tmp_path, lock_of(time.time() + 3 * HOUR))
    began = time.monotonic()
    with owning(file, patience_seconds=20):
        waited = time.monotonic() - began
    assert 1.0 <= waited < 10


def beating_ahead(file: str, seconds: float) -> None:
    """Another host's owner, whose clock is three hours ahead."""
    end, descriptor = time.monotonic() + seconds, os.open(file, os.O_RDWR)
    while time.monotonic() < end:
        os.pwrite(descriptor, json.dumps(lock_of(time.time() + 3 * HOUR)).encode().ljust(512), 0)
        time.sleep(0.1)


def test_with_patience_a_heartbeat_that_moves_is_a_live_owners(tmp_path, monkeypatch):
    monkeypatch.setattr(ownership, "STALE_SECONDS", 1.0)
    monkeypatch.setattr(ownership, "RETRY_SECONDS", 0.05)
    file = written(tmp_path, lock_of(time.time() + 3 * HOUR))
    other = multiprocessing.get_context("spawn").Process(target=beating_ahead, args=(str(file), 60))
    other.start()
    try:
        first = file.read_text()
        deadline = time.monotonic() + 30
        while file.read_text() == first and time.monotonic() < deadline:
            time.sleep(0.05)
        with pytest.raises(Owned, match="3 h ahead"), owning(file, patience_seconds=3):
            pass
    finally:
        other.kill()
        other.join()


# ---- Damaged locks -------------------------------------------------------------------------------------------------

NO_LOCKS = [
    "", "null", "[]", "3", '"x"', "{}", "[" * 100_000, '{"a":' * 5000 + "1" + "}" * 5000, "\0" * 700, "\ud7ff", "{",
    json.dumps(lock_of("yesterday")), json.dumps(lock_of(None)), json.dumps(lock_of(True)), json.dumps(lock_of([1])),
    json.dumps(lock_of(1.0))[:-1] + ', "heartbeat": 1e999}', json.dumps(lock_of(1.0))[:-1] + ', "heartbeat": NaN}',
    '{"host": "elsewhere", "pid": 1, "since": "x", "heartbeat": ' + "9" * 5000 + "}",
    json.dumps(lock_of(1.0, host=["elsewhere"])), json.dumps(lock_of(1.0, pid="4711")),
    json.dumps(lock_of(1.0, pid=None)), json.dumps(lock_of(1.0, since={"a": 1})),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(NO_LOCKS)))
def test_a_damaged_lock_is_nobodys(tmp_path, number):
    file = tmp_path / "lock.json"
    file.write_text(NO_LOCKS[number])
    assert owner_of(file) is None
    with owning(file):
        assert owner_of(file).process.pid == os.getpid()
    assert file.read_text() == ""


def anything(draw: random.Random, depth: int = 0) -> object:
    kinds = [
        lambda: draw.choice([None, True, False, "", "x", "\x1b[2J", "\u202e", "/../..", "\0", socket.gethostname()]),
        lambda: draw.choice([0, -1, 1, os.getpid(), 2**31, 2**63, 10**24, -(10**24)]),
        lambda: draw.choice([0.0, time.time(), time.time() + 1e6, 1e308, -1e308, 5e-324]),
        lambda: [anything(draw, depth + 1) for _ in range(draw.randrange(3))] if depth < 3 else [],
        lambda: {draw.choice("abc"): anything(draw, depth + 1) for _ in range(draw.randrange(3))} if depth < 3 else {},
    ]
    return draw.choice(kinds)()


def test_no_lock_is_a_traceback(tmp_path):
    """400 locks with anything at all in their places: held, free or refused in words."""
    draw, file, outcomes = random.Random(12), tmp_path / "lock.json", []
    for _ in range(400):
        tree = {key: value if draw.random() < 0.6 else anything(draw) for key, value in lock_of(time.time()).items()}
        file.write_text(json.dumps(tree))
        owner = owner_of(file)
        assert owner is None or "pid" in str(owner)
        process = Process.stored(tree)
        assert process.is_alive_here() in (True, False, None)
        try:
            with owning(file):
                outcomes.append("free")
        except Owned:
            outcomes.append("held")
    assert set(outcomes) == {"free", "held"}


@pytest.mark.parametrize("value", [None, True, ["x"], "\0", 10**24])
def test_a_process_is_read_whatever_a_file_says(value):
    """As status.json and slot.json say it too."""
    for key in ("host", "boot_id", "pid", "pid_started"):
        process = Process.stored(Process.current().__dict__ | {key: value})
        assert [type(each) for each in process.__dict__.values()] == [str, str, int, str]
        assert process.is_alive_here() is (None if key == "host" else False)


# ---- Links ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["a file", "nothing", "a second name", "a pipe", "a folder"])
def test_a_lock_is_a_file_of_its_own(tmp_path, kind):
    precious, file = tmp_path / "precious", tmp_path / "controller.lock"
    precious.write_text("do not touch")
    match kind:
        case "a file":
            file.symlink_to(precious)
        case "nothing":
            file.symlink_to(tmp_path / "absent")
        case "a second name":
            os.link(precious, file)
        case "a pipe":
            os.mkfifo(file)
        case "a folder":
            file.mkdir()
    with pytest.raises(UserError) as refused, owning(file):
        pass
    assert str(refused.value).startswith(f"{file}: ")
    assert "\n" not in str(refused.value)
    assert precious.read_text() == "do not touch"
    assert not (tmp_path / "absent").exists()
    assert owner_of(file) is None  # in bounded time, a pipe too
