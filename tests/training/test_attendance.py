"""Who is blamed when processes wait, and after how long; real stopped processes are in faults/test_hung_ranks.py."""

import sys
import time

import pytest

from oelm.training.attendance import Attendance, Companion, Patience, silent_ones, watched, what_happened
from small_runs import finished, free_port


def companion(
    rank: int, *, still: float, unheard: float = 0.0, waiting: bool = False, allowed: float = 60
) -> Companion:
    """A process that made no progress for some seconds, and said nothing for some."""
    words = {"number": 1, "count": 1, "waiting": waiting, "doing": "step 7", "allowed_seconds": allowed}
    found = Companion(rank)
    found.hear(words | {"process": {"host": "here", "boot_id": "", "pid": 10 + rank, "pid_started": ""}})
    found.moved_at, found.heard_at = time.monotonic() - still, time.monotonic() - unheard
    return found


@pytest.mark.parametrize(
    ("others", "blamed"),
    [
        ([{"still": 70}], [1]),  # works and does not get on
        ([{"still": 50}], []),
        ([{"still": 70, "unheard": 70, "waiting": True}], [1]),  # stopped inside a sum
        ([{"still": 70}, {"still": 70, "waiting": True}], [1]),
        ([{"still": 70, "allowed": 120}, {"still": 70, "waiting": True}], []),  # the first saves
        ([{"still": 70, "waiting": True}, {"still": 70, "waiting": True}], [1, 2]),  # each for the other
        ([{"still": 5}, {"still": 400, "waiting": True}], []),
    ],
)
def test_who_keeps_the_group_waiting(others, blamed):
    companions = [companion(rank, **each) for rank, each in enumerate(others, start=1)]
    assert [each.rank for each in silent_ones(companions)] == blamed


def test_after_a_pause_of_its_own_a_process_blames_nobody():
    late = companion(1, still=70)
    late.excuse()
    assert silent_ones([late]) == []


def test_the_line_names_rank_host_and_process_and_what_it_was_at():
    line = what_happened([companion(3, still=75)])
    assert line.startswith(
        "rank 3 (host here, pid 13) did not respond to the others in step 7 for 75 s; the limit was 60 s"
    )
    assert what_happened([companion(1, still=75, waiting=True)]).startswith(
        "all wait for each other in step 7 for 75 s"
    )


def test_the_limit_is_a_multiple_of_the_slowest_recent_step_and_a_minute_at_least():
    patience = Patience(None, compiles=False)
    assert patience.seconds == 600  # nothing is known before the first step
    patience.note(0.1)
    assert patience.seconds == 60
    patience.note(7.0)
    patience.note(1.0)
    assert patience.seconds == 140
    for _ in range(100):
        patience.note(1.0)
    assert patience.seconds == 60
    assert patience.while_saving(100 * 2**20) == 70


def test_a_setting_holds_from_the_second_step_on():
    patience = Patience(5.0, compiles=True)
    assert patience.seconds == 600
    patience.note(30.0)
    assert patience.seconds == 5
    compiled = Patience(None, compiles=True)
    compiled.note(0.1)
    assert compiled.seconds == 600


def test_a_longer_or_much_shorter_allowance_is_announced_at_once():
    attendance, announced = Attendance(), []
    attendance.announce = lambda: announced.append(attendance.allowed_seconds)
    for seconds in (60, 62, 61, 140, 100):
        attendance.begin("step", allowed_seconds=seconds)
    with attendance.takes(500, "the save"):
        pass
    assert announced == [60, 140, 500, 100]


def test_one_process_alone_is_never_watched(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "nowhere.invalid")
    monkeypatch.setenv("MASTER_PORT", "1")
    with watched(Attendance(), rank=0, size=1, tell=print):
        pass


WATCH = """
import json, multiprocessing, os, sys, time
import torch.distributed as dist
from oelm.training.attendance import Attendance, watched

def host(port, ready):
    store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    words = {"number": 1, "count": 1, "waiting": False, "doing": "step 7", "allowed_seconds": 1.0}
    store.set("oelm/0/attendance/1", json.dumps(words))
    ready.set()
    while os.getppid() == parent:
        time.sleep(0.1)

parent = os.getpid()
port, ready = int(sys.argv[1]), multiprocessing.get_context("fork").Event()
server = multiprocessing.get_context("fork").Process(target=host, args=(port, ready), daemon=True)
server.start()
ready.wait(30)
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
attendance = Attendance()
with watched(attendance, rank=0, size=2, tell=lambda line: os.write(1, line.encode())), attendance.waits():
    time.sleep(0.7)
    if sys.argv[2] == "gone":
        server.kill()
    time.sleep(3)
server.kill()
os.write(1, b"went on")
"""


@pytest.mark.parametrize(("store", "said"), [("there", "rank 1 did not respond to the others"), ("gone", "went on")])
def test_a_silent_process_is_left_unless_the_store_itself_is_gone(store, said):
    done = finished([sys.executable, "-c", WATCH, str(free_port()), store])
    assert done.stdout.startswith(said), done.stderr
    assert done.returncode == (0 if store == "gone" else 1)
