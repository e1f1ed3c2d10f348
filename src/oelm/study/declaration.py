"""A study file: question, base config, arms, seeds, one grid for all arms, hypotheses with their margins.

Fixed before the runs start. What it means for one run is `settings_for`; every problem in a file is one line.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from oelm.arms import canonical_name
from oelm.config import Count, Frozen, Positive, Settings, kind_of_model
from oelm.errors import UserError
from oelm.run_directory import check_name
from oelm.settings import full_key, problem_lines, read_yaml_file, settings_of, with_preset
from oelm.study.slurm_request import SlurmRequest

STUDIES = Path("studies")  # where a bare name is looked up
Language = Literal["en", "zh"]


class Bilingual(Frozen):
    en: str
    zh: str


Text = str | Bilingual


def in_language(text: Text, language: Language) -> str:
    return text if isinstance(text, str) else getattr(text, language)


class Arm(Frozen):
    """One kind of model in the comparison."""

    arm: str | None = None  # a named arm; None: the key is the name
    label: Text | None = None
    set: dict[str, Any] = Field(default={})  # settings of this arm alone: each shows up as a confound
    processes: Positive = 1  # of each run, by torchrun


# What may differ between the attention of two arms. A hypothesis says which of it is its treatment.
Aspect = Literal["start", "scale", "moves", "share"]
Kind = Literal["not_worse", "equivalent", "better", "fewer_parameters", "faster"]
QUALITY_KINDS = ("not_worse", "better", "equivalent")
NEEDS_A_MARGIN = ("not_worse", "equivalent")
# What quality is measured by -> the key that states the margin: percent of perplexity, or percentage points.
Measure = Literal["loss", "accuracy"]
MARGINS: dict[Measure, str] = {"loss": "margin_percent", "accuracy": "margin_points"}


class Hypothesis(Frozen):
    """A claim about two arms, and what settles it.

    not_worse: the treatment's perplexity is at most `margin_percent` above the control's. equivalent: within it both
    ways. better: below the control's by more than `margin_percent` (0 unless stated). The same of accuracy, where
    higher is better, with `measure: accuracy` and `margin_points`. fewer_parameters: at least `least_frozen`
    parameters never move. faster: a step takes less time, measured by `oelm bench` only.
    """

    name: str
    claim: Text
    kind: Kind
    treatment: str
    control: str
    varies: list[Aspect]
    measure: Measure = "loss"
    margin_percent: float | None = Field(default=None, gt=0)
    margin_points: float | None = Field(default=None, gt=0)
    least_frozen: Positive | None = None
    fails_when: Text | None = None
    confirmatory: bool = True
    explained: dict[str, Text] = Field(default={})  # a confound's key -> why it is part of the question

    @model_validator(mode="after")
    def _consistent(self) -> Hypothesis:
        if self.measure == "accuracy" and self.kind not in QUALITY_KINDS:
            raise ValueError(f"{self.name}: measure is for {', '.join(QUALITY_KINDS)}, not for {self.kind}")
        if self.kind in NEEDS_A_MARGIN and self.margin is None:
            raise ValueError(f"{self.name}: {self.kind} needs {MARGINS[self.measure]}")
        for measure, key in MARGINS.items():
            if measure != self.measure and getattr(self, key) is not None:
                raise ValueError(f"{self.name}: {key} is a margin of {measure}; this claim measures {self.measure}")
        if self.kind == "fewer_parameters" and self.least_frozen is None:
            raise ValueError(f"{self.name}: fewer_parameters needs least_frozen")
        if self.treatment == self.control:
            raise ValueError(f"{self.name}: treatment and control are both {self.control}")
        return self

    @property
    def margin(self) -> float | None:
        """As stated: percent of perplexity, or percentage points of accuracy."""
        return getattr(self, MARGINS[self.measure])


class Tuning(Frozen):
    """The same points for every arm, judged on the tuning split; an optimum at an edge adds points for all arms."""

    grid: dict[str, Annotated[list[float], Field(min_length=2)]] = Field(min_length=1)
    set: dict[str, Any] = Field(default={})  # for all tuning runs alike, for example fewer steps
    seeds: list[Count] = Field(default=[1000], min_length=1)
    extend: Count = 2  # at most so many points are added at each end of a key


class Neighbour(Frozen):
    """Another study whose stored findings a report shows beside its own."""

    study: str  # its file, or its name in the folder `studies`
    runs: str | None = None  # None: runs/NAME


class Study(Frozen):
    name: str
    question: Text
    base: dict[str, Any]  # as in a config file: preset, model, training, data, execution
    arms: dict[str, Arm] = Field(min_length=1)
    baseline: str
    seeds: list[Count] = Field(min_length=1)
    tuning: Tuning | None = None
    hypotheses: list[Hypothesis] = Field(default=[])
    target_percent: float = Field(default=10, gt=0)  # time to a perplexity so much above the baseline's final one
    beside: list[Neighbour] = Field(default=[])
    slurm: SlurmRequest = SlurmRequest()  # what jobs ask for on a cluster
    notes: Text | None = None
    cite: Text | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Study:
        named = {"baseline": self.baseline}
        for hypothesis in self.hypotheses:
            named |= {
                f"{hypothesis.name}.treatment": hypothesis.treatment,
                f"{hypothesis.name}.control": hypothesis.control,
            }
        for place, arm in named.items():
            if arm not in self.arms:
                raise ValueError(f"{place}: {arm!r} is not one of the arms {', '.join(self.arms)}")
        for what, values in (("seeds", self.seeds), ("hypotheses", [each.name for each in self.hypotheses])):
            if len(set(values)) < len(values):
                raise ValueError(f"{what}: one is there twice")
        return self

    @property
    def learning_rate_is_tuned(self) -> bool:
        return self.tuning is not None and "training.learning_rate" in self.tuning.grid

    @property
    def classifies(self) -> bool:
        """Whether its runs sort sentences into classes: then quality is accuracy."""
        return kind_of_model(with_preset(self.base).get("model")) == "encoder"


# ---- Reading -------------------------------------------------------------------------------------------------------


def load_study(source: str | Path) -> Study:
    """A study by its path, or by its name in the folder `studies`."""
    path = study_file(source)
    tree = read_yaml_file(path)
    if not isinstance(tree, dict):
        raise UserError(f"{path}: is not a study: no keys and values (see studies/demo.yaml)")
    return study_of({"name": path.stem} | tree, name=str(path))


def study_of(tree: dict[str, Any], *, name: str) -> Study:
    """A validated study; `name` is what errors call its source."""
    tree = dict(tree)
    if isinstance(tree.get("arms"), list):
        twice = [arm for arm in tree["arms"] if tree["arms"].count(arm) > 1]
        if twice:
            raise UserError(f"{name}: arms: {twice[0]} is there twice")
        tree["arms"] = {str(arm): {} for arm in tree["arms"]}
    if isinstance(tree.get("arms"), dict):
        tree["arms"] = {key: value or {} for key, value in tree["arms"].items()}
        tree.setdefault("baseline", next(iter(tree["arms"]), ""))
    try:
        study = Study.model_validate(tree)
    except ValidationError as error:
        raise UserError("\n".join(f"{name}: {line}" for line in problem_lines(error, model=Study))) from error
    with naming(name):
        for each in (study.name, *study.arms):
            check_name(each)
    study = _with_full_keys(study, name=name)
    with naming(name):
        _check_values(study)
        _check_every_arm(study)
    return study


def with_processes(study: Study, processes: int) -> Study:
    """The same study with so many processes for every run: where it executes, not what it computes."""
    arms = {key: arm.model_copy(update={"processes": processes}) for key, arm in study.arms.items()}
    return study.model_copy(update={"arms": arms})


def study_digest(study: Study) -> str:
    """What a report names to show that the plan is the one the runs were made for."""
    tree = study.model_dump(mode="json", exclude={"slurm"})  # where runs execute is not what they are
    for part in (tree, *tree["hypotheses"]):
        for key, unused in _ADDED_LATER.items():
            if key in part and part[key] == unused:
                del part[key]
    text = json.dumps(tree, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


# Keys that studies did not always have, by their defaults: one that does not use them keeps its digest.
_ADDED_LATER: dict[str, Any] = {"beside": [], "measure": "loss", "margin_points": None}


def study_file(source: str | Path) -> Path:
    path = Path(source)
    if path.is_file():
        return path
    named = STUDIES / f"{source}.yaml"
    if path.name == str(source) and named.is_file():
        return named
    known = ", ".join(sorted(file.stem for file in STUDIES.glob("*.yaml"))) if STUDIES.is_dir() else ""
    raise UserError(f"study {str(source)!r}: no such file" + (f"; in {STUDIES}/: {known}" if known else ""))


def _with_full_keys(study: Study, *, name: str) -> Study:
    """learning_rate -> training.learning_rate, wherever a study names a setting."""

    def full(values: dict[str, Any], where: str) -> dict[str, Any]:
        found = {}
        for key, value in values.items():
            try:
                found[full_key(key)] = value
            except UserError as error:
                raise UserError(f"{name}: {where}: {str(error).removeprefix('--set ')}") from error
        return found

    arms = {key: arm.model_copy(update={"set": full(arm.set, f"arms.{key}.set")}) for key, arm in study.arms.items()}
    tuning = study.tuning
    if tuning is not None:
        grid = {key: sorted(dict.fromkeys(points)) for key, points in full(tuning.grid, "tuning.grid").items()}
        tuning = tuning.model_copy(update={"grid": grid, "set": full(tuning.set, "tuning.set")})
    return study.model_copy(update={"arms": arms, "tuning": tuning})


@contextlib.contextmanager
def naming(source: str) -> Iterator[None]:
    """Put the file's name before every line of an error."""
    try:
        yield
    except UserError as error:
        raise UserError("\n".join(f"{source}: {line}" for line in str(error).splitlines())) from error


