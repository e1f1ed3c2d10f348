"""A probe as data: no files, so nothing to open, to check or to send."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oelm.core.probes.probe import SPLITS, Probe, probe_of


@dataclass(frozen=True)
class ProbeData:
    probe: Probe
    splits: tuple[str, ...] = SPLITS
    tokenizer_folder: Path | None = None

    @property
    def digest(self) -> str:
        return self.probe.digest

    @property
    def facts(self) -> dict[str, Any]:
        """What the data says of the model."""
        return {"vocabulary": self.probe.vocabulary}

    @property
    def provenance(self) -> dict[str, Any]:
        return {}


def open_probe(data: str) -> ProbeData:
    return ProbeData(probe_of(data))
