"""What a reader of results was given: a study by its name or file, a folder of runs, an archive of them, or one run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from oelm.machine.errors import UserError
from oelm.machine.plurals import number_of
from oelm.run.directory import RunDirectory, is_run, run_directories
from oelm.storage.files import RUNS
from oelm.study.archives import place_in_archive, runs_folder
from oelm.study.catalogue import ENDING, declaration_in, is_named, name_of_study
from oelm.study.declaration import Study
from oelm.study.plan import planned
from oelm.study.reading import load_study
from oelm.study.registration import as_it_began
from oelm.study.shelf import Shelf, StoredRun, read_stored

FIRST_RUNS = 20  # looked at before all others: of the right study one of them is enough


@dataclass(frozen=True)
class GivenResults:
    name: str
    folder: Path  # of the runs, or the run
    study: Study | None  # None: a run, or runs of a study that nobody named

    @property
    def runs(self) -> list[RunDirectory]:
        found = [self.folder] if is_run(self.folder) else run_directories(self.folder)
        return [RunDirectory(path) for path in found]

    @cached_property
    def _read(self) -> list[StoredRun | UserError]:
        found: list[StoredRun | UserError] = []
        for directory in self.runs:
            try:
                found.append(read_stored(directory.path))
            except UserError as error:
                found.append(error)
        return found

    @property
    def stored(self) -> list[StoredRun]:
        """Every run that says what it is, damaged or not."""
        return [run for run in self._read if isinstance(run, StoredRun)]

    @property
    def whole(self) -> list[StoredRun]:
        """Those whose numbers are what was stored."""
        return [run for run in self.stored if run.damage is None]

    @property
    def damage(self) -> list[str]:
        """A line for each of the others."""
        found = (run.damage if isinstance(run, StoredRun) else str(run) for run in self._read)
        return [damage for damage in found if damage is not None]


def given_results(source: str | Path, *, study: str | Path | None = None) -> GivenResults:
    """`study` says which one the runs are of, where neither their folder's name nor their archive does."""
    path = Path(source)
    if study is None and (is_named(str(source)) or (path.is_file() and path.suffix == ENDING)):
        declared = load_study(source)
        folder = runs_folder(RUNS / declared.name)
        return _checked(GivenResults(declared.name, folder, as_it_began(declared, folder)))
    folder = runs_folder(path)
    if not folder.is_dir():
        raise UserError(f"{source}: no such study, folder of runs, archive or run")
    named = str(study) if study is not None else name_of_study(path, folder)
    known = None if study is None else load_study(named)
    if is_run(folder):
        return _checked(GivenResults(folder.name, folder, None))
    if known is not None:
        refuse_runs_of_others(known, folder)
    else:  # as the archive declares it, or by the name of its results, if one of them is here
        place = place_in_archive(path)
        declaration = declaration_in(place) if place else named if is_named(named) else None
        known = None if declaration is None else load_study(declaration)
    return _checked(GivenResults(named, folder, known and as_it_began(known, folder)))


def refuse_runs_of_others(study: Study, folder: Path) -> None:
    """Where somebody says which study the runs in a folder are of, and none of them is one that it plans."""
    if are_of_others(study, folder):
        count = number_of(len(run_directories(folder)), "run")
        raise UserError(f"{folder}: none of its {count} belongs to the study {study.name}")


def are_of_others(study: Study, folder: Path) -> bool:
    """Whether there are runs in a folder, and the study plans none of them."""
    paths = run_directories(folder)
    for some in (paths[:FIRST_RUNS], paths):
        shelf = Shelf(folder, paths=some)
        if not shelf.runs:
            return False  # nothing there that says what it is
        try:
            plan = planned(study, shelf)
        except UserError:
            return False  # whoever reads on says what is wrong
        if any(run.stored for run in plan.runs):
            return False
    return True


def _checked(given: GivenResults) -> GivenResults:
    if not given.runs:
        raise UserError(f"{given.folder}: no runs there")
    return given
