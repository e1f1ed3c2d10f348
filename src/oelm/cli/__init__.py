"""The command `oelm`. Heavy imports stand inside the verbs, so that --help answers at once."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
import typer.main

from oelm.cli import checking, getting_started, one_run, probing, remote, studies, verifying, watching
from oelm.cli.options import echo
from oelm.machine.answers import one_line_errors
from oelm.machine.errors import UserError

UsageError: Any = typer.BadParameter.__bases__[0]  # of whichever click typer brings along
# Verbs of versions up to 0.5.0, with what to use instead.
GONE = {
    "compare": "no longer a verb; `oelm report STUDY` compares arms, and `oelm board` shows chosen runs side by side"
}

app = typer.Typer(
    name="oelm",
    help="Find out, honestly and fast, whether a part of a transformer can stay frozen.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from oelm import __version__

        echo(f"oelm {__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Find out, honestly and fast, whether a part of a transformer can stay frozen."""


for _verb in (
    getting_started.demo,
    getting_started.studies,
    getting_started.new,
    one_run.prepare,
    one_run.train,
    one_run.diagnose,
    one_run.generate,
    probing.probe,
    one_run.export,
    one_run.arms,
    one_run.keys,
    studies.plan,
    studies.register,
    studies.run,
    studies.stop,
    studies.status,
    studies.logs,
    watching.board,
    studies.bench,
    studies.report,
    studies.archive,
    watching.export_metrics,
    verifying.verify,
    checking.check,
):
    app.command()(_verb)
app.add_typer(remote.app, name="remote")
_command = typer.main.get_command(app)  # which `app()` would build again


def main() -> None:
    """Entry point."""
    with one_line_errors("oelm", command=["oelm", *sys.argv[1:]]):
        try:
            code = _command(standalone_mode=False, prog_name="oelm")
        except UsageError as error:
            if not sys.argv[1:] or "\n" in str(error.message):  # help itself
                echo(error.message, err=True)
                sys.exit(UserError.exit_code)
            verb = sys.argv[1]
            said = f"{verb}: {GONE[verb]}" if verb in GONE else error.format_message()
            raise UserError(said) from error
        sys.exit(code)
