"""From a file to a study, or to every problem in it, a line each."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from oelm.core.config import Model, kind_of_model
from oelm.core.probes.probe import WrongProbe, probe_of, written
from oelm.core.sections import Section
from oelm.core.settings import known_keys, problem_lines, read_yaml_file, settings_of, single_settings, with_preset
from oelm.machine.errors import UserError, did_you_mean
from oelm.run.directory import check_name
from oelm.study.at_sizes import needing_sizes, with_sizes
from oelm.study.catalogue import study_file
from oelm.study.claims.kinds import LEAST_PAIRS, MEASURED, SOLVING
from oelm.study.declaration import OF_HALVING, RATE_KEY, STEPS_KEY, Bilingual, Hypothesis, Study, Tuning
from oelm.study.kept_choices import TUNING_SPLIT
from oelm.study.one_run import declared_model, settings_for
from oelm.study.part_aspects import SCALES_OF_SCORES
from oelm.study.rate_fit import LEAST_SEEDS


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
        checks = (misplaced_values, faults_of_arms, equal_rounds, scales_of_nothing, reported_for_tuning)
        problems += [] if wrong_keys else wrong_looks(study)
        problems += [line for each in (study.name, *study.arms) for line in complaints(partial(check_name, each))]
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
    # Later entries of a list go first, so that the numbers of the others stay right.
    held = {_held(tree, place) for place in places}
    for place in sorted(held, key=lambda place: tuple(-step if isinstance(step, int) else 0 for step in place)):
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


# ---- What can be wrong beyond a key or a type, with its place --------------------------------------------------------


def complaints(check: Callable[[], object]) -> list[str]:
    """What a check has to say, line by line."""
    try:
        check()
    except UserError as error:
        return str(error).splitlines()
    return []


def at_odds(tree: dict[str, Any]) -> Iterator[str]:
    """Names of arms that are none, and names or seeds that are there twice: of a file as it is, whatever else is
    wrong with it."""
    listed = {key: value if isinstance(value, list) else [] for key, value in tree.items()}
    claims = [each for each in listed.get("hypotheses", []) if isinstance(each, dict)]
    sides = [(f"{claim.get('name')}.{side}", claim.get(side)) for claim in claims for side in ("treatment", "control")]
    arms = tree.get("arms")
    for place, arm in [("baseline", tree.get("baseline")), *sides]:
        if isinstance(arm, str) and arms and isinstance(arms, dict) and arm not in arms:
            yield f"{place}: {arm!r} is not one of the arms {', '.join(arms)}{did_you_mean(arm, map(str, arms))}"
    tuning = tree.get("tuning")
    tuning_seeds = tuning.get("seeds") if isinstance(tuning, dict) else None
    for what, values in (
        ("seeds", listed.get("seeds", [])),
        ("tuning.seeds", tuning_seeds if isinstance(tuning_seeds, list) else []),
        ("hypotheses", [each.get("name") for each in claims]),
    ):
        counted = Counter(value for value in values if type(value) in (int, float, str))
        yield from (f"{what}: {value} occurs twice" for value, times in counted.items() if times > 1)


def misplaced_values(study: Study) -> Iterator[str]:
    """Each setting has one place: a grid's key is the grid's, seeds are the study's, arms are arms."""
    if "arm" in study.base:
        yield "base.arm: list the arms of a study under arms"
    if not complaints(partial(with_preset, study.base)):  # which the arms' settings name
        yield from _wrong_measures(study)
        yield from _wrong_solving(study)
    if study.tuning is None:
        return
    shared = sorted(set(study.seeds) & set(study.tuning.seeds))
    if shared:
        yield f"tuning.seeds: {shared[0]} is also one of seeds; a seed used for tuning cannot be used for testing"
    for key, points in study.tuning.grid.items():
        if len(points) < 2:
            yield f"tuning.grid.{key}: needs at least two different values"
        if not key.startswith(("model.", "training.")):
            yield f"tuning.grid.{key}: only what a run computes can be tuned, not where it runs or its seed"
        places = {"tuning.set": study.tuning.set} | {f"arms.{arm}.set": each.set for arm, each in study.arms.items()}
        yield from (
            f"{place}.{key}: is also in the grid, whose values would replace it"
            for place, own in places.items()
            if key in own
        )
    yield from _wrong_rounds(study.tuning)
    if study.tuning.method == "halving" and min(study.tuning.budgets) > 1:
        places = {"tuning.set": study.tuning.set} | {f"arms.{arm}.set": each.set for arm, each in study.arms.items()}
        yield from (
            f"{place}.{STEPS_KEY}: the budgets are numbers of steps and would replace it; write them as shares of it"
            for place, own in places.items()
            if STEPS_KEY in own
        )


