"""Slots whose runs have ended when they are submitted, with losses of one's choosing: a whole study in an instant."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from oelm.execution.controller import Controller, DataFacts
from oelm.execution.engine import Slots
from oelm.execution.local import LocalEngine
from oelm.study.declaration import Study
from oelm.study.plan import Plan
from stored_runs import DATA_DIGEST, Losses, facts_of, store_finished


class Killed(Exception):
    """As if the controller had been: nothing is said or written any more."""


@dataclass
class InstantSlots(Slots):
    folder: Path
    losses: Losses
    most: int = 2  # at a time
    lives: int = 1000  # so many runs, and the controller is killed
    started: list[str] = field(default_factory=list)

    @property
    def engine(self):
        return LocalEngine(self.folder)

    def submit(self, wanted, active):
        for number, run in enumerate(wanted):
            if number == self.most:
                return
            if len(self.started) == self.lives:
                raise Killed
            self.started.append(run.planned.title)
            loss = self.losses(run.planned.arm, run.planned.seed, run.planned.stage, run.planned.point)
            store_finished(run.planned, self.folder, loss)
        yield from ()


@dataclass
class Heard:
    lines: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        self.lines.append(line)

    def show(self, plan, active) -> None: ...


def run_study(study: Study, slots: InstantSlots) -> tuple[Plan, list[str]]:
    """What the controller makes of it, and what it says."""
    heard = Heard()
    facts = DataFacts(facts_of(study), DATA_DIGEST, {study.base["data"]: DATA_DIGEST})
    slots.folder.mkdir(exist_ok=True)
    with mock.patch("oelm.execution.controller.data_facts", return_value=facts):
        return Controller(study, slots, heard).go(), heard.lines
