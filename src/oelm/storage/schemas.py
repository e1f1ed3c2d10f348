"""The shape of every JSON file that a run or a study stores, and the one way to read one: what does not fit is Damaged.

Keys that are not named here are allowed: files of other versions have more or fewer. What is named has its type.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from oelm.machine.errors import UserError
from oelm.storage.files import Damaged, read_object, read_sealed

State = Literal["queued", "running", "interrupted", "finished", "diverged", "failed"]
EndState = Literal["finished", "diverged"]

Amount = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]
Loss = Annotated[float, Field(ge=0)]  # a mean of -log p
Part = Annotated[float, Field(ge=0, le=1)]
Text = str | None


class Stored(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class Seeds(Stored):
    weights: Amount
    projections: Amount
    data: Amount


class Result(Stored):
    """experiment_result.json"""

    arm: str
    seeds: Seeds
    steps: Annotated[int, Field(ge=1)]
    val_loss: Loss
    fingerprint: Text = None
    tokens: Amount | None = None
    train_loss: float | None = None
    perplexity: float | None = None
    accuracy: Part | None = None
    accuracy_by_difficulty: dict[str, Part] | None = None
    loss_by_difficulty: dict[str, Loss] | None = None
    unigram_loss: Loss | None = None
    bigram_loss: Loss | None = None
    seen_in_train: Part | None = None
    chance_blind: Part | None = None
    chance_in_context: dict[str, Part] | None = None
    bits_stored: float | None = None
    bits_per_parameter: float | None = None
    examples: Amount | None = None
    best_val_loss: Loss | None = None
    best_step: Amount | None = None
    best_perplexity: float | None = None
    best_accuracy: Part | None = None
    validation_split: Text = None
    validation_tokens: Amount | None = None
    learning_rate: float | None = None
    total: Amount | None = None
    trainable: Amount | None = None
    frozen: Amount | None = None
    implied: Amount | None = None
    frozen_digest: Text = None
    clipped_fraction: Part | None = None
    training_seconds: Seconds | None = None
    validation_seconds: Seconds | None = None
    wall_seconds: Seconds | None = None
    mean_step_seconds: Seconds | None = None
    tokens_per_second: Seconds | None = None
    peak_memory_bytes: Amount | None = None
    resumes: Amount | None = None
    world_size: Amount | None = None
    device: Text = None
    precision: Text = None
    compile: bool | None = None


class Environment(Stored):
    """environment.json"""

    commit: Text = None
    dirty: bool | None = None
    source_digest: Text = None
    source_scheme: Annotated[int, Field(ge=1)] | None = None
    python: Text = None
    platform: Text = None
    processor: Text = None
    gpu: Text = None
    gpu_memory_bytes: Amount | None = None
    gpu_driver: Text = None
    cuda: Text = None
    nccl: Text = None
    versions: dict[str, Text] = Field(default={})
    device: Text = None
    precision: Text = None
    compile: bool | None = None
    threads: Amount | None = None
    micro_batch_size: Amount | None = None
    deterministic: bool | None = None
    tf32: bool | None = None
    world_size: Amount | None = None
    data_digest: Text = None
    data_name: Text = None
    encoder_source: Text = None
    encoder_digest: Text = None


class PartCount(Stored):
    role: str
    layer: int | None = None
    total: Amount
    frozen: Amount
    implied: Amount = 0


class Parameters(Stored):
    """parameters.json"""

    total: Amount
    trainable: Amount
    frozen: Amount
    implied: Amount = 0  # of runs of earlier formats, which store everything
    frozen_digest: Text = None
    weight_bytes: Amount | None = None
    gradient_bytes: Amount | None = None
    optimizer_bytes: Amount | None = None
    parts: list[PartCount] = Field(default=[])


class Predictions(Stored):
    """predictions.json"""

    split: Text = None
    labels: list[int]
    predicted: list[int]


class Sample(Stored):
    """sample.json: text that the model generated"""

    prompt: str
    texts: Annotated[list[str], Field(min_length=1)]
    temperature: Seconds
    top_k: Amount
    seed: Amount
    made: Text = None
    of: Text = None  # best, or a checkpoint


class Owner(Stored):
    """Who wrote a file: one process of one boot of one host."""

    host: str = ""
    boot_id: str = ""
    pid: int | Literal[""] = ""
    pid_started: str = ""


class Status(Owner):
    """status.json"""

    state: State
    updated: Text = None
    started: Text = None
    ended: Text = None
    start: Text = None
    step: Amount | None = None
    steps: Amount | None = None
    error: Text = None


class Slot(Stored):
    """slot.json, of any engine: the rest are the engine's own facts, in the shape that it says"""

    kind: Text = None


