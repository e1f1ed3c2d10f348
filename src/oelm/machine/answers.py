"""What a command says, and how it ends: a user's error, or what ran out, is its lines and a code, never a traceback."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import sys
import traceback
from collections.abc import Iterator

from oelm.machine.errors import UserError
from oelm.machine.exhaustion import refuse_few_open_files, what_ran_out, what_the_gpu_reported, why_output_is_refused
from oelm.machine.installation import what_cannot_be_imported
from oelm.machine.visible import visible


@contextlib.contextmanager
def one_line_errors(name: str, *, command: list[str]) -> Iterator[None]:
    """Around a whole command. Of several processes the first one speaks, unless the error is another's own."""
    # As `python -P`, for every process that is started from here, and those of torchrun and of torch's compiler: none
    # takes a queue.py in the working folder for Python's own.
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        refuse_few_open_files()
        yield
    except UserError as error:
        if os.environ.get("RANK", "0") == "0" or error.concerns_one_process:
            for line in visible(error).splitlines():
                print(f"{name}: {line}", file=sys.stderr)
            if error.can_be_resumed:
                print(f"{name}: resume with: {visible(_same_command(command))}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print(f"{name}: stopped", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _reader_is_gone():
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is flushed at the end
            sys.exit(128 + signal.SIGPIPE)
        ran_out = why_output_is_refused(error) or what_ran_out(error)
        for found, code in (
            (ran_out, UserError.exit_code),
            (what_cannot_be_imported(error), UserError.exit_code),
            (what_the_gpu_reported(error), 1),
        ):
            if found is not None:
                print(f"{name}: {_whose()}{visible(found)}", file=sys.stderr)
                sys.exit(code)
        print(visible(traceback.format_exc()), end="", file=sys.stderr)
        sys.exit(1)


def _reader_is_gone() -> bool:
    """Whether whoever read what we print has left, such as `head`: no error, but nothing is left to be done."""
    if not hasattr(select, "poll"):  # Windows
        return False
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def say(text: object = "") -> None:
    """Print, whatever is in it."""
    print(visible(text), flush=True)


def _whose() -> str:
    """Of several processes, which one."""
    return f"rank {os.environ['RANK']}: " if os.environ.get("WORLD_SIZE", "1") != "1" and "RANK" in os.environ else ""


def _same_command(command: list[str]) -> str:
    return "the same torchrun command" if "TORCHELASTIC_RUN_ID" in os.environ else shlex.join(command)
