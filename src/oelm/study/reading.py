"""From a file to a study, or to every problem in it, a line each."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from oelm.core.config import kind_of_model
from oelm.core.sections import Section
from oelm.core.settings import known_keys, problem_lines, read_yaml_file, single_settings, with_preset
from oelm.machine.errors import UserError
from oelm.study.at_sizes import needing_sizes, with_sizes
from oelm.study.catalogue import study_file
from oelm.study.checks import (
    at_odds,
    complaints,
    equal_arms,
    equal_rounds,
    faults_of_arms,
    misplaced_values,
    named_wrongly,
    reported_for_tuning,
    scales_of_nothing,
    wrong_looks,
)
from oelm.study.declaration import OF_HALVING, Bilingual, Study


def load_study(source: str | Path) -> Study:
    """A study by its path or by its name, here or in the package."""
    path = study_file(source)
    tree = read_yaml_file(path)
    if tree is None:
        raise UserError(f"{path}: is empty; a study needs at least question, base, arms and seeds (docs/studies.md)")
    if not isinstance(tree, dict):
        raise UserError(f"{path}: is not a study: it has no keys and values (`oelm new NAME` writes one to start from)")
    return study_of({"name": path.stem} | tree, name=str(path))


def study_of(tree: dict[str, Any], *, name: str) -> Study:
    """A validated study, or an error with every problem in a line of its own; `name` is what errors call its source."""
    tree, problems = _with_arms_by_name(tree)
    study, wrong_keys = _declared(tree)
    problems += [*wrong_keys, *at_odds(tree)]
    if study is not None:
        study, wrong = _with_full_keys(study)
        problems += wrong
        study = study.with_default_tuning()
        if study.sizes and not problems:
            study, wrong = with_sizes(study)
        else:
            wrong = [] if tree.get("sizes") else list(needing_sizes(study))
        problems += wrong
        study = study if "looks" in tree or problems else study.with_default_looks()
        whole = [arm for arm in study.arms if not any(line.startswith(f"arms.{arm}.") for line in problems)]
        checks = (
            named_wrongly, misplaced_values, faults_of_arms, equal_rounds, scales_of_nothing,
            reported_for_tuning,
        )  # fmt: skip
        problems += [] if wrong_keys else wrong_looks(study)
        problems += [*(line for check in checks for line in check(study)), *equal_arms(study, whole)]
    if problems or study is None:
        raise UserError("\n".join(f"{name}: {line}" for line in dict.fromkeys(problems)))
    return study


def _with_arms_by_name(tree: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    tree, arms = dict(tree), tree.get("arms")
    problems = []
    if isinstance(arms, list):
        problems = [f"arms: {arm} occurs twice" for arm in dict.fromkeys(map(str, arms)) if arms.count(arm) > 1]
        arms = {str(arm): {} for arm in arms}
    if isinstance(arms, dict):
        tree["arms"] = {key: value or {} for key, value in arms.items()}
        tree.setdefault("baseline", next(iter(arms), ""))
    return tree, problems


def _declared(tree: dict[str, Any]) -> tuple[Study | None, list[str]]:
    """The study, and what is wrong with its keys. What is wrong is left out to see what else is, and then what lacks
    what was left out."""
    problems: list[str] = []
    while True:
        try:
            return Study.model_validate(tree), problems
        except ValidationError as error:
            problems = problems or problem_lines(error, model=Study, known=study_keys(tree), tree=tree)
            rest = _without(tree, [problem["loc"] for problem in error.errors()])
        if rest == tree:
            return None, problems
        tree = rest


# While looking for further faults.
STAND_INS: dict[str, Any] = {"question": "?", "seeds": [0], "base": {}, "arms": {"trained": {}}, "baseline": "trained"}


def _without(tree: dict[str, Any], places: list[tuple[Any, ...]]) -> dict[str, Any]:
    """A copy without what is at these places; for what is missing, without what lacks it."""
    tree = copy.deepcopy(tree)
    for place in sorted({_held(tree, place) for place in places}, key=_from_the_end):
        inner: Any = tree
        for step in place[:-1]:
            inner = inner[step] if _holds(inner, step) else {}
        if place and _holds(inner, place[-1]):
            del inner[place[-1]]
    return STAND_INS | tree


def _held(tree: Any, place: tuple[Any, ...]) -> tuple[Any, ...]:
    """As much of a place as there is; pydantic also names which of several types it tried."""
    for at, step in enumerate(place):
        if not _holds(tree, step):
            return place[:at]
        tree = tree[step]
    return place


def _from_the_end(place: tuple[Any, ...]) -> tuple[Any, ...]:
    """Later entries of a list go first, so that the numbers of the others stay right."""
    return tuple(-step if isinstance(step, int) else 0 for step in place)


def _holds(tree: Any, step: Any) -> bool:
    return (isinstance(tree, dict) and step in tree) or (isinstance(tree, list) and step in range(len(tree)))


def study_keys(tree: dict[str, Any]) -> list[str]:
    """Every dotted key such a study may hold: hypotheses.N.claim, arms.NAME.label, base.training.steps."""
    base, tuning = ({} if not isinstance(tree.get(key), dict) else tree[key] for key in ("base", "tuning"))
    base = {} if complaints(partial(with_preset, base)) else base
    settings = known_keys(kind=kind_of_model(with_preset(base).get("model")))
    refused = [f"tuning.{key}" for key in OF_HALVING if key != "method" and tuning.get("method") != "halving"]
    own = [key for key in _keys_of(Study) if key not in refused]
    return [*own, *(f"base.{key}" for key in (*settings, "preset") if key != "arm")]


STEPS: dict[Any, str] = {list: ".N", dict: ".NAME"}  # from a key to what it holds several of


def _keys_of(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        kind, inside = field.annotation, get_args(field.annotation)
        step = STEPS.get(get_origin(kind), "")
        inner = next((each for each in (kind, *inside) if isinstance(each, type) and issubclass(each, Section)), None)
        if inner is None or inner is Bilingual:
            yield f"{prefix}{name}"
        else:
            yield from _keys_of(inner, f"{prefix}{name}{step}.")


def _with_full_keys(study: Study) -> tuple[Study, list[str]]:
    """learning_rate -> training.learning_rate, wherever a study names a setting; and the keys that are none."""
    problems: list[str] = []

    def full(values: dict[str, Any], where: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in values.items():
            try:
                found.update(single_settings(key, value))
            except UserError as error:
                problems.append(f"{where}: {str(error).removeprefix('--set ')}")
        return found

    arms = {key: arm.model_copy(update={"set": full(arm.set, f"arms.{key}.set")}) for key, arm in study.arms.items()}
    tuning = study.tuning
    if tuning is not None:
        grid = {key: sorted(dict.fromkeys(points)) for key, points in full(tuning.grid, "tuning.grid").items()}
        tuning = tuning.model_copy(update={"grid": grid, "set": full(tuning.set, "tuning.set")})
    sizes, larger = (
        {key: full(each, f"{where}.{key}") if isinstance(each, dict) else each for key, each in given.items()}
        for where, given in (("sizes", study.sizes), ("forecast", study.forecast))
    )
    return study.model_copy(update={"arms": arms, "tuning": tuning, "sizes": sizes, "forecast": larger}), problems
