"""Every difference between the arms of a hypothesis that is not its declared treatment.

Before any run it reads the declared settings; with stored runs also where and with what they were computed. A value
that was tuned for each arm on the common grid is no confound; one that an arm sets for itself is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, assert_never

from oelm.core.config import STEP_EXECUTION, Encoder, EncoderRun, ResolvedRun, Run, Settings, as_far_as_known, facts_of
from oelm.core.settings import known_keys
from oelm.core.sources import SOURCE_SCHEME, differ, scheme_of
from oelm.machine.errors import UserError, did_you_mean
from oelm.run.directory import BEFORE_IT_WAS_RECORDED, COMPARED_ENVIRONMENT, flat
from oelm.study.declaration import Hypothesis, Study, in_language
from oelm.study.one_run import settings_for
from oelm.study.part_aspects import ASPECTS, KEYS, SECTIONS, VARIATIONS, aspect_differences, option_differences
from oelm.study.plan import Plan, PlannedRun, paired
from oelm.study.scaled import arms_compared
from oelm.study.shelf import StoredRun

SEEDS = "seeds"
# What decides how many weights rest. A start costs neither parameters nor time.
RESTING = ("moves", "share")
SIZES = tuple(
    f"model.{name}"
    for name in ("vocabulary", "positions", "seq_len", "d_model", "num_layers", "num_heads", "d_ff", "labels")
)
DATA_OF_AN_ENCODER = ("data",)  # which decides its sizes
WORK_PER_STEP = ("model.dropout", "training.batch_size", "tokens_per_step")
BY_SEED = "the run's"
ENDED = ("finished", "diverged")  # states of runs that are not started again


@dataclass(frozen=True)
class Confound:
    """A difference between the arms of a hypothesis that is not its declared treatment."""

    key: str  # dotted setting, or environment.<key>, tuning.<setting>, start.scale, seeds, ...
    treatment: str
    control: str
    explained: str | None = None  # the study's own reason, if it gives one


def confounds(study: Study, plan: Plan) -> dict[str, list[Confound]]:
    """By the name of the hypothesis; an empty list is a clean comparison."""
    settings, execution = known_keys(), {*COMPARED_ENVIRONMENT, *STEP_EXECUTION}
    known = [
        *settings, *(f"tuning.{key}" for key in settings), *(f"environment.{key}" for key in execution),
        *KEYS.values(), *VARIATIONS, "tokens_per_step", "processes", SEEDS,
    ]  # fmt: skip
    for hypothesis in study.hypotheses:  # a reason for what cannot differ is a misspelt one
        if key := next((key for key in hypothesis.explained if key not in known), None):
            place = f"hypotheses.{hypothesis.name}.explained.{key}"
            raise UserError(f"{place}: is not the key of a confound{did_you_mean(key, known)}")
    sides = {arm: _Side.of(study, plan, arm) for arm in study.arms}
    return {
        hypothesis.name: list(
            dict.fromkeys(  # what differs alike at every size is said once
                confound
                for treatment, control in arms_compared(study, hypothesis)
                for confound in _found(hypothesis, sides[treatment], sides[control])
            )
        )
        for hypothesis in study.hypotheses
    }


@dataclass(frozen=True)
class _Side:
    """One arm as far as a comparison is concerned."""

    run: Run  # as declared, with the sizes that the data of stored runs decided
    processes: int
    settings: dict[str, str]  # every setting but those of parts and options, without the tuned ones
    tuning: dict[str, str]
    execution: dict[str, str]
    finished: list[PlannedRun]  # final runs with a result
    seeds: frozenset[int]  # of these
    open_seeds: frozenset[int]  # one of whose final runs has not ended

    @classmethod
    def of(cls, study: Study, plan: Plan, arm: str) -> _Side:
        choice = plan.choices.get(arm)
        facts = _facts(plan)
        plain = _settings(study, arm, facts)
        chosen = _settings(study, arm, facts, values=choice.values if choice else {})
        execution = chosen.execution.model_dump(mode="json")
        finished = [run for run in plan.by_arm[arm] if run.state == "finished" and run.loss is not None]
        return cls(
            run=plain.run,
            processes=study.arms[arm].processes,
            settings=_by_key(study, chosen.run),
            tuning=_by_key(study, _settings(study, arm, facts, tuning=True).run) if study.tuning else {},
            execution={key: _text(execution[key]) for key in STEP_EXECUTION},
            finished=finished,
            seeds=frozenset(run.seed for run in finished),
            open_seeds=frozenset(run.seed for run in plan.by_arm[arm] if run.state not in ENDED),
        )


def _facts(plan: Plan) -> dict[str, Any]:
    """What the data says of an encoder, once a run knows it: the same for every arm that reads the same data."""
    known = next((run.run for run in plan.runs if isinstance(run.run, ResolvedRun)), None)
    return facts_of(known.model) if isinstance(known, EncoderRun) else {}


def _settings(
    study: Study, arm: str, facts: dict[str, Any], *, values: dict[str, Any] | None = None, tuning: bool = False
) -> Settings:
    settings = settings_for(study, arm, seed=_unused_seed(study), values=values, tuning=tuning)
    return settings.model_copy(update={"run": as_far_as_known(settings.run, facts)})


def _unused_seed(study: Study) -> int:
    """One that no arm has set for itself, so that a seed fixed by an arm is seen."""
    own = [int(value) for arm in study.arms.values() for key, value in arm.set.items() if key.startswith("seeds.")]
    return 1 + max([*study.seeds, *own])


def _by_key(study: Study, run: Run) -> dict[str, str]:
    """Settings as text; what is tuned on the common grid is left out, but not what follows from it."""
    tuned = study.tuning.grid if study.tuning else {}
    options = set() if isinstance(run.model, Encoder) else set(SECTIONS)
    tree = run.model_dump(mode="json", exclude={"arm": True, "model": {"parts"} | options})
    found = {key: _text(value) for key, value in flat(tree).items() if key not in tuned}
    by_seed = {key: BY_SEED for key, value in flat(tree["seeds"], "seeds.").items() if value == _unused_seed(study)}
    if not isinstance(run.model, Encoder):  # whose data decide it, so that the batch size says it all
        found["tokens_per_step"] = _text(run.training.batch_size * run.model.seq_len)
    return found | by_seed


# ---- What differs --------------------------------------------------------------------------------------------------


def _found(hypothesis: Hypothesis, treatment: _Side, control: _Side) -> Iterator[Confound]:
    for key, one, other in _unlike(hypothesis, treatment, control):
        reason = hypothesis.explained.get(key)
        yield Confound(key, one, other, None if reason is None else in_language(reason, "en"))


def _unlike(hypothesis: Hypothesis, treatment: _Side, control: _Side) -> Iterator[tuple[str, str, str]]:
    sizes = SIZES
    if isinstance(treatment.run.model, Encoder):
        sizes += DATA_OF_AN_ENCODER
    match hypothesis.evidence:
        case "parameters":
            yield from _unequal(treatment.settings, control.settings, only=sizes)
            yield from _of_parts(hypothesis, treatment, control, only=RESTING)
        case "speed":  # measured in one process on one device, so only what changes the work counts
            yield from _unequal(treatment.settings, control.settings, only=(*sizes, *WORK_PER_STEP))
            yield from _of_parts(hypothesis, treatment, control, only=RESTING)
        case "quality" | "contrast" | "scale" | "solved_seeds" | "steps_to_solve":
            yield from _of_settings(treatment, control)
            yield from _of_parts(hypothesis, treatment, control)
            yield from _of_execution(treatment, control)
            # Runs that may still come make no difference: only of seeds that have ended in both something is missing.
            if (treatment.seeds ^ control.seeds) - (treatment.open_seeds | control.open_seeds):
                yield SEEDS, _seeds_text(treatment.seeds), _seeds_text(control.seeds)
        case unknown:
            assert_never(unknown)


def _of_settings(treatment: _Side, control: _Side) -> Iterator[tuple[str, str, str]]:
    found = list(_unequal(treatment.settings, control.settings))
    sides = (treatment.finished, control.finished)
    if all(side and all(run.stored and run.stored.data_digest for run in side) for side in sides):
        found = [entry for entry in found if entry[0] != "data"]  # the digest tells, not where the data lies
    yield from found
    known = {key for key, *_ in found}
    for key, one, other in _unequal(treatment.tuning, control.tuning):
        if key not in known and key != "data":
            yield f"tuning.{key}", one, other
    if treatment.processes != control.processes:
        yield "processes", _text(treatment.processes), _text(control.processes)


def _of_parts(
    hypothesis: Hypothesis, treatment: _Side, control: _Side, *, only: tuple[str, ...] = ASPECTS
) -> Iterator[tuple[str, str, str]]:
    """And of options, each of which costs parameters or time."""
    models = treatment.run.model, control.run.model
    for difference in aspect_differences(*models):
        if difference.aspect in only and not difference.is_named_by(hypothesis.varies):
            yield difference.key, difference.treatment, difference.control
    for option in option_differences(*models):
        if not option.is_named_by(hypothesis.varies):
            yield option.key, option.treatment, option.control


def _of_execution(treatment: _Side, control: _Side) -> Iterator[tuple[str, str, str]]:
    """As recorded by the runs, pair by pair; as declared, while there is no pair.

    A study spread over two machines is fair as long as both runs of each pair were made on the same one.
    """
    shared = paired(treatment.finished, control.finished)
    if not shared:
        for key, one, other in _unequal(treatment.execution, control.execution):
            yield f"environment.{key}", one, other
        return
    pairs = [tuple(recorded(run.stored) for run in pair if run.stored) for pair in shared]
    for key in COMPARED_ENVIRONMENT:
        if any(differ(key, pair) for pair in pairs):
            sides = [" / ".join(sorted({each[key] for each in side})) for side in zip(*pairs, strict=True)]
            values = [(run.seed, one[key], other[key]) for (run, _), (one, other) in zip(shared, pairs, strict=True)]
            if sides[0] == sides[1]:  # then those of the seeds where they are unlike
                unlike = list(dict.fromkeys(each for each in values if each[1] != each[2]))
                sides = [" / ".join(f"{each[side]} (seed {each[0]})" for each in unlike) for side in (1, 2)]
            yield f"environment.{key}", sides[0], sides[1]


def recorded(run: StoredRun) -> dict[str, Any]:
    """What a finished run says about where and with what it was computed, as text; the scheme of its source digest."""
    known = BEFORE_IT_WAS_RECORDED | flat(run.environment) if run.environment else {}
    values = {key: _text(known[key]) if key in known else "not recorded" for key in COMPARED_ENVIRONMENT}
    values["device"] = values["device"].partition(":")[0]  # cuda:0 and cuda:1 are slots of one machine
    return values | {SOURCE_SCHEME: scheme_of(known)}


def _unequal(
    treatment: dict[str, str], control: dict[str, str], *, only: tuple[str, ...] = ("",)
) -> Iterator[tuple[str, str, str]]:
    """Keys with different values; `only` those that begin like one of these."""
    for key in dict.fromkeys([*treatment, *control]):
        one, other = treatment.get(key, "none"), control.get(key, "none")
        if one != other and key.startswith(only):
            yield key, one, other


def _seeds_text(seeds: Iterable[int]) -> str:
    return ", ".join(str(seed) for seed in sorted(seeds)) or "none"


def _text(value: Any) -> str:
    return "none" if value is None else str(value)
