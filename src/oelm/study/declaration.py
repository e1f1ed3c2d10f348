"""A study file: question, base config, arms, seeds, one grid for all arms, hypotheses with their margins.

Fixed before the runs start. What it means for one run is `settings_for`; every problem in a file is one line.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from oelm.arms import canonical_name
from oelm.claims.kinds import FAMILY, KINDS, LEAST_PAIRS, MEASURED, PAIRED, SOLVING, Evidence, Kind, kinds_about
from oelm.claims.measures import LOSS, MEASURES, SCALES, Measure, measures_of
from oelm.claims.solving import Criterion
from oelm.config import AnyModel, Model, Run, Settings, Training, as_far_as_known, kind_of_model
from oelm.errors import UserError
from oelm.probes.probe import Probe, WrongProbe, is_probe, probe_of, written
from oelm.run_directory import check_name
from oelm.sections import Count, Positive, Section, Share
from oelm.settings import full_key, known_keys, problem_lines, read_yaml_file, settings_of, with_preset
from oelm.study.catalogue import study_file
from oelm.study.draws import MOST_DRAWS, PROJECTIONS, draw_seed
from oelm.study.part_aspects import SCALES_OF_SCORES, VARIATIONS
from oelm.study.rate_fit import LEAST_SEEDS
from oelm.study.sizes import (
    DIALS,
    LEAST_FOR_A_FORECAST,
    NAMED,
    carried_from,
    cell_name,
    computed,
    is_larger,
    point_name,
)
from oelm.study.slurm_request import SlurmRequest
from oelm.treatment.draws import draws_what_it_treats

Language = Literal["en", "zh"]


class Bilingual(Section):
    en: str
    zh: str


Text = str | Bilingual


def in_language(text: Text, language: Language) -> str:
    return text if isinstance(text, str) else getattr(text, language)


class Arm(Section):
    """One kind of model in the comparison."""

    arm: str | None = None  # a named arm; None: the key is the name
    label: Text | None = None
    set: dict[str, Any] = Field(default={})  # settings of this arm alone: each shows up as a confound
    processes: Positive = 1  # of each run, by torchrun
    sizes: list[str] | None = Field(default=None, exclude=True)  # at which it is run; None: at all of the study


class SizedArm(Arm):
    """An arm at one of the sizes: what `sizes` makes of it. A study with sizes has these alone."""

    family: str  # the arm as the study declares it
    own: dict[str, Any]  # what it sets itself
    size: str
    dials: tuple[str, ...]  # whose points it is


def _one_of(table: Mapping[str, object], *, listed_in: str = "") -> AfterValidator:
    """A key of a table, which is read when a study is: a row more is a word more that a study may use.

    Of a long table, an error names the page that lists it.
    """

    def known(name: str) -> str:
        if name not in table:
            expected = ", ".join(f"'{each}'" for each in table)
            context = {"expected": expected, "listed_in": listed_in}
            raise PydanticCustomError("literal_error", "Input should be one of {expected}", context)
        return name

    return AfterValidator(known)


Per = Literal["parameters", "tokens", "flops"]  # what of a size is counted


class Hypothesis(Section):
    """A claim about two arms. What it means and what settles it, the tables of its kind and its measure say.

    A margin stands under the key of its measure's scale.
    """

    name: str
    claim: Text
    kind: Annotated[str, _one_of(KINDS)]
    treatment: str
    control: str
    varies: list[
        Annotated[str, _one_of(VARIATIONS, listed_in="docs/studies.md")]
    ]  # which differences between the arms are the treatment
    measure: Annotated[str, _one_of(MEASURES)] = LOSS.key
    margin_percent: float | None = Field(default=None, gt=0)
    margin_points: float | None = Field(default=None, gt=0)
    least_frozen: Positive | None = None
    least_fewer: Positive | None = None
    solved_at: Share | None = None
    difficulty: Positive | None = None  # at which the accuracy counts; None: the mean over all of them
    size: str | None = None  # it is about; None: the study's main one
    over: str | list[str] | None = None  # a dial or names of sizes, of a claim about scale; None: all, if of one kind
    per: Per | None = None  # doubling of what; None: parameters, or tokens where all sizes have the same
    fails_when: Text | None = None
    confirmatory: bool = True
    explained: dict[str, Text] = Field(default={})  # a confound's key -> why it is part of the question

    @model_validator(mode="after")
    def _consistent(self) -> Hypothesis:
        if problems := list(self._problems()):
            raise ValueError("\n".join(f"{self.name}: {each}" for each in problems))
        return self

    def _problems(self) -> Iterator[str]:
        kind, scale = KINDS[self.kind], self.quality.scale
        if self.measure != LOSS.key and kind.evidence not in MEASURED:
            yield f"measure is for {', '.join(kinds_about(*MEASURED))}, not for {self.kind}"
        elif kind.needs == "margin" and self.margin is None:
            yield f"{self.kind} needs {scale.margin_key}"
        elif self.margin is not None and not kind.takes_margin:
            yield f"{self.kind} takes no margin; leave {scale.margin_key} out"
        for other in SCALES:
            if other is not scale and getattr(self, other.margin_key) is not None:
                theirs = ", ".join(each.key for each in MEASURES.values() if each.scale is other)
                yield f"{other.margin_key} is a margin of {theirs}; this claim measures {self.measure}"
        yield from self._problems_of_counts(kind)
        yield from self._problems_of_solving(kind)
        for key in ("size",) if kind.evidence == "scale" else ("over", "per"):
            if getattr(self, key) is not None:
                yield f"{self.kind} takes no {key}; leave it out"
        if self.treatment == self.control:
            yield f"treatment and control are both {self.control}"

    def _problems_of_counts(self, kind: Kind) -> Iterator[str]:
        takes = {"least_frozen": kind.needs == "least_frozen", "least_fewer": kind.of_fewer is not None}
        stated = [key for key in takes if getattr(self, key) is not None]
        for key in stated:
            if not takes[key]:
                yield f"{self.kind} takes no {key}; leave it out"
        if takes["least_frozen"] and not stated:
            yield f"{self.kind} needs {' or '.join(key for key, taken in takes.items() if taken)}"
        if len(stated) > 1:
            yield f"{self.kind} takes either least_frozen or least_fewer, not both"

    def _problems_of_solving(self, kind: Kind) -> Iterator[str]:
        if kind.needs == "solved_at" and self.solved_at is None:
            yield f"{self.kind} needs solved_at, the accuracy that counts as solved: 0.9, for example"
        if kind.needs != "solved_at" and self.solved_at is not None:
            yield f"{self.kind} takes no solved_at; leave it out"
        has_difficulties = self.quality.has_difficulties if kind.evidence in MEASURED else kind.evidence in SOLVING
        if self.difficulty is not None and not has_difficulties:
            yield "difficulty is for claims about probes; leave it out"

    @property
    def evidence(self) -> Evidence:
        """What settles it."""
        return KINDS[self.kind].evidence

    @property
    def quality(self) -> Measure:
        """By what the arms are compared, where the claim is one of quality."""
        return MEASURES[self.measure]

    @property
    def criterion(self) -> Criterion | None:
        """When a run counts as solved, where the claim is about that."""
        return None if self.solved_at is None else Criterion(self.solved_at, self.difficulty)

    @property
    def margin(self) -> float | None:
        """As stated: in per cent, or in percentage points."""
        stated: float | None = getattr(self, self.quality.scale.margin_key)
        return stated


class Tuning(Section):
    """The same points for every arm, judged on the tuning split; an optimum at an edge adds points for all arms."""

    grid: dict[str, Annotated[list[float], Field(min_length=2)]] = Field(min_length=1)
    set: dict[str, Any] = Field(default={})  # for all tuning runs alike, for example fewer steps
    seeds: list[Count] = Field(default=[1000], min_length=1)
    extend: Count = 2  # at most so many points are added at each end of a key
    at: list[str] | None = None  # sizes; values of the others follow from theirs by a power law; None: all are tuned
    rank: Literal["loss", "solved"] = "loss"
    solved_at: Share | None = None
    method: Literal["grid", "halving"] = "grid"
    # Of halving: shares of the steps of a tuning run, or numbers of steps; and by how many nats a value that gets the
    # next budget may be behind the best.
    budgets: list[Annotated[float, Field(gt=0)]] = Field(default=[0.25, 1.0], min_length=2)
    margin: float = Field(default=0.2, gt=0)
    choose: Literal["lowest", "fitted"] = "lowest"

    @model_validator(mode="after")
    def _consistent(self) -> Tuning:
        if self.rank == "solved" and self.solved_at is None:
            raise ValueError("rank: solved needs solved_at, the accuracy that counts as solved: 0.9, for example")
        if self.rank != "solved" and self.solved_at is not None:
            raise ValueError("solved_at is for rank: solved")
        return self

    @property
    def criterion(self) -> Criterion | None:
        """By which points are ranked; None: by their losses."""
        return None if self.solved_at is None else Criterion(self.solved_at)

    @property
    def rounds(self) -> list[float | None]:
        """The budget of each; None: all the steps that a tuning run has."""
        return [*self.budgets] if self.method == "halving" else [None]


class Neighbour(Section):
    """Another study whose stored findings a report shows beside its own."""

    study: str  # its file or its name
    runs: str | None = None  # None: runs/NAME


class Claim(Section):
    """A result that others report: shown as a row beside this study's own, in texts as its source has them."""

    source: Text
    model_and_task: Text
    from_baseline: Text
    number: Text
    number_of_seeds: Positive | None = None
    outcome: Text | None = None
    ratio: Text | None = None
    trainable_share: Text | None = None
    remarks: list[Text] = Field(default=[])  # what a reader should know of it


