"""What should be known of a study's folder before its numbers are believed; of runs that count, it is found here.

Execution is no part of what a run is, so a run counts whatever it was computed with; and the config alone says which
seed a run has. Both are compared with what the finished runs recorded.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from oelm.core.config import STEP_EXECUTION, Encoder, ResolvedRun, Run, Seeds, as_far_as_known, facts_of
from oelm.run.directory import flat
from oelm.study.bench_fit import LEFT_TO_THE_MACHINE, bench_for, place_of, remarks_on
from oelm.study.decisions import computing_settings
from oelm.study.declaration import Study
from oelm.study.kept_choices import TUNING_SPLIT
from oelm.study.one_run import settings_for
from oelm.study.plan import Plan, PlannedRun, Stage
from oelm.study.remarks import (
    DATA_DIGEST,
    Differences,
    Remark,
    differences,
    kinds_text,
    sentence,
    some,
    stated_differences,
)
from oelm.study.shelf import Shelf, StoredRun, computation
from oelm.study.tuning import largest, point_text

Losses = tuple[tuple[int, float | None, float | None], ...]  # step, of training, of validation


def lines_on(plan: Plan, shelf: Shelf) -> list[str]:
    """Everything, for a terminal."""
    on_bench = remarks_on(bench_for(plan, shelf), plan.study)
    return [sentence(*remark) for remark in (*plan.remarks, *strays(plan, shelf), *doubts(plan), *on_bench)]


def doubts(plan: Plan) -> Iterator[Remark]:
    """Of the finished runs that count."""
    finished = {run.stored.directory.path: run for run in plan.runs if run.stored and run.state == "finished"}
    kinds: Counter[Differences] = Counter()
    for run in finished.values():
        if run.stored and (found := tuple(_other_execution(run, run.stored.environment))):
            kinds[found] += 1
    if kinds:
        yield "other_execution", {"runs": kinds.total(), "differences": kinds_text(kinds)}
    yield from same_losses(run.stored for run in finished.values() if run.stored)


# ---- Execution -----------------------------------------------------------------------------------------------------


def _other_execution(run: PlannedRun, recorded: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """What the study leaves to the machine cannot differ."""
    for key in STEP_EXECUTION:
        declared, then = getattr(run.settings.execution, key), recorded.get(key)
        if declared in LEFT_TO_THE_MACHINE or then is None:
            continue
        if key == "compile":
            then = "on" if then else "off"
        # As a run records it: an encoder is never compiled, and no micro-batch is larger than a batch.
        expected = "off" if key == "compile" and isinstance(run.run.model, Encoder) else declared
        if key == "micro_batch_size":
            expected = min(declared, -(-run.run.training.batch_size // run.processes))
        if place_of(then) != place_of(expected):
            yield f"execution.{key}", then, declared


# ---- Seeds ---------------------------------------------------------------------------------------------------------


def same_losses(runs: Iterable[StoredRun]) -> Iterator[Remark]:
    """Finished runs that only their seeds tell apart, and that lost the same to the last bit all along."""
    alike: dict[tuple[str, str | None, float], list[StoredRun]] = {}
    for run in runs:
        if run.result is not None:
            identity = computation(run.run.model_copy(update={"seeds": Seeds()}))
            alike.setdefault((identity, run.data_digest, run.result["val_loss"]), []).append(run)
    texts = []
    for group in (each for each in alike.values() if len(each) > 1):
        by_losses: dict[Losses, dict[str, StoredRun]] = {}
        for run in sorted(group, key=lambda run: run.name):
            records = run.directory.metrics()
            losses = tuple((each["step"], each.get("train_loss"), each.get("val_loss")) for each in records)
            by_losses.setdefault(losses, {}).setdefault(run.run.seeds.model_dump_json(), run)
        for by_seed in by_losses.values():
            if len(by_seed) > 1:
                texts.append(", ".join(run.name for run in by_seed.values()))
    if texts:
        yield "same_losses", {"copies": some(sorted(texts))}


# ---- Finished runs that have no place in the study as it is declared now ---------------------------------------------

SEED = "seed"


def strays(plan: Plan, shelf: Shelf) -> list[Remark]:
    """What is to be said of them. Runs that were made from other data than the plan's have no place either."""
    claimed = {run.stored.directory.path for run in plan.runs if run.stored}
    left = [each for each in shelf.runs if each.state == "finished" and each.directory.path not in claimed]
    if not left:
        return []
    known = {computation(run.stored.run): run for run in plan.runs if run.stored}
    copies = {each.directory.path: run for each in left if (run := _copied(each, known))}
    sort = _Sorted(plan)
    for each in left:
        if each.directory.path not in copies:
            sort.place(each)
    # One computation has one result, unless precision, threads or sources differ, or one of them was altered.
    twice = [(run.stored, each) for each in left if (run := copies.get(each.directory.path)) and run.stored]
    texts = [f"{_numbers(first)}, {_numbers(other)}" for first, other in twice if first.numbers != other.numbers]
    return [*sort.remarks(), *([("unlike_copies", {"copies": some(texts)})] if texts else [])]