def _check_values(study: Study) -> None:
    """Each setting has one place: a grid's key is the grid's, seeds are the study's, arms are arms."""
    if "arm" in study.base:
        raise UserError("base.arm: the arms of a study stand under arms")
    _check_measures(study)
    if study.tuning is None:
        return
    shared = sorted(set(study.seeds) & set(study.tuning.seeds))
    if shared:
        raise UserError(f"tuning.seeds: {shared[0]} is also one of seeds; what was tuned on is not a test")
    for key, points in study.tuning.grid.items():
        if len(points) < 2:
            raise UserError(f"tuning.grid.{key}: needs at least two different values")
        if not key.startswith(("model.", "training.")):
            raise UserError(f"tuning.grid.{key}: only what a run computes can be tuned, not where or from which seed")
        places = {"tuning.set": study.tuning.set} | {f"arms.{arm}.set": each.set for arm, each in study.arms.items()}
        for place, own in places.items():
            if key in own:
                raise UserError(f"{place}.{key}: is also in the grid, whose values would replace it")


def _check_measures(study: Study) -> None:
    """Accuracy where the runs classify, loss where they predict text: nothing else can be reported honestly."""
    for hypothesis in study.hypotheses:
        if hypothesis.kind not in QUALITY_KINDS or (hypothesis.measure == "accuracy") == study.classifies:
            continue
        if study.classifies:
            raise UserError(f"{hypothesis.name}: these runs classify: add measure: accuracy, with margin_points")
        raise UserError(f"{hypothesis.name}: measure accuracy: these runs do not classify (preset fine-tuning does)")


