"""A study to start from: template.yaml under a name of your own, never over a file that is there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import yaml

from oelm.core.settings import read_yaml_file
from oelm.machine.errors import UserError
from oelm.run.directory import check_name
from oelm.storage.files import RUNS, make_folders
from oelm.study.catalogue import ENDING, STUDIES, known_studies, study_file
from oelm.study.declaration import Study, declared_tree, study_digest
from oelm.study.reading import load_study
from oelm.study.registration import as_it_began, entries_in
from oelm.study.shelf import Shelf

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


# ---- A study that confirms another -----------------------------------------------------------------------------------

_HEAD = """\
# Confirms {first} (declaration {digest:.12}): the same arms, claims and margins, with seeds that it never used, for
# tuning too. Change what is to be different now, as long as nothing has run: from the first final run on, every change
# is said beside the verdicts that it touches.
#
#   oelm plan {name}        # what so many seeds can show; list more of them where they cannot
#   oelm register {name}    # writes the declaration down now; without it, `oelm run` does before the first final run
#   oelm run {name}

"""


def write_confirmation(source: str, name: str | None) -> Path:
    """The file it was written to."""
    declared = load_study(source)
    first, tree = as_it_began(declared, RUNS / declared.name), dict(read_yaml_file(study_file(source)))
    if not name:  # NAME-confirmed, or the first NAME-confirmed-N that no study has
        numbered = (f"{first.name}-confirmed-{number}" for number in itertools.count(2))
        names = itertools.chain([f"{first.name}-confirmed"], numbered)
        name = next(each for each in names if each not in known_studies())
    unused = _unused_seeds(first)
    tree["seeds"] = list(itertools.islice(unused, len(first.seeds)))
    if first.tuning is not None:
        tree["tuning"] = tree["tuning"] | {"seeds": list(itertools.islice(unused, len(first.tuning.seeds)))}
    tree.pop("name", None)  # that of its file
    head = _HEAD.format(first=first.name, digest=study_digest(first), name=name)
    return write_study(name, head + yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=120))


def _unused_seeds(first: Study) -> Iterator[int]:
    """Beyond every seed of its declarations and of its runs, also of those that were edited away."""
    folder = RUNS / first.name
    declared = [declared_tree(first), *(entry.declaration for entry in entries_in(folder))]
    used = {seed for tree in declared for seed in (*tree["seeds"], *(tree["tuning"] or {}).get("seeds", ()))}
    used |= {seed for stored in Shelf(folder).runs for seed in (stored.run.seeds.weights, stored.run.seeds.data)}
    return itertools.count(1 + max(used))
