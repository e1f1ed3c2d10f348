"""A study that has sizes, at them: every arm at every one of its sizes in place of the arms, and claims about these."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from oelm.core.config import Run
from oelm.machine.errors import UserError
from oelm.study.declaration import Hypothesis, SizedArm, Study
from oelm.study.one_run import settings_with
from oelm.study.sizes import (
    DIALS,
    LEAST_FOR_A_FORECAST,
    NAMED,
    carried_from,
    cell_name,
    computed,
    not_ahead_of,
    unvarying,
)

# Settings that no size may have of its own, and why.
NOT_OF_A_SIZE = {
    "data": "all sizes read the same data",
    "model.vocabulary": "losses with different vocabularies cannot be compared",
    "seeds": "the seeds are those of the study",
    "arm": "list the arms of a study under arms",
}


def needing_sizes(study: Study) -> Iterator[str]:
    """What only a study with sizes may say."""
    if study.sizes:
        return
    rule = "is for studies with sizes"
    yield from (f"{arm}.sizes: {rule}" for arm, each in study.arms.items() if each.sizes is not None)
    yield from (f"{key}: {rule}" for key in ("main_size", "forecast") if getattr(study, key))
    if study.tuning is not None and study.tuning.at is not None:
        yield f"tuning.at: {rule}"
    for claim in study.hypotheses:
        if claim.evidence == "scale":
            yield f"{claim.name}: {claim.kind} {rule}"
        elif (key := next((key for key in ("size", "against") if getattr(claim, key) is not None), None)) is not None:
            yield f"{claim.name}: {key} {rule}"


def with_sizes(study: Study) -> tuple[Study, list[str]]:
    """Every arm at every one of its sizes in place of the arms; claims about one size are about these, claims about
    scale about the arms as they were declared."""
    try:
        same = _first_names(study)
        cells = {arm: _at_sizes(study, arm, same) for arm in study.arms}
        main = _known_size(study.main_size or list(same)[-1], same, "main_size")
        if main not in cells[study.baseline]:
            raise UserError(f"main_size: the baseline {study.baseline} is not run at {main}")
        claims = [_at_its_sizes(claim, main, cells, same) for claim in study.hypotheses]
        for claim in claims:  # a slope is with every doubling of something that its sizes differ in
            if claim.per is not None and isinstance(claim.over, list):
                at = {size: cells[claim.control][size].set for size in claim.over}
                runs = [settings_with(study, claim.control, name=size, values=own).run for size, own in at.items()]
                if (what := unvarying(claim.per, runs)) is not None:
                    raise UserError(f"{claim.name}.per: all its sizes ({', '.join(at)}) have the same number of {what}")
        tuning = study.tuning
        if tuning is not None and tuning.at is not None:
            tuned = dict.fromkeys(_known_size(size, same, "tuning.at") for size in tuning.at)
            tuning = tuning.model_copy(update={"at": list(tuned)})
        _check_forecasts(study)
    except UserError as error:
        return study, str(error).splitlines()
    ordered = [(arm, size) for size in dict.fromkeys(same.values()) for arm in study.arms if size in cells[arm]]
    changes = {
        "baseline": cell_name(study.baseline, main), "main_size": main, "hypotheses": claims, "tuning": tuning,
    }  # fmt: skip
    arms = {cell_name(arm, size): cells[arm][size] for arm, size in ordered}
    sized = study.model_copy(update={"arms": arms, **changes})
    return sized, list(_wrong_carrying(sized, arms))


def _wrong_carrying(study: Study, arms: dict[str, SizedArm]) -> Iterator[str]:
    """Where the tuning says at which sizes, and the values of the others cannot follow from theirs."""
    at = study.tuning.at if study.tuning else None
    if study.tuning is None or at is None:
        return
    yield from (
        f"tuning.grid.{key}: a power law carries over values above zero alone"
        for key, points in study.tuning.grid.items()
        if min(points) <= 0
    )
    try:
        tuned = [name for name, arm in arms.items() if arm.size in at]
        for name in (each for each in arms if each not in tuned):
            carried_from(arms, name, tuned)
    except UserError as error:
        yield str(error)


def _first_names(study: Study) -> dict[str, str]:
    """Every size of the study -> the first that computes the same: points of two dials may meet."""
    known: dict[str, str] = {}
    found: dict[str, str] = {}
    for name, dial, values in _points(study, study.baseline):
        if name in found:
            other = next(key for key, given in study.sizes.items() if isinstance(given, list) and name.startswith(key))
            raise UserError(f"sizes.{name}: is also the name of a value of {other}; choose another")
        # It follows the name of an arm, behind a plus sign.
        if dial == NAMED and (name == NAMED or not re.fullmatch(r"[^\W_][\w.-]*", name)):
            rule = "; use letters, digits, '.', '_' or '-', beginning with a letter or digit" if name != NAMED else ""
            raise UserError(f"sizes: {name!r} cannot be the name of a size{rule}")
        run = settings_with(study, study.baseline, name=f"sizes.{name}", values=values).run
        found[name] = known.setdefault(computed(run), name)
    return found


def _known_size(size: str, same: dict[str, str], place: str) -> str:
    if size not in same:
        raise UserError(f"{place}: {size!r} is not one of the sizes {', '.join(same)}")
    return same[size]


def _at_sizes(study: Study, arm: str, same: dict[str, str]) -> dict[str, SizedArm]:
    """An arm by its sizes, in their order."""
    entry, found = study.arms[arm], dict[str, SizedArm]()
    wanted = (
        same.values() if entry.sizes is None else [_known_size(each, same, f"arms.{arm}.sizes") for each in entry.sizes]
    )
    for name, dial, values in _points(study, arm):
        first = same[name]
        if first in found:
            found[first] = found[first].model_copy(update={"dials": (*found[first].dials, dial)})
        elif first in wanted:
            own = dict(entry) | {"arm": entry.arm or arm, "label": entry.label or arm, "set": entry.set | values}
            found[first] = SizedArm(**own, family=arm, own=entry.set, size=first, dials=(dial,))
    return found


def _points(study: Study, arm: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The name of every size, its dial, and what it changes of an arm: the arm's own values are what grows."""
    own = study.arms[arm].set
    base = settings_with(study, arm, name=f"arms.{arm}", values=own).run
    yield from _points_of(study.sizes, base, {f"arms.{arm}.set.{key}": key for key in own}, place="sizes")


