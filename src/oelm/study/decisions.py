"""What the runs themselves decided about later runs, written down and sealed before the first run that goes by it.

choices.json beside the runs: a list that only grows; of a kind and a subject the last entry counts. Planning takes what
stands there, whatever the runs it rests on have become since; whoever only reads writes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from oelm.core.config import Run, Training, fingerprint
from oelm.run.directory import flat
from oelm.storage.files import Damaged, digest_of, write_sealed
from oelm.storage.ownership import now
from oelm.storage.schemas import Amount, Part, Stored, checked, read_sealed_record
from oelm.study.declaration import Study, as_declared, used_keys
from oelm.study.halving import Round
from oelm.study.one_run import settings_for
from oelm.study.rate_fit import Curve
from oelm.study.remarks import DATA_DIGEST, Differences, difference_text, differences
from oelm.study.tuning import Carried, Choice, Grid, Point, Solving

if TYPE_CHECKING:
    from oelm.study.plan import PlannedRun

CHOICES_FILE = "choices.json"
FORMAT_VERSION = 1
TUNED_VALUES = "tuned_values"  # a kind: the subject is an arm
TUNING_ROUND = "tuning_round"  # a kind: the subject is a round of an arm
CARRIED_VALUES = "carried_values"  # a kind: the subject is an arm at a size that is not tuned


class RunUsed(Stored):
    """A run that a decision rests on, as it was then."""

    name: str
    fingerprint: str
    seed: Amount
    values: dict[str, float]
    loss: float | None  # None: diverged


def run_used(run: PlannedRun) -> RunUsed:
    """A run that has ended, as it is now."""
    assert run.stored is not None
    return RunUsed(
        name=run.stored.name, fingerprint=identity_of(run), seed=run.seed, values=dict(run.point), loss=final_loss(run)
    )


def identity_of(run: PlannedRun, *, data_digest: str | None = None) -> str:
    """Of what it computes, with the data that it was made from, or else is to be made from."""
    digest = run.stored.data_digest if run.stored else run.data_digest or data_digest
    return fingerprint(run.resolved_run, data_digest=digest or "")


def final_loss(run: PlannedRun) -> float | None:
    """None: diverged, or without a result."""
    return None if run.state == "diverged" else run.loss


def change_of(used: RunUsed, run: PlannedRun | None) -> str | None:
    """What has become of a run that a decision rests on; None: nothing."""
    then = "diverged" if used.loss is None else f"loss {used.loss:.6g}"
    if run is None or run.loss is None:
        return f"{used.name}: {then} then, {run.state if run else 'missing'} now"
    if final_loss(run) == used.loss:
        return None
    return f"{used.name}: {then} then, " + ("diverged" if final_loss(run) is None else f"{run.loss:.6g}") + " now"


class Decision(Stored):
    kind: str
    subject: str
    made: str
    digest: str  # of `declaration`
    declaration: dict[str, Any]  # what of the study it belongs to, by dotted keys
    data_digest: str | None
    final_runs_then: Amount  # or runs of later rounds, that went by it and had started: none, unless it was stored late
    runs: list[RunUsed]
    decided: dict[str, Any]  # by the kind

    def made_from_other(self, data_digest: str | None) -> list[str]:
        """That the data are others than these, where both are known."""
        if not data_digest or self.data_digest in (None, "", data_digest):
            return []
        return [difference_text(DATA_DIGEST, str(self.data_digest)[:12], data_digest[:12])]


class MeanLoss(Stored):
    values: dict[str, float]
    loss: float | None  # None: a seed diverged
    solved: Part | None = None  # of the tuning seeds, where points are ranked by that; left out where they are not
    steps: float | None = None


Above = Annotated[float, Field(gt=0)]


class FittedCurve(Stored):
    lower: Above
    best: Above
    upper: Above
    level: float
    slope: float
    curvature: Above


class TunedValues(Stored):
    """What a decision of the kind `tuned_values` decided."""

    values: dict[str, float] | None  # None: every point diverged
    edges: list[str]
    grid: Grid
    losses: list[MeanLoss] = Field(min_length=1)
    curve: FittedCurve | None = None  # left out where the study asks for none
    not_fitted: str | None = None


class Behind(Stored):
    values: dict[str, float]
    loss: float | None  # mean; None: a seed diverged
    behind: float | None  # None: two seeds diverged


class TuningRound(Stored):
    """What a decision of the kind `tuning_round` decided: who is behind by at most the margin gets the next budget."""

    arm: str
    number: Amount
    steps: Amount
    margin: float
    grid: Grid
    points: list[Behind] = Field(min_length=1)


class CarriedValues(Stored):
    """What a decision of the kind `carried_values` decided, and from what."""

    values: dict[str, float] | None  # None: somewhere every point diverged
    dial: str
    sources: dict[str, dict[str, float]] = Field(min_length=1)
    exponents: dict[str, float]


class Decisions(Stored):
    """choices.json"""

    format_version: int
    decisions: list[Decision]


# ---- The file ------------------------------------------------------------------------------------------------------


def read_decisions(folder: Path) -> list[Decision]:
    """Every entry, the oldest first; none where there is no file. Damaged, if it is not what was written."""
    file = folder / CHOICES_FILE
    try:
        tree = read_sealed_record(file, Decisions, newest=FORMAT_VERSION)
    except FileNotFoundError:
        return []
    decisions = Decisions.model_validate(tree).decisions
    for decision in decisions:
        if decision.digest != digest_of(decision.declaration):
            raise Damaged(file, f"the digest of what {decision.subject} was decided for is another")
        if decision.kind == TUNED_VALUES:  # what was chosen is one of the points, and these are the grid's
            tuned = TunedValues.model_validate(checked(file, decision.decided, TunedValues))
            points = [each.values for each in tuned.losses]
            is_one = tuned.values is None or (_is_fitted(tuned) if tuned.curve else tuned.values in points)
            of_grid = _are_of_grid(points, tuned.grid, decision)
            if not of_grid or not is_one or not set(tuned.edges) <= set(tuned.values or ()):
                raise Damaged(file, f"what was chosen for {decision.subject} is not of its grid")
        elif decision.kind == TUNING_ROUND:
            done = TuningRound.model_validate(checked(file, decision.decided, TuningRound))
            goes_on = any(each.behind is not None and each.behind <= done.margin for each in done.points)
            if not goes_on or not _are_of_grid([each.values for each in done.points], done.grid, decision):
                raise Damaged(file, f"what was dropped for {decision.subject} is not of its grid")
        elif decision.kind == CARRIED_VALUES:
            checked(file, decision.decided, CarriedValues)
    return decisions


def _are_of_grid(points: list[dict[str, float]], grid: Grid, decision: Decision) -> bool:
    """That these are points of the grid, and its keys the declared ones."""
    declared = {key.removeprefix(_GRID) for key in decision.declaration if key.startswith(_GRID)}
    fit = all(set(each) == declared and all(each[key] in grid.get(key, ()) for key in each) for each in points)
    return fit and set(grid) == declared


def _is_fitted(tuned: TunedValues) -> bool:
    """Whether what was chosen is the minimum of a curve through values of the grid."""
    curve = _curve(tuned)
    if curve is None or tuned.values is None:
        return False
    tried = {value for each in tuned.losses for value in each.values.values()}
    return list(tuned.values.values()) == [curve.optimum] and {curve.lower, curve.best, curve.upper} <= tried


def _curve(tuned: TunedValues) -> Curve | None:
    """Without the intervals of the optimum that older choices have."""
    return None if tuned.curve is None else Curve(**tuned.curve.model_dump(include=set(FittedCurve.model_fields)))


_GRID = "tuning.grid."


def add_decisions(folder: Path, decisions: Iterable[Decision]) -> None:
    """For the owner of the study's lock."""
    entries = [each.model_dump(mode="json") for each in (*read_decisions(folder), *decisions)]
    write_sealed(folder / CHOICES_FILE, {"format_version": FORMAT_VERSION, "decisions": entries})


