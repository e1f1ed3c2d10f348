"""`python -m oelm.execution.checking.in_child TASK REQUEST.json`: a part of a check that needs torch, as a process.

Started by children.py, with torchrun where several processes are asked for; the first one writes the answer.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from oelm.machine.answers import one_line_errors
from oelm.storage.files import read_object, write_json

TASKS = {
    "device": "oelm.execution.checking.steps:device",
    "arms": "oelm.execution.checking.steps:arms",
    "compiled": "oelm.execution.checking.steps:compiled",
    "memory": "oelm.execution.checking.steps:memory",
    "efficiency": "oelm.execution.checking.steps:efficiency",
}


def main() -> None:
    task, file = sys.argv[1:]
    with one_line_errors("oelm", command=sys.argv):
        module, _, function = TASKS[task].partition(":")
        request = read_object(Path(file))
        answer = getattr(importlib.import_module(module), function)(request)
        if os.environ.get("RANK", "0") == "0":
            write_json(Path(request["answer"]), answer)


if __name__ == "__main__":
    main()
