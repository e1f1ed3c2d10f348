"""`oelm remote HOST ...`: a study on a server behind SSH. Heavy imports stand inside; none loads torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oelm.files import RUNS

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

StudyArgument = Annotated[
    str, typer.Argument(metavar="STUDY", help="A study file of the project, or the name of one in studies/.")
]
OptionalStudy = Annotated[
    str | None,
    typer.Argument(metavar="[STUDY]", help="A study file of the project, or the name of one in studies/."),
]
RunsOption = Annotated[
    Path | None,
    typer.Option("--runs", help="Folder of the study's runs, in the project on both sides.", show_default="runs/STUDY"),
]


@app.callback()
def remote(
    context: typer.Context,
    host: Annotated[str, typer.Argument(metavar="HOST", help="A host as in ~/.ssh/config, or a name in remotes.yaml.")],
) -> None:
    """Run studies on a server behind SSH: check, sync, run, status, logs, pull, stop. Each is safe to repeat.

    Examples:

      oelm remote lab check

      oelm remote lab sync demo

      oelm remote lab run demo
    """
    context.obj = host


@app.command()
def check(context: typer.Context) -> None:
    """Show what is there: Python, torch, GPUs and who uses them, disk, rsync, oelm. Exit code 1: something lacks."""
    from oelm.remote.check import check as lines_of

    lines = lines_of(_server(context))
    for line in lines:
        typer.echo(line)
    if any(line.advice for line in lines):
        raise typer.Exit(1)


@app.command()
def sync(
    context: typer.Context,
    study: OptionalStudy = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", help="A folder of token files to send; repeatable.", show_default="the study's"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that were changed there, too.")] = False,
) -> None:
    """Send what git tracks, and the data of a study or the folders asked for. Sends only what changed.

    Examples: oelm remote lab sync demo; oelm remote lab sync --data data/tinystories
    """
    from oelm.remote.sync import data_folders, refuse_untracked
    from oelm.remote.sync import sync as send
    from oelm.remote.verbs import data_here, place_of

    server = _server(context)
    if study:
        refuse_untracked(study)
    asked = [*(data or ()), *(data_here(place_of(study), say=typer.echo) if study and not data else ())]
    send(server, data_folders(asked), say=typer.echo, force=force)


@app.command()
def run(
    context: typer.Context,
    study: StudyArgument,
    slots: Annotated[int | None, typer.Option("--slots", min=1, help="Runs at a time.")] = None,
    groups: Annotated[str | None, typer.Option("--groups", help="Only these arms, separated by commas.")] = None,
    processes: Annotated[int | None, typer.Option("--processes", min=1, help="Processes of each run.")] = None,
    gpus: Annotated[
        str | None, typer.Option("--gpus", help="Only these GPUs: 0,2.", show_default="the free ones")
    ] = None,
    runs: RunsOption = None,
) -> None:
    """Start `oelm run STUDY` there. It goes on without the connection; called again, it starts nothing twice.

    Example: oelm remote lab run demo --slots 2
    """
    from oelm.remote.sync import refuse_untracked
    from oelm.remote.verbs import place_of
    from oelm.remote.verbs import run as start

    refuse_untracked(study)
    given = {"--slots": slots, "--groups": groups, "--processes": processes, "--gpus": gpus}
    options = [word for flag, value in given.items() if value is not None for word in (flag, str(value))]
    _end(context, start(_server(context), place_of(study, runs), options, say=typer.echo))


@app.command()
def status(context: typer.Context, study: OptionalStudy = None, runs: RunsOption = None) -> None:
    """Show how far the runs are, and whether somebody is at work on the study.

    Examples: oelm remote lab status; oelm remote lab status demo
    """
    from oelm.remote.verbs import status as show

    _end(context, show(_server(context), study, runs))


@app.command()
def logs(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="The beginning of a run's name.", show_default="the last one written"),
    ] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="How many lines from the end.")] = 40,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as the run does; Ctrl-C leaves it alone.")
    ] = False,
    runs: Annotated[
        Path, typer.Option("--runs", help="Folder that holds the studies' folders, in the project there.")
    ] = RUNS,
) -> None:
    """Show the end of a run's log.

    Example: oelm remote lab logs frozen_head_orthogonal-s0 --follow
    """
    from oelm.remote.verbs import logs as show

    _end(context, show(_server(context), name, runs, lines=lines, follow=follow))


@app.command()
def pull(
    context: typer.Context,
    study: StudyArgument,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Also whole checkpoints and best models, which are large.")
    ] = False,
    runs: RunsOption = None,
) -> None:
    """Bring results here, also while runs go on; then `oelm status` and `oelm report` read them.

    Example: oelm remote lab pull demo
    """
    from oelm.remote.pull import pull as receive
    from oelm.remote.verbs import place_of

    receive(_server(context), place_of(study, runs).folder, checkpoints=checkpoints, say=typer.echo)


@app.command()
def stop(context: typer.Context, study: StudyArgument, runs: RunsOption = None) -> None:
    """Ask the study's runs there to save and end. `run` goes on with them.

    Example: oelm remote lab stop demo
    """
    from oelm.remote.verbs import stop as ask_to_stop

    _end(context, ask_to_stop(_server(context), study, runs))


def _server(context: typer.Context):
    from oelm.remote.hosts import server_named

    return server_named(context.obj)


def _end(context: typer.Context, ended) -> None:
    """Pass on how it ended over there, and what it complained about."""
    if ended.code:
        for line in ended.errors or [f"ended with code {ended.code}"]:
            typer.echo(f"oelm: {context.obj}: {line.removeprefix('oelm: ')}", err=True)
        raise typer.Exit(ended.code)