# ---- Tuned values --------------------------------------------------------------------------------------------------


def tuned_values(study: Study, choice: Choice, *, grid: Grid, **about: Any) -> Decision:
    """A choice as it is stored, with what else a decision has."""
    values = None if choice.best is None else choice.values
    # Only what there is, so that other choices are stored as they always were.
    solving = {point: each._asdict() for point, each in choice.solving.items()}
    fitted: dict[str, Any] = {} if choice.curve is None else {"curve": FittedCurve(**asdict(choice.curve))}
    fitted = fitted if choice.not_fitted is None else {"not_fitted": choice.not_fitted}
    decided: Stored = (
        CarriedValues(values=values, **vars(choice.carried))
        if choice.carried
        else TunedValues(
            values=values,
            edges=list(choice.edges),
            grid=grid,
            losses=[
                MeanLoss(values=dict(point), loss=_finite(loss), **solving.get(point, {}))
                for point, loss in choice.losses.items()
            ],
            **fitted,
        )
    )
    kind = CARRIED_VALUES if choice.carried else TUNED_VALUES
    return new_decision(kind, choice.arm, tuning_declaration(study, choice.arm), decided, **about)


def tuning_round(study: Study, done: Round, *, grid: Grid, **about: Any) -> Decision:
    """What a round dropped, as it is stored, with what else a decision has."""
    points = [
        Behind(values=dict(point), loss=_finite(done.losses[point]), behind=_finite(behind))
        for point, behind in done.behind.items()
    ]
    decided = TuningRound(
        arm=done.arm, number=done.number, steps=done.steps, margin=done.margin, grid=grid, points=points
    )
    subject, declaration = f"{done.arm}, round {done.number}", tuning_declaration(study, done.arm)
    return new_decision(TUNING_ROUND, subject, declaration, decided, **about)


