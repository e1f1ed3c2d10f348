"""A third engine, for tests: a folder of tickets that somebody works through. As a command, it is `oelm` with it.

What follows is all that a new engine needs: this file, and the row in the last lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from oelm.experiments.engine import Engine, Handle, Slots
from oelm.experiments.engines import ENGINES, EngineRow
from oelm.files import write_json
from oelm.run_directory import RunDirectory
from oelm.schemas import Stored


@dataclass(frozen=True)
class Ticket(Handle):
    directory: RunDirectory
    file: Path
    start: str = ""  # with a default, because it takes the place of a property

    kind = "spool"
    place = property(lambda self: f"ticket {self.file.name}")
    is_waiting = property(lambda self: (self.directory.status() or {}).get("state") != "running")

    def is_alive(self):
        return self.file.exists()


class StoredTicket(Stored):
    """Under names that other engines use for something else."""

    name: str
    units: int
    task: str
    start: str


@dataclass(frozen=True)
class SpoolEngine(Engine):
    folder: Path

    kind, has_queue, shape = "spool", True, StoredTicket

    def slots(self, study, given, *, say):
        return SpoolSlots(self)

    def found(self, directory, stored):
        ticket = Ticket(directory, self.folder / "spool" / stored["name"], stored["start"])
        return ticket if ticket.is_alive() else None

    def cancel(self, handles):
        for ticket in handles:
            ticket.file.unlink(missing_ok=True)


@dataclass(frozen=True)
class SpoolSlots(Slots):
    engine: SpoolEngine

    def submit(self, wanted, active):
        for run in wanted:
            start = run.prepare()
            ticket = Ticket(run.directory, self.engine.folder / "spool" / run.directory.path.name, start.name)
            own = {"name": ticket.file.name, "units": run.processes, "task": "train", "start": start.name}
            write_json(run.directory.handle_file, {"kind": "spool", **own})
            ticket.file.parent.mkdir(exist_ok=True)
            ticket.file.write_text(start.line)
            yield ticket

    def forecast(self, now, later):
        return [f"{run.planned.title}: a ticket" for run in now]


if __name__ == "__main__":
    ENGINES["spool"] = EngineRow("spool_engine:SpoolEngine", "a folder of tickets")

    from oelm.cli import main

    main()
