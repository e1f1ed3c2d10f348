"""How a command ends: a user's error is its lines and an exit code, never a traceback."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator

from oelm.errors import UserError


@contextlib.contextmanager
def one_line_errors(name: str, *, command: list[str]) -> Iterator[None]:
    """Around a whole command. Of several processes the first one speaks, unless the error is another's own."""
    try:
        yield
    except UserError as error:
        if os.environ.get("RANK", "0") == "0" or error.concerns_one_process:
            for line in str(error).splitlines():
                print(f"{name}: {line}", file=sys.stderr)
            if error.can_be_resumed:
                print(f"{name}: resume with: {_same_command(command)}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print(f"{name}: stopped", file=sys.stderr)
        sys.exit(130)


def _same_command(command: list[str]) -> str:
    return "the same torchrun command" if "TORCHELASTIC_RUN_ID" in os.environ else shlex.join(command)
