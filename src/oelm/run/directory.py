"""The run directory: every file a run owns, its name, and how it is written and read. No torch.

Training writes it; status, analysis and reports read it. No other module writes out a name of its files, but for
execution/remote/sent_program.py, which runs where oelm is not; tests hold both to that.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oelm.core.config import ResolvedRun, fingerprint
from oelm.core.measures import LOSS, Measure, measures_of
from oelm.core.trackers.table import Tracked
from oelm.machine.errors import UserError
from oelm.machine.exhaustion import disk_full
from oelm.storage.files import (
    TEMPORARY_PREFIX,
    Damaged,
    append_to,
    explaining_a_full_disk,
    fsync_folder,
    make_folders,
    named_in,
    naming_the_file,
    new_folder,
    open_own,
    read_object,
    refuse_link,
    remove,
    sha256_of,
    temporary_name,
    write_json,
    write_json_unflushed,
    writer_is_alive,
)
from oelm.storage.metric_records import HeadTables, Record, last_head_scores, last_record, read_records
from oelm.storage.ownership import START_VARIABLE, Owned, Process, now, owning
from oelm.storage.schemas import State, Status, read_record

CHECKPOINT_FORMAT_VERSION = 1
RESULT_FILE = "experiment_result.json"
TUNING_FOLDER = "tuning"  # below the runs of a study: those of its grid

# What of environment.json should be the same in runs that are compared.
COMPARED_ENVIRONMENT = (
    "data_digest", "source_digest", "device", "processor", "precision", "compile", "threads", "micro_batch_size",
    "deterministic", "tf32", "world_size", "versions.torch",
)  # fmt: skip
BEFORE_IT_WAS_RECORDED = {"deterministic": True, "tf32": False}  # how runs were computed whose file does not say


class Locked(UserError):
    """Another process owns the run directory."""


def check_name(name: str) -> str:
    """A run or study name: one path component that no shell, ssh or report can misread."""
    if re.fullmatch(r"[^\W_][\w.+ -]{0,199}", name) and not name.endswith(" "):
        return name
    raise UserError(
        f"name {name!r}: use at most 200 letters, digits, '.', '_', '+', '-' or spaces, "
        "beginning with a letter or digit"
    )


def folder_name(run: ResolvedRun, *, arm: str, seed: int | str, data_digest: str) -> str:
    """Of a run that is given no other: one for each distinct computation. The arm is called as its study calls it."""
    return f"{arm}-s{seed}-{fingerprint(run, data_digest=data_digest)}"


def is_named_after(name: str, arm: str) -> bool:
    """Whether `folder_name` gave this name to a run of the arm."""
    return name.startswith(f"{arm}-s")


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted keys."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def measured(result: dict[str, Any], measure: Measure | None = None) -> str:
    """What a result says besides its loss: by the measure of its study, or else by what such runs usually are compared
    by, a classifier's accuracy or a language model's perplexity.
    """
    if measure is None:
        usual = [measures_of(kind)[0] for kind in ("encoder", "gpt")]
        measure = next((each for each in usual if each.shown_key in result), LOSS)
    elif lack := unmeasured(result, measure):
        return lack
    value = result.get(measure.shown_key)
    return f"{measure.name[0]} " + ("inf" if value is None else f"{value:{measure.scale.number_format}}")


def unmeasured(result: dict[str, Any], measure: Measure) -> str | None:
    """What a result lacks to be compared by a measure; None where it lacks nothing."""
    return None if measure.value_of(result) is not None else f"{RESULT_FILE} has no {measure.shown_key}"


def final_numbers(result: dict[str, Any], measure: Measure | None = None) -> str:
    return f"validation loss {result['val_loss']:.4f}, {measured(result, measure)}"


def run_directories(folder: Path, *, unlisted: Callable[[Damaged], object] | None = None) -> list[Path]:
    """The runs in a study's folder, then those of its grid; also those without their config, and those that may not be
    looked into. `unlisted` is told of a folder that may not be listed itself, which else is an error.
    """
    found = []
    for each in (folder, folder / TUNING_FOLDER):
        try:
            found += _runs_directly_in(each)
        except Damaged as damage:
            if unlisted is None:
                raise
            unlisted(damage)
    return found


def _runs_directly_in(folder: Path) -> list[Path]:
    try:
        with naming_the_file(folder):
            names = sorted(os.listdir(folder))
            _enter(folder)  # one may list a folder and not be let into it
    except FileNotFoundError:
        return []
    return [folder / name for name in names if _looks_like_a_run(folder / name)]


def _looks_like_a_run(path: Path) -> bool:
    directory = RunDirectory(path)
    if not os.path.isdir(path):
        return False
    if os.path.lexists(directory.config_file) or directory.has_traces():
        return True
    try:
        _enter(path)
    except PermissionError:
        return path.name != TUNING_FOLDER
    return False


def _enter(folder: Path) -> None:
    os.stat(f"{folder}/.")


def is_run(path: Path) -> bool:
    return os.path.isfile(RunDirectory(path).config_file)


def meant_by(name: str, studies: Mapping[Path, str]) -> list[Path]:
    """Which runs a name may mean, of these, each with the name of its study: one by its path or by the beginning of
    RUN, STUDY/RUN, tuning/RUN or STUDY/tuning/RUN."""
    rests: dict[Path, str] = {}
    for run, study in studies.items():
        inside = f"{TUNING_FOLDER}/{run.name}" if run.parent.name == TUNING_FOLDER else run.name
        names = (run.name, inside, f"{study}/{run.name}", f"{study}/{inside}", run.as_posix())
        rest = [each.removeprefix(name) for each in names if each.startswith(name) and ("/" in each) == ("/" in name)]
        rests |= {run: rest[0]} if rest else {}
    ends = ("", "-.*")  # all of it; s1, and not s10
    found = ([run for run, rest in rests.items() if re.fullmatch(end, rest)] for end in ends)
    return next(filter(None, found), list(rests))


def tracked(directory: RunDirectory, run: ResolvedRun, *, folder: Path, step: int = 0) -> Tracked:
    """A run for a tracker that may write into `folder`; its project is the folder of its study. `step` is the one that
    it goes on from."""
    around = directory.path.absolute().parent
    project = around.parent.name if around.name == TUNING_FOLDER else around.name
    return Tracked(directory.path.name, project, flat(run.model_dump(mode="json")), folder, step)


# ---- The directory -------------------------------------------------------------------------------------------------


class Named:
    """A file or folder of every run."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, directory: RunDirectory, kind: type) -> Path:
        return directory.path / self.name


