"""Which runs a study wants, given what is there: first the grid for every arm, then every seed with the chosen values.

A pure function of the declaration, the stored runs and the stored choices, so that a controller that died has forgotten
nothing. What was chosen once is not chosen again.
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from oelm.claims.solving import Criterion
from oelm.config import ResolvedRun, Run, Settings, as_far_as_known, resolved
from oelm.errors import UserError
from oelm.run_directory import TUNING_FOLDER, RunDirectory, folder_name
from oelm.study.carrying import tuned_arms, with_carried
from oelm.study.data_here import Digests, data_folders, digests_here
from oelm.study.declaration import Study, Tuning, draws_of, settings_for
from oelm.study.kept_choices import KeptChoices, kept_choices, second_thoughts, stored_late, with_early_runs
from oelm.study.remarks import Remark
from oelm.study.shelf import Shelf, StoredRun, computation
from oelm.study.tuning import Choice, Grid, Point, Tried, chosen, extended, point_text

Stage = Literal["tuning", "final"]


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
    draw: int = 0  # of what its arm treats, within the seed

    @property
    def run(self) -> Run:
        """A ResolvedRun where the data, or a stored run, has said what the study leaves to it."""
        return self.settings.run

    @property
    def resolved_run(self) -> ResolvedRun:
        return resolved(self.settings.run)

    @property
    def state(self) -> str:
        return self.stored.state if self.stored else "missing"

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
        draw = f" d{self.draw}" if self.draw else ""
        return f"{self.arm} s{self.seed}{draw}" + (f" {point_text(self.point)}" if self.stage == "tuning" else "")

    def folder_name(self, data_digest: str) -> str:
        return folder_name(self.resolved_run, arm=self.arm, seed=self.seed, draw=self.draw, data_digest=data_digest)

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
    draws: dict[str, int]  # of each arm: how many final runs each of its seeds has
    grid: Grid = field(default_factory=dict)  # with the points that were added
    remarks: tuple[Remark, ...] = ()  # on the stored choices
    blocked: str | None = None  # why no run may be started
    facts: dict[str, Any] = field(default_factory=dict)  # what the data says of the model
    digests: Digests = field(default_factory=dict)  # of the data that its runs are made from

    @property
    def runs(self) -> list[PlannedRun]:
        return [*self.tuning, *self.final]

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
        return sum(self.draws.values()) * len(self.study.seeds)


def planned(study: Study, shelf: Shelf, *, facts: dict[str, Any] | None = None, data_digest: str | None = None) -> Plan:
    """The runs of a study, all made from the same data: from those with this digest, or from those that lie where the
    study says. Of data that are not here, those count that most of the runs were made from, and of as many the latest.
    """
    first, *_ = folders = data_folders(study)
    digests = {first: data_digest} if data_digest else digests_here(folders)

    def plan(digests: Digests) -> Plan:
        return Planner(study, facts or shelf.facts_from(digests.get(first)), digests).plan(shelf)

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
    known: dict[tuple[str, int, int, Stage, Point], tuple[Settings, str]] = field(
        default_factory=dict
    )  # with the identity of the computation
    known_draws: dict[tuple[str, Point], int] = field(default_factory=dict)

    def plan(self, shelf: Shelf) -> Plan:
        maker, study = _Maker(self, shelf), self.study
        if study.tuning is None:
            final = maker.final(dict.fromkeys(study.arms, ()))
            return Plan(study, [], final, {}, self.draws({}), facts=self.facts, digests=self.digests)
        kept = kept_choices(study, shelf, data_digest=self.digests.get(self._data_of_baseline))
        open_arms = [arm for arm in tuned_arms(study) if arm not in kept.choices]
        grid = {key: sorted({*points, *kept.grid.get(key, ())}) for key, points in study.tuning.grid.items()}
        while True:
            tuning = maker.tuning(study.tuning, grid)
            fresh = _chosen(open_arms, tuning, grid, study.tuning.criterion)
            larger = extended(study.tuning, grid, fresh)
            if larger == grid or not maker.allows(larger):
                return self._planned(maker, kept, fresh, tuning, grid)
            grid = larger

    def _planned(
        self, maker: _Maker, kept: KeptChoices, fresh: dict[str, Choice], tuning: list[PlannedRun], grid: Grid
    ) -> Plan:
        known = with_carried(self.study, kept.choices | fresh)
        points = {arm: known[arm].best for arm in self.study.arms if arm in known}
        points_found = {arm: best for arm, best in points.items() if best is not None}
        final = maker.final(points_found)
        choices = {arm: with_early_runs(known[arm], final) for arm in points}
        remarks = (*kept.remarks, *second_thoughts(self.study, kept, tuning, grid), *stored_late(choices.values()))
        draws = self.draws(points_found)
        return Plan(self.study, tuning, final, choices, draws, grid, remarks, kept.blocked, self.facts, self.digests)

    def draws(self, points: dict[str, Point]) -> dict[str, int]:
        """How many final runs each seed of an arm has."""
        return {arm: self.draws_of(arm, points.get(arm, ())) for arm in self.study.arms}

    def draws_of(self, arm: str, point: Point) -> int:
        if (arm, point) not in self.known_draws:
            self.known_draws[arm, point] = draws_of(self.study, arm, dict(point))
        return self.known_draws[arm, point]

    @property
    def _data_of_baseline(self) -> str:
        return self.settings(self.study.baseline, self.study.seeds[0], 0, "final", ())[0].run.data

    def final_at_base(self, plan: Plan) -> list[PlannedRun]:
        """The final runs that wait for tuning, with the base's own values: what they cost is known before."""
        return [
            PlannedRun(arm, seed, "final", (), settings, self.study.arms[arm].processes, None, draw=draw)
            for arm, seed, draw in self.final_runs({arm: () for arm in self.study.arms if not plan.has_values(arm)})
            for settings, _ in [self.settings(arm, seed, draw, "final", ())]
        ]

    def final_runs(self, points: dict[str, Point]) -> Iterator[tuple[str, int, int]]:
        """Arm, seed and draw: seed by seed and draw by draw, so that a study stopped half-way holds whole pairs."""
        draws = {arm: self.draws_of(arm, point) for arm, point in points.items()}
        for seed in self.study.seeds:
            for draw in range(max(draws.values(), default=0)):
                yield from ((arm, seed, draw) for arm, of_arm in draws.items() if draw < of_arm)

    def settings(self, arm: str, seed: int, draw: int, stage: Stage, point: Point) -> tuple[Settings, str]:
        key = arm, seed, draw, stage, point
        if key not in self.known:
            settings = settings_for(self.study, arm, seed=seed, draw=draw, values=dict(point), tuning=stage == "tuning")
            run = as_far_as_known(settings.run, self.facts)
            identity = computation(run) if isinstance(run, ResolvedRun) else ""
            self.known[key] = settings.model_copy(update={"run": run}), identity
        return self.known[key]