def _check_every_arm(study: Study) -> None:
    """Build each arm's settings once, so that a wrong key is found before anything runs."""
    known: dict[str, str] = {}
    for arm in study.arms:
        settings = settings_for(study, arm, seed=study.seeds[0])
        if study.tuning:
            for values in itertools.product(*study.tuning.grid.values()):
                point = dict(zip(study.tuning.grid, values, strict=True))
                settings_for(study, arm, seed=study.seeds[0], values=point, tuning=True)
                settings_for(study, arm, seed=study.seeds[0], values=point)
        if (kind_of_model(settings.run.model) == "encoder") != study.classifies:
            raise UserError(f"arms.{arm}.set: another kind of model than the base's: a comparison needs one kind")
        identity = settings.run.model_dump_json(exclude={"arm", "data"})
        if identity in known:
            raise UserError(f"arms {known[identity]} and {arm} are the same computation")
        known[identity] = arm


# ---- One run -------------------------------------------------------------------------------------------------------


def settings_for(
    study: Study, arm: str, *, seed: int, values: dict[str, Any] | None = None, tuning: bool = False
) -> Settings:
    """The settings of one run: base, arm, tuning's own, the arm's own, then the grid's values."""
    entry = study.arms[arm]
    own = dict(study.tuning.set) | {"training.validation_split": "tune"} if tuning and study.tuning else {}
    return settings_of(
        with_preset(study.base),
        name=f"arms.{arm}",
        arm=canonical_name(entry.arm or arm),
        seed=seed,
        values=own | entry.set | (values or {}),
    )
