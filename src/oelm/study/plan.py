"""Which runs a study wants, given what is there: first the grid for every arm, then every seed with the chosen values.

A pure function of the declaration and the stored runs, so that a controller that died has forgotten nothing.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from oelm.config import Run, Settings, fingerprint, resolved
from oelm.errors import UserError
from oelm.run_directory import RunDirectory
from oelm.study.declaration import Study, Tuning, settings_for
from oelm.study.shelf import TUNING_FOLDER, Shelf, StoredRun, computation

Stage = Literal["tuning", "final"]
Point = tuple[tuple[str, float], ...]  # grid keys and values


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

    @property
    def run(self) -> Run:
        return self.settings.run

    @property
    def state(self) -> str:
        return self.stored.state if self.stored else "missing"

    @property
    def loss(self) -> float | None:
        """Final validation loss; infinite for a diverged run; None while there is none."""
        if self.state == "diverged":
            return math.inf
        return self.stored.result.get("val_loss") if self.stored and self.stored.result else None

    @property
    def title(self) -> str:
        values = " ".join(f"{key.rpartition('.')[2]}={value:g}" for key, value in self.point)
        return f"{self.arm} s{self.seed}" + (f" {values}" if self.stage == "tuning" else "")

    def folder_name(self, data_digest: str) -> str:
        return f"{self.arm}-s{self.seed}-{fingerprint(self.run, data_digest=data_digest)}"

    def directory(self, folder: Path, *, data_digest: str) -> RunDirectory:
        """Where the run is, or will be, under the study's folder."""
        if self.stored is not None:
            return self.stored.directory
        parent = folder / TUNING_FOLDER if self.stage == "tuning" else folder
        return RunDirectory(parent / self.folder_name(data_digest))


@dataclass(frozen=True)
class Choice:
    """What tuning says about one arm."""

    arm: str
    losses: dict[Point, float]  # mean over the tuning seeds; infinite where one diverged
    best: Point | None  # None: every point diverged, or not all are finished
    edges: tuple[str, ...] = ()  # keys whose best value is still the smallest or largest tried

    @property
    def values(self) -> dict[str, float]:
        return dict(self.best or ())


@dataclass(frozen=True)
class Plan:
    study: Study
    tuning: list[PlannedRun]
    final: list[PlannedRun]  # empty until tuning is over
    choices: dict[str, Choice]
    grid: dict[str, list[float]] = field(default_factory=dict)  # with the points that were added

    @property
    def runs(self) -> list[PlannedRun]:
        return [*self.tuning, *self.final]

    @property
    def is_tuned(self) -> bool:
        return self.study.tuning is None or bool(self.choices)

    @cached_property
    def by_arm(self) -> dict[str, list[PlannedRun]]:
        return {arm: [run for run in self.final if run.arm == arm] for arm in self.study.arms}

    @property
    def expected_final_runs(self) -> int:
        return len(self.study.arms) * len(self.study.seeds)


def planned(study: Study, shelf: Shelf, *, facts: dict[str, Any] | None = None, data_digest: str | None = None) -> Plan:
    """The runs of a study. Facts and digest are the data's; without them the stored runs' own are believed."""
    return Planner(study, facts or shelf.facts, data_digest).plan(shelf)


@dataclass(frozen=True)
class Planner:
    """Plans one study again and again: what a run is, is worked out once, what is stored is looked up each time."""

    study: Study
    facts: dict[str, Any]
    data_digest: str | None
    known: dict[tuple, tuple[Settings, str]] = field(default_factory=dict)  # with the identity of the computation

    def plan(self, shelf: Shelf) -> Plan:
        maker, study = _Maker(self, shelf), self.study
        if study.tuning is None:
            return Plan(study, [], maker.final({}), {})
        grid = {key: list(points) for key, points in study.tuning.grid.items()}
        while True:
            tuning = maker.tuning(grid)
            choices = _choices(study, tuning, grid)
            if not choices:
                return Plan(study, tuning, [], {}, grid)
            larger = _extended(study.tuning, grid, choices)
            if larger == grid or not maker.allows(larger):
                return Plan(study, tuning, maker.final(choices), choices, grid)
            grid = larger

    def final_at_base(self, plan: Plan) -> list[PlannedRun]:
        """The final runs that wait for tuning, with the base's own values: what they cost is known before."""
        if plan.is_tuned:
            return []
        entries = self.study.arms.items()
        return [
            PlannedRun(arm, seed, "final", (), self.settings(arm, seed, "final", ())[0], entry.processes, None)
            for seed in self.study.seeds
            for arm, entry in entries
        ]

    def settings(self, arm: str, seed: int, stage: Stage, point: Point) -> tuple[Settings, str]:
        key = arm, seed, stage, point
        if key not in self.known:
            settings = settings_for(self.study, arm, seed=seed, values=dict(point), tuning=stage == "tuning")
            run = resolved(settings.run, self.facts)
            identity = computation(run) if run.model.is_resolved else ""
            self.known[key] = settings.model_copy(update={"run": run}), identity
        return self.known[key]