class Consequences(Section):
    """What follows if the main frozen arm turns out better than the baseline, equal to it within the margin, worse."""

    better: Text | None = None
    equal: Text | None = None
    worse: Text | None = None


class Study(Section):
    name: str
    question: Text
    base: dict[str, Any]  # as in a config file: preset, model, training, data, execution
    arms: dict[str, Arm] = Field(min_length=1)
    baseline: str
    seeds: list[Count] = Field(min_length=1)
    draws: Annotated[Positive, Field(le=MOST_DRAWS)] = 1  # of what an arm treats, for each seed
    looks: list[Count] = Field(default=[])  # after so many seeds, in the order of `seeds`, the claims are looked at
    futility: bool = False  # whether a look gives up claims that will hardly be decided by the last one
    tuning: Tuning | None = None
    sizes: dict[str, list[Positive] | dict[str, Any]] = Field(default={})  # values of a dial, or settings of one size
    main_size: str | None = None  # of tables, curves and claims that name none; None: the last
    forecast: dict[str, Positive | dict[str, Any]] = Field(default={})  # larger sizes, as in `sizes`, that are not run
    hypotheses: list[Hypothesis] = Field(default=[])
    target_percent: float = Field(default=10, gt=0)  # time to a perplexity so much above the baseline's final one
    scope: Text | None = None  # what the verdicts are limited to, beside size and training, which are counted
    beside: list[Neighbour] = Field(default=[])
    reported: list[Claim] = Field(default=[])  # by others: shown below the neighbours
    consequences: Consequences = Consequences()
    slurm: SlurmRequest = SlurmRequest()  # what jobs ask for on a cluster
    notes: Text | None = None
    cite: Text | None = None

    @property
    def learning_rate_is_tuned(self) -> bool:
        return self.tuning is not None and RATE_KEY in self.tuning.grid

    @property
    def model_kind(self) -> str:
        return kind_of_model(with_preset(self.base).get("model"))

    @property
    def fine_tunes(self) -> bool:
        """Whether its runs fine-tune an encoder: given weights, which come with the data, and examples to read."""
        return self.model_kind == "encoder"

    @property
    def probe(self) -> Probe | None:
        """What its runs learn, where that is a probe."""
        return probe_of(self._data) if self.probes else None

    @property
    def probes(self) -> bool:
        return is_probe(self._data)

    @property
    def _data(self) -> str:
        return str(written(with_preset(self.base).get("data", "")))

    @property
    def measure(self) -> Measure:
        """By what its arms are compared: what its claims about quality name, or else what such runs usually are."""
        claimed = (each.quality for each in self.hypotheses if each.evidence in MEASURED)
        return next(claimed, None) or self.possible_measures[0]

    @property
    def possible_measures(self) -> list[Measure]:
        return measures_of("probe" if self.probes else self.model_kind)

    @property
    def paired_claims(self) -> list[Hypothesis]:
        """Those that pairs of runs decide."""
        return [each for each in self.hypotheses if each.evidence in PAIRED]

    @property
    def family(self) -> list[Hypothesis]:
        """Those whose p-values Holm's correction counts, if they are confirmatory."""
        return [each for each in self.hypotheses if each.evidence in FAMILY]

    @property
    def criteria(self) -> list[Criterion]:
        """Every accuracy that it calls solved."""
        stated = [*(each.criterion for each in self.hypotheses), self.tuning.criterion if self.tuning else None]
        return list(dict.fromkeys(each for each in stated if each is not None))


