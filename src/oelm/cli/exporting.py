"""The verb export-metrics: stored metrics for other trackers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oelm.cli import completion
from oelm.cli.options import echo
from oelm.machine.plurals import number_of


def export_metrics(
    source: Annotated[
        str,
        typer.Argument(
            metavar="STUDY",
            help="A study, or a folder of runs, an archive, or one run.",
            autocompletion=completion.studies,
        ),
    ],
    to: Annotated[str, typer.Option("--to", metavar="tensorboard|wandb|trackio|csv", help="What to write.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write into.", show_default="exports/STUDY/TO")
    ] = None,
) -> None:
    """Write stored metrics for other trackers, or as CSV.

    Nothing is uploaded unless your environment asks for it (WANDB_MODE=online): wandb writes offline runs, which `wandb
    sync` uploads; trackio writes its own local database.

    \b
    Examples:
      oelm export-metrics demo --to csv
      oelm export-metrics runs/demo --to tensorboard --out /tmp/demo
      oelm export-metrics results.zip --to wandb
    """
    from oelm.show.metric_export import exported
    from oelm.study.given_results import given_results

    given = given_results(source)
    place = out or Path("exports") / given.name / to
    written = exported(given, to=to, out=place)
    where = "its own database" if to == "trackio" else str(place)
    for line in given.damage:
        echo(f"left out: {line}", err=True)
    echo(f"{number_of(written, 'run')} written for {to}: {where}")
