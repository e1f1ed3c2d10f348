"""What a check finds, and where it looks: the machine, the study's own sizes, a scratch folder. No torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from oelm.core.config import Settings
from oelm.machine.system import lacking_to_compile


def compiled_on_a_gpu(kind: str) -> str:
    """How `execution.compile` is set: on a GPU every run that lasts is compiled, where that is possible; a processor is
    spared the minutes."""
    return "on" if kind == "cuda" and lacking_to_compile(kind) is None else "off"


State = Literal["pass", "fail", "skipped"]


@dataclass(frozen=True)
class Outcome:
    """How a check ended, why, and the numbers behind it."""

    state: State
    said: str
    facts: dict[str, Any] = field(default_factory=dict)


class CheckFailed(Exception):
    """A part of a check did not do what it had to; the text says what."""


@dataclass(frozen=True)
class Here:
    """What every check is given. `gpus` are names for CUDA_VISIBLE_DEVICES; none: the processor is checked."""

    folder: Path
    gpus: tuple[str, ...]
    variables: dict[str, str]  # of every child's environment
    measured: Settings  # what is timed and weighed: the study's baseline, or the default of this kind of machine
    results: dict[str, Any] = field(default_factory=dict)  # of parts that several checks share

    @property
    def kind(self) -> str:
        return "cuda" if self.gpus else "cpu"

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What several checks need, made for the first of them. What failed fails for the others too."""
        if name not in self.results:
            try:
                self.results[name] = make()
            except CheckFailed as error:
                self.results[name] = error
        found = self.results[name]
        if isinstance(found, CheckFailed):
            raise found
        return found
