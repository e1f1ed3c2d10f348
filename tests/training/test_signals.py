"""A wish to stop is heard once, however often it is sent; a later one is somebody else's again."""

from __future__ import annotations

import signal
import time

import pytest

from oelm.training.signals import SAME_WISH_SECONDS, StopRequest


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