@dataclass(frozen=True)
class _Maker:
    planner: Planner
    shelf: Shelf

    @property
    def study(self) -> Study:
        return self.planner.study

    def tuning(self, declared: Tuning, grid: Grid) -> list[PlannedRun]:
        points = [tuple(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
        return [
            self._run(arm, seed, 0, "tuning", point)
            for seed in declared.seeds
            for point in points
            for arm in tuned_arms(self.study)
        ]

    def allows(self, grid: Grid) -> bool:
        """Whether every point is a valid config: an added one may be more warm-up than there are steps."""
        try:
            for end, arm in itertools.product((min, max), self.study.arms):
                point = {key: end(points) for key, points in grid.items()}
                settings_for(self.study, arm, seed=0, values=point, tuning=True)
        except UserError:
            return False
        return True

    def final(self, points: dict[str, Point]) -> list[PlannedRun]:
        """Of these arms."""
        return [self._run(arm, seed, draw, "final", points[arm]) for arm, seed, draw in self.planner.final_runs(points)]

    def _run(self, arm: str, seed: int, draw: int, stage: Stage, point: Point) -> PlannedRun:
        settings, identity = self.planner.settings(arm, seed, draw, stage, point)
        digest = self.planner.digests.get(settings.run.data)
        stored = self.shelf.computed(identity, data_digest=digest) if identity else None
        return PlannedRun(arm, seed, stage, point, settings, self.study.arms[arm].processes, stored, digest, draw)


def paired_draws(treatment: list[PlannedRun], control: list[PlannedRun]) -> list[tuple[PlannedRun, PlannedRun]]:
    """Runs of two arms that belong together: of one seed, and of one draw unless one of the arms has only the first."""
    by_place = [{(run.seed, run.draw): run for run in runs} for runs in (treatment, control)]
    several = [any(draw for _, draw in places) for places in by_place]
    places = sorted(by_place[0].keys() | by_place[1].keys())
    own = [[(seed, draw if many else 0) for seed, draw in places] for many in several]
    pairs = [(by_place[0].get(one), by_place[1].get(other)) for one, other in zip(*own, strict=True)]
    return [(one, other) for one, other in pairs if one and other]


def _chosen(arms: list[str], tuning: list[PlannedRun], grid: Grid, criterion: Criterion | None) -> dict[str, Choice]:
    """Each arm's best point; nothing while a run of one is unfinished, because an extension concerns all arms."""
    found: dict[str, dict[Point, list[Tried]]] = {arm: {} for arm in arms}
    for run in tuning:
        if run.arm in found:
            tried = run.tried(criterion)
            if tried is None:
                return {}
            found[run.arm].setdefault(run.point, []).append(tried)
    by_solving = criterion is not None
    return {arm: chosen(arm, by_point, grid, by_solving=by_solving) for arm, by_point in found.items()}