# ---- Reading -------------------------------------------------------------------------------------------------------


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
    problems += [*wrong_keys, *_at_odds(tree)]
    if study is not None:
        study, wrong = _with_full_keys(study)
        problems += wrong
        study, wrong = _with_sizes(study) if study.sizes and not problems else (study, list(_sizeless(study)))
        problems += wrong
        whole = [arm for arm in study.arms if not any(line.startswith(f"arms.{arm}.") for line in problems)]
        checks = (
            _named_wrongly, _misplaced_values, _faults_of_arms, _equal_rounds, _draws_of_nothing, _scales_of_nothing,
        )  # fmt: skip
        problems += [] if wrong_keys else _wrong_looks(study)
        problems += [*(line for check in checks for line in check(study)), *_equal_arms(study, whole)]
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
            problems = problems or problem_lines(error, model=Study, known=study_keys(tree.get("base")))
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


def study_keys(base: Any = None) -> list[str]:
    """Every dotted key a study with this base may hold: hypotheses.N.claim, arms.NAME.label, base.training.steps."""
    tree = base if isinstance(base, dict) and not _complaints(partial(with_preset, base)) else {}
    settings = known_keys(kind=kind_of_model(with_preset(tree).get("model")))
    return [*_keys_of(Study), *(f"base.{key}" for key in (*settings, "preset") if key != "arm")]


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


