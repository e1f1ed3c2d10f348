"""Where the numbers of a study come from: commits, sources, versions, machines, data, and the compute they took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from oelm.storage.files import Damaged
from oelm.study.declaration import Study, study_digest
from oelm.study.kept_check import stored_check
from oelm.study.plan import Plan, PlannedRun
from oelm.study.registration import registration_of
from oelm.study.shelf import Shelf, StoredRun

# Name in the provenance -> name in environment.json.
_LISTED = {
    "source_digests": "source_digest",
    "data_digests": "data_digest",
    "devices": "device",
    "processors": "processor",
    "precisions": "precision",
    "threads": "threads",
    "platforms": "platform",
    "pythons": "python",
}
_LISTED_OF_ENCODERS = {"encoder_sources": "encoder_source", "encoder_digests": "encoder_digest"}


_LISTED_OF_GPUS = {"gpus": "gpu", "gpu_drivers": "gpu_driver"}  # where runs used one


def provenance(study: Study, plan: Plan, shelf: Shelf) -> dict[str, Any]:
    final, tuning = _stored_once(plan.final), _stored_once(plan.tuning)
    stored = [*tuning, *final]
    recorded = [run.environment for run in stored if run.environment]
    names = _LISTED | (_LISTED_OF_ENCODERS if study.fine_tunes else {})
    listed = {name: _distinct(tree.get(key) for tree in recorded) for name, key in names.items()}
    of_gpus = {name: _distinct(tree.get(key) for tree in recorded) for name, key in _LISTED_OF_GPUS.items()}
    check = _check(shelf)
    counted = Counter((tree.get("commit"), bool(tree.get("dirty"))) for tree in recorded)
    ordered = sorted(counted.items(), key=lambda entry: (-entry[1], str(entry[0][0]), entry[0][1]))
    commits = [{"commit": commit, "dirty": dirty, "runs": runs} for (commit, dirty), runs in ordered]
    return {
        "study_digest": study_digest(study),
        "registration": registration_of(study, shelf).as_json(),
        "runs": len(stored),
        "final_runs": len(final),
        "tuning_runs": len(tuning),
        "sealed_runs": sum(run.is_sealed for run in stored),
        "unsealed_runs": sum(run.ended is not None and not run.is_sealed for run in stored),
        "commits": commits,  # each with its dirty flag and the number of runs made from it
        **listed,
        **{name: values for name, values in of_gpus.items() if values},
        "versions": _versions(recorded),
        **({"check": check} if check else {}),
        "compute_seconds": sum(map(_seconds, stored)),
        "final_compute_seconds": sum(map(_seconds, final)),
        "tuning_compute_seconds": sum(map(_seconds, tuning)),
    }


def _stored_once(runs: Iterable[PlannedRun]) -> list[StoredRun]:
    """A stored run may be planned twice: as short as a round of one size, and of another."""
    return list({run.stored.directory.path: run.stored for run in runs if run.stored}.values())


def _check(shelf: Shelf) -> dict[str, Any] | None:
    """What `oelm check` found on the machine; None: it was not asked for. A damaged file is named."""
    found = stored_check(shelf.folder)
    if isinstance(found, Damaged):
        return {"damage": str(found)}
    if found is None:
        return None
    listed = [{key: each.get(key) for key in ("name", "words", "state", "said", "facts")} for each in found["results"]]
    on = {key: found.get(key) for key in ("created", "processor", "gpus", "measured")}
    return {**on, "damage": None, "results": listed}


def _versions(recorded: list[dict[str, Any]]) -> dict[str, list[Any]]:
    names = sorted({name for tree in recorded for name in tree.get("versions", {})})
    return {name: _distinct(tree.get("versions", {}).get(name) for tree in recorded) for name in names}


def _distinct(values: Iterable[Any]) -> list[Any]:
    return sorted({value for value in values if value is not None}, key=str)


def _seconds(stored: StoredRun) -> float:
    """What a run took in all; of one without a result, training and validation as far as they were recorded."""
    if stored.result:
        return stored.result.get("wall_seconds") or 0.0
    records, names = stored.directory.metrics(), ("seconds", "validation_seconds")
    return sum(max((record.get(name) or 0.0 for record in records), default=0.0) for name in names)
