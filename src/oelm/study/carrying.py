"""Values that are tuned at some sizes and carried over to the others by a power law of the dial, for each arm alone.

Which sizes are tuned is declared beforehand (`tuning.at`). The law is the straight line of least squares through the
logarithms of what was chosen; a value carried over is rounded to three digits, and stored as any other choice.
"""

from __future__ import annotations

import math
from statistics import linear_regression

from oelm.run.directory import flat
from oelm.study.declaration import Study
from oelm.study.one_run import settings_for
from oelm.study.scaled import sized_arms
from oelm.study.sizes import DIALS, carried_from
from oelm.study.tuning import Carried, Choice


def tuned_arms(study: Study) -> list[str]:
    """Those whose values the grid chooses: all, unless the study says at which sizes."""
    sized, at = sized_arms(study), study.tuning.at if study.tuning else None
    return [arm for arm in study.arms if at is None or sized[arm].size in at]


def tuned_together(study: Study) -> list[list[str]]:
    """The tuned arms in groups that have one grid: those of a size, or all. What one of them needs, all of them get."""
    sized, groups = sized_arms(study), dict[str, list[str]]()
    for arm in tuned_arms(study):
        groups.setdefault(sized[arm].size if sized else "", []).append(arm)
    return list(groups.values())


def with_carried(study: Study, choices: dict[str, Choice]) -> dict[str, Choice]:
    """And of the other arms, as soon as those have theirs that they rest on."""
    found, tuned, sized = dict(choices), tuned_arms(study), sized_arms(study)
    for arm in study.arms:
        if arm in found or arm in tuned:
            continue
        dial, sources = carried_from(sized, arm, tuned)
        if all(source in choices for source in sources):
            found[arm] = _carried(study, arm, dial, [choices[source] for source in sources])
    return found


def _carried(study: Study, name: str, dial: str, sources: list[Choice]) -> Choice:
    places = [math.log2(_value(study, source.arm, dial)) for source in sources]
    carried = Carried(dial, {source.arm: source.values for source in sources}, {})
    if any(source.best is None for source in sources):
        return Choice(name, {}, None, carried=carried)
    point, place = [], math.log2(_value(study, name, dial))
    for key in sources[0].values:
        slope, height = linear_regression(places, [math.log2(source.values[key]) for source in sources])
        carried.exponents[key] = slope
        point.append((key, float(f"{2 ** (height + slope * place):.3g}")))
    return Choice(name, {}, tuple(point), carried=carried)


def _value(study: Study, arm: str, dial: str) -> float:
    run = settings_for(study, arm, seed=0).run
    return float(flat(run.model_dump(mode="json"))[DIALS[dial].key])
