"""The verbs of a study: run, stop, status, logs, bench, report. Heavy imports stand inside; only bench loads torch."""

from __future__ import annotations

import contextlib
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from oelm.cli.options import JsonOption, print_json
from oelm.errors import UserError
from oelm.files import RUNS

if TYPE_CHECKING:
    from oelm.experiments.controller import Controller
    from oelm.study.declaration import Study
    from oelm.study.plan import Plan

StudyArgument = Annotated[
    str, typer.Argument(metavar="STUDY", help="A study file, or the name of one in the folder studies/.")
]
RunsOption = Annotated[
    Path | None, typer.Option("--runs", help="Folder of the study's runs.", show_default="runs/STUDY")
]


def run(
    study: StudyArgument,
    slots: Annotated[
        int | None,
        typer.Option(
            "--slots", min=1, help="Runs at a time.", show_default="one a GPU, or cores / threads of the study"
        ),
    ] = None,
    groups: Annotated[
        str | None, typer.Option("--groups", help="Only these arms, separated by commas.", show_default="all")
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes", min=1, help="Processes of each run, by torchrun.", show_default="as the study says"
        ),
    ] = None,
    gpus: Annotated[
        str | None, typer.Option("--gpus", help="Only these GPUs: 0,2.", show_default="the free ones")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Show commands, sizes, times, disk and confounds (on Slurm the sbatch commands); start nothing.",
        ),
    ] = False,
    runs: RunsOption = None,
    probe_seconds: Annotated[
        float, typer.Option("--probe-seconds", min=1, help="At most so long for the probe of one arm.")
    ] = 300,
    place: Annotated[
        str, typer.Option("--on", metavar="local|slurm", help="This machine, or a Slurm cluster.")
    ] = "local",
    slurm: Annotated[
        list[str] | None,
        typer.Option(
            "--slurm",
            metavar="KEY=VALUE",
            help="What a job asks for: partition, time, gpus, account, cpus, memory, constraint, nodes, save_seconds, "
            "restarts, options; repeatable. The study's section `slurm` holds the same.",
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Stay until the end; on Slurm one may only submit and call again.")
    ] = True,
) -> None:
    """Run whatever of a study is not finished: the grid first, then every seed. Safe to interrupt and to call again.

    Examples:

      oelm run demo

      oelm run qk_freeze --dry-run

      oelm run tinystories_cpu --slots 2 --groups trained,frozen_head_orthogonal

      oelm run qk_freeze --on slurm --slurm partition=gpu --slurm time=8:00:00 --slurm gpus=1
    """
    from oelm.experiments.controller import Controller, units_for
    from oelm.experiments.slots import LocalSlots
    from oelm.study.declaration import with_processes

    declared, folder = _study_and_folder(study, runs)
    if processes is not None:
        declared = with_processes(declared, processes)
    chosen = _chosen_groups(groups, list(declared.arms))
    if place == "slurm":
        if gpus is not None:
            raise UserError("--gpus: chooses among this machine's; on Slurm say how many with --slurm gpus=1")
        _run_on_slurm(study, declared, folder, slurm or [], at_most=slots, groups=chosen, dry_run=dry_run, wait=wait)
        return
    if place != "local":
        raise UserError(f"--on {place}: local or slurm")
    if slurm or not wait:
        raise UserError("--slurm, --no-wait: need --on slurm")
    units = units_for(declared, slots, folder=folder, gpus=gpus, say=typer.echo)
    if dry_run:
        from oelm.experiments.forecast import dry_run as forecast

        for line in forecast(declared, folder, units=units, groups=chosen, timeout=probe_seconds):
            typer.echo(line)
        return
    from oelm.experiments.table import watching

    with watching(units=len(units)) as view, _leaving_on_terminate():
        controller = Controller(declared, folder, LocalSlots(units), view, chosen)
        plan = controller.go()
    _tell_how_it_ended(study, controller, plan)


def _run_on_slurm(
    study: str,
    declared: Study,
    folder: Path,
    assignments: list[str],
    *,
    at_most: int | None,
    groups: list[str] | None,
    dry_run: bool,
    wait: bool,
) -> None:
    from oelm.experiments.controller import Controller
    from oelm.experiments.slurm import SlurmSlots
    from oelm.experiments.slurm_queue import Queue
    from oelm.experiments.table import counted, watching
    from oelm.study.slurm_request import changed

    queue = Queue(folder)
    slots = SlurmSlots(declared, folder, changed(declared.slurm, assignments), queue, at_most)
    with watching(units=at_most) as view, _leaving_on_terminate():
        controller = Controller(declared, folder, slots, view, groups, queue)
        if dry_run:
            for line in slots.forecast(controller.wanted()):
                typer.echo(line)
            typer.echo("nothing was submitted")
            return
        plan = controller.go(waits=wait)
    if wait:
        _tell_how_it_ended(study, controller, plan)
        return
    typer.echo(f"{declared.name}: {counted(plan, controller.active)}")
    look = shlex.join(["oelm", "status", study, *controller.runs_option])
    typer.echo(f"`{look}` shows them; give the same command again for what comes next")


def _tell_how_it_ended(study: str, controller: Controller, plan: Plan) -> None:
    from oelm.experiments.table import counted

    groups = controller.groups
    typer.echo(f"{controller.study.name}: {counted(plan)}")
    for line in controller.given_up.values():
        typer.echo(f"not finished: {line}")
    if controller.given_up or any(each.loss is None for each in plan.runs if groups is None or each.arm in groups):
        raise typer.Exit(1)
    if not plan.is_tuned:
        typer.echo("the final runs wait until the grid is finished for every arm of the study")
    elif groups is None:
        typer.echo(shlex.join(["next:", "oelm", "report", study, *controller.runs_option]))