@dataclass(frozen=True)
class RunDirectory:
    path: Path

    config_file = Named("config.json")
    settings_file = Named("settings.json")  # what a controller gives to `oelm train`: the run and how to execute it
    handle_file = Named("slot.json")  # who was started for this run, and where
    output_file = Named("output.log")  # what the started process printed
    environment_file = Named("environment.json")
    status_file = Named("status.json")
    parameters_file = Named("parameters.json")
    metrics_file = Named("metrics.jsonl")
    # Of the scripts of oelm.compat, and of every run of versions up to 0.5; nothing reads it.
    timing_file = Named("timing_stats.json")
    result_file = Named(RESULT_FILE)
    predictions_file = Named("predictions.json")  # what a classifier said of every reported example
    sample_file = Named("sample.json")  # text that `oelm generate --keep` stored, for `oelm board`
    seal_file = Named("seal.json")  # written last: it binds everything that numbers are taken from
    damaged = Named("damaged")  # what was found damaged and set aside, one folder a time
    log_file = Named("training.log")
    lock_file = Named("lock.json")
    checkpoints = Named("checkpoints")
    best = Named("best")
    trackers = Named("trackers")  # what other trackers write, a folder for each
    tensorboard = Named("tensorboard")  # where versions up to 0.5 let TensorBoard write; nothing reads it

    def holds_work(self) -> bool:
        """Whether a run got as far as to leave something: records, a checkpoint, a model, a result."""
        return any(path.exists() for path in (self.metrics_file, self.checkpoints, self.best, self.result_file))

    def has_traces(self) -> bool:
        """Whether a run that started has been here, whatever became of its config."""
        if os.path.lexists(self.seal_file) or os.path.lexists(self.result_file):
            return True
        return os.path.lexists(self.status_file) and (self.status() or {}).get("state") != "queued"

    def refuse_foreign_files(self) -> None:
        """A folder that is no run's, and not empty, is somebody else's."""
        ours = {value.name for value in vars(RunDirectory).values() if isinstance(value, Named)}
        names = {entry.name for entry in self.path.iterdir() if not entry.name.startswith(TEMPORARY_PREFIX)}
        foreign = sorted(names - ours)
        if foreign:
            raise UserError(
                f"{self.path}: contains files that do not belong to a run ({foreign[0]}); choose another "
                "folder with --out"
            )

    def refuse_links(self) -> None:
        """Before the start, not after hours: links in the place of what a run adds to. Whatever else is a link is
        replaced by a file, and what it pointed to stays as it is.
        """
        for path in (
            self.checkpoints, self.best, self.tensorboard, self.trackers, self.metrics_file, self.log_file,
            self.output_file, self.lock_file, self.damaged,
        ):  # fmt: skip
            refuse_link(path)

    def set_aside(self, paths: Iterable[Path]) -> Path:
        """Move damaged files out of the way, for whoever wants to look at them. For the owner of the lock."""
        self.damaged.mkdir(exist_ok=True)
        number = 1 + max((int(each.name) for each in self.damaged.iterdir() if each.name.isdecimal()), default=0)
        folder = self.damaged / str(number)
        folder.mkdir()
        for path in paths:
            if os.path.lexists(path):
                os.rename(path, folder / path.name)
        for changed in (folder, self.damaged, self.path):
            fsync_folder(changed)
        return folder

    # -- status ------------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any] | None:
        """None where there is none, or a damaged one: what a run is worth lies in its other files."""
        try:
            return read_record(self.status_file, Status)
        except (OSError, Damaged):
            return None

    def write_status(self, state: State, **details: Any) -> None:
        """Merge into the stored status: what is not given stays, an old error does not."""
        write_json(self.status_file, self._merged_status(state, details))

    def write_progress(self, **details: Any) -> None:
        """How far a run has come: whole, but after a power failure the status before it is as good."""
        write_json(self.status_file, self._merged_status("running", details), lasting=False)

    def _merged_status(self, state: State, details: dict[str, Any]) -> dict[str, Any]:
        kept = {key: value for key, value in (self.status() or {}).items() if key != "error"}
        writer = Process.current().__dict__ | {"start": os.environ.get(START_VARIABLE)}
        return kept | writer | {"state": state, "updated": now()} | details

    def write_queued(self, *, steps: int) -> None:
        """Somebody wants this run, and it has not begun."""
        status = Process.current().__dict__ | {"state": "queued", "updated": now(), "steps": steps}
        write_json_unflushed(self.status_file, status)

    # -- lock --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self, *, patience_seconds: float = 0.0) -> Iterator[None]:
        """Own the directory for the block; with patience, another host's owner may turn out to be dead."""
        self.refuse_links()
        try:
            with owning(self.lock_file, patience_seconds=patience_seconds):
                yield
        except Owned as error:
            raise Locked(
                f"{self.path}: another run is using this folder ({error}); wait for it or choose another --out"
            ) from error

    # -- metrics -----------------------------------------------------------------------------------------------------

    def close_torn_line(self) -> None:
        """After kill -9 the last line may lack its end; records appended later must not join it."""
        if not self.metrics_file.exists() or self.metrics_file.stat().st_size == 0:
            return
        with os.fdopen(open_own(self.metrics_file, os.O_RDWR), "rb+") as stream:
            stream.seek(-1, os.SEEK_END)
            if stream.read(1) != b"\n":
                stream.write(b"\n")

    def append_metrics(self, record: dict[str, Any]) -> None:
        with append_to(self.metrics_file) as stream:
            stream.write((json.dumps(record, allow_nan=False) + "\n").encode())

    def flush_metrics(self) -> None:
        """What a checkpoint or a seal relies on must outlast a power failure."""
        if self.metrics_file.exists():
            with open(self.metrics_file, "rb") as stream:
                os.fsync(stream.fileno())

    def metrics_bytes(self) -> int:
        return self.metrics_file.stat().st_size if self.metrics_file.is_file() else 0

    def last_metrics(self, name: str = "train_loss") -> Record | None:
        """The last whole record that holds this name, read from the end of the file."""
        return last_record(self.metrics_file, name)

    def last_head_scores(self) -> HeadTables | None:
        """Layers by heads, of the last validation, if the run recorded them."""
        return last_head_scores(self.metrics_file)

    def metrics(self, *, target_loss: float | None = None, also: Collection[int] = ()) -> list[Record]:
        """Records by step, thinned where there are thousands; see `read_records`."""
        return read_records(self.metrics_file, target_loss=target_loss, also=also)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def checkpoint_folder(self, step: int) -> Path:
        return self.checkpoints / f"step-{step:06d}"

    def stored_checkpoints(self) -> list[Path]:
        """Published ones, oldest first; whether they are whole is another question. A link is none of ours."""
        if not self.checkpoints.is_dir():
            return []
        ours = (path for path in self.checkpoints.iterdir() if not path.is_symlink())
        return sorted(filter(is_checkpoint, ours), key=checkpoint_step)

    @contextlib.contextmanager
    def new_checkpoint(self, step: int, *, needed_bytes: int) -> Iterator[Path]:
        """A folder to write into, which becomes step-N, whole, when the block ends well."""
        final = self.checkpoint_folder(step)
        temporary = temporary_name(final)
        refuse_link(self.checkpoints)
        make_folders(self.checkpoints)
        with explaining_a_full_disk(self.checkpoints, needed_bytes=needed_bytes):
            self.clear_leftovers()
            free_bytes = shutil.disk_usage(self.checkpoints).free
            if free_bytes < needed_bytes:
                raise UserError(disk_full(self.checkpoints, needed_bytes=needed_bytes, free_bytes=free_bytes))
            try:
                yield new_folder(temporary)
                _seal(temporary)
                remove(final)  # a damaged one of the same step, or a link
                os.rename(temporary, final)
            except BaseException:
                remove(temporary)
                raise
        fsync_folder(self.checkpoints)

    def prune_checkpoints(self, *, newest: int, keep: int) -> None:
        """Keep the last few up to the newest. One of a later step was damaged, or the run had gone on from it."""
        refuse_link(self.checkpoints)
        stored = self.stored_checkpoints()
        good = [folder for folder in stored if checkpoint_step(folder) <= newest][-keep:]
        for folder in stored:
            if folder not in good:
                remove(folder)  # still open in a reader on NFS: next time

    def clear_leftovers(self) -> None:
        """Remove what killed writers left half-written. For the owner of the lock."""
        for folder in (self.best, self.checkpoints):
            refuse_link(folder)
        for folder in (self.path, self.best, self.checkpoints):
            for leftover in folder.glob(f"{TEMPORARY_PREFIX}*"):
                # A live writer's file stays: the status may also be written by whoever started the run.
                if leftover.is_dir() or not writer_is_alive(leftover):
                    remove(leftover)


