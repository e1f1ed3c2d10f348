"""What the shell offers after a Tab: studies, arms, runs. Quick, without torch, and silent about whatever is wrong.

Where nothing is offered, the shell goes on with the names of files.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from oelm.machine.errors import UserError
from oelm.storage.files import RUNS

WORDS_TYPED = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")  # in the environment: bash's, and those of the other shells


def studies(incomplete: str) -> list[str]:
    from oelm.study.catalogue import known_studies

    return _beginning(incomplete, known_studies())


def arms(incomplete: str) -> list[str]:
    from oelm.core.aliases import ALIASES
    from oelm.core.arms import ARMS

    return _beginning(incomplete, [*ARMS, *ALIASES])


def arms_of_study(incomplete: str) -> list[str]:
    """One more arm of the study that was named, after the commas of those before it."""
    before, comma, last = incomplete.rpartition(",")
    chosen = before.split(",")
    offered = (arm for arm in _arms_of_typed_study() if arm not in chosen)
    return [f"{before}{comma}{arm}" for arm in _beginning(last, offered)]


def runs(incomplete: str) -> list[str]:
    """Run directories below runs/, by their paths."""
    return _beginning(incomplete, map(str, _run_directories()))


def logged_runs(incomplete: str) -> list[str]:
    """The same, and by their names alone, which `oelm logs` takes."""
    found = list(_run_directories())
    return _beginning(incomplete, [*(path.name for path in found), *map(str, found)])


def runs_or_studies(incomplete: str) -> list[str]:
    return [*studies(incomplete), *runs(incomplete)]


def _beginning(incomplete: str, words: Iterable[str]) -> list[str]:
    return sorted({word for word in words if word.startswith(incomplete)})


def _run_directories() -> Iterator[Path]:
    """Single runs, and those of studies."""
    from oelm.run.directory import run_directories

    with contextlib.suppress(OSError, UserError):
        for folder in (RUNS, *RUNS.glob("*/")):
            yield from run_directories(folder)


def _arms_of_typed_study() -> list[str]:
    """Of the first word on the command line that names a study: an option without its value yet is not parsed, and
    leaves the arguments before it unassigned.
    """
    from oelm.core.settings import read_yaml_file
    from oelm.study.catalogue import ENDING, is_named, study_file

    words = next(filter(None, map(os.environ.get, WORDS_TYPED)), "").split()
    for word in words[1:]:
        if is_named(word) or word.endswith(ENDING):
            with contextlib.suppress(UserError, KeyError, TypeError):
                return list(map(str, read_yaml_file(study_file(word))["arms"]))
    return []
