"""K5, K6: SIGTERM and Ctrl-C end the step, save, and say how to go on; a second one leaves at once."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shlex
import signal
import threading
import time

import pytest
from patches import SLOW_SAVE, SLOW_STEPS
from runs import assert_equal_runs, assert_refused, state, steps_recorded, training, whole_steps


def test_signals_save_and_name_the_command_that_goes_on(server, data, reference, tmp_path):
    """One run, four starts: SIGTERM, Ctrl-C, a closed terminal, and then to the end."""
    run, words, step = tmp_path / "a run", training(tmp_path / "a run", data), 0
    for number, code in (signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129):
        running = server.start(*words, patch=SLOW_STEPS)
        running.until(lambda step=step: steps_recorded(run) >= step + 9)
        running.send(number)
        ended = running.wait()
        assert_refused(ended, code=code)
        assert not step or f"resuming from step {step} of 40" in ended.out
        before, step = step, int(re.search(r"stopped at step (\d+) of 40, saved", ended.err)[1])
        assert before + 9 <= step < 40
        assert whole_steps(run)[-1] == step
        assert state(run) == "interrupted"
        words = shlex.split(re.search(r"^oelm: resume with: oelm (.*)$", ended.err, re.MULTILINE)[1])
    assert server.run(*words).code == 0
    assert_equal_runs(run, reference)


def test_a_run_under_nohup_outlives_its_terminal(server, data, reference, tmp_path):
    nohup = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    running = server.start(*training(tmp_path / "run", data), patch=nohup + SLOW_STEPS)
    running.until(lambda: steps_recorded(tmp_path / "run") >= 9)
    running.send(signal.SIGHUP)
    assert running.wait().code == 0
    assert_equal_runs(tmp_path / "run", reference)


def test_two_signals_in_quick_succession_are_one_wish(server, data, tmp_path):
    """A Ctrl-C reaches a process from the terminal, and again from whoever started it."""
    running = server.start(*training(tmp_path / "run", data), patch=SLOW_STEPS)
    running.until(lambda: steps_recorded(tmp_path / "run") >= 9)
    running.send(signal.SIGINT)
    time.sleep(0.05)
    running.send(signal.SIGINT)
    assert running.wait().code == 130
    assert state(tmp_path / "run") == "interrupted"


def test_a_second_ctrl_c_while_saving_leaves_at_once_with_the_old_checkpoint(server, data, reference, tmp_path):
    run = tmp_path / "run"
    running = server.start(*training(run, data), patch=SLOW_STEPS + SLOW_SAVE)
    running.until(lambda: steps_recorded(run) >= 9)
    running.send(signal.SIGINT)
    running.until(lambda: list((run / "checkpoints").glob(".partial-*/model.safetensors")))
    time.sleep(0.4)
    again = time.monotonic()
    running.send(signal.SIGINT)
    ended = running.wait()
    assert ended.code == 130
    assert time.monotonic() - again < 5
    assert whole_steps(run) == [7]
    assert server.run(*training(run, data)).code == 0
    assert_equal_runs(run, reference)


def test_ctrl_c_before_the_first_step_is_an_interruption_too(server, data, tmp_path):
    hang = "import time, oelm.run.training.assembly as assembly; assembly.build = lambda *_: time.sleep(60)"
    running = server.start(*training(tmp_path / "run", data), patch=hang)
    running.until(lambda: state(tmp_path / "run") == "running")
    time.sleep(0.1)
    running.send(signal.SIGINT)
    assert_refused(running.wait(), code=130)
    assert state(tmp_path / "run") == "interrupted"


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_at_a_terminal_leaves_the_terminal_as_it_was(server, data, tmp_path, presses):
    """A real terminal's Ctrl-C key, while the live line is shown, which hides the cursor."""
    run, (keyboard, screen), shown = tmp_path / "run", pty.openpty(), bytearray()
    patch = SLOW_STEPS + (SLOW_SAVE if presses == 2 else "")
    running = server.start(*training(run, data), patch=patch, terminal=os.ttyname(screen))
    reader = threading.Thread(target=read_to_the_end, args=(keyboard, shown))
    reader.start()
    running.until(lambda: steps_recorded(run) >= 9)
    os.close(screen)  # the run has it open too; when it is the last, reading ends
    os.write(keyboard, b"\x03")
    if presses == 2:
        time.sleep(0.5)
        os.write(keyboard, b"\x03")
    assert running.wait().code == 130
    reader.join()
    os.close(keyboard)
    assert b"stopping after this step and saving; once more to leave at once" in shown
    assert shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l") > 0


def read_to_the_end(terminal: int, shown: bytearray) -> None:
    with contextlib.suppress(OSError):  # the last process that had it open is gone
        while True:
            shown.extend(os.read(terminal, 2**16))
