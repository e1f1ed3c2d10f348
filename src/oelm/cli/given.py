"""What a path on the command line is, where a verb wants something else: a study, a config, a run, data."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

from oelm.errors import UserError
from oelm.files import RUNS, read_json

KEYS_OF_STUDIES = {"arms", "base", "hypotheses", "baseline", "question", "tuning"}


def refuse_if_no_config(path: Path) -> None:
    """For `oelm train`."""
    kind = _kind_of_path_or_name(path)
    if kind == "study":
        raise UserError(f"{path}: is a study, not the config of one run; run it with: {_command('run', path)}")
    if kind == "run's config":
        run = path.parent
        raise UserError(
            f"{path}: is the stored config of the run {run}; resume that run with the command that started it, "
            f"--out {run}"
        )
    if kind == "run":
        raise UserError(f"{path}: is a run, not a config; resume it with the command that started it, --out {path}")
    if kind == "runs":
        raise UserError(f"{path}: is a folder of runs, not a config; {_study_of(path, 'run')}")
    if kind == "data":
        raise UserError(f"{path}: is prepared data, not a config; use it with --data {shlex.quote(str(path))}")


def refuse_if_in_archive(path: Path, verb: str) -> None:
    """For the verbs that want what an archive leaves out."""
    from oelm.archives import place_in_archive

    place = place_in_archive(path)
    if place is not None:
        raise UserError(f"{place.archive}: is an archive, without the weights and logs that `oelm {verb}` needs")


def refuse_if_no_folder(path: Path) -> None:
    """For --runs where nothing is created: a mistyped folder must not pass for an empty one."""
    if not path.is_dir():
        raise UserError(f"--runs {path}: no such folder")


def refuse_if_runs_are_below(folder: Path, study: str) -> None:
    """For --runs with a study where nothing is created: the folder of all studies is not that of one."""
    from oelm.run_directory import run_directories

    below = folder / study
    if run_directories(below) and not run_directories(folder):
        raise UserError(f"--runs {folder}: its runs are in {below}; use --runs {shlex.quote(str(below))}")


def refuse_if_no_run(path: Path, verb: str) -> None:
    """For the verbs that read one run."""
    if verb != "compare":
        refuse_if_in_archive(path, verb)
    kind = _kind_of_path_or_name(path)
    if kind == "study":
        raise UserError(f"{path}: is a study, not a run; {_verb_of_studies(verb)}: {_command(_wanted(verb), path)}")
    if kind == "config":
        raise UserError(f"{path}: is the config of a run, not a run; train it with: {_command('train', path)}")
    if kind == "run's config":
        raise UserError(f"{path}: is a file of a run; give the run: {_command(verb, path.parent)}")
    if kind == "runs":
        runs = _runs_in(path)
        example = _command(verb, *(runs[:2] if verb == "compare" else runs[:1]))
        study = f"{_study_of(path, 'report')}; or " if verb == "compare" else ""
        raise UserError(f"{path}: is a folder of {len(runs)} runs, not a run; {study}give single runs: {example}")
    if kind == "data":
        raise UserError(
            f"{path}: is prepared data, not a run; train on it with: oelm train --data {shlex.quote(str(path))}"
        )


def refuse_if_no_study(source: str, verb: str) -> None:
    """For the verbs of a study; a name that is no path is looked up elsewhere."""
    path = Path(source)
    kind = kind_of(path)
    if kind in ("config", "run's config"):
        reads_runs = "verify" if verb == "verify" else "logs"
        again = _command("train", path) if kind == "config" else _command(reads_runs, path.parent)
        does = "train it" if kind == "config" else "see its run"
        raise UserError(f"{path}: is the config of one run, not a study; {does} with: {again}")
    if kind == "run":
        raise UserError(f"{path}: is a run, not a study; see it with: {_command('logs', path)}")
    if kind == "runs" and not _named(source):
        raise UserError(f"{path}: is a folder of runs, not a study; {_study_of(path, verb)}")
    if kind == "data":
        raise UserError(f"{path}: is prepared data, not a study (docs/studies.md explains studies)")


def refuse_if_no_data(path: Path) -> None:
    """For --data where it is optional: a mistyped folder must not pass for one that is gone."""
    if not path.is_dir():
        raise UserError(f"--data {path}: no such folder")
    if not any((path / name).is_file() for name in ("manifest.json", "train.bin")):
        raise UserError(f"--data {path}: contains no prepared data; `oelm prepare` creates it")


def _kind_of_path_or_name(path: Path) -> str | None:
    """As kind_of; and a study by its bare name, as the verbs of a study take it."""
    return kind_of(path) or ("study" if not path.is_file() and _named(str(path)) else None)


def kind_of(path: Path) -> str | None:
    """study, config, run's config, run, runs, data; None for anything else."""
    if path.is_file():
        return _kind_of_file(path)
    if not path.is_dir():
        return None
    if _is_run(path):
        return "run"
    if _runs_in(path):
        return "runs"
    return "data" if {"format_version", "splits"} <= set(_keys_in(path / "manifest.json")) else None


def _kind_of_file(path: Path) -> str | None:
    keys = set(_keys_in(path))
    if "format_version" in keys:
        return "run's config" if path == _config_of(path.parent) else None
    if keys & KEYS_OF_STUDIES:
        return "study"
    from oelm.settings import TOP_KEYS

    return "config" if keys & {*TOP_KEYS} else None


def _keys_in(path: Path) -> dict[str, Any]:
    """What a file holds at its top, if it is one with keys at all."""
    from oelm.settings import read_yaml_file

    if path.suffix not in (".yaml", ".yml", ".json") or not os.path.isfile(path) or path.stat().st_size > 2**20:
        return {}
    try:
        tree = read_json(path) if path.suffix == ".json" else read_yaml_file(path)
    except (UserError, OSError):
        return {}
    return tree if isinstance(tree, dict) else {}


def _runs_in(folder: Path) -> list[Path]:
    from oelm.run_directory import run_directories

    return [run for run in run_directories(folder) if _is_run(run)]


def _is_run(folder: Path) -> bool:
    return "format_version" in _keys_in(_config_of(folder))


def _config_of(folder: Path) -> Path:
    from oelm.run_directory import RunDirectory

    return RunDirectory(folder).config_file


def _named(source: str) -> bool:
    from oelm.study.catalogue import is_named

    return is_named(source)


def _study_of(folder: Path, verb: str) -> str:
    known = _named(folder.name)
    study = folder.name if known else "STUDY.yaml"
    runs: list[Path | str] = [] if known and folder == RUNS / folder.name else ["--runs", folder]
    return f"give their study: {_command(verb, study, *runs)}"


def _wanted(verb: str) -> str:
    return {"compare": "report"}.get(verb, "status")


def _verb_of_studies(verb: str) -> str:
    return {"compare": "compare its arms with"}.get(verb, "see its runs with")


def _command(verb: str, *words: Path | str) -> str:
    return shlex.join(["oelm", verb, *map(str, words)])
