"""How a command ends: whoever stops reading is no error, and gets no traceback."""

import subprocess
import sys

import pytest

from small_runs import child_environment

COMMAND = "from oelm.machine.answers import one_line_errors, say\nwith one_line_errors('x', command=['x']):\n    {0}"
SPEAKING = "[say('a line') for _ in range(100_000)]"
ANOTHER_PIPE = "raise BrokenPipeError(32, 'of a child')"


@pytest.mark.parametrize(("code", "ended", "traceback"), [(SPEAKING, 141, False), (ANOTHER_PIPE, 1, True)])
def test_a_reader_that_leaves_ends_the_command_quietly_and_another_broken_pipe_does_not(code, ended, traceback):
    command = [sys.executable, "-c", COMMAND.format(code)]
    with subprocess.Popen(
        command, env=child_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        if not traceback:
            process.stdout.readline()
            process.stdout.close()
        assert bool(process.stderr.read()) == traceback
    assert process.returncode == ended
