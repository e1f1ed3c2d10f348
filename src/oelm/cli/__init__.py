"""The command `oelm`. Heavy imports stand inside the verbs, so that --help answers at once."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Annotated

import typer

from oelm.cli import one_run, studies
from oelm.errors import UserError

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
    one_run.arms,
    one_run.compare,
    studies.run,
    studies.status,
    studies.logs,
    studies.bench,
    studies.report,
):
    app.command()(_verb)


# ---- Errors --------------------------------------------------------------------------------------------------------


def main() -> None:
    """Entry point: a user's error is its lines and an exit code, never a traceback."""
    try:
        app()
    except UserError as error:
        if os.environ.get("RANK", "0") == "0" or error.concerns_one_process:
            for line in str(error).splitlines():
                print(f"oelm: {line}", file=sys.stderr)
            if error.can_be_resumed:
                print(f"oelm: resume with: {_same_command()}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("oelm: stopped", file=sys.stderr)
        sys.exit(130)


def _same_command() -> str:
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return "the same torchrun command"
    return shlex.join(["oelm", *sys.argv[1:]])
