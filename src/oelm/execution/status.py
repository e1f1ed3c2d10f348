"""`oelm status` and `oelm logs`: what the run directories say now, at once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oelm.core.measures import MEASURES
from oelm.execution.engine import Handle
from oelm.execution.handles import StudyEngines, Untold
from oelm.execution.looking import look_lines, why_unstarted
from oelm.execution.progress import counted, progress_of, round_lines, still_in_words, still_since
from oelm.machine.durations import duration
from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory, final_numbers, is_run, meant_by, run_directories
from oelm.storage.files import Damaged
from oelm.storage.ownership import Process, owner_of
from oelm.study.declaration import Study
from oelm.study.doubts import lines_on
from oelm.study.plan import Plan, PlannedRun, planned
from oelm.study.registration import registration_of
from oelm.study.shelf import Shelf, StoredRun, read_stored, run_elsewhere

FOLLOW_SECONDS = 0.5


# ---- One study -----------------------------------------------------------------------------------------------------


def study_tree(study: Study, folder: Path) -> dict[str, Any]:
    """For machines: one entry a run, the registration, and what else is to be known."""
    shelf = Shelf(folder)
    look = _Look(StudyEngines(folder))
    plan = look.corrected(planned(study, shelf))
    rows = [_row(run, look) for run in plan.runs]
    return {
        "study": study.name,
        "folder": str(folder),
        "registration": registration_of(study, shelf).as_json(),
        **({"looks": look_lines(plan)} if study.looks else {}),
        "remarks": [*round_lines(plan), *lines_on(plan, shelf), *look.silences(), *damage_lines(shelf, plan)],
        "runs": rows,
    }


@dataclass
class _Look:
    """What the engines say of a study's runs, each asked once."""

    engines: StudyEngines
    known: dict[Path, Handle | Untold | None] = field(default_factory=dict)

    def at(self, stored: StoredRun) -> Handle | Untold | None:
        path = stored.directory.path
        if path not in self.known:
            try:
                self.known[path] = self.engines.found(stored.directory)
            except Untold as error:
                self.known[path] = error
        return self.known[path]

    def is_nobodys(self, stored: StoredRun) -> bool:
        """Whether a run counts as queued, and no engine has it: its submission was refused, cancelled or killed."""
        if stored.state != "queued" or self.at(stored) is not None:
            return False
        writer_is_alive = Process.stored(stored.status).is_alive_here()  # None: prepared on another machine
        return stored.directory.handle_file.exists() or writer_is_alive is False

    def corrected(self, plan: Plan) -> Plan:
        """The plan without the runs that only seem to be queued: they are missing."""

        def seen(run: PlannedRun) -> PlannedRun:
            return replace(run, stored=None) if run.stored and self.is_nobodys(run.stored) else run

        return replace(plan, tuning=[seen(run) for run in plan.tuning], final=[seen(run) for run in plan.final])

    def silences(self) -> list[str]:
        """One line for each engine that does not answer, however many runs it has, and for each damaged handle."""
        counts = Counter(each.line for each in self.known.values() if isinstance(each, Untold))
        return [line.replace("{count}", str(count)) for line, count in counts.items()]


def _row(run: PlannedRun, look: _Look) -> dict[str, Any]:
    row = {"run": run.title, "stage": run.stage, "arm": run.arm, "seed": run.seed, "state": run.state}
    if run.stored is None:
        return row
    if run.loss is None and (found := look.at(run.stored)) is not None:
        row["place"] = found.place
    is_running, held_by = run.state == "running", None
    owner = owner_of(run.stored.directory.lock_file) if is_running else None
    if owner is not None and owner.process.is_alive_here() is None and owner.has_another_clock:
        held_by = str(owner)  # whom nobody here can judge
    progress, result = progress_of(run.stored.directory, run.run.training.steps), run.stored.result or {}
    return row | {
        "step": result.get("steps", progress.step),
        "steps": progress.steps,
        "val_loss": result.get("val_loss"),
        **{each.shown_key: result[each.shown_key] for each in MEASURES.values() if each.shown_key in result},
        "seconds_left": progress.seconds_left if is_running else None,
        "still_since": still_since(run.stored.directory, progress.steps) if is_running else None,
        "held_by": held_by,
        "error": run.stored.error,
        "path": str(run.stored.directory.path),
    }


def study_status(study: Study, folder: Path) -> tuple[Plan, list[str]]:
    """The lines for one study: a table of its runs, and the counts last."""
    shelf = Shelf(folder)
    look = _Look(StudyEngines(folder))
    plan = look.corrected(planned(study, shelf))
    rows = [_row(run, look) | {"why": why_unstarted(plan, run)} for run in plan.runs]
    width = max((len(row["run"]) for row in rows), default=0)
    results = [run.stored.result if run.stored else None for run in plan.runs]
    numbers = [final_numbers(result, study.measure) if result else None for result in results]
    lines = [_line(row, width, final) for row, final in zip(rows, numbers, strict=True)]
    lines.extend(round_lines(plan))
    if not plan.is_tuned:
        lines.append("the final runs start when every tuning run is finished")
    lines.extend(look.silences())
    lines.extend(damage_lines(shelf, plan))
    lines.extend(lines_on(plan, shelf))
    lines.extend(look_lines(plan))
    lines.append(f"registration: {registration_of(study, shelf).line()}")
    lines.extend(f"being run on {there['server']}, seen at {there['seen']}" for there in run_elsewhere(folder))
    return plan, [*lines, f"{study.name}: {counted(plan)}"]