def new_decision(kind: str, subject: str, declaration: dict[str, Any], decided: Stored, **about: Any) -> Decision:
    return Decision(
        kind=kind,
        subject=subject,
        made=now(),
        digest=digest_of(declaration),
        declaration=declaration,
        decided=decided.model_dump(mode="json", exclude_unset=True),
        **about,
    )


def round_of(decision: Decision) -> tuple[Round, Grid]:
    """The stored round, and the grid as it stood."""
    decided = TuningRound.model_validate(decision.decided)
    points = {tuple((key, each.values[key]) for key in decided.grid): each for each in decided.points}
    done = Round(
        arm=decided.arm,
        number=decided.number,
        steps=decided.steps,
        losses={point: _number(each.loss) for point, each in points.items()},
        behind={point: _number(each.behind) for point, each in points.items()},
        margin=decided.margin,
        made=decision.made,
    )
    return done, decided.grid


def choice_of(decision: Decision) -> tuple[Choice, Grid]:
    """The stored choice, and the grid as it stood."""
    if decision.kind == CARRIED_VALUES:
        stored = CarriedValues.model_validate(decision.decided)
        carried = Carried(stored.dial, stored.sources, stored.exponents)
        point = None if stored.values is None else tuple(stored.values.items())
        then = decision.final_runs_then
        return Choice(decision.subject, {}, point, made=decision.made, final_runs_then=then, carried=carried), {}
    decided = TunedValues.model_validate(decision.decided)
    keys = list(decided.grid)

    def point_at(values: dict[str, float]) -> Point:
        return tuple((key, values[key]) for key in keys)

    losses = {point_at(each.values): _number(each.loss) for each in decided.losses}
    solving = {
        point_at(each.values): Solving(each.solved, each.steps)
        for each in decided.losses
        if each.solved is not None and each.steps is not None
    }
    best = None if decided.values is None else point_at(decided.values)
    choice = Choice(
        arm=decision.subject,
        losses=losses,
        best=best,
        edges=tuple(decided.edges),
        made=decision.made,
        final_runs_then=decision.final_runs_then,
        solving=solving,
        curve=_curve(decided),
        not_fitted=decided.not_fitted,
    )
    return choice, decided.grid


def tuning_declaration(study: Study, arm: str) -> dict[str, Any]:
    """All of a study that decides which tuning runs an arm has, by dotted keys; nothing where it tunes nothing."""
    tuning = study.tuning
    if tuning is None:
        return {}
    first = {key: points[0] for key, points in tuning.grid.items()}
    run = settings_for(study, arm, seed=tuning.seeds[0], values=first, tuning=True).run
    own = {key: value for key, value in computing_settings(run).items() if key not in tuning.grid}
    return own | flat({"tuning": used_keys(as_declared(tuning.model_dump(mode="json", exclude={"set"})))})


def declaration_differences(then: dict[str, Any], study: Study, arm: str) -> Differences:
    """Keys that differ, then and now. One that a later oelm added counts only if the study uses it."""
    then, current = with_parts(then), tuning_declaration(study, arm)
    run = settings_for(study, arm, seed=study.seeds[0]).run
    unused = computing_settings(run.model_copy(update={"model": type(run.model)(), "training": Training()}))
    unheard = {key for key in current if key not in then and current[key] == unused.get(key)}
    return differences(then, current, beside=unheard)


_OLDER, _PARTS = "model.attention.", "model.parts."  # before every part of a model could be spoken of


def with_parts(then: dict[str, Any]) -> dict[str, Any]:
    """The same with the keys of now. What was said of an encoder's values and outputs never meant anything."""
    silent = ("value.", "output.") if then.get("model.kind") == "encoder" else ()
    known = {key: value for key, value in then.items() if not key.startswith(tuple(_OLDER + each for each in silent))}
    return {key.replace(_OLDER, _PARTS, 1) if key.startswith(_OLDER) else key: value for key, value in known.items()}


def computing_settings(run: Run) -> dict[str, Any]:
    """By dotted keys: what it computes but for its data and its seeds."""
    return flat(run.model_dump(mode="json", exclude={"arm", "data", "seeds"}))


def _finite(loss: float) -> float | None:
    return loss if math.isfinite(loss) else None


def _number(stored: float | None) -> float:
    return math.inf if stored is None else stored
