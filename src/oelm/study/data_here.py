"""Which data a study names, and which of them lie here: their digests, from the manifests, without a look at a token.

Folders without a manifest would have to be read through; what they hold is only known to who opens them for a run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oelm.core.probes.probe import is_probe, probe_of
from oelm.data.prepared import digest_here, facts_here
from oelm.study.declaration import Study
from oelm.study.one_run import settings_for

Digests = dict[str, str]  # by the folder, as the study names it


def data_folders(study: Study) -> list[str]:
    """The baseline's first: it decides what the model is."""
    arms = [study.baseline, *study.arms]
    stages = (False, True) if study.tuning else (False,)
    runs = (settings_for(study, arm, seed=study.seeds[0], tuning=tuning).run for tuning in stages for arm in arms)
    return list(dict.fromkeys(run.data for run in runs))


def digests_here(folders: list[str]) -> Digests:
    found = {each: probe_of(each).digest if is_probe(each) else digest_here(Path(each)) for each in folders}
    return {folder: digest for folder, digest in found.items() if digest is not None}


def facts_of_data(folder: str) -> dict[str, Any]:
    """What the data say of the model; nothing where they are not here."""
    return {"vocabulary": probe_of(folder).vocabulary} if is_probe(folder) else facts_here(Path(folder))