def with_processes(study: Study, processes: int) -> Study:
    """The same study with so many processes for every run: where it executes, not what it computes."""
    arms = {key: arm.model_copy(update={"processes": processes}) for key, arm in study.arms.items()}
    return study.model_copy(update={"arms": arms})


def study_digest(study: Study) -> str:
    """What a report names to show that the plan is the one the runs were made for."""
    return tree_digest(declared_tree(study))


def tree_digest(tree: dict[str, Any]) -> str:
    text = json.dumps(tree, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def declared_tree(study: Study) -> dict[str, Any]:
    """All that a study declares, as JSON."""
    tree = study.model_dump(mode="json", exclude=_NOT_DECLARED)
    tree["hypotheses"] = [used_keys(each) for each in tree["hypotheses"]]
    tree["tuning"] = tree["tuning"] and used_keys(as_declared(tree["tuning"]))
    return used_keys(tree)


def used_keys(part: dict[str, Any]) -> dict[str, Any]:
    """A part of a declaration without the later keys that it does not use."""
    return {key: value for key, value in part.items() if key not in _ADDED_LATER or value != _ADDED_LATER[key]}


def as_declared(tuning: dict[str, Any]) -> dict[str, Any]:
    """What a study says of its tuning, without the keys of halving and of fitting where it does neither."""
    unused = OF_HALVING if tuning["method"] == "grid" else ()
    unused += ("choose",) if tuning["choose"] == "lowest" else ()
    return {key: value for key, value in tuning.items() if key not in unused}


OF_HALVING: tuple[str, ...] = ("method", "budgets", "margin")

# Where runs execute is not what they are, and what others report is not what a study declares.
_NOT_DECLARED = {"slurm", "reported"}
# Keys that studies did not always have, by their defaults: one that does not use them keeps its digest.
_ADDED_LATER: dict[str, Any] = {
    "beside": [], "measure": "loss", "margin_points": None, "scope": None, "least_fewer": None,
    "consequences": Consequences().model_dump(), "draws": 1, "solved_at": None, "difficulty": None, "rank": "loss",
    "looks": [], "futility": False,
    "sizes": {}, "main_size": None, "forecast": {}, "at": None, "size": None, "over": None, "per": None,
}  # fmt: skip


# Keys of claims and of tuning that only studies of probes have, and those that only studies with sizes have.
OF_PROBES = ("solved_at", "difficulty", "rank")
OF_SIZES = ("sizes", "main_size", "forecast", "at", "size", "over", "per")


def _with_full_keys(study: Study) -> tuple[Study, list[str]]:
    """learning_rate -> training.learning_rate, wherever a study names a setting; and the keys that are none."""
    problems: list[str] = []

    def full(values: dict[str, Any], where: str) -> dict[str, Any]:
        found = {}
        for key, value in values.items():
            try:
                found[full_key(key)] = value
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


# ---- Sizes ---------------------------------------------------------------------------------------------------------


def _sizeless(study: Study) -> Iterator[str]:
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
        elif claim.size is not None:
            yield f"{claim.name}: size {rule}"


def _with_sizes(study: Study) -> tuple[Study, list[str]]:
    """Every arm at every one of its sizes in place of the arms; claims about one size are about these, claims about
    scale about the arms as they were declared."""
    try:
        same = _first_names(study)
        cells = {arm: _at_sizes(study, arm, same) for arm in study.arms}
        main = _known_size(study.main_size or list(same)[-1], same, "main_size")
        if main not in cells[study.baseline]:
            raise UserError(f"main_size: the baseline {study.baseline} is not run at {main}")
        claims = [_at_its_sizes(claim, main, cells, same) for claim in study.hypotheses]
        _check_forecasts(study)
    except UserError as error:
        return study, str(error).splitlines()
    ordered = [(arm, size) for size in dict.fromkeys(same.values()) for arm in study.arms if size in cells[arm]]
    changes = {"baseline": cell_name(study.baseline, main), "main_size": main, "hypotheses": claims}
    arms = {cell_name(arm, size): cells[arm][size] for arm, size in ordered}
    sized = study.model_copy(update={"arms": arms, **changes})
    return sized, list(_wrong_carrying(sized, arms, same))


def _wrong_carrying(study: Study, arms: dict[str, SizedArm], same: dict[str, str]) -> Iterator[str]:
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
        for size in at:
            _known_size(size, same, "tuning.at")
        tuned = [name for name, arm in arms.items() if arm.size in at]
        for name in (each for each in arms if each not in tuned):
            carried_from(arms, name, tuned)
    except UserError as error:
        yield str(error)


def _first_names(study: Study) -> dict[str, str]:
    """Every size of the study -> the first that computes the same: points of two dials may meet."""
    known: dict[str, str] = {}
    points = _points(study, study.baseline)
    runs = {
        name: _settings(study, study.baseline, name=f"sizes.{name}", values=values).run for name, _, values in points
    }
    return {name: known.setdefault(computed(run), name) for name, run in runs.items()}


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
    base = _settings(study, arm, name=f"arms.{arm}", values=own).run
    yield from _points_of(study.sizes, base, {f"arms.{arm}.set.{key}": key for key in own}, place="sizes")


def _points_of(
    sizes: Mapping[str, list[int] | dict[str, Any]], base: Run, own: dict[str, str], *, place: str
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """`own` is what the arm sets itself, by the place where it does; `place`, where these sizes are declared."""
    for key, given in sizes.items():
        if isinstance(given, dict):
            if key in DIALS:
                raise UserError(f"{place}.{key}: is a dial; list its values, or give the size another name")
            turned, points = list(given), [(key, NAMED, given)]
        elif key in DIALS:
            turned = [DIALS[key].key]
            points = [
                (point_name(key, value), key, _turned(f"{place}.{key}", base, value)) for value in sorted(set(given))
            ]
        else:
            expected = f"a list is for a dial ({', '.join(DIALS)}); a size has settings by their keys"
            raise UserError(f"{place}.{key}: {expected}")
        if clash := [where for where, each in own.items() if each in turned]:
            raise UserError(f"{clash[0]}: is also set by {place}.{key}")
        yield from points


def _turned(place: str, base: Run, value: int) -> dict[str, Any]:
    try:
        return DIALS[place.rpartition(".")[2]].rule(base, value)
    except UserError as error:
        raise UserError(f"{place}: {error}") from error


def larger_runs(study: Study) -> Iterator[tuple[str, str, Run]]:
    """Every size that is to be forecast: its name, the dial whose sizes it is forecast from, the baseline's run."""
    baseline = study.arms[study.baseline]
    own = baseline.own if isinstance(baseline, SizedArm) else baseline.set
    base = _settings(study, study.baseline, name="forecast", values=own).run
    listed = {key: given if isinstance(given, dict) else [given] for key, given in study.forecast.items()}
    points = _points_of(listed, base, {}, place="forecast")
    named = NAMED if any(isinstance(each, dict) for each in study.sizes.values()) else next(iter(study.sizes))
    for name, dial, values in points:
        run = _settings(study, study.baseline, name=f"forecast.{name}", values=own | values).run
        yield name, named if dial == NAMED else dial, run


def _check_forecasts(study: Study) -> None:
    """Before the arms are at their sizes: a forecast is of a larger size than all that it rests on, five or more."""
    for name, dial, run in larger_runs(study):
        tried = [
            _settings(study, study.baseline, name=size, values=study.arms[study.baseline].set | values).run
            for size, each, values in _points(study, study.baseline)
            if each == dial
        ]
        if len(tried) < LEAST_FOR_A_FORECAST:
            sizes = f"{len(tried)} sizes ({dial})" if tried else f"none ({dial})"
            raise UserError(f"forecast.{name}: needs at least {LEAST_FOR_A_FORECAST} sizes; this study has {sizes}")
        if not is_larger(run, tried):
            raise UserError(f"forecast.{name}: is not larger than the sizes tried ({dial}), as a forecast must be")


def _at_its_sizes(
    claim: Hypothesis, main: str, cells: dict[str, dict[str, SizedArm]], same: dict[str, str]
) -> Hypothesis:
    pair = claim.treatment, claim.control
    if any(arm not in cells for arm in pair):
        return claim  # which is said elsewhere
    if claim.evidence == "scale":
        shared = {size: cell.dials for size, cell in cells[claim.control].items() if size in cells[claim.treatment]}
        return claim.model_copy(update={"over": _over(claim, shared, same)})
    size = _known_size(claim.size or main, same, f"{claim.name}.size")
    for arm in pair:
        if size not in cells[arm]:
            raise UserError(f"{claim.name}.size: {arm} is not run at {size}, but at {', '.join(cells[arm])}")
    if claim.evidence == "speed" and size != main:
        raise UserError(f"{claim.name}.size: {claim.kind} is measured at the main size alone ({main}); leave size out")
    sides = {"treatment": cell_name(claim.treatment, size), "control": cell_name(claim.control, size)}
    return claim.model_copy(update={"size": size, **sides})


def _over(claim: Hypothesis, shared: dict[str, tuple[str, ...]], same: dict[str, str]) -> list[str]:
    """Names of sizes that both of its arms have: of a dial, or those that are listed."""
    place = f"{claim.name}.over"
    if isinstance(claim.over, list):
        named = [_known_size(size, same, place) for size in claim.over]
        if missing := [size for size in named if size not in shared]:
            raise UserError(f"{place}: {claim.treatment} and {claim.control} are not both run at {missing[0]}")
        return list(dict.fromkeys(named))
    dials = list(dict.fromkeys(dial for each in shared.values() for dial in each))
    if claim.over is None and len(dials) > 1:
        raise UserError(f"{place}: say over which sizes: {', '.join(dials)}, or a list of their names")
    if claim.over not in (None, *dials):
        raise UserError(f"{place}: {claim.over!r} is none of {', '.join(dials)}; or list names of sizes")
    return [size for size, each in shared.items() if (claim.over or dials[0]) in each]


def _complaints(check: Callable[[], object]) -> list[str]:
    """What a check has to say, line by line."""
    try:
        check()
    except UserError as error:
        return str(error).splitlines()
    return []


def _named_wrongly(study: Study) -> list[str]:
    return [line for each in (study.name, *study.arms) for line in _complaints(partial(check_name, each))]


def _at_odds(tree: dict[str, Any]) -> Iterator[str]:
    """Names of arms that are none, and names or seeds that are there twice: of a file as it is, whatever else is
    wrong with it."""
    listed = {key: value if isinstance(value, list) else [] for key, value in tree.items()}
    claims = [each for each in listed.get("hypotheses", []) if isinstance(each, dict)]
    sides = [(f"{claim.get('name')}.{side}", claim.get(side)) for claim in claims for side in ("treatment", "control")]
    arms = tree.get("arms")
    for place, arm in [("baseline", tree.get("baseline")), *sides]:
        if isinstance(arm, str) and arms and isinstance(arms, dict) and arm not in arms:
            yield f"{place}: {arm!r} is not one of the arms {', '.join(arms)}"
    for what, values in (("seeds", listed.get("seeds", [])), ("hypotheses", [each.get("name") for each in claims])):
        counted = Counter(value for value in values if type(value) in (int, float, str))
        yield from (f"{what}: {value} occurs twice" for value, times in counted.items() if times > 1)


STEPS_KEY, RATE_KEY = "training.steps", "training.learning_rate"


def _misplaced_values(study: Study) -> Iterator[str]:
    """Each setting has one place: a grid's key is the grid's, seeds are the study's, arms are arms."""
    if "arm" in study.base:
        yield "base.arm: list the arms of a study under arms"
    if not _complaints(partial(with_preset, study.base)):  # which the arms' settings name
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


def _faults_of_arms(study: Study) -> Iterator[str]:
    """Build each arm's settings once, so that a wrong key is found before anything runs. What is wrong without any
    arm is said of the base, what arms share of the first."""
    said: set[str] = set()
    alone = _complaints(lambda: settings_of(with_preset(study.base), name="base"))
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
        problems = _complaints(checks[0])
        of_points = ([line for line in _complaints(check) if line not in problems] for check in checks[1:])
        problems += next(filter(None, of_points), [])
        for line in problems:
            what = line.removeprefix(f"arms.{arm}: ")
            if what not in said:
                said.add(what)
                yield f"base: {what}" if what in of_base else line
        if not problems and kind_of_model(checks[0]().run.model) != study.model_kind:
            yield f"arms.{arm}.set: a different kind of model than in base; a comparison needs the same kind"


def _is_faultless(study: Study, arm: str) -> bool:
    return not _complaints(partial(settings_for, study, arm, seed=study.seeds[0]))


def _equal_arms(study: Study, arms: list[str]) -> Iterator[str]:
    """Of these arms, of which nothing was left out: without it, one may equal another that it does not."""
    known: dict[str, str] = {}
    for arm in arms:
        if _is_faultless(study, arm):
            run = settings_for(study, arm, seed=study.seeds[0]).run
            first = known.setdefault(run.model_dump_json(exclude={"arm", "data"}), arm)
            if first != arm:
                yield f"arms {first} and {arm} are the same computation"


def _equal_rounds(study: Study) -> Iterator[str]:
    """Budgets that come to one number of steps, where the runs have no other fault."""
    of_first = partial(settings_for, study, next(iter(study.arms)), seed=study.seeds[0], tuning=True)
    if study.tuning is None or study.tuning.method != "halving" or any(_wrong_rounds(study.tuning)):
        return
    if _complaints(of_first):
        return
    steps = [of_first(budget=budget).run.training.steps for budget in study.tuning.budgets]
    for place, number in enumerate(steps[1:]):
        if number == steps[place]:
            one, other = (f"{each:g}" for each in study.tuning.budgets[place : place + 2])
            yield f"tuning.budgets: {one} and {other} are the same number of steps, {number}"


def _scales_of_nothing(study: Study) -> Iterator[str]:
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


def _draws_of_nothing(study: Study) -> Iterator[str]:
    """Several draws where there is nothing to draw, of arms that have no other fault."""
    if study.draws == 1 or not all(_is_faultless(study, arm) for arm in study.arms):
        return
    if all(draws_of(study, arm) == 1 for arm in study.arms):
        yield f"draws: {study.draws}, but no arm draws anything that it treats; leave draws out"


def _wrong_looks(study: Study) -> Iterator[str]:
    """Of a study of which nothing was left out: without its seeds, no look fits."""
    looks, seeds = study.looks, len(study.seeds)
    if study.futility and not looks:
        yield "futility: is for studies with looks; add looks or leave it out"
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


# ---- One run -------------------------------------------------------------------------------------------------------


def settings_for(
    study: Study,
    arm: str,
    *,
    seed: int,
    draw: int = 0,
    values: dict[str, Any] | None = None,
    tuning: bool = False,
    budget: float | None = None,
) -> Settings:
    """The settings of one run: base, arm, tuning's own, its draw, the arm's own, the grid's values, then its budget."""
    if budget is not None:
        whole = settings_for(study, arm, seed=seed, draw=draw, values=values, tuning=tuning).run.training
        values = (values or {}) | _schedule_within(budget, whole)
    entry = study.arms[arm]
    own = dict(study.tuning.set) | {"training.validation_split": "tune"} if tuning and study.tuning else {}
    if draw:
        own |= {PROJECTIONS: draw_seed(seed, draw)}
    return _settings(study, arm, name=f"arms.{arm}", seed=seed, values=own | entry.set | (values or {}))


def _settings(study: Study, arm: str, *, name: str, values: dict[str, Any], seed: int | None = None) -> Settings:
    """Of the base with an arm, and these values."""
    named = canonical_name(study.arms[arm].arm or arm)
    return settings_of(with_preset(study.base), name=name, arm=named, seed=seed, values=values)


def _schedule_within(budget: float, whole: Training) -> dict[str, int]:
    """A whole schedule of so many steps, or of such a share of them: a declared warm-up keeps its share."""
    steps = int(budget) if budget > 1 else max(1, round(budget * whole.steps))
    if whole.warmup_steps is None:
        return {STEPS_KEY: steps}
    return {STEPS_KEY: steps, "training.warmup_steps": round(whole.warmup_steps * steps / whole.steps)}


def declared_model(study: Study, arm: str) -> AnyModel:
    """The model of an arm, with what a rule decides of it."""
    return as_far_as_known(settings_for(study, arm, seed=study.seeds[0]).run).model


def draws_of(study: Study, arm: str, values: dict[str, Any] | None = None) -> int:
    """How many runs each of its seeds has."""
    return study.draws if study.draws > 1 and is_drawn(study, arm, values) else 1


def is_drawn(study: Study, arm: str, values: dict[str, Any] | None = None) -> bool:
    """Whether something that an arm treats is drawn, and anew for each seed."""
    if PROJECTIONS in study.arms[arm].set:
        return False
    return draws_what_it_treats(settings_for(study, arm, seed=study.seeds[0], values=values).run.model)