def _wrong_rounds(tuning: Tuning) -> Iterator[str]:
    """Halving needs a second seed against one that diverges, a curve needs three, and both go by the loss."""
    if tuning.method == "grid":
        for key in ("budgets", "margin"):
            if key in tuning.model_fields_set:
                yield f"tuning.{key}: is for method: halving"
    else:
        if sorted(set(tuning.budgets)) != tuning.budgets:
            yield "tuning.budgets: list them in increasing order, each once"
        elif tuning.budgets[0] <= 1 < tuning.budgets[-1]:
            yield "tuning.budgets: either shares of at most 1, or numbers of steps, not both"
        elif tuning.budgets[-1] > 1 and any(not budget.is_integer() for budget in tuning.budgets):
            yield "tuning.budgets: a number of steps is a whole number"
        if len(tuning.seeds) < 2:
            yield "tuning.seeds: halving needs at least two, or a single run that diverges could drop the best value"
        if STEPS_KEY in tuning.grid:
            yield f"tuning.grid.{STEPS_KEY}: is what the budgets of halving decide"
    if tuning.choose == "fitted":
        if list(tuning.grid) != [RATE_KEY]:
            yield f"tuning.choose: fitted needs a grid of {RATE_KEY} alone"
        if len(tuning.seeds) < LEAST_SEEDS:
            yield f"tuning.seeds: choose: fitted needs at least {LEAST_SEEDS}"
    for key, value in (("method", "halving"), ("choose", "fitted")):
        if tuning.rank == "solved" and getattr(tuning, key) == value:
            yield f"tuning.{key}: {value} compares losses, and rank: solved does not go by them; leave one of them out"


def _wrong_measures(study: Study) -> Iterator[str]:
    """One measure for all claims about quality, and one that such runs are compared by."""
    usual = study.possible_measures
    for hypothesis in study.hypotheses:
        if hypothesis.evidence not in MEASURED:
            continue
        if hypothesis.quality not in usual:
            theirs = " or ".join(f"measure: {each.key}, with {each.scale.margin_key}" for each in usual)
            yield f"{hypothesis.name}: these runs are not compared by {hypothesis.measure}: write {theirs}"
        elif hypothesis.quality is not study.measure:
            yield f"{hypothesis.name}: measures {hypothesis.measure}, not {study.measure.key}: a study has one measure"


def _wrong_solving(study: Study) -> Iterator[str]:
    """Only probes are solved, and only at difficulties that they have."""
    rule = "is for studies of probes, whose base.data begins with probe:"
    for hypothesis in study.hypotheses:
        if study.probes:
            yield from _wrong_difficulty(study, hypothesis)
        elif hypothesis.evidence in SOLVING:
            yield f"{hypothesis.name}: {hypothesis.kind} {rule}"
    if study.tuning is not None and study.tuning.rank == "solved" and not study.probes:
        yield f"tuning.rank: solved {rule}"


def _wrong_difficulty(study: Study, hypothesis: Hypothesis) -> Iterator[str]:
    for arm in (hypothesis.control, hypothesis.treatment):
        data = study.arms[arm].set.get("data") if arm in study.arms else None
        try:
            probe = probe_of(str(written(data or with_preset(study.base).get("data"))))
        except WrongProbe:
            return  # which the arms' settings name
        if hypothesis.difficulty is not None and hypothesis.difficulty not in probe.difficulties:
            has = ", ".join(map(str, probe.difficulties))
            yield f"{hypothesis.name}: difficulty {hypothesis.difficulty} is none of those of the data: {has}"
            return


def faults_of_arms(study: Study) -> Iterator[str]:
    """Build each arm's settings once, so that a wrong key is found before anything runs. What is wrong without any
    arm is said of the base, what arms share of the first."""
    said: set[str] = set()
    alone = complaints(lambda: settings_of(with_preset(study.base), name="base"))
    of_base = {line.removeprefix("base: ") for line in alone}
    seed, grid = study.seeds[0], study.tuning.grid if study.tuning else {}
    for arm in study.arms:
        checks = [partial(settings_for, study, arm, seed=seed)]
        for values in itertools.product(*grid.values()) if grid else ():
            point = dict(zip(grid, values, strict=True))
            checks += [
                *(
                    partial(settings_for, study, arm, seed=seed, values=point, tuning=True, budget=budget)
                    for budget in (study.tuning.rounds if study.tuning else [])
                ),
                partial(settings_for, study, arm, seed=seed, values=point),
            ]
        problems = complaints(checks[0])
        of_points = ([line for line in complaints(check) if line not in problems] for check in checks[1:])
        problems += next(filter(None, of_points), [])
        for line in problems:
            what = line.removeprefix(f"arms.{arm}: ")
            if what not in said:
                said.add(what)
                yield f"base: {what}" if what in of_base else line
        if not problems and kind_of_model(checks[0]().run.model) != study.model_kind:
            yield f"arms.{arm}.set: a different kind of model than in base; a comparison needs the same kind"


