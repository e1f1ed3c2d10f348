"""Which studies there are: files in the folder `studies` here, those that come with the package, and the one that an
archive of results contains.

A file here goes before one of the same name in the package. `studies/NAME.yaml` names either, as the name alone does.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from oelm.machine.errors import UserError, did_you_mean
from oelm.run.directory import check_name
from oelm.storage.files import Damaged
from oelm.storage.schemas import ArchiveList, read_sealed_record
from oelm.study.archives import FORMAT_VERSION, LIST, Archived, place_in_archive, runs_folder

STUDIES = Path("studies")  # here
PACKAGED = Path(__file__).parent.parent / "studies"
ENDING = ".yaml"


def study_file(source: str | Path) -> Path:
    """The file of a study, by its path, by its name or by the archive of its results."""
    path = Path(source)
    if place := archive_at(path):
        if (found := declaration_in(place)) is not None:
            return found
        name = name_of_study(place.archive, runs_folder(place.archive))
        raise UserError(
            f"{place.archive}: does not contain the declaration of its study {name}, which is not here either; "
            f"give the study's file, and --runs {shlex.quote(str(place.archive))}"
        )
    if path.is_file():
        return path
    known = known_studies()
    # NAME of `NAME` and of `studies/NAME.yaml`; any other path is no name.
    is_listed = path.parent == STUDIES and path.suffix == ENDING
    if found := known.get(path.stem if is_listed else str(source) if path.name == str(source) else ""):
        return found
    if path.is_dir():
        raise UserError(f"study {str(source)!r}: is a folder; give the study's name or file, and its runs with --runs")
    here, packaged = (
        ", ".join(name for name, file in known.items() if (file.parent == PACKAGED) is ours) for ours in (False, True)
    )
    raise UserError(
        f"study {str(source)!r}: no such file{did_you_mean(path.stem, known)}"
        f"{f'; in {STUDIES}/: {here}' if here else ''}; oelm comes with {packaged}"
    )


def archive_at(path: Path) -> Archived | None:
    """The archive that a path leads to. A bare name is a study's, whatever archive is beside it."""
    return place_in_archive(path) if path.is_file() or len(path.parts) > 1 else None


def declaration_in(place: Archived) -> Path | None:
    """The study whose results an archive has: its own file there, else the one here that is called so."""
    folder = runs_folder(place.archive)
    name = name_of_study(place.archive, folder)
    own = folder / f"{name}{ENDING}"
    return own if own.is_file() else known_studies().get(name)


def declared_by(study: str, runs: Path | None) -> str | Path:
    """What to load: a study that is not here by its name is taken from the archive of its runs, if that is of it."""
    place = None if runs is None or Path(study).name != study or Path(study).exists() else place_in_archive(runs)
    if place is None or study in known_studies() or name_of_study(place.archive, runs_folder(place.archive)) != study:
        return study
    return declaration_in(place) or study


def name_of_study(path: Path, folder: Path) -> str:
    """As its archive says, or as its folder is called."""
    if place_in_archive(path) is not None and (folder / LIST).is_file():
        name: str = read_sealed_record(folder / LIST, ArchiveList, newest=FORMAT_VERSION)["study"]
        try:
            return check_name(name)  # it may become the name of a folder
        except UserError as error:
            raise Damaged(path, str(error)) from error
    return folder.resolve().name


def known_studies() -> dict[str, Path]:
    """By name, those here first; what cannot be looked into holds none."""
    found: dict[str, Path] = {}
    for folder in (STUDIES, PACKAGED):
        for file in sorted(folder.glob(f"*{ENDING}")):
            found.setdefault(file.stem, file)
    return found


def is_named(source: str) -> bool:
    """Whether a bare name is that of a study, whatever folder is called the same."""
    return Path(source).name == source and source in known_studies()
