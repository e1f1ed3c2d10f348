"""The verb check: what this machine does with a training step, shown by itself. Heavy imports stand inside."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from oelm.cli import completion
from oelm.cli.options import JsonOption, echo, print_json
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
    runs: Annotated[
        Path | None, typer.Option("--runs", help="Folder of the study's runs.", show_default="runs/STUDY")
    ] = None,
    gpus: Annotated[
        str | None, typer.Option("--gpus", help="Only these GPUs, for example 0,2.", show_default="the free ones")
    ] = None,
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
    where = number_of(len(names), "GPU") if names else f"the processor ({_why_no_gpu(cpu)})"
    say(f"checking {where}; memory uses {called}")
    with _scratch() as scratch:
        here = Here(scratch, tuple(names), visible_alone(names, by_bus=by_bus), measured)
        record = conduct(checks, here, say=_over_progress(say), beginning=_progress, measured=called, earlier=earlier)
        done = [each for each in record["results"] if each["name"] in {check.name for check in checks}]
        states = [each["state"] for each in done]
        if "fail" not in states:
            shutil.rmtree(scratch)
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


def _why_no_gpu(cpu: bool) -> str:
    if cpu:
        return "--cpu"
    return "no GPU found" if os.environ.get("CUDA_VISIBLE_DEVICES") is None else "CUDA_VISIBLE_DEVICES names no GPU"


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """A folder that whoever uses it removes; removed here if that cannot be."""
    folder = Path(tempfile.mkdtemp(prefix="oelm-check-"))
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


STATES = {"pass": "passed", "fail": "failed", "skipped": "skipped"}


def _progress(line: str) -> None:
    """What is under way, on a terminal only; the next line takes its place."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[2K{visible(line)}")
        sys.stderr.flush()


def _over_progress(say: Callable[[str], None]) -> Callable[[str], None]:
    def said(line: str) -> None:
        _progress("")
        say(line)

    return said
