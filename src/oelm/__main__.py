"""The command `oelm`, also as `python -m oelm`, also for torchrun: `torchrun --nproc-per-node 2 -m oelm train ...`."""

from __future__ import annotations

import os
import sys

if sys.path[:1] == [os.getcwd()] and not sys.flags.safe_path and not os.path.isdir("oelm"):
    del sys.path[0]  # `python -m` puts the working folder first, and a queue.py there in the place of Python's own

from oelm.machine.answers import one_line_errors
from oelm.machine.system import refuse_systems_without_locks


def main() -> None:
    """Entry point. Nothing else is imported before it is known that this system has what that needs."""
    with one_line_errors("oelm", command=["oelm", *sys.argv[1:]]):
        refuse_systems_without_locks()
        from oelm.cli import main as command
    command()


if __name__ == "__main__":
    main()
