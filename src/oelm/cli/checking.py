"""The verb check: what this machine does with a training step, shown by itself. Heavy imports stand inside."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from oelm.cli import completion
from oelm.cli.options import GpusOption, JsonOption, RunsOption, echo, print_json
from oelm.machine.errors import UserError
from oelm.machine.plurals import number_of
from oelm.machine.visible import visible
from oelm.storage.files import RUNS


def check(
    study: Annotated[
        str | None,
        typer.Option(
            "--study",
            metavar="STUDY",
            help="Measure the study's own model, and keep the result with its runs for its report.",
            autocompletion=completion.studies,
        ),
    ] = None,
    runs: RunsOption = None,
    gpus: GpusOption = None,
    cpu: Annotated[bool, typer.Option("--cpu", help="Check the processor, even if there is a GPU.")] = False,
    only: Annotated[
        str | None, typer.Option("--only", help="Only these checks, by name, separated by commas.", show_default="all")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Check that runs on this machine are exact.

    It takes one to a few minutes on an idle machine. Short runs are repeated, killed and resumed; steps are taken by
    every kind of arm, compiled and eager, on one device and on several; memory and the work of several GPUs are
    measured. One line per check: pass, fail or skipped, its name, and what was found or why it was skipped. Exit code 1
    if a check fails.

    \b
    Examples:
      oelm check
      oelm check --only repeated,resumed
      oelm check --study qk_freeze --json
    """
    if runs is not None and study is None:
        raise UserError("--runs: is the folder of a study; give --study too")
    if cpu and gpus is not None:
        raise UserError("--cpu, --gpus: give one of the two")
    from oelm.execution.checking.conduct import chosen, circumstances, conduct, measured_settings
    from oelm.execution.checking.outcomes import Here
    from oelm.machine.gpus import gpus_to_use, visible_alone
    from oelm.storage.files import ensure_writable, write_sealed
    from oelm.study.kept_check import CHECK_FILE, results_to_keep
    from oelm.study.reading import load_study

    def say(line: str) -> None:
        echo(line, err=json_output)

    checks = chosen(only)
    declared = load_study(study) if study is not None else None
    folder = (runs or RUNS / declared.name) if declared else None
    if folder is not None:
        ensure_writable(folder, option="--runs")
    taken = [] if cpu else gpus_to_use(gpus, say=say)
    if len(taken) > 1 and any(gpu.name.startswith("MIG-") for gpu in taken):
        taken = taken[:1]
        say(f"only {taken[0].name} is checked: CUDA shows a process one slice of a GPU (MIG) at most")
    names, by_bus = [gpu.name for gpu in taken], all(gpu.by_bus for gpu in taken)
    measured, called = measured_settings(declared, "cuda" if names else "cpu")
    earlier = results_to_keep(folder, circumstances(names, called)) if folder is not None and only is not None else []
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES") is not None
    why = "--cpu" if cpu else "CUDA_VISIBLE_DEVICES names no GPU" if is_hidden else "no GPU found"
    where = number_of(len(names), "GPU") if names else f"the processor ({why})"
    say(f"checking {where}; memory uses {called}")

    def say_over_progress(line: str) -> None:
        _progress("")
        say(line)

    scratch, states = Path(tempfile.mkdtemp(prefix="oelm-check-")), list[str]()
    try:
        here = Here(scratch, tuple(names), visible_alone(names, by_bus=by_bus), measured)
        record = conduct(checks, here, say=say_over_progress, beginning=_progress, measured=called, earlier=earlier)
        asked = {check.name for check in checks}
        states = [each["state"] for each in record["results"] if each["name"] in asked]
    finally:
        if "fail" not in states:
            shutil.rmtree(scratch, ignore_errors=True)
    counted = ", ".join(f"{states.count(state)} {word}" for state, word in STATES.items())
    say(f"{number_of(len(states), 'check')}: {counted}")
    if scratch.exists():
        say(f"{scratch}: what the checks wrote, kept because one failed")
    if folder is not None:
        write_sealed(folder / CHECK_FILE, record)
        say(f"{folder / CHECK_FILE}: kept for the report of {declared.name if declared else study}")
    if json_output:
        print_json(record)
    if "fail" in states:
        raise typer.Exit(1)


STATES = {"pass": "passed", "fail": "failed", "skipped": "skipped"}


def _progress(line: str) -> None:
    """What is under way, on a terminal only; the next line takes its place."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[2K{visible(line)}")
        sys.stderr.flush()