# ---- Whole or damaged ----------------------------------------------------------------------------------------------

MANIFEST = "manifest.json"
CHECKPOINT_FILES = "model.safetensors", "optimizer.safetensors", "state.json"  # what a run cannot go on without


def is_checkpoint(path: Path) -> bool:
    """By its name, wherever it lies."""
    return re.fullmatch(r"step-\d+", path.name) is not None


def checkpoint_step(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def run_around(folder: Path) -> RunDirectory | None:
    """The run whose best/ folder or checkpoint this is; None for a folder that was copied out of its run."""
    whole = folder.absolute()
    directory = RunDirectory(whole.parent.parent if is_checkpoint(whole) else whole.parent)
    ours = directory.config_file.exists() and whole in (directory.best, *directory.stored_checkpoints())
    return directory if ours else None


def _seal(folder: Path) -> None:
    """Flush every file and list it with size and SHA-256; the manifest comes last."""
    files = {}
    for path in sorted(folder.iterdir()):
        with open(path, "rb") as stream:
            os.fsync(stream.fileno())
        files[path.name] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    write_json(folder / MANIFEST, {"format_version": CHECKPOINT_FORMAT_VERSION, "files": files})


def check_whole(folder: Path) -> None:
    """Raise Damaged, naming the file, unless every listed file is there with its size and SHA-256."""
    manifest_file = folder / MANIFEST
    if not manifest_file.is_file():
        raise Damaged(manifest_file, "missing")
    manifest = read_object(manifest_file)
    version, files = manifest.get("format_version"), manifest.get("files")
    if type(version) is not int or version < 1 or not isinstance(files, dict):
        raise Damaged(manifest_file, "not a manifest")
    if version > CHECKPOINT_FORMAT_VERSION:
        raise UserError(
            f"{folder}: checkpoint format version {version}, this oelm reads up to {CHECKPOINT_FORMAT_VERSION}; "
            "use a newer oelm"
        )
    for name in CHECKPOINT_FILES:
        if name not in files:
            raise Damaged(manifest_file, f"does not list {name}")
    named: dict[Path, tuple[int, str]] = {}
    for name, entry in files.items():
        size, digest = (entry.get("bytes"), entry.get("sha256")) if isinstance(entry, dict) else (None, None)
        path = named_in(manifest_file, name)
        if type(size) is not int or size < 0 or not isinstance(digest, str):
            raise Damaged(manifest_file, f"has no size and SHA-256 of {name}")
        named[path] = size, digest
    for path, (expected_bytes, expected_sha256) in named.items():
        if not path.is_file():
            raise Damaged(path, "missing")
        if path.stat().st_size != expected_bytes:
            raise Damaged(path, f"has {path.stat().st_size} bytes, not {expected_bytes}")
        if sha256_of(path) != expected_sha256:
            raise Damaged(path, "does not match its SHA-256")
