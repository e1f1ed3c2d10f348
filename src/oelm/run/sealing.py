"""How a run ended, read and checked: a seal, written last, binds every file that numbers are taken from.

A seal shows accidents and edits, not forgery: who changes a result can seal it again. `oelm verify` recomputes some.
Runs of formats before the seal count after the same checks of the result against the rest, as unsealed.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oelm.core.config import SEALED_SINCE, ResolvedRun, kind_of_model, stored_fingerprint
from oelm.core.logarithms import exponential
from oelm.core.measures import MEASURES, Measure
from oelm.core.settings import stored_run
from oelm.machine.errors import UserError
from oelm.run.directory import MANIFEST, RunDirectory
from oelm.storage.files import Damaged, missing, naming_the_file, read_object, sha256_of, write_sealed
from oelm.storage.metric_records import BY_DIFFICULTY
from oelm.storage.schemas import (
    EndState,
    Environment,
    Parameters,
    Predictions,
    Result,
    Seal,
    read_record,
    read_sealed_record,
)

FORMAT_VERSION = 1
COUNTS = ("total", "trainable", "frozen", "implied", "frozen_digest")  # what a result repeats of the parameters


@dataclass(frozen=True)
class Ended:
    """What a run that has ended stored, each file of it whole."""

    state: EndState
    sealed: bool
    error: str | None = None  # of a diverged run
    result: dict[str, Any] | None = None  # of a finished run
    environment: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    predictions: dict[str, Any] = field(default_factory=dict)
    started: str | None = None  # for the first time, as its seal says


# ---- Writing -------------------------------------------------------------------------------------------------------


def seal_run(directory: RunDirectory, state: EndState, *, step: int, error: str | None = None) -> None:
    """After everything else of the run is on the disk."""
    directory.flush_metrics()
    files = {path.name: _entry(path) for path in _bound(directory) if path.is_file()}
    stored = directory.stored_checkpoints()
    checkpoint = None
    if stored and (stored[-1] / MANIFEST).is_file():
        checkpoint = {"name": stored[-1].name, "manifest_sha256": sha256_of(stored[-1] / MANIFEST)}
    ended = {"state": state, "step": step, "error": error, "started": (directory.status() or {}).get("started")}
    content = ended | {"files": files, "checkpoint": checkpoint}
    write_sealed(directory.seal_file, {"format_version": FORMAT_VERSION, **content})


def _bound(directory: RunDirectory) -> tuple[Path, ...]:
    return (
        directory.config_file,
        directory.environment_file,
        directory.parameters_file,
        directory.metrics_file,
        directory.predictions_file,
        directory.result_file,
    )


def _entry(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": sha256_of(path)}


# ---- Reading -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Config:
    """A stored config: as it stands in its file, and the run that it means today."""

    tree: dict[str, Any]
    run: ResolvedRun

    @property
    def format_version(self) -> int:
        version: int = self.tree["format_version"]  # without which `stored_run` gives no run
        return version


def read_config(directory: RunDirectory) -> Config:
    tree = read_object(directory.config_file)
    return Config(tree, stored_run(tree, name=str(directory.config_file)))


def end_of(directory: RunDirectory) -> Ended | None:
    """How the run in a directory ended; None if it has not; Damaged if a file of it is not what was stored."""
    if not os.path.lexists(directory.config_file):
        if directory.has_traces():
            raise missing(directory.config_file)
        return None
    config = read_config(directory)
    if os.path.lexists(directory.seal_file):
        seal = read_seal(directory)
        for path in _bound(directory):
            _check_bound(path, seal["files"].get(path.name))
        if seal["state"] == "finished" and directory.result_file.name not in seal["files"]:
            raise Damaged(directory.seal_file, f"does not list {directory.result_file.name}")
        ended = _checked_end(directory, config, seal["state"], sealed=True, error=seal.get("error"))
        return replace(ended, started=seal.get("started"))
    status = directory.status() or {}
    state = status.get("state")
    if config.format_version < SEALED_SINCE:  # a result that is lost is none: the run is taken up where it stopped
        if directory.result_file.exists() and state in ("finished", None):
            return _checked_end(directory, config, "finished", sealed=False)
        if state == "diverged":
            return _checked_end(directory, config, "diverged", sealed=False, error=status.get("error"))
        return None
    if state in ("finished", "diverged"):
        raise Damaged(directory.seal_file, f"missing, although the run is {state}")
    if state is None and directory.result_file.exists():
        raise Damaged(directory.seal_file, "missing, although the run has a result")
    _read_if_there(directory.environment_file, Environment)
    return None


def read_seal(directory: RunDirectory) -> dict[str, Any]:
    """The seal's own content, its digest checked; whether the files are those it names is another question."""
    return read_sealed_record(directory.seal_file, Seal, newest=FORMAT_VERSION)


