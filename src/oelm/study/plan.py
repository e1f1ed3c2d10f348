"""Which runs a study wants, given what is there: first the grid for every arm, then every seed with the chosen values.

A pure function of the declaration, the stored runs and the stored choices, so that a controller that died has forgotten
nothing. What was chosen once is not chosen again.
"""

from __future__ import annotations

import datetime
import itertools
import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from oelm.core.config import ResolvedRun, Run, Settings, as_far_as_known, resolved
from oelm.core.probes.probe import is_probe, probe_of
from oelm.core.solving import Criterion
from oelm.data.prepared import digest_here, facts_here
from oelm.machine.errors import UserError
from oelm.run.directory import TUNING_FOLDER, RunDirectory, folder_name
from oelm.study.carrying import tuned_together, with_carried
from oelm.study.declaration import Study, Tuning
from oelm.study.halving import Round, judged
from oelm.study.kept_choices import KeptChoices, kept_choices, second_thoughts, stored_late, with_early_runs
from oelm.study.kept_looks import Look, SeedsOfArm, against_runs, kept_looks, seeds_of_arm
from oelm.study.one_run import settings_for
from oelm.study.remarks import Remark
from oelm.study.shelf import Shelf, StoredRun, computation
from oelm.study.tuning import Choice, Grid, Point, Tried, chosen, extended, joined, neighbours, point_text, points_of

Digests = dict[str, str]  # by the folder, as the study names it


def data_folders(study: Study) -> list[str]:
    """The baseline's first: it decides what the model is."""
    arms = [study.baseline, *study.arms]
    stages = (False, True) if study.tuning else (False,)
    runs = (settings_for(study, arm, seed=study.seeds[0], tuning=tuning).run for tuning in stages for arm in arms)
    return list(dict.fromkeys(run.data for run in runs))


def digests_here(folders: list[str]) -> Digests:
    found = {each: probe_of(each).digest if is_probe(each) else digest_here(Path(each)) for each in folders}
    return {folder: digest for folder, digest in found.items() if digest is not None}


def facts_of_data(folder: str) -> dict[str, Any]:
    """What the data say of the model; nothing where they are not here."""
    return {"vocabulary": probe_of(folder).vocabulary} if is_probe(folder) else facts_here(Path(folder))


Stage = Literal["tuning", "final"]
# Of a study with looks: needed now, needed if a look decides nothing, or no longer needed.
Need = Literal["now", "after_a_look", "never"]
UNSTARTED: dict[Need, str] = {"now": "missing", "after_a_look": "waiting", "never": "not_needed"}


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study, and the directory that holds it if there is one."""

    arm: str
    seed: int
    stage: Stage
    point: Point
    settings: Settings
    processes: int
    stored: StoredRun | None
    data_digest: str | None = None  # of the data that it is made from, where that is known
    need: Need = "now"
    budget: float | None = None  # of a round of halving, as declared

    @property
    def run(self) -> Run:
        """A ResolvedRun where the data, or a stored run, has said what the study leaves to it."""
        return self.settings.run

    @property
    def resolved_run(self) -> ResolvedRun:
        return resolved(self.settings.run)

    @property
    def state(self) -> str:
        """Of a run that is not needed only what it is doing, or has come to."""
        counts = self.stored and (self.need != "never" or self.stored.state in ("finished", "diverged", "running"))
        return self.stored.state if self.stored and counts else UNSTARTED[self.need]

    @property
    def has_begun(self) -> bool:
        return self.stored is not None and self.stored.state != "queued"

    @property
    def has_ended(self) -> bool:
        return self.state in ("finished", "diverged")

    @property
    def loss(self) -> float | None:
        """Final validation loss; infinite for a diverged run; None while there is none."""
        if self.state == "diverged":
            return math.inf
        return self.stored.result.get("val_loss") if self.stored and self.stored.result else None

    def tried(self, criterion: Criterion | None) -> Tried | None:
        """What a tuning run came to, also by when it counts as solved; None while it has no result."""
        if self.loss is None or self.stored is None:
            return None
        solved = self.stored.solved(criterion) if criterion else None
        return Tried(self.loss, solved is not None, solved.by if solved else self.run.training.steps)

    @property
    def title(self) -> str:
        point = f" {point_text(self.point)}" if self.stage == "tuning" else ""
        steps = "" if self.budget is None else f" steps={self.run.training.steps}"
        return f"{self.arm} s{self.seed}{point}{steps}"

    def folder_name(self, data_digest: str) -> str:
        return folder_name(self.resolved_run, arm=self.arm, seed=self.seed, data_digest=data_digest)

    def directory(self, folder: Path, *, data_digest: str) -> RunDirectory:
        """Where the run is, or will be, under the study's folder. The digest is taken where its own is not known."""
        if self.stored is not None:
            return self.stored.directory
        parent = folder / TUNING_FOLDER if self.stage == "tuning" else folder
        return RunDirectory(parent / self.folder_name(self.data_digest or data_digest))


