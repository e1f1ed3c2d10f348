"""A study to start from: template.yaml under a name of your own, never over a file that is there."""

from __future__ import annotations

from pathlib import Path

from oelm.machine.errors import UserError
from oelm.run.directory import check_name
from oelm.storage.files import make_folders
from oelm.study.catalogue import ENDING, STUDIES, known_studies

TEMPLATE = Path(__file__).parent / "template.yaml"
PLACEHOLDER = "MY_STUDY"


def write_new(name: str) -> Path:
    """The file it was written to."""
    name = name.removesuffix(ENDING)
    return write_study(name, TEMPLATE.read_text(encoding="utf-8").replace(PLACEHOLDER, name))


def write_study(name: str, text: str) -> Path:
    """The same of any study."""
    name = check_name(name.removesuffix(ENDING))
    if name in known_studies():
        raise UserError(f"{name}: is already a study (`oelm studies` lists them); choose another name")
    file = STUDIES / f"{name}{ENDING}"
    try:
        make_folders(STUDIES)
        with open(file, "x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise UserError(f"{file}: cannot be written ({error.strerror})") from error
    return file