@contextlib.contextmanager
def _leaving_on_terminate() -> Iterator[None]:
    """SIGTERM ends a controller and leaves its runs alive; a terminal is left as it was."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def stop(study: StudyArgument, runs: RunsOption = None) -> None:
    """Stop a study: its controller here, its runs on this machine, its jobs on Slurm. Running ones save first.

    `oelm run` goes on where they stopped. Example: oelm stop demo
    """
    from oelm.experiments.detached import stop as stop_all

    _, folder = _study_and_folder(study, runs)
    stop_all(folder, say=typer.echo)


def status(
    study: Annotated[
        str | None, typer.Argument(metavar="[STUDY]", help="A study; without it, every folder under runs/.")
    ] = None,
    runs: RunsOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show how far the runs of a study are, at once.

    Examples: oelm status; oelm status demo
    """
    from oelm.experiments.status import overview, study_rows, study_status

    if study is None:
        for line in overview(runs or RUNS):
            typer.echo(line)
        return
    declared, folder = _study_and_folder(study, runs)
    if json_output:
        print_json({"study": declared.name, "folder": str(folder), "runs": study_rows(declared, folder)})
        return
    for line in study_status(declared, folder)[1]:
        typer.echo(line)


def logs(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory, or the beginning of its name.")],
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="How many lines from the end.")] = 40,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as the run does.")] = False,
    runs: Annotated[Path, typer.Option("--runs", help="Folder that holds the studies' folders.")] = RUNS,
) -> None:
    """Show the end of a run's log.

    Example: oelm logs frozen_head_orthogonal-s0 --follow
    """
    from oelm.experiments.status import find_run, log_lines

    for line in log_lines(find_run(run, runs), lines=lines, follow=follow):
        typer.echo(line)


def bench(
    study: StudyArgument,
    arms: Annotated[
        str | None, typer.Option("--arms", help="Only these arms, separated by commas.", show_default="all")
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=3, help="At most so many rounds.")] = 60,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Steps of each arm in a round.")] = 4,
    half_width: Annotated[
        float, typer.Option("--half-width", min=0.0, help="Stop when every ratio is known this well; 0: never.")
    ] = 0.005,
    runs: RunsOption = None,
    json_output: JsonOption = False,
) -> None:
    """Measure the speed of a study's arms: interleaved steps on one device, ratios with their intervals.

    Run it on an otherwise idle machine. Example: oelm bench demo
    """
    declared, folder = _study_and_folder(study, runs)
    chosen = _chosen_groups(arms, list(declared.arms))
    from oelm.analysis.speed import bench_ratio
    from oelm.timing.interleaved import measure

    def say(line: str) -> None:
        typer.echo(line, err=True)

    measured = measure(
        declared,
        out=folder,
        arms=chosen,
        rounds=rounds,
        steps_per_round=steps,
        until_half_width=half_width or None,
        say=say,
    )
    if json_output:
        print_json(measured)
        return
    names, baseline = list(measured["seconds"]), measured["baseline"]
    pairs = dict.fromkeys(
        [(name, baseline) for name in names if name != baseline]
        + [(each.treatment, each.control) for each in declared.hypotheses if each.kind == "faster"]
    )
    for treatment, control in pairs:
        ratio = bench_ratio(measured, treatment, control)
        if ratio is not None:
            typer.echo(
                f"step time, {treatment} / {control}: {ratio.middle:.4f} "
                f"(95 % interval {ratio.low:.4f} to {ratio.high:.4f}, {ratio.rounds} rounds)"
            )


def report(
    study: StudyArgument,
    language: Annotated[
        list[str] | None, typer.Option("--lang", help="en or zh; repeatable.", show_default="both")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the report.", show_default="reports/STUDY")
    ] = None,
    runs: RunsOption = None,
) -> None:
    """Turn a study's runs into verdicts, tables, figures and a report: Markdown, HTML and PDF, English and Chinese.

    A partial study gives a partial report, which says what is missing.

    Example: oelm report demo --lang en
    """
    from oelm.analysis.summary import findings_of
    from oelm.reporting.report import write_report
    from oelm.study.shelf import Shelf

    declared, folder = _study_and_folder(study, runs)
    languages = list(dict.fromkeys(language or ["en", "zh"]))
    for each in languages:
        if each not in ("en", "zh"):
            raise UserError(f"--lang {each}: en or zh")
    findings = findings_of(declared, Shelf(folder))
    files = write_report(findings, out or Path("reports") / declared.name, languages=languages)
    typer.echo(files.tables["hypothesis_validation.txt"].read_text(encoding="utf-8"))
    for remark in files.remarks:
        typer.echo(remark, err=True)
    for path in files.documents.values():
        typer.echo(str(path))


def _study_and_folder(study: str, runs: Path | None):
    from oelm.study.declaration import load_study

    declared = load_study(study)
    return declared, runs or RUNS / declared.name


def _chosen_groups(groups: str | None, arms: list[str]) -> list[str] | None:
    """Arms by the study's own names; the documents' names stand for ours."""
    if groups is None:
        return None
    from oelm.arms import ALIASES

    chosen = []
    for name in (part.strip() for part in groups.split(",")):
        known = name if name in arms else ALIASES.get(name, name)
        if known not in arms:
            raise UserError(f"{name!r} is not one of the arms {', '.join(arms)}")
        chosen.append(known)
    return chosen
