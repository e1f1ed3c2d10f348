"""The run directory: every file a run owns, its name, and how it is written and read. No torch.

Training writes it; status, analysis and reports read it. Nothing else knows a file name.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from oelm.errors import UserError
from oelm.files import (
    TEMPORARY_PREFIX,
    explaining_a_full_disk,
    fsync_folder,
    mebibytes,
    read_json,
    sha256_of,
    temporary_name,
    write_json,
    write_json_unflushed,
    writer_is_alive,
)
from oelm.ownership import Owned, Process, now, owning

CHECKPOINT_FORMAT_VERSION = 1
START_VARIABLE = "OELM_START"  # names one start of a run by a controller, which knows by it whose words a status holds

# What of environment.json should be the same in runs that are compared.
COMPARED_ENVIRONMENT = (
    "data_digest", "source_digest", "device", "processor", "precision", "compile", "threads", "micro_batch_size",
    "world_size", "versions.torch",
)  # fmt: skip


State = Literal["queued", "running", "interrupted", "finished", "diverged", "failed"]


class Locked(UserError):
    """Another process owns the run directory."""


class Damaged(Exception):
    """A checkpoint that is not whole; the message names the file."""


def check_name(name: str) -> str:
    """A run or study name: one path component that no shell, ssh or report can misread."""
    if re.fullmatch(r"[^\W_][\w.+ -]{0,199}", name) and not name.endswith(" "):
        return name
    raise UserError(
        f"name {name!r}: use letters, digits, '.', '_', '+', '-' or spaces, at most 200, "
        "and begin with a letter or digit"
    )


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted keys."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def measured(result: dict[str, Any]) -> str:
    """What a result says besides its loss: a classifier's accuracy, a language model's perplexity."""
    if "accuracy" in result:
        return f"accuracy {result['accuracy']:.2%}"
    perplexity = result.get("perplexity")
    return "perplexity " + ("inf" if perplexity is None else f"{perplexity:.3f}")


def final_numbers(result: dict[str, Any]) -> str:
    return f"validation loss {result['val_loss']:.4f}, {measured(result)}"


# ---- The directory -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunDirectory:
    path: Path

    @property
    def config_file(self) -> Path:
        return self.path / "config.json"

    @property
    def settings_file(self) -> Path:
        """What a controller gives to `oelm train`: the run and how to execute it."""
        return self.path / "settings.json"

    @property
    def handle_file(self) -> Path:
        """Who was started for this run, and where."""
        return self.path / "slot.json"

    @property
    def output_file(self) -> Path:
        """What the started process printed."""
        return self.path / "output.log"

    @property
    def environment_file(self) -> Path:
        return self.path / "environment.json"

    @property
    def status_file(self) -> Path:
        return self.path / "status.json"

    @property
    def parameters_file(self) -> Path:
        return self.path / "parameters.json"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def timing_file(self) -> Path:
        return self.path / "timing_stats.json"

    @property
    def result_file(self) -> Path:
        return self.path / "experiment_result.json"

    @property
    def predictions_file(self) -> Path:
        """What a classifier said of every reported example."""
        return self.path / "predictions.json"

    @property
    def log_file(self) -> Path:
        return self.path / "training.log"

    @property
    def lock_file(self) -> Path:
        return self.path / "lock.json"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def best(self) -> Path:
        return self.path / "best"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    def holds_work(self) -> bool:
        """Whether a run got as far as to leave something: records, a checkpoint, a model, a result."""
        return any(path.exists() for path in (self.metrics_file, self.checkpoints, self.best, self.result_file))

    def refuse_foreign_files(self) -> None:
        """A folder that is no run's, and not empty, is somebody else's."""
        ours = {getattr(self, name).name for name, value in vars(RunDirectory).items() if isinstance(value, property)}
        names = {entry.name for entry in self.path.iterdir() if not entry.name.startswith(TEMPORARY_PREFIX)}
        foreign = sorted(names - ours)
        if foreign:
            raise UserError(
                f"{self.path}: holds files that are no run's ({foreign[0]}); choose another folder with --out"
            )

    # -- status ------------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any] | None:
        """None where there is none, or a damaged one: what a run is worth lies in its other files."""
        try:
            status = read_json(self.status_file)
        except (OSError, UserError):
            return None
        return status if isinstance(status, dict) else None

    def write_status(self, state: State, **details: Any) -> None:
        """Merge into the stored status: what is not given stays, an old error does not."""
        kept = {key: value for key, value in (self.status() or {}).items() if key != "error"}
        writer = Process.current().__dict__ | {"start": os.environ.get(START_VARIABLE)}
        write_json(self.status_file, kept | writer | {"state": state, "updated": now()} | details)

    def write_queued(self, *, steps: int) -> None:
        """Somebody wants this run, and it has not begun."""
        status = Process.current().__dict__ | {"state": "queued", "updated": now(), "steps": steps}
        write_json_unflushed(self.status_file, status)

    # -- lock --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self, *, patience_seconds: float = 0.0) -> Iterator[None]:
        """Own the directory for the block; with patience, another host's owner may turn out to be dead."""
        try:
            with owning(self.lock_file, patience_seconds=patience_seconds):
                yield
        except Owned as error:
            raise Locked(
                f"{self.path}: another run is in this folder ({error}); wait for it or choose another --out"
            ) from error

    # -- metrics -----------------------------------------------------------------------------------------------------

    def close_torn_line(self) -> None:
        """After kill -9 the last line may lack its end; records appended later must not join it."""
        if not self.metrics_file.exists() or self.metrics_file.stat().st_size == 0:
            return
        with open(self.metrics_file, "rb+") as stream:
            stream.seek(-1, os.SEEK_END)
            if stream.read(1) != b"\n":
                stream.write(b"\n")

    def append_metrics(self, record: dict[str, Any]) -> None:
        with open(self.metrics_file, "ab") as stream:
            stream.write((json.dumps(record, allow_nan=False) + "\n").encode())

    def last_metrics(self) -> dict[str, Any] | None:
        """The last whole training record, read from the end of the file."""
        try:
            with open(self.metrics_file, "rb") as stream:
                stream.seek(max(0, os.path.getsize(self.metrics_file) - 4096))
                lines = stream.read().splitlines()
        except OSError:
            return None
        for line in reversed(lines):
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict) and "train_loss" in record:
                    return record
        return None

    def metrics(self) -> list[dict[str, Any]]:
        """Records by step; for a step written twice (before and after a kill) the last one of its kind counts."""
        latest: dict[tuple[int, bool], dict[str, Any]] = {}
        if not self.metrics_file.exists():
            return []
        for line in self.metrics_file.read_bytes().splitlines():
            with contextlib.suppress(ValueError):  # a torn line
                record = json.loads(line)
                if isinstance(record, dict) and isinstance(record.get("step"), int):
                    latest[record["step"], "val_loss" in record] = record
        return [latest[key] for key in sorted(latest)]

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def checkpoint_folder(self, step: int) -> Path:
        return self.checkpoints / f"step-{step:06d}"

    def stored_checkpoints(self) -> list[Path]:
        """Published ones, oldest first; whether they are whole is another question."""
        if not self.checkpoints.is_dir():
            return []
        named = [path for path in self.checkpoints.iterdir() if re.fullmatch(r"step-\d+", path.name)]
        return sorted(named, key=checkpoint_step)

    @contextlib.contextmanager
    def new_checkpoint(self, step: int, *, needed_bytes: int) -> Iterator[Path]:
        """A folder to write into, which becomes step-N, whole, when the block ends well."""
        final = self.checkpoint_folder(step)
        temporary = temporary_name(final)
        self.checkpoints.mkdir(exist_ok=True)
        with explaining_a_full_disk(self.checkpoints, needed_bytes=needed_bytes):
            self.clear_leftovers()
            free_bytes = shutil.disk_usage(self.checkpoints).free
            if free_bytes < needed_bytes:
                raise UserError(
                    f"{self.checkpoints}: disk full: a checkpoint needs {mebibytes(needed_bytes)}, "
                    f"has {mebibytes(free_bytes)}; make room and give the same command again"
                )
            try:
                temporary.mkdir()
                yield temporary
                _seal(temporary)
                if final.exists():  # a damaged one of the same step
                    shutil.rmtree(final)
                os.rename(temporary, final)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
        fsync_folder(self.checkpoints)

    def prune_checkpoints(self, *, newest: int, keep: int) -> None:
        """Keep the last few up to the newest. One of a later step was damaged, or the run had gone on from it."""
        stored = self.stored_checkpoints()
        good = [folder for folder in stored if checkpoint_step(folder) <= newest][-keep:]
        for folder in stored:
            if folder not in good:
                shutil.rmtree(folder, ignore_errors=True)  # still open in a reader on NFS: next time

    def clear_leftovers(self) -> None:
        """Remove what killed writers left half-written. For the owner of the lock."""
        for folder in (self.path, self.best, self.checkpoints):
            for leftover in folder.glob(f"{TEMPORARY_PREFIX}*"):
                if leftover.is_dir():
                    shutil.rmtree(leftover, ignore_errors=True)
                elif not writer_is_alive(leftover):  # the status may also be written by whoever started the run
                    leftover.unlink(missing_ok=True)


# ---- Whole or damaged ----------------------------------------------------------------------------------------------

MANIFEST = "manifest.json"


def checkpoint_step(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


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
        raise Damaged(f"{manifest_file} is missing")
    try:
        manifest = read_json(manifest_file)
        version = int(manifest["format_version"])
        files = {name: (int(entry["bytes"]), str(entry["sha256"])) for name, entry in manifest["files"].items()}
    except (UserError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"{manifest_file} is not readable") from error
    if version > CHECKPOINT_FORMAT_VERSION:
        raise UserError(
            f"{folder}: checkpoint format version {version}, this oelm reads up to {CHECKPOINT_FORMAT_VERSION}; "
            "use a newer oelm"
        )
    for name, (expected_bytes, expected_sha256) in files.items():
        path = folder / name
        if not path.is_file():
            raise Damaged(f"{path} is missing")
        if path.stat().st_size != expected_bytes:
            raise Damaged(f"{path} has {path.stat().st_size} bytes, not {expected_bytes}")
        if sha256_of(path) != expected_sha256:
            raise Damaged(f"{path} does not match its SHA-256")