def first_start(directory: RunDirectory) -> str | None:
    """As the seal says it; where that is lost, or says nothing, as the status does."""
    try:
        sealed = read_seal(directory).get("started")
    except (OSError, UserError):
        sealed = None
    return sealed or (directory.status() or {}).get("started")


def _check_bound(path: Path, entry: dict[str, Any] | None) -> None:
    if entry is None:
        if os.path.lexists(path):
            raise Damaged(path, "was added after the run was sealed")
        return
    with naming_the_file(path):
        if not path.is_file():
            raise missing(path) if path.is_symlink() else Damaged(path, "missing, although the run's seal lists it")
        if _entry(path) != {"bytes": entry["bytes"], "sha256": entry["sha256"]}:
            raise Damaged(path, "changed since the run was sealed")


def _checked_end(
    directory: RunDirectory, config: Config, state: EndState, *, sealed: bool, error: str | None = None
) -> Ended:
    environment = _read_if_there(directory.environment_file, Environment)
    parameters = _read_if_there(directory.parameters_file, Parameters)
    predictions = _read_if_there(directory.predictions_file, Predictions)
    if state == "diverged":
        return Ended(state, sealed, error, None, environment, parameters)
    result = read_record(directory.result_file, Result)
    reason = _disagreement(directory, config, result, environment, parameters)
    if reason is not None:
        raise Damaged(directory.result_file, reason)
    if predictions and not _agree(predictions, result):
        counted = " and the ".join(each.name[0] for each in _counted(result)) or "result"
        raise Damaged(directory.predictions_file, f"not what the {counted} was counted from")
    return Ended(state, sealed, error, result, environment, parameters, predictions)


def _read_if_there(path: Path, shape: type) -> dict[str, Any]:
    try:
        return read_record(path, shape)
    except FileNotFoundError:
        return {}


def can_be_ended_again(directory: RunDirectory) -> bool:
    """Whether only what the last checkpoint gives again is damaged, and the seal says that the rest is whole."""
    try:
        seal = read_seal(directory)
        for path in _bound(directory):
            if path not in ending_files(directory):
                _check_bound(path, seal["files"].get(path.name))
        checkpoint = directory.checkpoints / seal["checkpoint"]["name"] / MANIFEST if seal["checkpoint"] else None
        return checkpoint is not None and sha256_of(checkpoint) == seal["checkpoint"]["manifest_sha256"]
    except (OSError, UserError):
        return False


def ending_files(directory: RunDirectory) -> tuple[Path, ...]:
    """What is written after the last checkpoint, or anew at every start."""
    return directory.parameters_file, directory.predictions_file, directory.result_file, directory.seal_file


def everything(directory: RunDirectory) -> tuple[Path, ...]:
    """All that a run computed, and what it says of itself; not its log, nor whoever started it."""
    return (*_bound(directory), directory.seal_file, directory.status_file, directory.timing_file,
            directory.checkpoints, directory.best, directory.tensorboard, directory.trackers)  # fmt: skip


# ---- A result against the rest --------------------------------------------------------------------------------------