def results_elsewhere(plan: Plan, shelf: Shelf) -> Iterator[tuple[frozenset[str], Differences]]:
    """Of every final run here that has a result and no place: the arms it may be of, and what differs."""
    claimed = {run.stored.directory.path for run in plan.runs if run.stored}
    known = {computation(run.stored.run): run for run in plan.runs if run.stored}
    nearest = _Sorted(plan)
    for stored in shelf.runs:
        if stored.ended is None or stored.directory.path in claimed or _copied(stored, known):
            continue
        stage, arms, differences = nearest.place_of(stored)
        if stage == "final" and differences is not None:
            yield frozenset(arms), differences or nearest.values_of(stored)


def _copied(stored: StoredRun, known: dict[str, PlannedRun]) -> PlannedRun | None:
    """The run that has its place, and that this is a second copy of."""
    run = known.get(computation(stored.run))
    return run if run and (run.data_digest is None or stored.data_digest in (None, run.data_digest)) else None


def _numbers(stored: StoredRun) -> str:
    return f"{stored.name} ({', '.join(f'{name} {value:.6g}' for name, value in stored.numbers.items())})"


@dataclass
class _Sorted:
    plan: Plan
    configs: Counter[Differences] = field(default_factory=Counter)
    data: Counter[tuple[str, str]] = field(default_factory=Counter)  # digests: theirs, and that of the data that count
    arms: Counter[str] = field(default_factory=Counter)
    seeds: Counter[int] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)
    unchosen: Counter[str] = field(default_factory=Counter)
    expected: dict[tuple[str, Stage, float | None], _Expected] = field(default_factory=dict)

    @property
    def study(self) -> Study:
        return self.plan.study

    def place_of(self, stored: StoredRun) -> tuple[Stage, list[str], Differences | None]:
        """The arms that it may be of, and how it differs from the nearest of their runs; None: of no arm."""
        judged_for_tuning = stored.run.training.validation_split == TUNING_SPLIT
        stage: Stage = "tuning" if judged_for_tuning and self.study.tuning else "final"
        rounds = self.study.tuning.rounds if self.study.tuning and stage == "tuning" else [None]
        arms = [arm for arm in self.study.arms if self._expect(arm, "final").run.arm == stored.run.arm]
        arms = arms or [arm for arm in self.study.arms if arm == stored.arm]  # the one that its folder is named after
        places = itertools.product(arms, rounds)
        nearest = min((self._compared(stored, arm, stage, budget) for arm, budget in places), key=len, default=None)
        return stage, arms, nearest

    def values_of(self, stored: StoredRun) -> Differences:
        """Its values on the grid, which were not chosen."""
        values = flat(stored.run.model_dump(mode="json"))
        return tuple((key, values[key], None) for key in (self.study.tuning.grid if self.study.tuning else ()))

    def place(self, stored: StoredRun) -> None:
        stage, _, nearest = self.place_of(stored)
        if nearest is None:
            self.arms[stored.arm] += 1
        elif not nearest:
            self._place_alike(stored, stage)
        elif {DATA_DIGEST} <= {key for key, *_ in nearest} <= {DATA_DIGEST, SEED}:
            self.data.update((then, now) for key, then, now in nearest if key == DATA_DIGEST)
        elif all(key == SEED for key, *_ in nearest):
            self.seeds[nearest[0][1]] += 1
        else:
            self.configs[tuple(each for each in nearest if each[0] != SEED)] += 1

    def _place_alike(self, stored: StoredRun, stage: Stage) -> None:
        """Only its values on the grid are others. A final run is then missing the choice that it was made by; a point
        that the grid may still come to have waits for the runs that decide it.
        """
        if self.study.tuning is None:
            return
        values = flat(stored.run.model_dump(mode="json"))
        point = {key: values[key] for key in self.study.tuning.grid}
        if stage == "final":
            self.unchosen[point_text(point)] += 1
            return
        reachable = largest(self.study.tuning)
        if self.plan.is_tuned or any(value not in reachable[key] for key, value in point.items()):
            self.points[point_text(point)] += 1

    def _expect(self, arm: str, stage: Stage, budget: float | None = None) -> _Expected:
        if (arm, stage, budget) not in self.expected:
            self.expected[arm, stage, budget] = _Expected.of(self.plan, arm, stage, budget)
        return self.expected[arm, stage, budget]

    def _compared(self, stored: StoredRun, arm: str, stage: Stage, budget: float | None) -> Differences:
        expected = self._expect(arm, stage, budget)
        found = list(expected.differences(stored.run))
        digest = self.plan.digests.get(expected.run.data)
        if digest and stored.data_digest not in (None, digest):
            found.append((DATA_DIGEST, str(stored.data_digest)[:12], digest[:12]))
        return tuple(found)

    # -- what is said ------------------------------------------------------------------------------------------------

    def remarks(self) -> Iterator[Remark]:
        if self.data:
            theirs, ours = (", ".join(sorted(each)) for each in map(set, zip(*self.data, strict=True)))
            yield "other_data", {"runs": self.data.total(), "digests": theirs, "counted": ours}
        if self.configs:
            yield "other_config", {"runs": self.configs.total(), "differences": kinds_text(self.configs)}
        if self.arms:
            yield "other_arms", {"runs": self.arms.total(), "names": ", ".join(sorted(self.arms))}
        if self.seeds:
            yield "other_seeds", {"runs": self.seeds.total(), "seeds": ", ".join(map(str, sorted(self.seeds)))}
        if self.points:
            yield "other_points", {"runs": self.points.total(), "points": some(sorted(self.points))}
        if self.unchosen:
            yield "unchosen", {"runs": self.unchosen.total(), "points": some(sorted(self.unchosen))}


