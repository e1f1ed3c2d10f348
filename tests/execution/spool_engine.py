"""A third engine, for tests: a folder of tickets that somebody works through. As a command, it is `oelm` with it.

What follows is all that a new engine needs: this file, and the row in the last lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from oelm.execution.engine import Engine, Handle, Slots
from oelm.execution.engines import ENGINES, EngineRow
from oelm.run.directory import RunDirectory
from oelm.storage.schemas import Stored


class StoredTicket(Stored):
    units: int  # which other engines store in another form
    start: str


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


@dataclass(frozen=True)
class Spool(Engine, Slots):
    folder: Path
    kind, has_queue, shape = "spool", True, StoredTicket
    engine = property(lambda self: self)

    def slots(self, study, given, *, say):
        return self

    def submit(self, wanted, active):
        for run in wanted:
            start = run.prepare()
            run.hand_over(self.kind, units=run.processes, start=start.name)
            ticket = self._ticket(run.directory, start.name)
            being_written = ticket.file.with_suffix(".draft")  # nobody works on half a ticket
            being_written.write_text(start.line)
            being_written.rename(ticket.file)
            yield ticket

    def _ticket(self, directory, start):
        return Ticket(directory, self.folder / f"{directory.path.name}.ticket", start)

    def found(self, directory, stored):
        ticket = self._ticket(directory, stored["start"])
        return ticket if ticket.is_alive() else None

    def cancel(self, handles):
        for ticket in handles:
            ticket.file.unlink(missing_ok=True)

    def forecast(self, now, later):
        return [f"{run.planned.title}: a ticket" for run in now]


if __name__ == "__main__":
    ENGINES["spool"] = EngineRow("spool_engine:Spool", "a folder of tickets")

    from oelm.cli import main

    main()
