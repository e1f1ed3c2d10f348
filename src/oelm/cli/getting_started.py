"""The verbs that begin: demo, studies, new. Heavy imports stand inside; of them only demo loads torch."""

from __future__ import annotations

import contextlib
import shlex
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oelm.cli import completion
from oelm.cli.options import JsonOption, echo, print_json
from oelm.machine.errors import UserError
from oelm.machine.plurals import number_of
from oelm.storage.files import RUNS

if TYPE_CHECKING:
    from oelm.study.declaration import Study

DEMOS = ("demo", "demo_recall")  # on text, and on a probe


# ---- demo ----------------------------------------------------------------------------------------------------------


def demo() -> None:
    """Run the whole demo: two studies and their reports.

    Which parts of a tiny GPT can stay frozen, on text and on a probe, where it has to look something up: about four
    minutes on two cores. It writes data/stories, and for each of the studies demo and demo_recall a folder in runs and
    in reports. Interrupt it at any time: the same command resumes and repeats nothing.

    Example: oelm demo
    """
    from oelm.cli import studies
    from oelm.show.report import check_libraries
    from oelm.study.declaration import in_language
    from oelm.study.reading import load_study

    check_libraries()  # now, not after the runs
    declared = [load_study(name) for name in DEMOS]
    for number, study in enumerate(declared, 1):
        echo(f"{number}/{len(declared)} {study.name}: {in_language(study.question, 'en')} {_size(study)}")
        prepare_embedded_text(study)
        studies.run(study.name)
        studies.report(study.name)
    for study in declared:
        echo(f"done: open {_report_of(study) / 'report.en.html'} (中文: report.zh.html)")


def prepare_embedded_text(study: Study) -> bool:
    """Whether the corpus of the package was prepared, because a study names its folder and nothing is there."""
    from oelm.data.prepared import EMBEDDED, is_embedded

    folder = _data_of(study)
    if not is_embedded(folder) or folder.exists():
        return False
    from oelm.cli.one_run import prepare

    prepare(EMBEDDED.name, out=folder)
    return True


@contextlib.contextmanager
def embedded_text_elsewhere(study: Study) -> Iterator[Study]:
    """For a dry run, which writes nothing here: the study as it is, or one that reads a copy of the corpus of the
    package, which is gone afterwards. Data is known by its content, so the runs are the same.
    """
    from oelm.data.prepared import EMBEDDED, is_embedded

    folder = _data_of(study)
    if not is_embedded(folder) or folder.exists():
        yield study
        return
    from oelm.data.prepare import prepare

    echo(f"{folder}: the embedded corpus is not prepared yet; `oelm run` prepares it")
    with tempfile.TemporaryDirectory(prefix="oelm-dry-run-") as place:
        copy = Path(place) / EMBEDDED
        prepare(EMBEDDED.name, out=copy)

        def moved(values: dict[str, Any]) -> dict[str, Any]:
            return values | {"data": str(copy)} if "data" in values and Path(values["data"]) == folder else values

        arms = {name: arm.model_copy(update={"set": moved(arm.set)}) for name, arm in study.arms.items()}
        tuning = study.tuning and study.tuning.model_copy(update={"set": moved(study.tuning.set)})
        base = study.base | {"data": str(copy)} if Path(study.base.get("data", folder)) == folder else study.base
        yield study.model_copy(update={"arms": arms, "tuning": tuning, "base": base})


def refuse_missing_data(study: Study, source: str) -> None:
    """Here, where the study's file is known: beside it lies what its paths mean to whoever wrote it."""
    from oelm.core.probes.probe import is_probe
    from oelm.data.folders import open_data
    from oelm.study.one_run import settings_for

    run = settings_for(study, study.baseline, seed=study.seeds[0]).run
    if Path(source).is_file() and not is_probe(run.data) and not Path(run.data).exists():
        open_data(run, study=Path(source))


def _data_of(study: Study) -> Path:
    from oelm.study.one_run import settings_for

    return Path(settings_for(study, study.baseline, seed=study.seeds[0]).run.data)


# ---- studies -------------------------------------------------------------------------------------------------------


def studies(json_output: JsonOption = False) -> None:
    """List the studies in studies/ and those that oelm has.

    Shows each study's question, its size, and which of its runs are here. A study in studies/ replaces one of the same
    name that comes with oelm.

    Example: oelm studies
    """
    from oelm.study.catalogue import known_studies

    entries = [_entry(name, file) for name, file in known_studies().items()]
    if json_output:
        print_json({"studies": entries})
        return
    width = max(len(entry["name"]) for entry in entries)
    for entry in entries:
        facts = "; ".join(entry[key] for key in ("where", "size", "runs", "report", "problem") if entry.get(key))
        echo(f"{entry['name']:{width}}  {facts}")
        if "question" in entry:
            echo(f"{'':{width}}  {entry['question']}")


def _entry(name: str, file: Path) -> dict[str, Any]:
    """One study for people and machines; of a file that is none, what is wrong with it."""
    from oelm.study.catalogue import PACKAGED
    from oelm.study.declaration import in_language
    from oelm.study.reading import load_study
    from oelm.study.shelf import Shelf

    entry = {"name": name, "where": "comes with oelm" if file.parent == PACKAGED else str(file)}
    try:
        study = load_study(file)
    except UserError as error:
        return entry | {"problem": f"not a valid study: {str(error).splitlines()[0]}"}
    report, runs = _report_of(study), RUNS / study.name
    states = Counter(run.state for run in Shelf(runs).runs)
    counted = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    return entry | {
        "question": in_language(study.question, "en"),
        "size": _size(study),
        "runs": f"in {runs}: {counted}" if counted else "no runs here",
        "report": f"report in {report}" if report.is_dir() else None,
    }


def _size(study: Study) -> str:
    from oelm.study.scaled import families_of, sizes_of

    tuning = " after tuning" if study.tuning else ""
    sizes = f" at {number_of(len(sizes_of(study)), 'size')}" if study.sizes else ""
    arms = number_of(len(families_of(study)), "arm")
    return f"{arms}{sizes} x {number_of(len(study.seeds), 'seed')}{tuning}"


def _report_of(study: Study) -> Path:
    return Path("reports") / study.name


# ---- new -----------------------------------------------------------------------------------------------------------


def new(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Name of the study and of its file.", show_default="STUDY-confirmed"),
    ] = None,
    confirm: Annotated[
        str | None,
        typer.Option(
            "--confirm",
            metavar="STUDY",
            help="Write a study that confirms this one: the same, with seeds that it never used.",
            autocompletion=completion.studies,
        ),
    ] = None,
) -> None:
    """Write a commented study to start from, studies/NAME.yaml.

    It is ready to run, on the embedded corpus, and shows what a study can contain.

    With --confirm, it has the arms, claims and margins of another study, and fresh seeds: what was found there, or is
    still open, is tested on runs that nobody has seen.

    \b
    Examples:
      oelm new mine
      oelm new --confirm mine
      oelm new --confirm mine mine-again
    """
    from oelm.study.template import write_confirmation, write_new

    if confirm is not None:
        file = write_confirmation(confirm, name)
        echo(f"{file}: written; confirms {confirm} with seeds that it never used")
    elif name is None:
        raise UserError("NAME is missing: oelm new NAME, or oelm new --confirm STUDY")
    else:
        file = write_new(name)
        echo(f"{file}: written; ready to run, with comments on what to change")
    for verb in ("plan", "run", "report") if confirm is not None else ("run", "report"):
        echo(shlex.join(["next:", "oelm", verb, file.stem]))
