"""The verbs of a study: plan, register, run, stop, status, logs, bench, report, archive. Heavy imports stand inside.

Only bench loads torch.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oelm.cli import completion
from oelm.cli.getting_started import embedded_text_elsewhere, prepare_embedded_text, refuse_missing_data
from oelm.cli.options import (
    ArmsOption,
    EngineOption,
    GpusOption,
    GroupsOption,
    JsonOption,
    ReadRunsOption,
    RunsOption,
    StudyArgument,
    echo,
    one_of_arms_and_groups,
    print_json,
    refuse_if_in_archive,
    refuse_if_no_folder,
    refuse_if_runs_are_below,
    with_engine_options,
)
from oelm.execution.engines import DEFAULT
from oelm.machine.errors import UserError
from oelm.storage.files import RUNS

if TYPE_CHECKING:
    from oelm.study.bench import Bench, Ratio
    from oelm.study.declaration import Language, Study

ReadStudyArgument = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="A study file, a name that `oelm studies` lists, or an archive.",
        autocompletion=completion.studies,
    ),
]
READING = ("plan", "status", "report", "archive")
CREATING = ("register", "run", "bench")  # which make the folder of runs where there is none


@with_engine_options
def run(
    study: StudyArgument,
    slots: Annotated[
        int | None,
        typer.Option(
            "--slots", min=1, help="Number of runs at a time.", show_default="one per GPU, or cores / threads per run"
        ),
    ] = None,
    arms: ArmsOption = None,
    groups: GroupsOption = None,
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes", min=1, help="Number of processes per run (torchrun).", show_default="from the study"
        ),
    ] = None,
    gpus: GpusOption = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Show what would be started, the commands, the cost and the confounds; start nothing.",
        ),
    ] = False,
    runs: RunsOption = None,
    probe_seconds: Annotated[
        float, typer.Option("--probe-seconds", min=1, help="Time limit for the probe of one arm, in seconds.")
    ] = 300,
    engine: EngineOption = DEFAULT,
    register: Annotated[
        bool,
        typer.Option("--register", help="Register the study's declaration first, as `oelm register` does."),
    ] = False,
    wait: Annotated[
        bool,
        typer.Option("--wait/--no-wait", help="Wait until the runs have ended, or only submit them to a queue."),
    ] = True,
    **wishes: list[str] | None,
) -> None:
    """Run everything in a study that is not finished yet. Safe to interrupt and to repeat.

    The tuning grid comes first, then every seed. If the study uses the embedded corpus, it is prepared when missing.

    \b
    Examples:
      oelm run demo
      oelm run qk_freeze --dry-run
      oelm run tinystories_cpu --slots 2 --arms trained,frozen_head_orthogonal
    """
    from oelm.execution.controller import Controller, leaving_on_terminate
    from oelm.execution.controller import dry_run as forecast
    from oelm.execution.engine import Given
    from oelm.execution.engines import ENGINES, engine_named
    from oelm.execution.progress import counted
    from oelm.execution.table import watching
    from oelm.study.declaration import with_processes

    declared, folder = study_and_folder(study, runs, "run")
    here = declared if processes is None else with_processes(declared, processes)
    chosen = _chosen_arms(one_of_arms_and_groups(arms, groups), here)
    for name, values in wishes.items():
        if values and name != engine:
            raise UserError(f"--{name}: needs --on {name}")
    place = engine_named(engine, folder)
    if not wait and not place.has_queue:
        raise UserError(f"--no-wait: {ENGINES[engine].title} has no queue; leave this option out")
    given = Given(slots, gpus, tuple(wishes.get(engine) or ()), probe_seconds)
    given.refuse_what_is_not_taken(place)
    if dry_run:
        with embedded_text_elsewhere(here) as readable:
            refuse_missing_data(readable, study)
            for line in forecast(readable, place.slots(readable, given, say=echo), arms=chosen):
                echo(line)
        return
    prepare_embedded_text(here)
    refuse_missing_data(here, study)
    ready = place.slots(here, given, say=echo)
    with watching(units=ready.at_a_time) as view, leaving_on_terminate():
        controller = Controller(here, ready, view, chosen, declared=declared, registers_first=register)
        plan = controller.go(waits=wait)
    if not wait:
        echo(f"{here.name}: {counted(plan, controller.active)}")
        look = shlex.join(["oelm", "status", study, *controller.runs_option])
        echo(f"`{look}` shows them; repeat this command to start what comes next")
        return
    echo(f"{here.name}: {counted(plan)}")
    for line in controller.given_up.values():
        echo(f"not finished: {line}")
    own = [each for each in plan.runs if chosen is None or each.arm in chosen]
    if controller.given_up or any(each.loss is None and each.state != "not_needed" for each in own):
        raise typer.Exit(1)
    if not plan.is_tuned:
        echo("the final runs start when the tuning grid is finished for every arm of the study")
    elif chosen is None:
        echo(shlex.join(["next:", "oelm", "report", study, *controller.runs_option]))


def plan(
    study: ReadStudyArgument,
    deviation: Annotated[
        float | None,
        typer.Option("--deviation", help="Standard deviation of a paired difference, in per cent or points."),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            "--like",
            metavar="STUDY",
            help="Take the spread from the finished runs of this study.",
            autocompletion=completion.studies,
        ),
    ] = None,
    difference: Annotated[
        float | None,
        typer.Option(
            "--difference",
            help="How far the true difference lies within each claim's bound, in per cent or points.",
            show_default="the margin",
        ),
    ] = None,
    pace: Annotated[
        float | None,
        typer.Option(
            "--pace",
            help="Tokens per second at which the baseline trains on one slot.",
            show_default="that of finished runs",
        ),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(
            "--runs",
            help="Folder of the runs that say what the spread is, or an archive of them.",
            show_default="runs/STUDY",
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Show what a study's seeds can show, and what they cost.

    For each claim: the number of seeds that shows it with a probability of 80 %, and the smallest difference that the
    study shows so. For the study: runs, FLOPs and time, with and without looks, with the whole grid and with halving.

    The spread comes from --deviation, from --like, or from finished runs of the study. Without any of these,
    differences are in units of the spread.

    \b
    Examples:
      oelm plan demo
      oelm plan mine --deviation 2 --pace 13000
      oelm plan mine --like tinystories_cpu
    """
    from oelm.analysis.planning import prospect_of
    from oelm.show.plan_table import plan_lines, plan_tree
    from oelm.study.shelf import Shelf

    for name, value in (("--deviation", deviation), ("--difference", difference), ("--pace", pace)):
        if value is not None and not 0 < value < float("inf"):
            raise UserError(f"{name} {value:g}: must be a number above 0")
    if like is not None and deviation is not None:
        raise UserError("--like: give either --like or --deviation")
    if deviation is not None and runs is not None:
        raise UserError("--runs: says where the spread comes from; give either --runs or --deviation")
    declared, folder = study_and_folder(study, None if like else runs, "plan")
    other = None
    if like is not None:
        other_study, other_folder = study_and_folder(like, runs, "plan")
        other = other_study, Shelf(other_folder)
    given = {"deviation": deviation, "difference": difference, "tokens_per_second": pace}
    prospect = prospect_of(declared, Shelf(folder), like=other, **given)
    if json_output:
        print_json(plan_tree(prospect))
        return
    for line in plan_lines(prospect):
        echo(line)


