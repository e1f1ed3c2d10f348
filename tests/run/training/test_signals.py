"""A wish to stop is heard once, however often it is sent; a later one is somebody else's again."""

from __future__ import annotations

import signal
import socket
import time
from unittest.mock import MagicMock

import pytest

from oelm.run.training import signals
from oelm.run.training.signals import SAME_WISH_SECONDS, StopRequest
from small_runs import free_port, warm_python


@pytest.fixture(autouse=True)
def default_handlers():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_repeated_wish_that_arrives_after_the_run_has_stopped_does_no_harm():
    """The run may have saved and be about to end when the second signal of one Ctrl-C reaches it."""
    stop = StopRequest(world_size=1)
    with stop.listening():
        signal.raise_signal(signal.SIGINT)
    assert stop()
    signal.raise_signal(signal.SIGINT)
    time.sleep(SAME_WISH_SECONDS)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_run_that_nobody_stopped_gives_the_signals_back():
    with StopRequest(world_size=1).listening():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


STUCK = """
import os, signal, sys, threading, time
import torch, torch.distributed as dist
import oelm.run.training.signals as signals
port, times = sys.argv[1], int(sys.argv[2])
signals.SAME_WISH_SECONDS_UNDER_TORCHRUN = 0.2
signals.GIVE_UP_SECONDS = 1.0 if times == 1 else 300.0  # a second wish does not wait for that
parent, other = os.getpid(), os.fork()
os.environ |= {"RANK": "1" if other == 0 else "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
dist.init_process_group("gloo")
if other == 0:
    while os.getppid() == parent:
        time.sleep(0.1)
    os._exit(0)

def send():
    for number in range(times):
        time.sleep(0.4)
        os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=send, daemon=True).start()
stop = signals.StopRequest(world_size=2)
with stop.listening():
    os.write(1, b"in ")
    dist.all_reduce(torch.ones(1))  # the other one never comes
os.write(1, b"out")
"""


@pytest.mark.parametrize("times", [1, 2])
def test_a_process_stuck_in_a_sum_leaves_all_the_same(times):
    """The main thread is inside the library, where Python's handlers do not run."""
    done = warm_python(STUCK, free_port(), times)
    assert done.stdout == "in ", done.stderr
    assert done.returncode == 128 + signal.SIGTERM
    said = "oelm: the step did not end within 1 s, so this process leaves without saving" in done.stderr
    assert said == (times == 1)


def test_slow_steps_are_given_the_time_to_end(monkeypatch):
    timers = []
    monkeypatch.setattr(signals.threading, "Timer", lambda seconds, *given: timers.append(seconds) or MagicMock())
    for slowest in (0.0, 3.0, 30.0):
        stop = StopRequest(world_size=2, slowest_step=lambda slowest=slowest: slowest)
        with stop.listening():
            signal.raise_signal(signal.SIGINT)
    assert timers == [20.0, 20.0, 120.0]


def test_a_wakeup_that_somebody_else_wants_is_given_back():
    told, teller = socket.socketpair()
    teller.setblocking(False)
    before = signal.set_wakeup_fd(teller.fileno())
    try:
        with StopRequest(world_size=1).listening():
            pass
        assert signal.set_wakeup_fd(-1) == teller.fileno()
    finally:
        signal.set_wakeup_fd(before)
        told.close()
        teller.close()
