"""The stored choices of a study's arms: which of them hold for the study as it is declared now, and what the tuning
runs that they rest on have become.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from oelm.config import fingerprint
from oelm.errors import UserError
from oelm.ownership import time_of
from oelm.run_directory import is_named_after
from oelm.study.decisions import (
    CARRIED_VALUES,
    CHOICES_FILE,
    TUNED_VALUES,
    Decision,
    RunUsed,
    add_decisions,
    choice_of,
    declaration_differences,
    read_decisions,
    tuned_values,
)
from oelm.study.declaration import SizedArm, Study, settings_for
from oelm.study.remarks import Remark, difference_text, sentence, some
from oelm.study.shelf import Shelf, StoredRun
from oelm.study.tuning import Choice, Grid, Point, Tried, chosen, point_text

if TYPE_CHECKING:
    from oelm.study.plan import Plan, PlannedRun

TUNING_SPLIT = "tune"
NOTHING = "that every point diverged"
OF_ARMS = (TUNED_VALUES, CARRIED_VALUES)  # kinds of decision about the values of an arm


@dataclass(frozen=True)
class KeptChoices:
    choices: dict[str, Choice] = field(default_factory=dict)  # of arms whose stored choice holds
    decisions: dict[str, Decision] = field(default_factory=dict)
    grid: Grid = field(default_factory=dict)  # every point that one of them was chosen among
    remarks: tuple[Remark, ...] = ()
    blocked: str | None = None  # why no run may be started


def kept_choices(study: Study, shelf: Shelf, *, data_digest: str | None) -> KeptChoices:
    """What choices.json holds for this study. With a digest, only what was chosen on that data."""
    try:
        stored = {each.subject: each for each in read_decisions(shelf.folder) if each.kind in OF_ARMS}
    except UserError as error:
        remark = "choices_damaged", {"line": str(error)}
        return KeptChoices(remarks=(remark,), blocked=sentence(*remark))
    kept, grids, outdated = {}, [], []
    for arm, decision in stored.items():
        if arm not in study.arms:
            continue
        differences = _differences(study, decision, data_digest)
        if differences:
            outdated.append((decision, differences))
            continue
        kept[arm], grid = choice_of(decision)
        grids.append(grid)
    remarks, blocked = _on_outdated(study, shelf, outdated)
    return KeptChoices(kept, {arm: stored[arm] for arm in kept}, _joined(grids), remarks, blocked)


def _differences(study: Study, decision: Decision, data_digest: str | None) -> list[str]:
    found = [difference_text(*each) for each in declaration_differences(decision.declaration, study, decision.subject)]
    if data_digest and decision.data_digest and decision.data_digest != data_digest:
        found.append(difference_text("data digest", decision.data_digest[:12], data_digest[:12]))
    return found


def _joined(grids: list[Grid]) -> Grid:
    keys = list(dict.fromkeys(key for grid in grids for key in grid))
    return {key: sorted({point for grid in grids for point in grid.get(key, [])}) for key in keys}


def _on_outdated(
    study: Study, shelf: Shelf, outdated: list[tuple[Decision, list[str]]]
) -> tuple[tuple[Remark, ...], str | None]:
    """A choice for another declaration gives way as long as no run used it; one that was used stops everything."""
    remarks: list[Remark] = []
    used: dict[str, list[Decision]] = {}
    for decision, differences in outdated:
        if any(_is_final_run_of(stored, study, decision.subject) for stored in shelf.runs):
            used.setdefault(some(differences), []).append(decision)
        else:
            facts = {"arm": decision.subject, "made": decision.made, "differences": some(differences)}
            remarks.append(("choice_replaced", facts))
    for difference, decisions in used.items():
        names = ", ".join(each.subject for each in decisions)
        facts = {"file": str(shelf.folder / CHOICES_FILE), "names": names, "made": decisions[0].made}
        remarks.append(("choices_other_declaration", facts | {"differences": difference}))
    blocked = [sentence(*remark) for remark in remarks if remark[0] == "choices_other_declaration"]
    return tuple(remarks), "\n".join(blocked) or None


def _is_final_run_of(stored: StoredRun, study: Study, arm: str) -> bool:
    if stored.state == "queued" or stored.run.training.validation_split == TUNING_SPLIT:
        return False
    has_one_size = not isinstance(study.arms[arm], SizedArm)  # else other runs are of the same arm
    is_alike = has_one_size and stored.run.arm == settings_for(study, arm, seed=0).run.arm
    return is_named_after(stored.name, arm) or is_alike


# ---- Against the runs as they are now ------------------------------------------------------------------------------


def with_early_runs(choice: Choice, runs: list[PlannedRun]) -> Choice:
    """The choice with the final runs that went by it and had started before it was stored, as the clocks tell; it may
    know of more itself.
    """
    made = time_of(choice.made)
    if made is None:
        return choice
    started = [run.stored.started for run in runs if run.arm == choice.arm and run.stored]
    early = sum(time < made for time in started if time is not None)
    return replace(choice, final_runs_then=max(choice.final_runs_then, early))


def stored_late(choices: Iterable[Choice]) -> Iterator[Remark]:
    late = [choice for choice in choices if choice.made and choice.final_runs_then]
    if late:
        runs = sum(choice.final_runs_then for choice in late)
        yield "choices_stored_late", {"made": min(choice.made or "" for choice in late), "runs": runs}


def second_thoughts(study: Study, kept: KeptChoices, tuning: list[PlannedRun], grid: Grid) -> Iterator[Remark]:
    """Where the tuning runs are no longer those that a choice was made from, or would choose otherwise."""
    by_arm: dict[str, list[PlannedRun]] = {arm: [] for arm in kept.choices}
    for run in tuning:
        if run.arm in by_arm:
            by_arm[run.arm].append(run)
    for arm, choice in kept.choices.items():
        facts = {"arm": arm, "chosen": _text(choice.best), "made": choice.made}
        now = _now(study, arm, by_arm[arm], grid)
        if now is not None and (now.best is None, now.values) != (choice.best is None, choice.values):
            yield "choice_contradicted", facts | {"now": _text(now.best)}
        elif changes := list(_changes(kept.decisions[arm], by_arm[arm])):
            yield "choice_runs_changed", facts | {"changes": some(changes)}


def _text(point: Point | None) -> str:
    return NOTHING if point is None else point_text(point)


def _now(study: Study, arm: str, runs: list[PlannedRun], grid: Grid) -> Choice | None:
    """What the runs say of the points that all seeds have finished."""
    criterion = study.tuning.criterion if study.tuning else None
    tried: dict[Point, list[Tried | None]] = {}
    for run in runs:
        tried.setdefault(run.point, []).append(run.tried(criterion))
    whole = {point: [each for each in found if each] for point, found in tried.items() if None not in found}
    return chosen(arm, whole, grid, by_solving=criterion is not None) if whole else None


def _changes(decision: Decision, runs: list[PlannedRun]) -> Iterator[str]:
    now = {(run.seed, frozenset(run.point)): run for run in runs}
    for used in decision.runs:
        run = now.get((used.seed, frozenset(used.values.items())))
        then = "diverged" if used.loss is None else f"loss {used.loss:.6g}"
        if run is None or run.loss is None:
            yield f"{used.name}: {then} then, {run.state if run else 'missing'} now"
        elif _loss(run) != used.loss:
            yield f"{used.name}: {then} then, " + ("diverged" if _loss(run) is None else f"{run.loss:.6g}") + " now"


def _loss(run: PlannedRun) -> float | None:
    return None if run.state == "diverged" else run.loss


# ---- Storing -------------------------------------------------------------------------------------------------------


def store_choices(plan: Plan, folder: Path, *, data_digest: str | None) -> list[Choice]:
    """Write down every choice of a plan that is not, and return those. For the owner of the study's lock."""
    fresh = [choice for choice in plan.choices.values() if choice.made is None]
    if fresh:
        add_decisions(folder, [_decision(plan, choice, data_digest) for choice in fresh])
    return fresh


def _decision(plan: Plan, choice: Choice, data_digest: str | None) -> Decision:
    used = [
        _used(run, run.stored)
        for run in plan.tuning
        if run.arm == choice.arm and run.point in choice.losses and run.stored
    ]
    begun = sum(run.state not in ("missing", "queued") for run in plan.by_arm[choice.arm])
    return tuned_values(plan.study, choice, grid=plan.grid, runs=used, data_digest=data_digest, final_runs_then=begun)


def _used(run: PlannedRun, stored: StoredRun) -> RunUsed:
    identity = fingerprint(run.resolved_run, data_digest=stored.data_digest or "")
    return RunUsed(name=stored.name, fingerprint=identity, seed=run.seed, values=dict(run.point), loss=_loss(run))
