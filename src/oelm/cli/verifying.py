"""The verb verify, of a run or of a study. Heavy imports stand inside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oelm.cli import completion
from oelm.cli.options import (
    JsonOption,
    ReadRunsOption,
    echo,
    print_json,
    refuse_if_no_data,
    refuse_if_no_folder,
    refuse_if_runs_are_below,
)
from oelm.machine.errors import UserError
from oelm.storage.files import RUNS

A_FEW = 3


def verify(
    what: Annotated[
        str,
        typer.Argument(
            metavar="RUN|STUDY",
            help="A run directory, a study, a folder of runs, or an archive.",
            autocompletion=completion.runs_or_studies,
        ),
    ],
    sample: Annotated[
        int | None,
        typer.Option("--sample", min=1, help="For a study: recompute at most N runs.", show_default=str(A_FEW)),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="For a study: recompute every run.")] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed for choosing the sample.")] = 0,
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder of the data.", show_default="from each run's config")
    ] = None,
    runs: ReadRunsOption = None,
    json_output: JsonOption = False,
) -> None:
    """Recompute reported losses from checkpoints and data.

    The loss at the last checkpoint must agree bit for bit on the same kind of machine, and within a stated tolerance
    elsewhere. A run without its last checkpoint or its data is `not recomputable`, which is not a failure. The last
    line says what was not recomputed. Exit code 1 if a loss differs, a run or a file of the study (registration,
    choices, bench, check) is damaged, or runs with different seeds report exactly the same losses.

    \b
    Examples:
      oelm verify runs/frozen
      oelm verify demo --sample 5
      oelm verify demo --all --json
    """
    if every and sample is not None:
        raise UserError("--sample, --all: give one of the two")
    run, folder = _run_or_folder(what, runs)
    if run is not None and (every or sample is not None):
        raise UserError(f"{run}: is one run; --sample and --all are for a study")
    if data is not None:
        refuse_if_no_data(data)
    from oelm.execution.verification.several import verify_folder, verify_run

    def say(line: str) -> None:
        echo(line, err=json_output)

    if run is not None:
        done = verify_run(run, data=data, say=say)
    else:
        done = verify_folder(folder, sample=None if every else sample or A_FEW, seed=seed, data=data, say=say)
    if json_output:
        print_json(done.as_json())
    else:
        if run is None:
            echo(done.closing_line())
        echo(done.reach_line())
    if done.failed:
        raise typer.Exit(1)


def _run_or_folder(what: str, runs: Path | None) -> tuple[Path | None, Path]:
    """A run directory, or the folder of the runs of a study."""
    from oelm.run.directory import is_run
    from oelm.study.archives import place_in_archive

    path = Path(what)
    is_path = path.exists() or len(path.parts) > 1  # demo is a study, whatever demo.zip is beside it
    if path.is_dir() or (is_path and place_in_archive(path)):
        path = _told_of_archive(path)
        if is_run(path) and runs is not None:
            raise UserError(f"--runs: {path} is a run itself")
        return path if is_run(path) else None, path
    from oelm.study.catalogue import declared_by
    from oelm.study.reading import load_study

    name = load_study(declared_by(what, runs)).name
    folder = _told_of_archive(runs or RUNS / name)
    if runs is not None:
        refuse_if_no_folder(folder)
        refuse_if_runs_are_below(folder, name)
    return None, folder


def _told_of_archive(path: Path) -> Path:
    """The folder to look at; of an archive, what can be verified at all."""
    from oelm.study.archives import place_in_archive, runs_folder

    if place := place_in_archive(path):
        echo(
            f"{place.archive}: an archive contains no checkpoints; its files are checked, but no loss is recomputed",
            err=True,
        )
    return runs_folder(path)