class LocalSlot(Owner):
    """slot.json of a process of this machine"""

    start: Text = None
    started: Text = None
    units: list[str] = Field(default=[])
    numbers: list[int] = Field(default=[])


class SlurmSlot(Stored):
    """slot.json of a task of a Slurm array"""

    name: str
    task: Amount
    submitted: Text = None


class JobArray(Stored):
    """slurm/NAME.json"""

    study: str
    processes: Annotated[int, Field(ge=1)]
    nodes: Annotated[int, Field(ge=1)]
    cpus: Annotated[int, Field(ge=1)]
    restarts: Amount
    directories: list[str]


class AtWork(Stored):
    server: str
    seen: str
    pid: int | None = None
    runs: list[str] = Field(default=[])


class Pulled(Stored):
    """pulled.json of a study's folder"""

    at_work: dict[str, AtWork] = Field(default={})
    runs: dict[str, str] = Field(default={})
    files: dict[str, dict[str, str]] = Field(default={})


class CheckResult(Stored):
    """One line of check.json"""

    name: str
    words: Annotated[list[str], Field(min_length=2, max_length=2)]  # what it shows: English, Chinese
    state: Literal["pass", "fail", "skipped"]
    said: str
    facts: dict[str, Any] = Field(default={})
    seconds: Seconds | None = None


class MachineCheck(Stored):
    """check.json"""

    format_version: Annotated[int, Field(ge=1)]
    created: Text = None
    processor: Text = None
    gpus: list[str] = Field(default=[])
    results: list[CheckResult]


class SealedFile(Stored):
    """A file as it was when it was listed."""

    bytes: Amount
    sha256: str


class SealedCheckpoint(Stored):
    name: str
    manifest_sha256: str


class Seal(Stored):
    """seal.json"""

    format_version: Annotated[int, Field(ge=1)]
    state: EndState
    step: Amount
    error: Text = None
    started: Text = None  # for the first time; None where that was lost
    files: dict[str, SealedFile]
    checkpoint: SealedCheckpoint | None = None


class ArchiveList(Stored):
    """archive.json, the last file of an archive of results"""

    format_version: Annotated[int, Field(ge=1)]
    study: str
    files: dict[str, SealedFile]


def read_record(path: Path, shape: type[Stored]) -> dict[str, Any]:
    """A stored file as keys and values, each of the type that its shape says."""
    return checked(path, read_object(path), shape)


def read_sealed_record(path: Path, shape: type[Stored], *, newest: int) -> dict[str, Any]:
    """The same of a file with a seal of its own, whose format is at most `newest`."""
    tree = checked(path, read_sealed(path), shape)
    if tree["format_version"] > newest:
        raise UserError(
            f"{path}: has format version {tree['format_version']}, this oelm reads up to {newest}; use a newer oelm"
        )
    return tree


def checked(path: Path, tree: dict[str, Any], shape: type[Stored]) -> dict[str, Any]:
    try:
        shape.model_validate(tree)
    except ValidationError as error:
        raise Damaged(path, _reason(error)) from error
    return tree


def _reason(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in problem["loc"])
    return f"{key} is missing" if problem["type"] == "missing" else f"{key}: {_lower(problem['msg'])}"


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
