"""What a study means for one run: its settings, its model, whether it draws anything."""

from __future__ import annotations

from typing import Any

from oelm.core.arms import canonical_name
from oelm.core.config import AnyModel, Settings, as_far_as_known
from oelm.core.options import draws_what_it_treats
from oelm.core.settings import settings_of, with_preset
from oelm.study.declaration import STEPS_KEY, Study

_PROJECTIONS = "seeds.projections"  # the setting that decides what an arm draws


def settings_for(
    study: Study,
    arm: str,
    *,
    seed: int,
    values: dict[str, Any] | None = None,
    tuning: bool = False,
    budget: float | None = None,
) -> Settings:
    """The settings of one run: base, arm, tuning's own, the arm's own, the grid's values, then its budget."""
    if budget is not None:
        # A whole schedule of so many steps, or of such a share of them: a declared warm-up keeps its share.
        whole = settings_for(study, arm, seed=seed, values=values, tuning=tuning).run.training
        steps = int(budget) if budget > 1 else max(1, round(budget * whole.steps))
        values = (values or {}) | {STEPS_KEY: steps}
        if whole.warmup_steps is not None:
            values["training.warmup_steps"] = round(whole.warmup_steps * steps / whole.steps)
    entry = study.arms[arm]
    own = dict(study.tuning.set) | {"training.validation_split": "tune"} if tuning and study.tuning else {}
    return settings_with(study, arm, name=f"arms.{arm}", seed=seed, values=own | entry.set | (values or {}))


def settings_with(study: Study, arm: str, *, name: str, values: dict[str, Any], seed: int | None = None) -> Settings:
    """Of the base with an arm, and these values."""
    named = canonical_name(study.arms[arm].arm or arm)
    return settings_of(with_preset(study.base), name=name, arm=named, seed=seed, values=values)


def declared_model(study: Study, arm: str) -> AnyModel:
    """The model of an arm, with what a rule decides of it."""
    return as_far_as_known(settings_for(study, arm, seed=study.seeds[0]).run).model


def is_drawn(study: Study, arm: str, values: dict[str, Any] | None = None) -> bool:
    """Whether something that an arm treats is drawn, and anew for each seed."""
    if _PROJECTIONS in study.arms[arm].set:
        return False
    return draws_what_it_treats(settings_for(study, arm, seed=study.seeds[0], values=values).run.model)
