"""A third engine, for tests: a folder of tickets that somebody works through. As a command, it is `oelm` with it.

What follows is all that a new engine needs: this file, and the row in the last lines.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from oelm.experiments.engine import Engine, Handle, Slots, train_command
from oelm.experiments.engines import ENGINES, Row
from oelm.files import write_json
from oelm.run_directory import RunDirectory


@dataclass(frozen=True)
class Ticket(Handle):
    directory: RunDirectory
    file: Path

    kind = "spool"
    start = property(lambda self: self.file.name)
    place = property(lambda self: f"ticket {self.file.name}")
    is_waiting = property(lambda self: (self.directory.status() or {}).get("state") != "running")

    def is_alive(self):
        return self.file.exists()


@dataclass(frozen=True)
class SpoolEngine(Engine):
    folder: Path

    kind, title, has_queue = "spool", "the spool", True

    def slots(self, study, given, *, say):
        return SpoolSlots(self)

    def found(self, directory, stored):
        ticket = Ticket(directory, self.folder / "spool" / stored["name"])
        return ticket if ticket.is_alive() else None

    def cancel(self, handles):
        for ticket in handles:
            ticket.file.unlink(missing_ok=True)


@dataclass(frozen=True)
class SpoolSlots(Slots):
    engine: SpoolEngine

    def submit(self, wanted, active):
        for run in wanted:
            run.prepare()
            ticket = Ticket(run.directory, self.engine.folder / "spool" / run.directory.path.name)
            write_json(run.directory.handle_file, {"kind": "spool", "name": ticket.file.name})
            ticket.file.parent.mkdir(exist_ok=True)
            ticket.file.write_text(shlex.join(train_command(run.directory, processes=run.processes)))
            yield ticket

    def forecast(self, now, later):
        return [f"{run.planned.title}: a ticket" for run in now]


if __name__ == "__main__":
    ENGINES["spool"] = Row("spool_engine:SpoolEngine", "a folder of tickets")

    from oelm.cli import main

    main()
