"""Options that several verbs share, and how they print, for people and for machines."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from oelm.cli import completion
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


def echo(text: object = "", *, err: bool = False) -> None:
    """The only way in which a verb speaks."""
    typer.echo(visible(text), err=err)


def print_json(value: dict[str, Any]) -> None:
    typer.echo(json_text(value))
