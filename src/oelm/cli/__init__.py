"""The command `oelm`. Heavy imports stand inside the verbs, so that --help answers at once."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from oelm.answers import one_line_errors
from oelm.cli import one_run, remote, studies

app = typer.Typer(
    name="oelm",
    help="Find out, honestly and fast, whether a part of a transformer can stay frozen.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from oelm import __version__

        typer.echo(f"oelm {__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Find out, honestly and fast, whether a part of a transformer can stay frozen."""


for _verb in (
    one_run.prepare,
    one_run.train,
    one_run.diagnose,
    one_run.generate,
    one_run.export,
    one_run.arms,
    one_run.compare,
    studies.run,
    studies.stop,
    studies.status,
    studies.logs,
    studies.bench,
    studies.report,
):
    app.command()(_verb)
app.add_typer(remote.app, name="remote")


def main() -> None:
    """Entry point."""
    with one_line_errors("oelm", command=["oelm", *sys.argv[1:]]):
        app()
