"""Who is named when a wait of several processes fails; real stopped processes are in faults/test_hung_ranks.py."""

import os
from dataclasses import replace

import pytest
import torch.distributed as dist

from oelm.run.training.distributed import OtherProcessGone, RollCall, World
from oelm.storage.ownership import Process

ELSEWHERE = Process("elsewhere", "boot", 1, "then")
DEAD = replace(Process.current(), pid_started="never")


class Store(dict):
    """Of all processes; `hangs` as one whose keeper does."""

    hangs = False

    def set(self, key, value):
        self[key] = value

    def check(self, keys):
        if self.hangs:
            raise RuntimeError("no answer")
        return all(key in self for key in keys)

    get = dict.__getitem__


@pytest.fixture
def roll_call(monkeypatch):
    """Of process `rank`, that has come to its third wait, the others to those that `counts` says."""

    def made(rank, processes, counts, *, waited, hangs=False) -> RollCall:
        store = Store()
        monkeypatch.setattr(dist, "TCPStore", lambda *place, **options: store)
        monkeypatch.setattr("oelm.run.training.distributed._every_process", lambda size: processes)
        monkeypatch.setattr(os, "kill", lambda pid, number: pytest.fail("nothing on this host hangs"))
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", "1")
        call = RollCall(rank=rank, size=len(processes), limit_seconds=60)
        for _ in range(3):
            call.here()
        store.update({call._key(other): str(count) for other, count in counts.items()})
        store.hangs = hangs
        call._began -= waited
        return call

    return made


SILENT, SOMEBODY = "rank 1 (host elsewhere, pid 1) did not respond for 60 s", "rank 0: another process of this run has"


@pytest.mark.parametrize(
    ("rank", "others", "counts", "waited", "named", "tells"),
    [
        (0, [ELSEWHERE, ELSEWHERE], {1: 2, 2: 3}, 61, SILENT, True),
        (2, [ELSEWHERE, ELSEWHERE], {0: 2, 1: 3}, 61, "rank 0 (host elsewhere, pid 1) did not respond", False),
        (0, [ELSEWHERE, ELSEWHERE], {2: 3}, 61, SILENT, True),  # never came
        (0, [ELSEWHERE, DEAD], {1: 2, 2: 2}, 1, "has ended", True),  # who is on the way is not blamed
        (0, [ELSEWHERE, ELSEWHERE], {1: 2, 2: 2}, 1, f"{SOMEBODY} left or hangs (why)", True),
        (0, [ELSEWHERE, ELSEWHERE], {1: 3, 2: 3}, 61, SOMEBODY, True),
    ],
)
def test_who_has_not_come_is_named_by_the_first_that_is_left(roll_call, rank, others, counts, waited, named, tells):
    processes = [*others[:rank], Process.current(), *others[rank:]]
    call = roll_call(rank, processes, counts, waited=waited)
    line, speaks = call.what_happened("why")
    assert named in line
    assert line.count("rank ") == 1
    assert speaks == tells


def test_where_the_keeper_of_the_store_hangs_it_is_named(roll_call):
    call = roll_call(1, [ELSEWHERE, Process.current(), ELSEWHERE], {0: 3, 2: 2}, waited=61, hangs=True)
    assert call.what_happened("why")[0].startswith("rank 0 (host elsewhere, pid 1) did not respond")


def test_a_world_asks_and_says_how_to_go_on(roll_call):
    call = roll_call(1, [ELSEWHERE, Process.current()], {0: 4}, waited=0)

    def failing():
        with World(rank=1, size=2, roll_call=call).together():
            call._began -= 61
            raise RuntimeError("Timed out")

    with pytest.raises(OtherProcessGone, match="the same command resumes") as caught:
        failing()
    assert caught.value.concerns_one_process
    assert call._store[call._key(1)] == "4"
