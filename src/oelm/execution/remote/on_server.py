"""`python -m oelm.execution.remote.on_server`: what `oelm remote` does on the other side, by the code that was sent.

The one argument is a JSON object: nothing of it is read by a shell.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from oelm.execution.controller import last_words
from oelm.execution.detached import LOG_FILE, at_work, start_detached, stop
from oelm.execution.status import overview, study_status
from oelm.machine.errors import UserError
from oelm.machine.visible import visible
from oelm.run.directory import RunDirectory, run_directories
from oelm.storage.files import RUNS
from oelm.study.declaration import study_digest
from oelm.study.reading import load_study
from oelm.study.registration import as_it_began


def start(request: dict[str, Any]) -> int:
    """The study has to be the one that was looked at on the other side, unless a script makes its own."""
    if request["study"] is not None and study_digest(load_study(request["study"])) != request["digest"]:
        raise UserError(f"study {request['study']!r} is different here; send yours with `sync` first")
    return start_detached(request["command"], Path(request["folder"]), say=_say)


def stop_runs(request: dict[str, Any]) -> int:
    stop(Path(request["folder"]), say=_say)
    return 0


def status(request: dict[str, Any]) -> int:
    """As `oelm status` says it, and whether somebody is at work on the study."""
    if request["study"] is None:
        lines = overview(RUNS)
    else:
        folder = Path(request["folder"])
        plan, lines = study_status(as_it_began(load_study(request["study"]), folder), folder)
        there, last = at_work(folder), last_words(folder / LOG_FILE) or ""
        why = f" (it ended with: {last.removeprefix('oelm: ')})" if last.startswith("oelm: ") else ""
        if there is not None:
            lines.append(f"controller: running ({there})")
        elif plan.is_done:
            lines.append("controller: none running; nothing is missing")
        else:
            lines.append(f"controller: none running{why}; `run` starts what is missing")
    for line in lines:
        _say(line)
    return 0


def logs(request: dict[str, Any]) -> NoReturn:
    """Of one run; without a name, of the one that was written last."""
    run, root = request["run"], Path(request["runs"])
    if not run:
        runs = (run for study in root.glob("*/") for run in run_directories(study, unlisted=lambda damage: None))
        logs = [log for each in runs if os.path.isfile(log := RunDirectory(each).log_file)]
        if not logs:
            raise UserError(f"{root}: no run has written a log there yet")
        run = str(max(logs, key=lambda file: file.stat().st_mtime).parent)
        _say(f"==> {run}")
    # In our own place, so that the end of the connection ends it.
    os.execv(sys.executable, [sys.executable, "-m", "oelm", "logs", *request["arguments"], "--", run])


def _say(line: str) -> None:
    print(visible(line), flush=True)


ACTIONS = {"start": start, "stop": stop_runs, "status": status, "logs": logs}


def main() -> int:
    request = json.loads(sys.argv[1])
    try:
        return ACTIONS[request["action"]](request)
    except UserError as error:
        print(visible(error), file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