def damage_lines(shelf: Shelf, plan: Plan) -> list[str]:
    """What cannot be read, a damaged bench, and damaged runs that the table does not show."""
    shown = {run.stored.directory.path for run in plan.runs if run.stored}
    bench = shelf.bench()
    return [
        *shelf.unreadable,
        *([f"{bench}; measure again with oelm bench {plan.study.name}"] if isinstance(bench, Damaged) else []),
        *(run.damage or "" for run in shelf.damaged if run.directory.path not in shown),
    ]


def _line(row: dict[str, Any], width: int, final: str | None) -> str:
    parts = [f"{row['run']:{width}}  {row['why'] or row['state']:11}"]
    if row.get("steps"):
        parts.append(f"step {row['step']}/{row['steps']}")
    if final is not None:
        parts.append(final)
    if row.get("still_since") is not None:
        parts.append(still_in_words(row["still_since"]))
    elif row.get("seconds_left") is not None:
        parts.append(f"ETA {duration(row['seconds_left'])}")
    if row.get("place"):
        parts.append(row["place"])
    if row.get("held_by"):
        parts.append(f"held by {row['held_by']}")
    if row.get("error"):
        parts.append(str(row["error"]).splitlines()[0])
    return "  ".join(parts).rstrip()


# ---- All studies ---------------------------------------------------------------------------------------------------


def overview(root: Path) -> list[str]:
    """A line for every folder under `root` that is a run or holds some: its state, or how many are in which."""
    if RunDirectory(root).config_file.exists():
        stored = read_stored(root)
        return [f"{root}: {stored.state}", *([stored.damage] if stored.damage else [])]
    inside = sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    folders = [path for path in inside if not RunDirectory(path).config_file.exists()]
    alone = Shelf(root)
    lines = [f"{stored.directory.path}: {stored.state}" for stored in alone.runs]
    for shelf in (alone, *map(Shelf, folders)):
        look = _Look(StudyEngines(shelf.folder))
        states = Counter("missing" if look.is_nobodys(stored) else stored.state for stored in shelf.runs)
        if states and shelf is not alone:
            lines.append(f"{shelf.folder}: " + ", ".join(f"{count} {state}" for state, count in sorted(states.items())))
        lines += [*look.silences(), *shelf.damage_lines]
        for stored in shelf.runs:  # what lives and does not move
            since = still_since(stored.directory, stored.run.training.steps) if stored.state == "running" else None
            if since is not None:
                lines.append(f"{stored.directory.path}: {still_in_words(since)}")
    return lines or [f"{root}: no runs there; start them with `oelm run STUDY` or `oelm train`"]


# ---- Logs ----------------------------------------------------------------------------------------------------------


def find_run(name: str, root: Path) -> RunDirectory:
    """A run by its path, or by a name of a run under `root` as `meant_by` takes it."""
    path = Path(name)
    if is_run(path):
        return RunDirectory(path)
    folders = sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    listed = (run for folder in folders for run in run_directories(folder, unlisted=lambda damage: None))
    matches = meant_by(name, {run: run.relative_to(root).parts[0] for run in filter(is_run, listed)})
    if len(matches) == 1:
        return RunDirectory(matches[0])
    if matches:
        known = ", ".join(str(match) for match in matches[:5])
        studies = {match.relative_to(root).parts[0] for match in matches}
        more = "add its study, as STUDY/RUN" if len(studies) > 1 and "/" not in name else "give more of its name"
        raise UserError(f"run {name!r}: could be {known}{' or another' if matches[5:] else ''}; {more}")
    raise UserError(
        f"run {name!r}: no such run directory, and no run under {root}/ has a name that begins with it (`oelm status` "
        f"lists the studies, `oelm status STUDY` the runs)"
    )


def log_lines(directory: RunDirectory, *, lines: int, follow: bool) -> Iterator[str]:
    """The end of a run's log; with `follow`, whatever comes, until the run has ended."""
    file = directory.log_file if directory.log_file.exists() else directory.output_file
    if not file.exists():
        raise UserError(f"{directory.path}: no log yet (state: {(directory.status() or {}).get('state', 'unknown')})")
    with open(file, encoding="utf-8", errors="replace") as stream:
        yield from stream.read().splitlines()[-lines:]
        while follow:
            text = stream.readline()
            if text:
                yield text.rstrip("\n")
            elif (directory.status() or {}).get("state") in ("queued", "running"):
                time.sleep(FOLLOW_SECONDS)
            else:
                return
