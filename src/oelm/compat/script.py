"""An original script as a command: its errors are one line each, as with `oelm`."""

from __future__ import annotations

import io
import sys
from contextlib import AbstractContextManager
from pathlib import Path

from oelm.machine.answers import one_line_errors


def as_a_script() -> AbstractContextManager[None]:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # where a terminal has no Chinese
    return one_line_errors(Path(sys.argv[0]).name, command=["python", *sys.argv])
