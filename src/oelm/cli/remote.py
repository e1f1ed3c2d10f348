"""`oelm remote HOST ...`: a study on a server behind SSH. Heavy imports stand inside; none loads torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oelm.cli import completion
from oelm.cli.options import ArmsOption, GpusOption, GroupsOption, echo, one_of_arms_and_groups
from oelm.machine.errors import UserError
from oelm.storage.files import RUNS

if TYPE_CHECKING:
    from oelm.execution.remote.connection import EndedCommand
    from oelm.execution.remote.hosts import Server

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_STUDY = typer.Argument(
    metavar="STUDY",
    help="A study file in the project, or a name that `oelm studies` lists.",
    autocompletion=completion.studies,
)
StudyArgument = Annotated[str, _STUDY]
OptionalStudy = Annotated[str | None, _STUDY]
RunsOption = Annotated[
    Path | None,
    typer.Option(
        "--runs", help="Folder of the study's runs, in the project here and on the server.", show_default="runs/STUDY"
    ),
]


@app.callback()
def remote(
    context: typer.Context,
    host: Annotated[str, typer.Argument(metavar="HOST", help="A host in ~/.ssh/config, or a name in remotes.yaml.")],
) -> None:
    """Run studies on a server over SSH. Every verb is safe to repeat.

    \b
    Examples:
      oelm remote lab check
      oelm remote lab sync demo
      oelm remote lab run demo
    """
    context.obj = host


@app.command()
def check(
    context: typer.Context,
    gpu: Annotated[
        bool,
        typer.Option("--gpu", help="Then run `oelm check` on the server's free GPUs: are runs exact and fast there?"),
    ] = False,
    study: Annotated[
        str | None,
        typer.Option(
            "--study",
            metavar="STUDY",
            help="With --gpu: measure the study's own model, and keep the result with its runs for `pull`.",
            autocompletion=completion.studies,
        ),
    ] = None,
) -> None:
    """Check the server: Python, torch, GPUs, disk, rsync, oelm.

    Also shows who is using which GPU. Exit code 1 if something is missing, or if a check with --gpu fails.

    \b
    Examples:
      oelm remote lab check
      oelm remote lab check --gpu --study qk_freeze
    """
    from oelm.execution.remote.check import check as lines_of

    if study is not None and not gpu:
        raise UserError("--study: is for --gpu, which measures its model")
    server = _server(context)
    lines = lines_of(server)
    for line in lines:
        echo(line)
    if any(line.advice for line in lines):
        raise typer.Exit(1)
    if gpu:
        from oelm.execution.remote.verbs import check_gpu

        _end(context, check_gpu(server, study))


@app.command()
def sync(
    context: typer.Context,
    study: OptionalStudy = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", help="A folder of token files to send; repeatable.", show_default="the study's"),
    ] = None,
) -> None:
    """Send code and data to the server, only what changed.

    Code is what git tracks; data is that of the study, or the folders given with --data. The study's registration is
    sent too.

    \b
    Examples:
      oelm remote lab sync demo
      oelm remote lab sync --data data/tinystories
    """
    from oelm.execution.remote.verbs import data_folders, data_here, place_of, refuse_untracked, refuse_without_data
    from oelm.execution.remote.verbs import sync as send

    server = _server(context)
    if study:
        refuse_untracked(study)
    place = place_of(study) if study else None
    asked = [*(data or ()), *(data_here(place, say=echo) if place and not data else ())]
    send(server, data_folders(asked), say=echo, runs=place.folder if place else None)
    if place and not asked:
        refuse_without_data(server, place, say=echo)


@app.command()
def run(
    context: typer.Context,
    study: StudyArgument,
    slots: Annotated[int | None, typer.Option("--slots", min=1, help="Number of runs at a time.")] = None,
    arms: ArmsOption = None,
    groups: GroupsOption = None,
    processes: Annotated[int | None, typer.Option("--processes", min=1, help="Number of processes per run.")] = None,
    gpus: GpusOption = None,
    register: Annotated[
        bool,
        typer.Option("--register", help="Register the study's declaration on the server before the first run starts."),
    ] = False,
    runs: RunsOption = None,
) -> None:
    """Start `oelm run STUDY` on the server.

    It keeps running when you disconnect. Repeating the command starts nothing twice.

    Example: oelm remote lab run demo --slots 2
    """
    from oelm.execution.remote.verbs import place_of, refuse_untracked
    from oelm.execution.remote.verbs import run as start

    refuse_untracked(study)
    given = {"--slots": slots, "--arms": one_of_arms_and_groups(arms, groups), "--processes": processes, "--gpus": gpus}
    options = [word for flag, value in given.items() if value is not None for word in (flag, str(value))]
    options += ["--register"] if register else []
    _end(context, start(_server(context), place_of(study, runs), options, say=echo))


@app.command()
def status(context: typer.Context, study: OptionalStudy = None, runs: RunsOption = None) -> None:
    """Show the progress of the runs and of their controller.

    \b
    Examples:
      oelm remote lab status
      oelm remote lab status demo
    """
    from oelm.execution.remote.verbs import status as show

    _end(context, show(_server(context), study, runs))


@app.command()
def logs(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="The beginning of a run's name: RUN or STUDY/RUN.",
            show_default="the most recent",
        ),
    ] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Number of lines to show.")] = 40,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Keep printing new lines until the run ends; Ctrl-C does not stop the run."
        ),
    ] = False,
    runs: Annotated[
        Path,
        typer.Option("--runs", help="Folder that contains the folders of the studies, in the project on the server."),
    ] = RUNS,
) -> None:
    """Show the end of a run's log.

    Example: oelm remote lab logs frozen_head_orthogonal-s0 --follow
    """
    from oelm.execution.remote.verbs import logs as show

    _end(context, show(_server(context), name, runs, lines=lines, follow=follow))


@app.command()
def pull(
    context: typer.Context,
    study: StudyArgument,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Also fetch checkpoints and best models, which are large.")
    ] = False,
    runs: RunsOption = None,
) -> None:
    """Fetch results, also during the runs.

    `oelm status` and `oelm report` then read them here.

    Example: oelm remote lab pull demo
    """
    from oelm.execution.remote.pull import pull as receive
    from oelm.execution.remote.verbs import place_of

    receive(_server(context), place_of(study, runs).folder, checkpoints=checkpoints, say=echo)


@app.command()
def stop(context: typer.Context, study: StudyArgument, runs: RunsOption = None) -> None:
    """Ask the study's runs on the server to save and stop. `run` resumes them.

    Example: oelm remote lab stop demo
    """
    from oelm.execution.remote.verbs import stop as ask_to_stop

    _end(context, ask_to_stop(_server(context), study, runs))


def _server(context: typer.Context) -> Server:
    from oelm.execution.remote.hosts import server_named

    return server_named(context.obj)


def _end(context: typer.Context, ended: EndedCommand) -> None:
    """Pass on how it ended over there, and what it complained about."""
    if ended.code:
        for line in ended.errors or [f"ended with code {ended.code}"]:
            echo(f"oelm: {context.obj}: {line.removeprefix('oelm: ')}", err=True)
        raise typer.Exit(ended.code)
