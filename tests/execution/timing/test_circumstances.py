"""Real load from real processes is seen, and what a system does not say disturbs nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from oelm.execution.timing import blocks
from oelm.execution.timing.blocks import between, judged, reading
from oelm.study.bench import BlockRecord

LINUX = sys.platform == "linux" and Path("/proc/self/schedstat").exists()
QUIET = {"seconds": 1.0, "share": 1.0, "waited": 0.0, "others": 0.0, "steal": 0.0}


def record_while_computing(seconds: float) -> BlockRecord:
    before, until = reading(), time.perf_counter() + seconds
    while time.perf_counter() < until:
        sum(range(1000))
    return between(before, reading(), threads=1)


@pytest.mark.skipif(not LINUX, reason="only Linux says who used the processors")
def test_a_busy_neighbour_is_seen():
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        time.sleep(0.3)
        record = record_while_computing(0.5)
    finally:
        for process in spinning:
            process.kill()
            process.wait()
    assert record.others > 0.1 or record.waited > 0.05
    assert judged([record])[0].disturbed
    assert 0 < record.share < 1.1
    assert record.load is not None


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({}, []),
        ({"others": 0.11}, ["others"]),
        ({"steal": 0.11}, ["steal"]),
        ({"waited": 0.06}, ["waited"]),
        ({"share": 0.85}, ["share"]),
        ({"share": None, "waited": None, "others": None, "steal": None}, []),
    ],
)
def test_a_block_is_disturbed_by_whatever_is_beyond_its_bound(changes, causes):
    quiet, block = BlockRecord(**QUIET), BlockRecord(**QUIET | changes)
    assert [each.disturbed for each in judged([quiet, block])] == [[], causes]


def test_a_share_is_judged_by_the_best_block_also_a_later_one():
    first, later = BlockRecord(seconds=1.0, share=0.7), BlockRecord(seconds=1.0, share=1.0)
    assert [each.disturbed for each in judged([first])] == [[]]
    assert [each.disturbed for each in judged([first, later])] == [["share"], []]


def test_a_system_that_says_nothing_is_no_obstacle(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "PROC", tmp_path)
    record = record_while_computing(0.02)
    assert (record.waited, record.others, record.steal, record.pressure) == (None, None, None, None)
    assert record.share > 0
    (tmp_path / "stat").write_text("cpu x\n")
    (tmp_path / "self" / "task" / "1").mkdir(parents=True)
    (tmp_path / "self" / "task" / "1" / "schedstat").write_text("0 0 0\n")
    assert record_while_computing(0.02).others is None
