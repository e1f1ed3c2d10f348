"""All checks one after another, each ending in one line, and the record that is kept with a study."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import oelm
from oelm.core.config import Encoder, Settings
from oelm.core.settings import load_settings
from oelm.core.sources import SCHEME, SOURCE_DIGEST, SOURCE_SCHEME, commit_and_changes, source_digest
from oelm.execution.checking.outcomes import CheckFailed, Here, Outcome
from oelm.execution.checking.table import CHECKS, Check
from oelm.machine.errors import UserError, first_line
from oelm.machine.system import processor
from oelm.storage.ownership import now
from oelm.study.declaration import Study
from oelm.study.kept_check import FORMAT_VERSION
from oelm.study.one_run import settings_for

# What is timed where no study says: a real model on a GPU, one that a processor can bear otherwise.
DEFAULT_PRESETS = {"cuda": "medium-512", "cpu": "tiny"}
DEFAULT_BATCH = {"cuda": 32, "cpu": 8}  # sequences at most: seconds rather than minutes

Line = Callable[[str], None]


def chosen(names: str | None) -> list[Check]:
    """The rows of the table that were asked for, in its order."""
    if names is None:
        return list(CHECKS)
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    known = [check.name for check in CHECKS]
    if not wanted:
        raise UserError(f"--only: name at least one of {', '.join(known)}")
    for name in wanted:
        if name not in known:
            raise UserError(f"--only {names}: {name!r} is not a check; there are {', '.join(known)}")
    return [check for check in CHECKS if check.name in wanted]


def measured_settings(study: Study | None, kind: str) -> tuple[Settings, str]:
    """What is timed and weighed, and how to call it: a study's baseline with a batch that one card can take."""
    if study is not None:
        settings = settings_for(study, study.baseline, seed=study.seeds[0])
        if not isinstance(settings.run.model, Encoder):
            return _with_batch(settings, kind), f"{study.baseline} of {study.name}"
    preset = DEFAULT_PRESETS[kind]
    return _with_batch(load_settings(preset=preset), kind), f"preset {preset}"


def _with_batch(settings: Settings, kind: str) -> Settings:
    batch = min(settings.run.training.batch_size, DEFAULT_BATCH[kind])
    training = settings.run.training.model_copy(update={"batch_size": batch})
    return settings.model_copy(update={"run": settings.run.model_copy(update={"training": training})})


def circumstances(gpus: Sequence[str], measured: str) -> dict[str, Any]:
    """What two records have to agree in for their results to stand side by side (study/kept_check.py)."""
    return {
        "torch": version("torch"),
        "devices": list(gpus) or ["cpu"],
        SOURCE_DIGEST: source_digest(),
        SOURCE_SCHEME: SCHEME,
        "processor": processor(),
        "measured": measured,
    }


def conduct(
    checks: Sequence[Check],
    here: Here,
    *,
    say: Line,
    beginning: Line = lambda line: None,
    measured: str = "",
    earlier: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Do them; `say` is given a line for each that ends, `beginning` one for each that begins. Results of `earlier`
    checks stay in the record, except where the same check was done again."""
    done = []
    for number, check in enumerate(checks, start=1):
        beginning(f"{number}/{len(checks)} {check.words[0]} ...")
        began = time.monotonic()
        outcome = _outcome(check, here)
        seconds = time.monotonic() - began
        say(f"{outcome.state:8} {check.name:10} {outcome.said} ({seconds:.0f} s)")
        done.append(_as_json(check, outcome, seconds))
    again = {each["name"] for each in done}
    results = sorted([*(each for each in earlier if each["name"] not in again), *done], key=_place)
    return {
        "format_version": FORMAT_VERSION,
        "created": now(),
        "oelm": oelm.__version__,
        **commit_and_changes(),
        **circumstances(here.gpus, measured),
        "gpus": _gpu_names(results),
        "results": results,
    }


def _place(result: dict[str, Any]) -> int:
    """In the table; what only another version has comes last."""
    names = [check.name for check in CHECKS]
    return names.index(result["name"]) if result["name"] in names else len(names)


def _outcome(check: Check, here: Here) -> Outcome:
    lack = check.lacks(here)
    if lack is not None:
        return Outcome("skipped", lack)
    try:
        return check.run(here)
    except (CheckFailed, UserError, OSError) as error:  # of its processes, or of what they left
        return Outcome("fail", first_line(error))


def _as_json(check: Check, outcome: Outcome, seconds: float) -> dict[str, Any]:
    return {
        "name": check.name,
        "words": list(check.words),
        "state": outcome.state,
        "said": outcome.said,
        "facts": outcome.facts,
        "seconds": round(seconds, 3),
        "created": now(),
    }


def _gpu_names(results: list[dict[str, Any]]) -> list[str]:
    return [name for each in results if each["name"] == "device" for name in each["facts"].get("gpus", [])]
