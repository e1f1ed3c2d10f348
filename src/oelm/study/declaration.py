"""What a study declares: question, base config, arms, seeds, one grid for all arms, hypotheses with their margins.

Fixed before the runs start. A file becomes one in reading.py; what it means for one run, one_run.py says.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, Tag, model_validator
from pydantic_core import PydanticCustomError

from oelm.core.config import kind_of_model
from oelm.core.measures import LOSS, MEASURES, SCALES, Measure, measures_of
from oelm.core.probes.probe import Probe, is_probe, probe_of, written
from oelm.core.sections import VALUE_TAG, Count, Keyed, Positive, Section, Share, keyed_or_value
from oelm.core.settings import with_preset
from oelm.core.solving import Criterion
from oelm.study.claims.kinds import (
    FAMILY,
    KINDS,
    LEAST_PAIRS,
    MEASURED,
    OF_DIFFERENCES,
    PAIRED,
    SOLVING,
    Evidence,
    Kind,
    kinds_about,
)
from oelm.study.part_aspects import VARIATIONS
from oelm.study.rate_fit import LEAST_SEEDS, REACH
from oelm.study.slurm_request import SlurmRequest

DEFAULT_TUNING_SEEDS = [1000, 1001, 1002]
NO_LOOKS = "none"  # in place of their list
STEPS_KEY, RATE_KEY = "training.steps", "training.learning_rate"

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
    against: str | None = None  # of a contrast: the size whose difference is taken from that at `size`
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
        refused = ("size", "difficulty") if kind.evidence == "scale" else ("over", "per")
        for key in refused if kind.evidence == "contrast" else (*refused, "against"):
            if getattr(self, key) is not None:
                yield f"{self.kind} takes no {key}; leave it out"
        if kind.evidence == "contrast" and self.against is None:
            yield f"{self.kind} needs against, the size that the difference at `size` is compared with"
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
        if self.difficulty is not None and not has_difficulties and kind.evidence != "scale":
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
    beyond: Positive = 1  # so many are to lie on each side of an optimum: two tell a curve from a kink
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


# Settings of one size, or values of a dial: all that are run, or a larger one.
Size = Annotated[Annotated[list[Positive], Field(min_length=1), Tag(VALUE_TAG)] | Keyed, keyed_or_value]
LargerSize = Annotated[Annotated[Positive, Tag(VALUE_TAG)] | Keyed, keyed_or_value]


class Study(Section):
    gone: ClassVar[dict[str, str]] = {
        "draws": "another draw is another seed: list more seeds",
        "futility": "leave it out: a claim stays open until a look decides it",
    }
    name: str
    question: Text
    base: dict[str, Any]  # as in a config file: preset, model, training, data, execution
    arms: dict[str, Arm] = Field(min_length=1)
    baseline: str
    seeds: list[Count] = Field(min_length=1)
    # After so many seeds, in the order of `seeds`, the claims are looked at. A file may say none, or nothing.
    looks: Annotated[list[Count], BeforeValidator(lambda value: [] if value == NO_LOOKS else value)] = Field(default=[])
    tuning: Tuning | None = None
    sizes: dict[str, Size] = Field(default={})
    main_size: str | None = None  # of tables, curves and claims that name none; None: the last
    forecast: dict[str, LargerSize] = Field(default={})  # that is not run
    hypotheses: list[Hypothesis] = Field(default=[])
    target_percent: float = Field(default=10, gt=0)  # time to a perplexity so much above the baseline's final one
    scope: Text | None = None  # what the verdicts are limited to, beside size and training, which are counted
    beside: list[Neighbour] = Field(default=[])
    reported: list[Claim] = Field(default=[])  # by others: shown below the neighbours
    consequences: Consequences = Consequences()
    slurm: SlurmRequest = SlurmRequest()  # what jobs ask for on a cluster
    notes: Text | None = None
    cite: Text | None = None
    _has_default_looks: bool = PrivateAttr(default=False)
    _default_tuning: frozenset[str] = PrivateAttr(default=frozenset())

    @property
    def has_default_looks(self) -> bool:
        """Whether its file says nothing of looks, and `with_default_looks` gave it those of its seeds."""
        return self._has_default_looks

    def with_default_looks(self) -> Study:
        """Looks at a half, three quarters and all of the seeds, where a half is enough for a test. Claims about solving
        have none: the exact levels of so few signs would leave the looks nothing to decide."""
        seeds = len(self.seeds)
        looks = sorted({math.ceil(seeds * share) for share in (0.5, 0.75, 1.0)})
        fits = looks[0] >= LEAST_PAIRS and all(each.evidence in OF_DIFFERENCES for each in self.paired_claims)
        return self.with_looks(looks if fits and self.paired_claims else [], is_default=True)

    def with_looks(self, looks: list[int], *, is_default: bool) -> Study:
        study = self.model_copy(update={"looks": looks})
        study._has_default_looks = is_default
        return study

    @property
    def default_tuning(self) -> frozenset[str]:
        """Keys of `tuning` of which its file says nothing, and that `with_default_tuning` filled in."""
        return self._default_tuning

    def with_default_tuning(self) -> Study:
        """Three tuning seeds, and the fitted optimum where there can be one: of a rate alone, ranked by the loss. What
        a file states of how values are chosen is all of it."""
        if self.tuning is None:
            return self
        unsaid = {"seeds", "choose"} - self.tuning.model_fields_set
        unsaid |= {"beyond"} - self.tuning.model_fields_set if "choose" in unsaid else set()
        seeds = DEFAULT_TUNING_SEEDS if "seeds" in unsaid else self.tuning.seeds
        can_be_fitted = [*self.tuning.grid] == [RATE_KEY] and self.tuning.rank == "loss" and len(seeds) >= LEAST_SEEDS
        values: dict[str, Any] = {"seeds": seeds} | ({"choose": "fitted"} if can_be_fitted else {})
        values |= {"beyond": REACH} if can_be_fitted and self.tuning.method == "grid" else {}
        return self._with_tuning(values, unsaid)

    def with_tuning_as_before(self, tuning: Mapping[str, Any]) -> Study:
        """With what was once declared where its file says nothing; of versions up to 0.5.0, one seed and the lowest."""
        before = {"seeds": [1000], "choose": "lowest", "beyond": 1}
        return self._with_tuning({key: tuning.get(key, value) for key, value in before.items()}, self.default_tuning)

    def _with_tuning(self, values: dict[str, Any], keys: Collection[str]) -> Study:
        assert self.tuning is not None
        tuning = self.tuning.model_copy(update={key: value for key, value in values.items() if key in keys})
        study = self.model_copy(update={"tuning": tuning})
        study._default_tuning = frozenset(keys)
        return study

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


# ---- Digests -------------------------------------------------------------------------------------------------------


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
    unused += ("beyond",) if tuning["beyond"] == 1 else ()
    return {key: value for key, value in tuning.items() if key not in unused}


OF_HALVING: tuple[str, ...] = ("method", "budgets", "margin")

# Where runs execute is not what they are, and what others report is not what a study declares.
_NOT_DECLARED = {"slurm", "reported"}
# Keys that studies did not always have, by their defaults: one that does not use them keeps its digest.
_ADDED_LATER: dict[str, Any] = {
    "beside": [], "measure": "loss", "margin_points": None, "scope": None, "least_fewer": None,
    "consequences": Consequences().model_dump(), "solved_at": None, "difficulty": None, "rank": "loss",
    "looks": [],
    "sizes": {}, "main_size": None, "forecast": {}, "at": None, "size": None, "against": None, "over": None,
    "per": None,
}  # fmt: skip


# Keys of claims and of tuning that only studies of probes have, and those that only studies with sizes have.
OF_PROBES = ("solved_at", "difficulty", "rank")
OF_SIZES = ("sizes", "main_size", "forecast", "at", "size", "against", "over", "per")