@dataclass(frozen=True)
class Plan:
    study: Study
    tuning: list[PlannedRun]
    final: list[PlannedRun]  # of the arms that have their values
    choices: dict[str, Choice]
    grids: dict[str, Grid] = field(default_factory=dict)  # of every arm that is tuned, with the points that were added
    remarks: tuple[Remark, ...] = ()  # on the stored choices
    blocked: str | None = None  # why no run may be started
    facts: dict[str, Any] = field(default_factory=dict)  # what the data says of the model
    digests: Digests = field(default_factory=dict)  # of the data that its runs are made from
    looks: tuple[Look, ...] = ()  # that were taken and stored
    rounds: tuple[Round, ...] = ()  # of halving: those that are over, before the last

    @property
    def runs(self) -> list[PlannedRun]:
        return [*self.tuning, *self.final]

    @property
    def grid(self) -> Grid:
        """Every point that an arm has."""
        return joined(self.grids.values())

    @property
    def later_rounds(self) -> list[PlannedRun]:
        """Tuning runs that go by what an earlier round dropped."""
        first = self.study.tuning.rounds[0] if self.study.tuning else None
        return [run for run in self.tuning if run.budget != first]

    @property
    def last_round(self) -> list[PlannedRun]:
        """Tuning runs that values are chosen by."""
        last = self.study.tuning.rounds[-1] if self.study.tuning else None
        return [run for run in self.tuning if run.budget == last]

    @property
    def is_tuned(self) -> bool:
        return all(map(self.has_values, self.study.arms))

    def has_values(self, arm: str) -> bool:
        """Whether the values of an arm's final runs are known."""
        return self.study.tuning is None or arm in self.choices

    @cached_property
    def by_arm(self) -> dict[str, list[PlannedRun]]:
        return {arm: [run for run in self.final if run.arm == arm] for arm in self.study.arms}

    @property
    def expected_final_runs(self) -> int:
        """As many as may still be needed."""
        return len(self.study.arms) * len(self.study.seeds) - len(self.saved)

    @property
    def is_done(self) -> bool:
        """Whether every run that is needed has ended."""
        return self.is_tuned and all(run.has_ended or run.state == "not_needed" for run in self.runs)

    @property
    def saved(self) -> list[PlannedRun]:
        """Final runs that are not needed, because looks decided every claim about their arms before."""
        return [run for run in self.final if run.state == "not_needed"]

    def seeds_of(self, arm: str) -> SeedsOfArm:
        return seeds_of_arm(self.study, self.looks, arm)


