"""What the jobs of a study ask of a Slurm cluster: the section `slurm` of a study file.

Where a run executes is no part of what it is: nothing here enters a fingerprint or a study's digest.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError, model_validator

from oelm.core.sections import Positive, Section
from oelm.core.settings import problem_lines, read_yaml
from oelm.machine.errors import UserError

# Options that carry a submission: changed by hand, jobs would not be found again, or would not save in time.
OURS = (
    "array", "chdir", "clusters", "cpus-per-task", "error", "export", "gpus-per-node", "help", "job-name", "no-requeue",
    "nodes", "ntasks", "ntasks-per-node", "open-mode", "output", "parsable", "requeue", "signal", "test-only", "time",
    "usage", "version", "wait", "wrap",
)  # fmt: skip


def _one_word(value: str) -> str:
    if value and len(value) <= 200 and value.isprintable() and not re.search(r"^-|\s", value):
        return value
    raise ValueError(f"{value!r} is not one word")


def _like(pattern: str, what: str) -> AfterValidator:
    """A value, as text, of this form."""

    def checked(value: str | int) -> str | int:
        if re.fullmatch(pattern, str(value)):
            return value
        raise ValueError(f"{value!r} is not {what}")

    return AfterValidator(checked)


def _seconds(time: str | int) -> int:
    """Of a time as sbatch reads it: minutes, minutes:seconds, hours:minutes:seconds, days-hours:minutes:seconds."""
    days, dash, clock = str(time).rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    if dash:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        return ((int(days) * 24 + hours) * 60 + minutes) * 60 + seconds
    if len(parts) == 3:
        return (parts[0] * 60 + parts[1]) * 60 + parts[2]
    return parts[0] * 60 + sum(parts[1:])


_TIME = _like(
    r"\d+|\d+:\d\d(:\d\d)?|\d+-\d+(:\d\d){0,2}",
    "a time: minutes, hours:minutes:seconds or days-hours, for example 8:00:00",
)
_GPUS = _like(r"(?a)([\w.-]+:)?[1-9]\d{0,3}", "a number of GPUs, for example 1 or a100:1")
_MEMORY = _like(r"(?a)\d+[KMGT]?", "an amount of memory, for example 32G")


def _option(value: str) -> str:
    found = re.fullmatch(r"--([a-z][a-z0-9-]*)(=.+)?", value)
    if found is None or not value.isprintable():
        raise ValueError(f"{value!r} is not a long option of sbatch, for example --exclusive or --mail-type=END")
    ours = next((name for name in OURS if name.startswith(found[1])), None)  # sbatch takes abbreviations
    if ours is not None:
        instead = "use the key time" if ours == "time" else "leave it out"
        raise ValueError(f"--{found[1]}: --{ours} is set by oelm; {instead}")
    return value


EARLY_SECONDS = 60  # Slurm's signal before a time limit may come that much too soon
Word = Annotated[str, AfterValidator(_one_word)]


class SlurmRequest(Section):
    """For each run. GPUs are counted for one process, CPUs and memory for one node."""

    partition: Word | None = None
    account: Word | None = None
    time: Annotated[str | int, _TIME] | None = None
    gpus: Annotated[str | int, _GPUS] | None = None
    cpus: Positive | None = None  # None: the study's threads for each process
    memory: Annotated[str | int, _MEMORY] | None = None
    constraint: Word | None = None
    nodes: Positive = 1
    save_seconds: Positive = 120  # before the time limit a run is asked to save
    restarts: Positive = 3  # of a run over several nodes whose process was lost
    options: list[Annotated[str, AfterValidator(_option)]] = Field(default=[])

    @model_validator(mode="after")
    def _consistent(self) -> SlurmRequest:
        names = [option.partition("=")[0] for option in self.options]
        for key, flag in OPTIONS.items():
            if getattr(self, key) is not None and f"--{flag}" in names:
                raise ValueError(f"--{flag} is given both in options and as {key}")
        if self.time is not None and _seconds(self.time) < self.save_seconds + EARLY_SECONDS:
            raise ValueError(
                f"time {self.time} leaves no room to train: the signal to save comes save_seconds, "
                f"{self.save_seconds}, before it, and Slurm may be a minute early; request more, or lower save_seconds"
            )
        return self


WORDS = ("partition", "account", "constraint")  # an account may be called 0042
# Key -> sbatch's name for it, where the value is passed as it is.
OPTIONS = {"partition": "partition", "account": "account", "time": "time", "memory": "mem", "constraint": "constraint"}


def changed(request: SlurmRequest, assignments: list[str]) -> SlurmRequest:
    """The same request with --slurm KEY=VALUE, ..."""
    tree: dict[str, Any] = request.model_dump()
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UserError(f"--slurm {text}: write key=value, for example --slurm partition=gpu")
        name = key.strip()
        if name not in tree:
            raise UserError(f"--slurm {name}: unknown key; known keys: {', '.join(tree)}")
        if name == "options":  # one more
            tree[name] = [*tree[name], value]
        else:
            tree[name] = value if name in WORDS else read_yaml(value, name=f"--slurm {name}")
    try:
        return SlurmRequest.model_validate(tree)
    except ValidationError as error:
        lines = problem_lines(error, model=SlurmRequest)
        raise UserError("\n".join(f"--slurm {line}" for line in lines)) from error