def _points_of(
    sizes: Mapping[str, list[int] | dict[str, Any]], base: Run, own: dict[str, str], *, place: str
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """`own` is what the arm sets itself, by the place where it does; `place`, where these sizes are declared."""
    for key, given in sizes.items():
        if isinstance(given, dict):
            if key in DIALS:
                raise UserError(f"{place}.{key}: is a dial; list its values, or give the size another name")
            for setting, why in NOT_OF_A_SIZE.items():
                if refused := next((each for each in given if each == setting or each.startswith(f"{setting}.")), None):
                    raise UserError(f"{place}.{key}.{refused}: {why}")
            turned, points = list(given), [(key, NAMED, given)]
        elif key in DIALS:
            turned = [DIALS[key].key]
            try:
                points = [(f"{key}{value}", key, DIALS[key].rule(base, value)) for value in sorted(set(given))]
            except UserError as error:
                raise UserError(f"{place}.{key}: {error}") from error
        else:
            what = "a list" if place == "sizes" else "a number"
            expected = f"{what} is for a dial ({', '.join(DIALS)}); a size has settings by their keys"
            raise UserError(f"{place}.{key}: {expected}")
        if clash := [where for where, each in own.items() if each in turned]:
            raise UserError(f"{clash[0]}: is also set by {place}.{key}")
        yield from points


def larger_runs(study: Study) -> Iterator[tuple[str, str, Run]]:
    """Every size that is to be forecast: its name, the dial whose sizes it is forecast from, the baseline's run."""
    baseline = study.arms[study.baseline]
    own = baseline.own if isinstance(baseline, SizedArm) else baseline.set
    base = settings_with(study, study.baseline, name="forecast", values=own).run
    listed = {key: given if isinstance(given, dict) else [given] for key, given in study.forecast.items()}
    points = _points_of(listed, base, {}, place="forecast")
    named = NAMED if any(isinstance(each, dict) for each in study.sizes.values()) else next(iter(study.sizes))
    for name, dial, values in points:
        run = settings_with(study, study.baseline, name=f"forecast.{name}", values=own | values).run
        yield name, named if dial == NAMED else dial, run


def _check_forecasts(study: Study) -> None:
    """Before the arms are at their sizes: a forecast is of a larger size than all that it rests on, five or more, and
    differs from them in nothing else that is counted."""
    for name, dial, run in larger_runs(study):
        tried = [
            settings_with(study, study.baseline, name=size, values=study.arms[study.baseline].set | values).run
            for size, each, values in _points(study, study.baseline)
            if each == dial
        ]
        if len(tried) < LEAST_FOR_A_FORECAST:
            sizes = f"{len(tried)} sizes ({dial})" if tried else f"none ({dial})"
            raise UserError(f"forecast.{name}: needs at least {LEAST_FOR_A_FORECAST} sizes; this study has {sizes}")
        if (why := not_ahead_of(run, tried)) is not None:
            raise UserError(f"forecast.{name}: {why} ({dial}); a forecast is of a larger size on the line through them")


def _at_its_sizes(
    claim: Hypothesis, main: str, cells: dict[str, dict[str, SizedArm]], same: dict[str, str]
) -> Hypothesis:
    pair = claim.treatment, claim.control
    if any(arm not in cells for arm in pair):
        return claim  # which is said elsewhere
    if claim.evidence == "scale":
        shared = {size: cell.dials for size, cell in cells[claim.control].items() if size in cells[claim.treatment]}
        return claim.model_copy(update={"over": _over(claim, shared, same)})
    named = {"size": claim.size or main} | ({"against": claim.against} if claim.against else {})
    at = {key: _known_size(size, same, f"{claim.name}.{key}") for key, size in named.items()}
    for arm, (key, size) in itertools.product(pair, at.items()):
        if size not in cells[arm]:
            raise UserError(f"{claim.name}.{key}: {arm} is not run at {size}, but at {', '.join(cells[arm])}")
    size = at["size"]
    if at.get("against") == size:
        raise UserError(f"{claim.name}.against: is {size} as well; a contrast compares two sizes")
    if claim.evidence == "speed" and size != main:
        raise UserError(f"{claim.name}.size: {claim.kind} is measured at the main size alone ({main}); leave size out")
    sides = {"treatment": cell_name(claim.treatment, size), "control": cell_name(claim.control, size)}
    return claim.model_copy(update={**at, **sides})


def _over(claim: Hypothesis, shared: dict[str, tuple[str, ...]], same: dict[str, str]) -> list[str]:
    """Names of sizes that both of its arms have: of a dial, or those that are listed."""
    place = f"{claim.name}.over"
    if isinstance(claim.over, list):
        named = [_known_size(size, same, place) for size in claim.over]
        if missing := [size for size in named if size not in shared]:
            raise UserError(f"{place}: {claim.treatment} and {claim.control} are not both run at {missing[0]}")
        return list(dict.fromkeys(named))
    if not shared:
        raise UserError(f"{claim.name}: {claim.treatment} and {claim.control} have no size in common")
    dials = list(dict.fromkeys(dial for each in shared.values() for dial in each))
    if claim.over is None and len(dials) > 1:
        raise UserError(f"{place}: say over which sizes: {', '.join(dials)}, or a list of their names")
    if claim.over not in (None, *dials):
        raise UserError(f"{place}: {claim.over!r} is none of {', '.join(dials)}; or list names of sizes")
    return [size for size, each in shared.items() if (claim.over or dials[0]) in each]