def planned(study: Study, shelf: Shelf, *, facts: dict[str, Any] | None = None, data_digest: str | None = None) -> Plan:
    """The runs of a study, all made from the same data: from those with this digest, or from those that lie where the
    study says. Of data that are not here, those count that most of the runs were made from, and of as many the latest.
    """
    first, *_ = folders = data_folders(study)
    digests = {first: data_digest} if data_digest else digests_here(folders)

    def plan(digests: Digests) -> Plan:
        known = facts or shelf.facts_from(digests.get(first)) or facts_of_data(first)
        return Planner(study, known, digests).plan(shelf)

    stored = shelf.data_digests
    for folder in folders:
        if folder not in digests and stored:
            possible = [digests | {folder: digest} for digest in stored]
            digests = max(possible, key=lambda each: _runs_from(folder, plan(each))) if possible[1:] else possible[0]
    return plan(digests)


def _runs_from(folder: str, plan: Plan) -> tuple[int, int, datetime.datetime]:
    """How many runs of a plan are of the data that it takes for this folder's, and when the last of them was made."""
    stored = [run.stored for run in plan.runs if run.run.data == folder and run.stored and run.stored.data_digest]
    last = max(filter(None, (each.started for each in stored)), default=NEVER)
    return sum(each.ended is not None for each in stored), len(stored), last


