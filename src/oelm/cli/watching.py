"""The verb `board`. Heavy imports stand inside; it loads no torch."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from oelm.cli import completion
from oelm.cli.given import refuse_if_no_folder, refuse_if_no_study
from oelm.cli.options import echo
from oelm.cli.studies import language_named
from oelm.errors import UserError
from oelm.files import RUNS


def board(
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="STUDY",
            help="A study to open; without it, every study and run under runs/.",
            autocompletion=completion.studies,
        ),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(
            "--runs",
            help="With STUDY, the folder of its runs or an archive of them; else the folder of all studies.",
            show_default="runs/STUDY, or runs",
        ),
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=1, max=65535, help="Port to listen at.", show_default="8765 or the next")
    ] = None,
    host: Annotated[
        str,
        typer.Option("--host", help="Address to listen at. Any address but loopback needs the secret that is printed."),
    ] = "127.0.0.1",
    opens: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
    language: Annotated[str, typer.Option("--lang", metavar="en|zh", help="Language of the page.")] = "en",
) -> None:
    """Show studies and runs in the browser while they run.

    A local page with the verdicts as they form, curves, and every run. It reads run directories only and starts
    nothing: start and stop it at any time. It also shows a folder that was pulled from a server, and an archive.

    \b
    Examples:
      oelm board
      oelm board demo
      oelm board tinystories_cpu --runs docs/findings/tinystories_cpu/runs
    """
    import importlib.util

    from oelm.installation import install_command

    shown_in = language_named(language)
    missing = [name for name in ("starlette", "uvicorn", "plotly", "scipy") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"oelm board needs {' and '.join(missing)}: {install_command('board')}")
    from oelm.board.places import StudyPlace
    from oelm.board.serving import serve
    from oelm.board.state import Board

    if study is None:
        from oelm.archives import place_in_archive

        if runs is not None:
            if runs.is_file() or place_in_archive(runs) is not None:
                raise UserError(
                    f"--runs {runs}: an archive needs its study: oelm board STUDY --runs {quote(str(runs))}"
                )
            refuse_if_no_folder(runs)
        found = Board(runs or RUNS)
    else:
        from oelm.archives import runs_folder
        from oelm.study.given_results import refuse_runs_of_others
        from oelm.study.reading import load_study

        refuse_if_no_study(study, "board")
        declared = load_study(study)
        path = runs or RUNS / declared.name
        folder = runs_folder(path)
        if runs is not None:
            refuse_if_no_folder(folder)
            refuse_runs_of_others(declared, folder)
        found = Board(None if runs is not None else RUNS, StudyPlace(declared.name, path, study))
    serve(found, host=host, port=port, language=shown_in, opens=opens, say=echo)
