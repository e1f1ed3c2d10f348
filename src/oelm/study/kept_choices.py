"""The stored choices of a study's arms: which of them hold for the study as it is declared now, and what the tuning
runs that they rest on have become.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from oelm.machine.errors import UserError
from oelm.machine.plurals import number_of
from oelm.run.directory import is_named_after
from oelm.storage.ownership import time_of
from oelm.study.decisions import (
    CARRIED_VALUES,
    CHOICES_FILE,
    TUNED_VALUES,
    TUNING_ROUND,
    Decision,
    RunUsed,
    add_decisions,
    change_of,
    choice_of,
    declaration_differences,
    read_decisions,
    round_of,
    run_used,
    tuned_values,
    tuning_round,
)
from oelm.study.declaration import SizedArm, Study
from oelm.study.halving import Round, judged
from oelm.study.one_run import settings_for
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
    rounds: dict[tuple[str, int], Round] = field(default_factory=dict)  # of halving, by arm and number
    grids: dict[str, list[Grid]] = field(default_factory=dict)  # by arm: what they were chosen among
    remarks: tuple[Remark, ...] = ()
    blocked: str | None = None  # why no run may be started


def kept_choices(study: Study, shelf: Shelf, *, data_digest: str | None) -> KeptChoices:
    """What choices.json holds for this study. With a digest, only what was chosen on that data."""
    try:
        decisions = read_decisions(shelf.folder)
    except UserError as error:
        remark = "choices_damaged", {"line": str(error)}
        return KeptChoices(remarks=(remark,), blocked=sentence(*remark))
    stored = {each.subject: each for each in decisions if each.kind in OF_ARMS}
    rounds, grids, on_rounds = _kept_rounds(study, decisions, data_digest)
    kept, outdated = {}, []
    for arm, decision in stored.items():
        if arm not in study.arms:
            continue
        differences = _differences(study, decision, arm, data_digest)
        if differences:
            outdated.append((decision, differences))
            continue
        kept[arm], grid = choice_of(decision)
        grids.setdefault(arm, []).append(grid)
    remarks, blocked = _on_outdated(study, shelf, outdated)
    return KeptChoices(kept, {arm: stored[arm] for arm in kept}, rounds, grids, (*on_rounds, *remarks), blocked)


def _kept_rounds(
    study: Study, decisions: list[Decision], data_digest: str | None
) -> tuple[dict[tuple[str, int], Round], dict[str, list[Grid]], list[Remark]]:
    """Those of the study as it is declared now: a round for another declaration was for other runs."""
    rounds, remarks = {}, []
    grids: dict[str, list[Grid]] = {}
    chosen_arms = {each.subject for each in decisions if each.kind == TUNED_VALUES}
    for decision in {each.subject: each for each in decisions if each.kind == TUNING_ROUND}.values():
        done, grid = round_of(decision)
        if done.arm not in study.arms:
            continue
        differences = _differences(study, decision, done.arm, data_digest)
        if not differences:
            rounds[done.arm, done.number] = done
            grids.setdefault(done.arm, []).append(grid)
        elif done.arm not in chosen_arms:  # of whose choice the same is said
            remarks.append(_replaced(decision, differences))
    return rounds, grids, remarks


def _replaced(decision: Decision, differences: list[str]) -> Remark:
    return "choice_replaced", {"arm": decision.subject, "made": decision.made, "differences": some(differences)}


def _differences(study: Study, decision: Decision, arm: str, data_digest: str | None) -> list[str]:
    found = [difference_text(*each) for each in declaration_differences(decision.declaration, study, arm)]
    return [*found, *decision.made_from_other(data_digest)]


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
            remarks.append(_replaced(decision, differences))
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


def second_thoughts(
    study: Study, kept: KeptChoices, tuning: list[PlannedRun], grids: dict[str, Grid]
) -> Iterator[Remark]:
    """Where the tuning runs are no longer those that a choice was made from, or would choose otherwise."""
    by_arm: dict[str, list[PlannedRun]] = {arm: [] for arm in kept.choices}
    for run in tuning:
        if run.arm in by_arm and study.tuning and run.budget == study.tuning.rounds[-1]:
            by_arm[run.arm].append(run)
    yield from _rounds_contradicted(study, kept, tuning)
    for arm, choice in kept.choices.items():
        facts = {"arm": arm, "chosen": point_text(choice.best) if choice.best else NOTHING, "made": choice.made}
        now = _now(study, arm, by_arm[arm], grids.get(arm, {}))
        if now is not None and (now.best is None, now.values) != (choice.best is None, choice.values):
            yield "choice_contradicted", facts | {"now": point_text(now.best) if now.best else NOTHING}
            continue
        runs = {(run.seed, frozenset(run.point)): run for run in by_arm[arm]}
        used = ((each, (each.seed, frozenset(each.values.items()))) for each in kept.decisions[arm].runs)
        if changes := [change for each, at in used if (change := change_of(each, runs.get(at))) is not None]:
            yield "choice_runs_changed", facts | {"changes": some(changes)}


def _rounds_contradicted(study: Study, kept: KeptChoices, tuning: list[PlannedRun]) -> Iterator[Remark]:
    """Where the runs of a stored round would now drop other values."""
    budgets = dict(enumerate(study.tuning.rounds if study.tuning else [], start=1))
    for (arm, number), done in kept.rounds.items():
        losses: dict[Point, list[float | None]] = {}
        for run in tuning:
            if run.arm == arm and run.budget == budgets.get(number):
                losses.setdefault(run.point, []).append(run.loss)
        whole = {point: [each for each in own if each is not None] for point, own in losses.items() if None not in own}
        if whole.keys() == done.losses.keys():
            again = judged(arm, number, steps=done.steps, losses=whole, margin=done.margin)
            if set(again.dropped) != set(done.dropped):
                now = ", ".join(map(point_text, again.dropped)) or "none"
                yield "round_contradicted", {"arm": arm, "number": number, "made": done.made, "now": now}


def _now(study: Study, arm: str, runs: list[PlannedRun], grid: Grid) -> Choice | None:
    """What the runs say of the points that all seeds have finished."""
    assert study.tuning is not None
    tried: dict[Point, list[Tried | None]] = {}
    for run in runs:
        tried.setdefault(run.point, []).append(run.tried(study.tuning.criterion))
    whole = {point: [each for each in found if each] for point, found in tried.items() if None not in found}
    return chosen(arm, whole, grid, study.tuning) if whole else None


# ---- Storing -------------------------------------------------------------------------------------------------------


def store_choices(plan: Plan, folder: Path, *, data_digest: str | None) -> list[Round | Choice]:
    """Write down what each round and each choice of a plan says that is not, and return those. For the owner of the
    study's lock."""
    study, tuning = plan.study, plan.study.tuning
    budgets = tuning.rounds if tuning else []

    def used(arm: str, points: Container[Point], budget: float | None) -> list[RunUsed]:
        runs = (run for run in plan.tuning if run.arm == arm and run.point in points and run.budget == budget)
        return [run_used(run) for run in runs if run.stored]

    made: list[Decision] = []
    rounds = [done for done in plan.rounds if done.made is None]
    for done in rounds:
        arm, later = done.arm, budgets[done.number :]
        about = {"data_digest": data_digest, "runs": used(arm, done.losses, budgets[done.number - 1])}
        begun = sum(run.arm == arm and run.budget in later and run.has_begun for run in plan.tuning)
        made.append(tuning_round(study, done, grid=plan.grids[arm], final_runs_then=begun, **about))
    choices = [choice for choice in plan.choices.values() if choice.made is None]
    for choice in choices:
        about = {"data_digest": data_digest, "runs": used(choice.arm, choice.losses, budgets[-1])}
        begun = sum(run.has_begun for run in plan.by_arm[choice.arm])
        grid = plan.grids.get(choice.arm, {})  # none of an arm whose values are carried over
        made.append(tuned_values(study, choice, grid=grid, final_runs_then=begun, **about))
    if made:
        add_decisions(folder, made)
    return [*rounds, *choices]


def decided_line(made: Round | Choice) -> str:
    """What is said when it is stored."""
    if isinstance(made, Round):
        kept = f"{len(made.kept)} of {number_of(len(made.behind), 'value')} get the next budget"
        dropped = ", ".join(map(point_text, made.dropped))
        return f"round {made.number} ({made.steps} steps): {kept}" + (f", dropped: {dropped}" if dropped else "")
    return f"{point_text(made.best) if made.best else 'nothing, as every point diverged'}: chosen"