@dataclass(frozen=True)
class _Expected:
    """What a run of one arm, stage and round is planned with, whatever its seed."""

    run: Run  # as declared: None where a value follows from others
    sentinel: int  # the seed it was made with, which is no seed of the study
    seeds: frozenset[int]
    ignored: frozenset[str]  # keys of the grid, unless they are chosen

    @classmethod
    def of(cls, plan: Plan, arm: str, stage: Stage, budget: float | None) -> _Expected:
        study, choice = plan.study, plan.choices.get(arm)
        tuning = stage == "tuning"
        seeds = frozenset(study.tuning.seeds if tuning and study.tuning else study.seeds)
        sentinel = 1 + max(seeds)
        values: dict[str, Any] = {} if tuning or choice is None else choice.values
        run = settings_for(study, arm, seed=sentinel, values=values, tuning=tuning, budget=budget).run
        return cls(run, sentinel, seeds, frozenset(study.tuning.grid if study.tuning and not values else ()))

    def differences(self, stored: ResolvedRun) -> Iterator[tuple[str, Any, Any]]:
        """What follows from a setting that differs is left out beside it."""
        now = computing_settings(as_far_as_known(self.run, facts_of(stored.model)))
        found = differences(computing_settings(stored), now, beside=self.ignored)
        yield from stated_differences(found, computing_settings(self.run))
        seeds = stored.seeds.model_dump()
        compared = {seeds[key] for key, value in self.run.seeds.model_dump().items() if value == self.sentinel}
        yield from ((SEED, seed, None) for seed in sorted(compared - self.seeds))