def _is_faultless(study: Study, arm: str) -> bool:
    return not complaints(partial(settings_for, study, arm, seed=study.seeds[0]))


def equal_arms(study: Study, arms: list[str]) -> Iterator[str]:
    """Of these arms, of which nothing was left out: without it, one may equal another that it does not."""
    known: dict[str, str] = {}
    for arm in arms:
        if _is_faultless(study, arm):
            run = settings_for(study, arm, seed=study.seeds[0]).run
            first = known.setdefault(run.model_dump_json(exclude={"arm", "data"}), arm)
            if first != arm:
                yield f"arms {first} and {arm} are the same computation"


def reported_for_tuning(study: Study) -> Iterator[str]:
    """Final runs that report the split on which rates are chosen: they would be told from tuning runs by nothing. A
    study that tunes nothing may report it, all arms alike."""
    of_base = with_preset(study.base).get("training", {}) if not complaints(partial(with_preset, study.base)) else {}
    for arm in study.arms:
        if not _is_faultless(study, arm):
            continue
        training = settings_for(study, arm, seed=study.seeds[0]).run.training
        of_all = of_base.get("validation_split") == TUNING_SPLIT
        if training.validation_split == TUNING_SPLIT and (study.tuning is not None or not of_all):
            place = "base" if of_all else f"arms.{arm}.set"
            yield f"{place}: training.validation_split: {TUNING_SPLIT} is for tuning runs; report another split"


def equal_rounds(study: Study) -> Iterator[str]:
    """Budgets that come to one number of steps, where the runs have no other fault."""
    of_first = partial(settings_for, study, next(iter(study.arms)), seed=study.seeds[0], tuning=True)
    if study.tuning is None or study.tuning.method != "halving" or any(_wrong_rounds(study.tuning)):
        return
    if complaints(of_first):
        return
    steps = [of_first(budget=budget).run.training.steps for budget in study.tuning.budgets]
    for place, number in enumerate(steps[1:]):
        if number == steps[place]:
            one, other = (f"{each:g}" for each in study.tuning.budgets[place : place + 2])
            yield f"tuning.budgets: {one} and {other} are the same number of steps, {number}"


def scales_of_nothing(study: Study) -> Iterator[str]:
    """Claims about the scale of queries and keys where a norm cancels it."""
    for number, hypothesis in enumerate(study.hypotheses):
        sides = [arm for arm in (hypothesis.treatment, hypothesis.control) if arm in study.arms]
        models = [declared_model(study, arm) for arm in sides if _is_faultless(study, arm)]
        if not any(isinstance(model, Model) and model.scores.query_key_norm for model in models):
            continue
        for place, word in enumerate(hypothesis.varies):
            if word in SCALES_OF_SCORES:
                yield (
                    f"hypotheses.{number}.varies.{place}: {word} decides nothing where scores.query_key_norm is true: "
                    "the norm cancels it; leave it out"
                )


def wrong_looks(study: Study) -> Iterator[str]:
    """Of a study of which nothing was left out: without its seeds, no look fits."""
    looks, seeds = study.looks, len(study.seeds)
    if not looks:
        return
    listed = ", ".join(map(str, looks))
    if looks != sorted(set(looks)):
        yield f"looks: {listed}: numbers of seeds, each larger than the one before"
    elif looks[0] < LEAST_PAIRS:
        yield f"looks: {looks[0]} is too early: a look needs at least {LEAST_PAIRS} seeds"
    elif looks[-1] > seeds:
        yield f"looks: {looks[-1]} is beyond the seeds, of which there are {seeds}"
    elif looks[-1] < seeds:
        yield f"looks: the last one is {looks[-1]}, and there are {seeds} seeds: end with {seeds}, or remove seeds"
    if not study.paired_claims:
        yield "looks: no hypothesis is decided by seeds; leave looks out"