def register(study: StudyArgument, runs: RunsOption = None) -> None:
    """Record a study's declaration before its runs start.

    Stores the digest of the declaration, the time and the commit in the folder of the study's runs.

    The report says whether the runs came after it, and what has changed in the declaration since. Registering again
    changes nothing if the declaration is the same; if it differs, earlier registrations are kept.

    Example: oelm register demo
    """
    from oelm.study.registration import register as write_down

    declared, folder = study_and_folder(study, runs, "register")
    echo(write_down(declared, folder))


def stop(study: StudyArgument, runs: RunsOption = None) -> None:
    """Stop a study, wherever it runs. Its runs save first.

    Stops its controller on this machine, its runs, and what is waiting in a queue. `oelm run` resumes.

    Example: oelm stop demo
    """
    from oelm.execution.detached import stop as stop_all

    _, folder = study_and_folder(study, runs, "stop")
    stop_all(folder, say=echo)


def status(
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="STUDY",
            help="A study, or an archive; without it, every folder under runs/.",
            autocompletion=completion.studies,
        ),
    ] = None,
    runs: ReadRunsOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show the progress of a study's runs.

    \b
    Examples:
      oelm status
      oelm status demo
    """
    from oelm.execution.status import overview, study_status, study_tree

    if study is None:
        if json_output:
            raise UserError("--json: needs a study, for example oelm status demo --json")
        for line in overview(_folder(runs, RUNS, "status")):
            echo(line)
        return
    declared, folder = study_and_folder(study, runs, "status")
    if json_output:
        print_json(study_tree(declared, folder))
        return
    for line in study_status(declared, folder)[1]:
        echo(line)


def logs(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run directory, or the beginning of its name: RUN or STUDY/RUN.",
            autocompletion=completion.logged_runs,
        ),
    ],
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Number of lines to show.")] = 40,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new lines until the run ends.")] = False,
    runs: Annotated[Path, typer.Option("--runs", help="Folder that contains the folders of the studies.")] = RUNS,
) -> None:
    """Show the end of a run's log.

    Example: oelm logs frozen_head_orthogonal-s0 --follow
    """
    from oelm.execution.status import find_run, log_lines

    refuse_if_in_archive(runs, "logs")
    if runs != RUNS:
        refuse_if_no_folder(runs)
    refuse_if_in_archive(Path(run), "logs")
    for line in log_lines(find_run(run, runs), lines=lines, follow=follow):
        echo(line)


def bench(
    study: StudyArgument,
    arms: ArmsOption = None,
    rounds: Annotated[int, typer.Option("--rounds", min=8, help="At most N blocks, including disturbed ones.")] = 60,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Steps per arm in a block.")] = 4,
    half_width: Annotated[
        float, typer.Option("--half-width", min=0.0, help="Stop when every ratio is known to within this; 0: never.")
    ] = 0.005,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite bench.json even if it has more.")] = False,
    runs: RunsOption = None,
    json_output: JsonOption = False,
) -> None:
    """Measure the speed of a study's arms, with intervals.

    Interleaves steps of the arms on one device. Run it on an otherwise idle machine; it says so if the machine is busy.
    If bench.json has arms that this measurement does not, or has enough undisturbed blocks and this one does not, the
    result goes to bench-rejected.json, unless --replace is given.

    Example: oelm bench demo
    """
    declared, folder = study_and_folder(study, runs, "bench")
    chosen = _chosen_arms(arms, declared)
    from oelm.execution.timing.interleaved import measure
    from oelm.study.bench import BENCH_FILE, bench_of

    def say(line: str) -> None:
        echo(line, err=True)

    measured = measure(
        declared,
        out=folder,
        arms=chosen,
        rounds=rounds,
        steps_per_round=steps,
        until_half_width=half_width or None,
        say=say,
        replace=replace,
    )
    if json_output:
        print_json(measured)
        return
    asked = [(each.treatment, each.control) for each in declared.hypotheses if each.evidence == "speed"]
    for line in bench_lines(bench_of(measured, folder / BENCH_FILE), asked):
        echo(line)


def bench_lines(found: Bench, asked: list[tuple[str, str]]) -> Iterator[str]:
    """The control, then every arm against the baseline, then what hypotheses ask besides."""
    from oelm.study.bench import LEAST_BLOCKS

    if found.is_busy:
        yield (
            f"undecided: machine busy: {len(found.quiet)} of {found.blocks} blocks were undisturbed, at least "
            f"{LEAST_BLOCKS} are needed; measure again when nothing else is running, or with more --rounds"
        )
        return
    baseline = found.baseline
    if found.control is not None:
        yield _ratio_line(f"control, {baseline} / {baseline}", found.control)
    against_baseline = [(name, baseline) for name in found.seconds if name != baseline]
    for treatment, control in dict.fromkeys([*against_baseline, *asked]):
        ratio = found.ratio(treatment, control)
        if ratio is None:
            continue
        yield _ratio_line(f"step time, {treatment} / {control}", ratio)
        if ratio.is_implausible:
            yield f"  implausible: no single component of the step allows less than {ratio.smallest:.4f}"


def _ratio_line(title: str, ratio: Ratio) -> str:
    interval = f"95 % interval {ratio.low:.4f} to {ratio.high:.4f}, {ratio.blocks} undisturbed blocks"
    return f"{title}: {ratio.middle:.4f} ({interval})"


def report(
    study: ReadStudyArgument,
    language: Annotated[
        list[str] | None,
        typer.Option("--lang", metavar="en|zh", help="Language of the report; repeatable.", show_default="both"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the report.", show_default="reports/STUDY")
    ] = None,
    runs: ReadRunsOption = None,
) -> None:
    """Turn a study's runs into verdicts, figures and a report.

    Writes Markdown, HTML and PDF, in English and Chinese. An unfinished study gives a partial report that says what is
    missing.

    Example: oelm report demo --lang en
    """
    from oelm.analysis.summary import findings_of
    from oelm.show.report import write_report
    from oelm.study.shelf import Shelf

    declared, folder = study_and_folder(study, runs, "report")
    languages = list(dict.fromkeys(map(language_named, language or ["en", "zh"])))
    findings = findings_of(declared, Shelf(folder))
    files = write_report(findings, out or Path("reports") / declared.name, languages=languages)
    echo(files.tables["hypothesis_validation.txt"].read_text(encoding="utf-8"))
    for remark in files.remarks:
        echo(remark, err=True)
    for path in files.articles.values():
        echo(str(path))


def archive(
    study: ReadStudyArgument,
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="Archive to write, for example demo.zip.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an archive that is already there.")] = False,
    runs: ReadRunsOption = None,
) -> None:
    """Write a study's results into one sealed file.

    It is enough for report, board, status, plan and verify, in any folder. It contains the study, everything that the
    numbers are computed from, the registration, the choices and the bench, but no weights and no logs. The same results
    give the same bytes.

    \b
    Examples:
      oelm archive demo --to demo.zip
      oelm report demo.zip
    """
    from oelm.machine.exhaustion import mebibytes
    from oelm.storage.files import SEAL
    from oelm.study.archiving import archive as write_down
    from oelm.study.catalogue import declared_by, study_file

    declared, folder = study_and_folder(study, runs, "archive")
    listing = write_down(declared.name, folder, to, declaration=study_file(declared_by(study, runs)), force=force)
    size = mebibytes(to.stat().st_size)
    echo(f"{to}: {len(listing['files'])} files of {folder}, {size}, seal {listing[SEAL][:16]}; no weights, no logs")


def language_named(name: str) -> Language:
    match name:
        case "en" | "zh":
            return name
    raise UserError(f"--lang {name}: en or zh")


def study_and_folder(study: str, runs: Path | None, verb: str) -> tuple[Study, Path]:
    """What reads also takes an archive, which has both."""
    from oelm.study.archives import refuse_archive
    from oelm.study.catalogue import archive_at, declared_by
    from oelm.study.reading import load_study
    from oelm.study.registration import as_it_began

    place = archive_at(Path(study))
    if place is not None and verb not in READING:
        refuse_archive(Path(study))
    declared = load_study(declared_by(study, runs))
    folder = _folder(runs or (place.archive if place else None), RUNS / declared.name, verb)
    if runs is not None and verb not in CREATING:
        refuse_if_runs_are_below(folder, declared.name)
    return as_it_began(declared, folder), folder


def _folder(given: Path | None, usual: Path, verb: str) -> Path:
    """Of runs: what only reads takes an archive as well, or one in the folder's place. The usual one need not exist."""
    from oelm.study.archives import refuse_archive, runs_folder

    path = given or usual
    if verb in READING:
        folder = runs_folder(path)
    else:
        refuse_archive(path)
        folder = path
    if given is not None and verb not in CREATING:
        refuse_if_no_folder(folder)
    return folder


def _chosen_arms(given: str | None, study: Study) -> list[str] | None:
    """Arms by the study's own names; other names of arms stand for ours. Of a study with sizes, an arm as it is
    declared stands for all of its sizes, and a size for all of its arms."""
    if given is None:
        return None
    from oelm.core.aliases import ALIASES
    from oelm.study.scaled import arms_by_name

    chosen, arms = [], arms_by_name(study)
    for name in (part.strip() for part in given.split(",")):
        known = name if name in arms else ALIASES.get(name, name)
        if known not in arms:
            raise UserError(f"--arms: {name!r} is not one of the arms {', '.join(arms)}")
        chosen += arms[known]
    return chosen
