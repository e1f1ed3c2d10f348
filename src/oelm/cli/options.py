"""Options that several verbs share, and how they print for machines."""

from __future__ import annotations

from typing import Annotated, Any

import typer

PresetOption = Annotated[
    str | None,
    typer.Option(
        "--preset", help="Sizes by name: tiny, small, medium-512, gpt2-124m, fine-tuning.", show_default="tiny"
    ),
]
ArmOption = Annotated[
    str | None,
    typer.Option(
        "--arm",
        help="Which arm: trained, frozen_head_orthogonal, ... (`oelm arms` lists them).",
        show_default="trained",
    ),
]
DataOption = Annotated[
    str | None,
    typer.Option("--data", help="Folder of token files, made by `oelm prepare`.", show_default="as the preset says"),
]
SeedOption = Annotated[
    int | None,
    typer.Option("--seed", min=0, help="Seed of weights, projections and data order together.", show_default="0"),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change one setting; repeatable. Example: --set learning_rate=3e-4"
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")]


def print_json(value: dict[str, Any]) -> None:
    import json

    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))