def _disagreement(
    directory: RunDirectory,
    config: Config,
    result: dict[str, Any],
    environment: dict[str, Any],
    parameters: dict[str, Any],
) -> str | None:
    """What a result says and the rest of its run does not; None where all agree."""
    run, training = config.run, config.run.training
    expected: dict[str, Any] = {
        "arm": run.arm,
        "seeds": run.seeds.model_dump(),
        "steps": training.steps,
        "learning_rate": training.learning_rate,
        "validation_split": training.validation_split,
        **{key: parameters[key] for key in COUNTS if key in parameters},
    }
    if digest := environment.get("data_digest"):
        expected["fingerprint"] = stored_fingerprint(config.tree, data_digest=digest)
    for key, value in expected.items():
        if key in result and result[key] != value:
            return f"{key} is {result[key]}, but the rest of the run says {value}"
    return (
        _wrong_perplexity(result, "perplexity", result["val_loss"])
        or _wrong_perplexity(result, "best_perplexity", result.get("best_val_loss"))
        or _wrong_mean(result)
        or _against_metrics(directory, run, result)
    )


def _wrong_perplexity(result: dict[str, Any], key: str, loss: float | None) -> str | None:
    """Perplexity is e^loss; null where a float has no room for it."""
    if key not in result or loss is None:
        return None
    said, computed = result[key], exponential(loss)
    if said is None:
        return None if math.isinf(computed) else f"{key} is missing beside the loss {loss}"
    if not math.isclose(said, computed, rel_tol=1e-9):
        return f"{key} is {said}, but e to the loss {loss} is {computed}"
    return None


def _wrong_mean(result: dict[str, Any]) -> str | None:
    """A probe's accuracy is the mean over its difficulties."""
    each = result.get(BY_DIFFICULTY)
    if not each or result.get("accuracy") is None:
        return None
    mean = sum(each.values()) / len(each)
    if math.isclose(result["accuracy"], mean, abs_tol=1e-9):
        return None
    return f"accuracy is {result['accuracy']}, but the mean over the difficulties is {mean}"


def _against_metrics(directory: RunDirectory, run: ResolvedRun, result: dict[str, Any]) -> str | None:
    """The last records are those of the last step, and say the same."""
    if not directory.metrics_file.exists():
        return None
    trained, validated = directory.last_metrics("train_loss"), directory.last_metrics("val_loss")
    if trained is None or validated is None:
        return f"{directory.metrics_file.name} contains no record of its end"
    for record in (trained, validated):
        if record.get("step") != result["steps"]:
            return f"steps is {result['steps']}, but {directory.metrics_file.name} ends at step {record.get('step')}"
    if result.get("train_loss") not in (None, trained["train_loss"]):
        return f"train_loss is {result['train_loss']}, but {directory.metrics_file.name} says {trained['train_loss']}"
    last, best = validated["val_loss"], result.get("best_val_loss")
    if not isinstance(last, int | float):
        return f"{directory.metrics_file.name} ends with a loss of {last!r:.40}"
    training = run.training
    same_sequences = training.final_validation_sequences == training.validation_sequences
    reported_is_last = kind_of_model(run.model) != "encoder" and same_sequences  # it reports on all examples
    if reported_is_last and result["val_loss"] != last:
        return f"val_loss is {result['val_loss']}, but {directory.metrics_file.name} says {last}"
    if best is not None and (best > last or (result.get("best_step") == result["steps"] and best != last)):
        return f"best_val_loss is {best}, but {directory.metrics_file.name} ends with {last}"
    return None


def _agree(predictions: dict[str, Any], result: dict[str, Any]) -> bool:
    labels, predicted = predictions["labels"], predictions["predicted"]
    if not labels or len(labels) != len(predicted) or result.get("examples") not in (None, len(labels)):
        return False
    share = sum(one == other for one, other in zip(labels, predicted, strict=True)) / len(labels)
    counted = [measure.value_of(result) or 0.0 for measure in _counted(result)]
    return bool(counted) and all(math.isclose(share, value, abs_tol=1e-9) for value in counted)


def _counted(result: dict[str, Any]) -> list[Measure]:
    """What of a result are shares of the predictions that were right."""
    return [each for each in MEASURES.values() if each.from_predictions and each.shown_key in result]
