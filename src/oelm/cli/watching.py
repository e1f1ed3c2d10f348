"""The verbs `board` and `export-metrics`, which show what is stored. Heavy imports stand inside; no torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oelm.cli import completion
from oelm.cli.options import echo, refuse_if_no_folder, refuse_if_runs_are_below
from oelm.cli.studies import language_named
from oelm.machine.errors import UserError
from oelm.machine.plurals import number_of
from oelm.storage.files import RUNS

if TYPE_CHECKING:
    from oelm.show.board.places import StudyPlace


def board(
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="STUDY",
            help="A study or an archive to open; without it, every study and run under runs/.",
            autocompletion=completion.studies,
        ),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(
            "--runs",
            help="The folder of a study's runs, or an archive of them; without STUDY also the folder of all studies.",
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
    language: Annotated[
        str | None,
        typer.Option("--lang", metavar="en|zh", help="Language of the page.", show_default="the browser's"),
    ] = None,
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

    from oelm.machine.installation import install_command

    shown_in = None if language is None else language_named(language)
    missing = [name for name in ("starlette", "uvicorn", "plotly", "scipy") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"oelm board needs {' and '.join(missing)}: {install_command('board')}")
    from oelm.show.board.places import StudyPlace
    from oelm.show.board.serving import serve
    from oelm.show.board.state import Board
    from oelm.study.archives import runs_folder
    from oelm.study.catalogue import archive_at, declared_by
    from oelm.study.given_results import refuse_runs_of_others
    from oelm.study.reading import load_study

    if study is not None and runs is None and archive_at(Path(study)) is not None:
        runs, study = Path(study), None
    if study is None:
        of_one = _study_in(runs) if runs is not None else None
        found = Board(runs or RUNS) if of_one is None else Board(None, of_one)
    else:
        source = str(declared_by(study, runs))
        declared = load_study(source)
        path = runs or RUNS / declared.name
        folder = runs_folder(path)
        if runs is not None:
            refuse_if_no_folder(folder)
            refuse_if_runs_are_below(folder, declared.name)
            refuse_runs_of_others(declared, folder)
        found = Board(None if runs is not None else RUNS, StudyPlace(declared.name, path, source))
    serve(found, host=host, port=port, language=shown_in, opens=opens, say=echo)


def _study_in(runs: Path) -> StudyPlace | None:
    """As an archive says, or as the folder of its runs is called; None: a folder of other things."""
    from oelm.run.directory import run_directories
    from oelm.show.board.places import StudyPlace
    from oelm.study.archives import place_in_archive, runs_folder
    from oelm.study.catalogue import is_named, name_of_study
    from oelm.study.given_results import are_of_others, refuse_runs_of_others
    from oelm.study.reading import load_study

    folder = runs_folder(runs)
    refuse_if_no_folder(folder)
    name = name_of_study(runs, folder)
    if place := place_in_archive(runs):
        refuse_runs_of_others(load_study(place.archive), folder)
        return StudyPlace(name, runs, str(place.archive))
    if is_named(name) and run_directories(folder) and not are_of_others(load_study(name), folder):
        return StudyPlace(name, runs, name)
    return None


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