@dataclass(frozen=True)
class _Maker:
    planner: Planner
    shelf: Shelf

    @property
    def study(self) -> Study:
        return self.planner.study

    def tuning(self, grid: dict[str, list[float]]) -> list[PlannedRun]:
        assert self.study.tuning is not None
        points = [tuple(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
        return [
            self._run(arm, seed, "tuning", point)
            for seed in self.study.tuning.seeds
            for point in points
            for arm in self.study.arms
        ]

    def allows(self, grid: dict[str, list[float]]) -> bool:
        """Whether every point is a valid config: an added one may be more warm-up than there are steps."""
        try:
            for end, arm in itertools.product((min, max), self.study.arms):
                point = {key: end(points) for key, points in grid.items()}
                settings_for(self.study, arm, seed=0, values=point, tuning=True)
        except UserError:
            return False
        return True

    def final(self, choices: dict[str, Choice]) -> list[PlannedRun]:
        """Seed by seed, so that a study stopped half-way holds whole pairs."""
        usable = [arm for arm in self.study.arms if not choices or choices[arm].best is not None]
        return [
            self._run(arm, seed, "final", (choices[arm].best or ()) if choices else ())
            for seed in self.study.seeds
            for arm in usable
        ]

    def _run(self, arm: str, seed: int, stage: Stage, point: Point) -> PlannedRun:
        settings, identity = self.planner.settings(arm, seed, stage, point)
        stored = self.shelf.computed(identity, data_digest=self.planner.data_digest) if identity else None
        return PlannedRun(arm, seed, stage, point, settings, self.study.arms[arm].processes, stored)


def _choices(study: Study, tuning: list[PlannedRun], grid: dict[str, list[float]]) -> dict[str, Choice]:
    """Each arm's best point; nothing while a run is unfinished, because an extension concerns all arms."""
    if any(run.loss is None for run in tuning):
        return {}
    losses: dict[str, dict[Point, list[float]]] = {arm: {} for arm in study.arms}
    for run in tuning:
        losses[run.arm].setdefault(run.point, []).append(run.loss or 0.0)
    choices = {}
    for arm, by_point in losses.items():
        means = {point: fmean(values) for point, values in by_point.items()}
        best = min(means, key=lambda point: (means[point], point))
        if math.isinf(means[best]):
            choices[arm] = Choice(arm, means, None)
        else:
            edges = tuple(key for key, value in best if value in (min(grid[key]), max(grid[key])))
            choices[arm] = Choice(arm, means, best, edges)
    return choices


def _extended(tuning: Tuning, grid: dict[str, list[float]], choices: dict[str, Choice]) -> dict[str, list[float]]:
    """The grid with one more point at each end where some arm's optimum lies, as long as the study allows."""
    larger = {}
    for key, points in grid.items():
        best = {choice.values[key] for choice in choices.values() if choice.best is not None}
        added_below = sum(point < min(tuning.grid[key]) for point in points)
        added_above = sum(point > max(tuning.grid[key]) for point in points)
        larger[key] = list(points)
        if points[0] in best and added_below < tuning.extend and points[0] > 0:
            larger[key].insert(0, _beyond(points[0], points[1]))
        if points[-1] in best and added_above < tuning.extend and points[-2] > 0:
            larger[key].append(_beyond(points[-1], points[-2]))
    return larger


def _beyond(edge: float, neighbour: float) -> float:
    """The next point of a geometric grid, to a few digits; a whole number stays whole."""
    value = float(f"{edge * edge / neighbour:.4g}")
    whole = float(edge).is_integer() and float(neighbour).is_integer() and value >= 1
    return float(round(value)) if whole else value
