"""Options that several verbs share, what their paths cannot be, and how verbs print, for people and for machines."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from oelm.cli import completion
from oelm.execution.engines import ENGINES
from oelm.machine.errors import UserError
from oelm.machine.visible import json_text, visible

PresetOption = Annotated[
    str | None,
    typer.Option(
        "--preset",
        help="Named sizes: tiny, small, medium-512, gpt2-124m, probe, fine-tuning. batch_size is over all processes.",
        show_default="tiny",
    ),
]
ArmOption = Annotated[
    str | None,
    typer.Option(
        "--arm",
        help="Arm to train: trained, frozen_head_orthogonal, ... (`oelm arms` lists them).",
        show_default="trained",
        autocompletion=completion.arms,
    ),
]
DataOption = Annotated[
    str | None,
    typer.Option("--data", help="Folder made by `oelm prepare`, or probe:TASK.", show_default="from the preset"),
]
SeedOption = Annotated[
    int | None,
    typer.Option("--seed", min=0, help="Seed for weights, projections and data order.", show_default="0"),
]
ArmsOption = Annotated[
    str | None,
    typer.Option(
        "--arms",
        help="Only these arms, separated by commas.",
        show_default="all",
        autocompletion=completion.arms_of_study,
    ),
]
# What --arms of `run` was called up to version 0.5.
GroupsOption = Annotated[str | None, typer.Option("--groups", hidden=True, autocompletion=completion.arms_of_study)]
GpusOption = Annotated[
    str | None, typer.Option("--gpus", help="Only these GPUs, for example 0,2.", show_default="the free ones")
]
StudyArgument = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="A study file, or a name that `oelm studies` lists.",
        autocompletion=completion.studies,
    ),
]
RunsOption = Annotated[
    Path | None, typer.Option("--runs", help="Folder of the study's runs.", show_default="runs/STUDY")
]
ReadRunsOption = Annotated[
    Path | None,
    typer.Option("--runs", help="Folder of the study's runs, or an archive of them.", show_default="runs/STUDY"),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change one setting (`oelm keys` lists them); repeatable. Example: --set learning_rate=3e-4",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def one_of_arms_and_groups(arms: str | None, groups: str | None) -> str | None:
    if arms is not None and groups is not None:
        raise UserError("--groups: is an older name of --arms; give --arms alone")
    return groups if arms is None else arms


# ---- How verbs print -----------------------------------------------------------------------------------------------


def echo(text: object = "", *, err: bool = False) -> None:
    """The only way in which a verb speaks."""
    typer.echo(visible(text), err=err)


def print_json(value: dict[str, Any]) -> None:
    typer.echo(json_text(value))


# ---- What a path cannot be: mistyped, in an archive, a folder of other folders ---------------------------------------


def refuse_if_in_archive(path: Path, verb: str) -> None:
    """For the verbs that want what an archive leaves out."""
    from oelm.study.archives import place_in_archive

    place = place_in_archive(path)
    if place is not None:
        raise UserError(f"{place.archive}: is an archive, without the weights and logs that `oelm {verb}` needs")


def refuse_if_no_folder(path: Path) -> None:
    """For --runs where nothing is created: a mistyped folder must not pass for an empty one."""
    if not path.is_dir():
        raise UserError(f"--runs {path}: no such folder")


def refuse_if_runs_are_below(folder: Path, study: str) -> None:
    """For --runs with a study where nothing is created: the folder of all studies is not that of one."""
    from oelm.run.directory import run_directories

    below = folder / study
    if run_directories(below) and not run_directories(folder):
        raise UserError(f"--runs {folder}: its runs are in {below}; use --runs {shlex.quote(str(below))}")


def refuse_if_no_data(path: Path) -> None:
    """For --data where it is optional: a mistyped folder must not pass for one that is gone."""
    if not path.is_dir():
        raise UserError(f"--data {path}: no such folder")
    if not any((path / name).is_file() for name in ("manifest.json", "train.bin")):
        raise UserError(f"--data {path}: contains no prepared data; `oelm prepare` creates it")


# ---- Of engines: the table says which, so that a new engine needs no word here ---------------------------------------

_TITLES = ", ".join(f"{name} for {row.title}" for name, row in ENGINES.items())
EngineOption = Annotated[str, typer.Option("--on", metavar="|".join(ENGINES), help=f"Where runs execute: {_TITLES}.")]


def with_engine_options(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb with an option --NAME KEY=VALUE for each engine that has wishes of its own. They arrive in its **wishes,
    and an example of each ends its help.
    """
    signature = inspect.signature(verb, eval_str=True)
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    added = []
    for name, row in ENGINES.items():
        if row.wishes is not None:
            option = Annotated[list[str] | None, typer.Option(f"--{name}", metavar="KEY=VALUE", help=row.wishes)]
            added.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option))
    verb.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    examples = [f"  oelm run demo --on {name} {row.example}" for name, row in ENGINES.items() if row.example]
    verb.__doc__ = "\n".join([inspect.cleandoc(verb.__doc__ or ""), *examples])
    return verb
