"""Which studies there are: files in the folder `studies` here, and those that come with the package.

A file here goes before one of the same name in the package. `studies/NAME.yaml` names either, as the name alone does.
"""

from __future__ import annotations

from pathlib import Path

from oelm.errors import UserError

STUDIES = Path("studies")  # here
PACKAGED = Path(__file__).parent.parent / "studies"
ENDING = ".yaml"


def study_file(source: str | Path) -> Path:
    """The file of a study, by its path or by its name."""
    path = Path(source)
    if path.is_file():
        return path
    known = known_studies()
    if found := known.get(_name_in(source)):
        return found
    here, packaged = (
        ", ".join(name for name, file in known.items() if (file.parent == PACKAGED) is ours) for ours in (False, True)
    )
    raise UserError(
        f"study {str(source)!r}: no such file{f'; in {STUDIES}/: {here}' if here else ''}; oelm comes with {packaged}"
    )


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


def _name_in(source: str | Path) -> str:
    """NAME of `NAME` and of `studies/NAME.yaml`; any other path is no name."""
    path = Path(source)
    if path.parent == STUDIES and path.suffix == ENDING:
        return path.stem
    return str(source) if path.name == str(source) else ""