NEVER = datetime.datetime.min.replace(tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Planner:
    """Plans one study again and again: what a run is, is worked out once, what is stored is looked up each time."""

    study: Study
    facts: dict[str, Any]
    digests: Digests  # of the data, as far as they are known; of other data the stored runs' own are believed
    known: dict[tuple[str, int, Stage, Point, float | None], tuple[Settings, str]] = field(
        default_factory=dict
    )  # with the identity of the computation

    def plan(self, shelf: Shelf) -> Plan:
        maker, study = _Maker(self, shelf), self.study
        if study.tuning is None:
            final = maker.final(dict.fromkeys(study.arms, ()))
            plan = Plan(study, [], final, {}, facts=self.facts, digests=self.digests)
            return self._by_looks(plan, shelf.folder)
        kept = kept_choices(study, shelf, data_digest=self.digests.get(self._data_of_baseline))
        tuned, grids = _Tuned([], [], {}, []), dict[str, Grid]()
        for arms in tuned_together(study):
            own, grid = maker.on_a_grid(study.tuning, arms, kept)
            tuned = _Tuned([*tuned.runs, *own.runs], [*tuned.rounds, *own.rounds], tuned.choices | own.choices, [])
            grids |= dict.fromkeys(arms, grid)
        known = with_carried(study, kept.choices | tuned.choices)
        points = {arm: known[arm].best for arm in study.arms if arm in known}
        final = maker.final({arm: best for arm, best in points.items() if best is not None})
        choices = {arm: with_early_runs(known[arm], final) for arm in points}
        remarks = (*kept.remarks, *second_thoughts(study, kept, tuned.runs, grids), *stored_late(choices.values()))
        plan = Plan(
            study, tuned.runs, final, choices, grids, remarks, kept.blocked, self.facts, self.digests,
            rounds=tuple(tuned.rounds),
        )  # fmt: skip
        return self._by_looks(plan, shelf.folder)

    def _by_looks(self, plan: Plan, folder: Path) -> Plan:
        """The plan with what the stored looks say of its final runs."""
        study = self.study
        if plan.blocked:
            return plan
        kept = kept_looks(study, folder, data_digest=self.digests.get(self._data_of_baseline))
        if not study.looks:
            return replace(plan, remarks=(*plan.remarks, *kept.remarks), blocked=kept.blocked)
        kept = against_runs(kept, [run for run in plan.final if isinstance(run.run, ResolvedRun)], folder)
        seeds = {arm: seeds_of_arm(study, kept.looks, arm) for arm in study.arms}
        place = {seed: number for number, seed in enumerate(study.seeds)}

        def need(run: PlannedRun) -> Need:
            of_arm = seeds[run.arm]
            if place[run.seed] < of_arm.needed:
                return "now"
            return "after_a_look" if of_arm.decided_at is None else "never"

        return replace(
            plan,
            final=[replace(run, need=need(run)) for run in plan.final],
            looks=kept.looks,
            remarks=(*plan.remarks, *kept.remarks),
            blocked=kept.blocked,
        )

    @property
    def _data_of_baseline(self) -> str:
        return self.settings(self.study.baseline, self.study.seeds[0], "final", ())[0].run.data

    def final_at_base(self, plan: Plan) -> list[PlannedRun]:
        """The final runs that wait for tuning, with the base's own values: what they cost is known before. With looks,
        those that the first one needs."""
        needed = {arm: plan.seeds_of(arm).needed for arm in self.study.arms if not plan.has_values(arm)}
        return [
            PlannedRun(arm, seed, "final", (), settings, self.study.arms[arm].processes, None)
            for place, seed in enumerate(self.study.seeds)
            for arm in needed
            for settings, _ in [self.settings(arm, seed, "final", ())]
            if place < needed[arm]
        ]

    def settings(
        self, arm: str, seed: int, stage: Stage, point: Point, budget: float | None = None
    ) -> tuple[Settings, str]:
        key = arm, seed, stage, point, budget
        if key not in self.known:
            tuning = stage == "tuning"
            settings = settings_for(self.study, arm, seed=seed, values=dict(point), tuning=tuning, budget=budget)
            run = as_far_as_known(settings.run, self.facts)
            identity = computation(run) if isinstance(run, ResolvedRun) else ""
            self.known[key] = settings.model_copy(update={"run": run}), identity
        return self.known[key]


@dataclass(frozen=True)
class _Maker:
    planner: Planner
    shelf: Shelf

    def on_a_grid(self, declared: Tuning, arms: list[str], kept: KeptChoices) -> tuple[_Tuned, Grid]:
        """How far these arms have come, and their grid: an optimum of one of them at an end adds a point for all."""
        grid = joined([declared.grid, *(grid for arm in arms for grid in kept.grids.get(arm, []))])
        while True:
            tuned = self.tuned(declared, arms, grid, kept)
            larger = extended(declared, grid, tuned.on_the_grid)
            if larger == grid or not self.allows(larger, arms):
                return tuned, grid
            grid = larger

    def tuned(self, declared: Tuning, arms: list[str], grid: Grid, kept: KeptChoices) -> _Tuned:
        """Round by round, as far as the runs have come; a grid is the last round and the only one."""
        *earlier, last = declared.rounds
        tuned = _Tuned([], [], {}, [])
        points = dict.fromkeys(arms, points_of(grid))
        for number, budget in enumerate(earlier, start=1):
            stored = {arm: kept.rounds[arm, number] for arm in points if (arm, number) in kept.rounds}
            points |= {arm: list(done.losses) for arm, done in stored.items()}
            runs = self.tuning(declared, points, budget)
            tuned.runs.extend(runs)
            found = _tried([arm for arm in points if arm not in stored], runs, None)
            if found is None:
                return tuned
            done = dict(stored)
            for arm, tried in found.items():
                steps = next(run.run.training.steps for run in runs if run.arm == arm)
                losses = {at: [each.loss for each in own] for at, own in tried.items()}
                done[arm] = judged(arm, number, steps=steps, losses=losses, margin=declared.margin)
            tuned.rounds.extend(done[arm] for arm in points)
            points = {arm: list(done[arm].kept) for arm in points}
            if number == 1:
                tuned.on_the_grid.extend(point for arm in found for point in points[arm])
        points |= {
            arm: list(dict.fromkeys([*points[arm], *kept.choices[arm].losses])) for arm in points if arm in kept.choices
        }
        open_arms = [arm for arm in arms if arm not in kept.choices]
        return self._with_choices(tuned, declared, grid, points, open_arms, last)

    def _with_choices(
        self,
        tuned: _Tuned,
        declared: Tuning,
        grid: Grid,
        points: dict[str, list[Point]],
        open_arms: list[str],
        budget: float | None,
    ) -> _Tuned:
        """The last round. A curve needs the neighbours of the best: those that were dropped get the last budget too."""
        runs = self.tuning(declared, points, budget)
        # Nothing while a run of one arm is unfinished, because an extension concerns all arms.
        tried = _tried(open_arms, runs, declared.criterion) or {}
        choices = {arm: chosen(arm, by_point, grid, declared) for arm, by_point in tried.items()}
        if declared.choose == "fitted":
            found = {arm: choice.best_tried for arm, choice in choices.items() if choice.best_tried is not None}
            beside = {arm: [*points[arm], *neighbours(best, grid)] for arm, best in found.items()}
            enlarged = points | {arm: sorted(set(each)) for arm, each in beside.items()}
            if any(len(enlarged[arm]) > len(points[arm]) for arm in found):
                return self._with_choices(tuned, declared, grid, enlarged, open_arms, budget)
        best = [choice.best_tried for choice in choices.values() if choice.best_tried is not None]
        at_ends = tuned.on_the_grid if tuned.rounds else best
        return _Tuned([*tuned.runs, *runs], tuned.rounds, choices, at_ends)

    def tuning(self, declared: Tuning, points: dict[str, list[Point]], budget: float | None) -> list[PlannedRun]:
        """Seed by seed and point by point, in the order of the points of all arms."""
        every = sorted(set().union(*points.values()))
        places = itertools.product(declared.seeds, every, points)
        return [self._run(arm, seed, "tuning", point, budget) for seed, point, arm in places if point in points[arm]]

    def allows(self, grid: Grid, arms: list[str]) -> bool:
        """Whether every point is a valid config: an added one may be more warm-up than there are steps."""
        try:
            for end, arm in itertools.product((min, max), arms):
                point = {key: end(points) for key, points in grid.items()}
                settings_for(self.planner.study, arm, seed=0, values=point, tuning=True)
        except UserError:
            return False
        return True

    def final(self, points: dict[str, Point]) -> list[PlannedRun]:
        """Of these arms, seed by seed, so that a study stopped half-way holds whole pairs."""
        seeds = self.planner.study.seeds
        return [self._run(arm, seed, "final", point) for seed in seeds for arm, point in points.items()]

    def _run(self, arm: str, seed: int, stage: Stage, point: Point, budget: float | None = None) -> PlannedRun:
        settings, identity = self.planner.settings(arm, seed, stage, point, budget)
        digest = self.planner.digests.get(settings.run.data)
        stored = self.shelf.computed(identity, data_digest=digest) if identity else None
        processes = self.planner.study.arms[arm].processes
        return PlannedRun(arm, seed, stage, point, settings, processes, stored, digest, budget=budget)


@dataclass(frozen=True)
class _Tuned:
    """How far tuning has come, of arms that have one grid or of all."""

    runs: list[PlannedRun]
    rounds: list[Round]
    choices: dict[str, Choice]  # of arms without a stored one, when all that have one grid are tuned
    on_the_grid: list[Point]  # where one of these lies at an end of the grid, it grows


def paired(treatment: list[PlannedRun], control: list[PlannedRun]) -> list[tuple[PlannedRun, PlannedRun]]:
    """Runs of two arms that belong together: of one seed."""
    one, other = ({run.seed: run for run in runs} for runs in (treatment, control))
    return [(one[seed], other[seed]) for seed in sorted(one.keys() & other.keys())]


def _tried(
    arms: list[str], tuning: list[PlannedRun], criterion: Criterion | None
) -> dict[str, dict[Point, list[Tried]]] | None:
    """By arm, point and seed; None while a run is unfinished."""
    found: dict[str, dict[Point, list[Tried]]] = {arm: {} for arm in arms}
    for run in tuning:
        if run.arm in found:
            tried = run.tried(criterion)
            if tried is None:
                return None
            found[run.arm].setdefault(run.point, []).append(tried)
    return found
