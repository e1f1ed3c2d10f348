"""Verdicts over a growing number of seeds: what each look decides, and which claims need no further ones.

A look is at all open claims at once, when every run that one of them needs has ended. The p-value of a claim becomes a
sequential one, the smallest error rate over all looks at which it has crossed by now, and Holm's correction is over
these. What a look settles stays settled; a stored look is believed as it stands.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Any

from oelm.analysis.findings import ArmSummary, AtLook, PairedDifference, Rates, SignTest, Verdict
from oelm.analysis.hypotheses import Stage, bounds_of, staged_verdicts
from oelm.analysis.rate_allowance import rates_of
from oelm.analysis.spending import t_levels, union_levels
from oelm.analysis.statistics import PAIR_TESTS
from oelm.core.accounting import training_flops
from oelm.core.config import ResolvedRun
from oelm.storage.schemas import Stored
from oelm.study.declaration import Hypothesis, Study
from oelm.study.kept_looks import Look, LookedAt, StoredVerdict, arms_of, open_claims, seeds_of_arm
from oelm.study.plan import Plan

# A look does not come before what these wait for.
_UNFINISHED = ("incomplete", "tuning_unfinished")
# What no further seed can change: the pairs of a look stay pairs of every later one.
_HOPELESS = ("diverged", "tuning_diverged")


def looks_taken(plan: Plan, arms: dict[str, ArmSummary]) -> tuple[Look, ...]:
    """Those that are stored, and those that the runs allow beyond them."""
    looks = plan.looks
    while (following := next_look(plan, arms, looks)) is not None:
        looks = (*looks, following)
    return looks


def next_look(plan: Plan, arms: dict[str, ArmSummary], looks: tuple[Look, ...]) -> Look | None:
    """The look that comes after these; None where runs are missing, no claim is open, or all looks were taken."""
    study = plan.study
    claims = open_claims(study, looks)
    if not claims or len(looks) == len(study.looks):
        return None
    found = staged_verdicts(plan, arms, stage_of(study, looks), claims)
    if any(verdict.reason in _UNFINISHED for verdict in found.values()):
        return None
    at = {}
    for name, verdict in found.items():
        is_settled = verdict.outcome != "undecided" or verdict.reason in _HOPELESS
        stored = {key: getattr(verdict, key) for key in StoredVerdict.model_fields}
        tree = {key: _plain(each) for key, each in stored.items()}
        at[name] = LookedAt(is_settled=is_settled, verdict=StoredVerdict.model_validate(tree))
    return Look(len(looks) + 1, study.seeds[: study.looks[len(looks)]], at)


def stage_of(study: Study, looks: tuple[Look, ...]) -> Stage:
    """Of the look after these."""
    place, numbers = len(looks), tuple(study.looks)
    p_values = [(name, each.sequential_p) for look in looks for name, each in look.claims.items()]
    before = {name: p for name, p in p_values if p is not None}
    seeds = tuple(study.seeds[: numbers[place]])
    return Stage(seeds, t_levels(numbers)[place], union_levels(numbers)[place], before)


def verdicts_by_looks(looks: tuple[Look, ...], plan: Plan, arms: dict[str, ArmSummary]) -> dict[str, Verdict]:
    """On every claim that pairs decide, by name: as the last of these looks at it left it."""
    study, found = plan.study, {}
    for look in looks:
        for name, each in look.claims.items():
            claim = next(each for each in study.paired_claims if each.name == name)
            place = AtLook(look.number, len(look.seeds), look.made, each.is_settled)
            found[name] = _with_later_numbers(replace(_restored(claim, each.verdict), look=place), plan)
    # Before the first look, a claim whose own runs are all there waits for the others: p-values of one family are
    # looked at together. The intervals that hold at all looks are those of the looks, so there is none before.
    waiting = {} if looks else staged_verdicts(plan, arms, stage_of(study, ()), study.paired_claims)
    for name, verdict in waiting.items():
        place = AtLook(0, study.looks[0], None, False)
        difference = replace(verdict.difference, low=None, high=None) if verdict.difference else None
        found[name] = (
            replace(verdict, difference=difference, look=place)
            if verdict.reason in _UNFINISHED
            else Verdict(
                verdict.hypothesis, "undecided", "undecided", "look_waits", {"seeds": study.looks[0]}, look=place
            )
        )
    return found


# ---- As stored -----------------------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value


def _restored(claim: Hypothesis, stored: StoredVerdict) -> Verdict:
    fields = {key: getattr(stored, key) for key in StoredVerdict.model_fields}
    difference, signs, rates = stored.difference, stored.sign_test, stored.rates
    fields["difference"] = PairedDifference(**_own(difference)) if difference else None
    fields["sign_test"] = SignTest(**_own(signs)) if signs else None
    fields["rates"] = Rates(**_own(rates)) if rates else None
    return Verdict(claim, regardless=stored.outcome, **fields)


def _with_later_numbers(verdict: Verdict, plan: Plan) -> Verdict:
    """Looks of versions up to 0.5.0 kept no p-value of a refutation; what they kept of their pairs gives it. And they
    knew no allowance: what they decided stays, and says so."""
    difference, signs, place, looks = verdict.difference, verdict.sign_test, verdict.look, tuple(plan.study.looks)
    if verdict.p is None or place is None:
        return verdict
    if verdict.outcome == "refuted" and verdict.refutation_p is None:
        p = None
        if signs is not None:
            p = union_levels(looks)[place.number - 1].sequential_p(signs.p_opposite)
        elif difference is not None and difference.standard_deviation:
            test, bounds = PAIR_TESTS[verdict.hypothesis.quality.test], bounds_of(verdict.hypothesis)
            p = t_levels(looks)[place.number - 1].sequential_p(test.p_beyond(difference.differences, bounds))
        verdict = replace(verdict, refutation_p=p)
    if verdict.rates is None:
        rates = rates_of(plan, verdict.hypothesis)
        verdict = replace(verdict, rates=Rates("look_without") if rates.code == "allowed" else rates)
    return verdict


def _own(stored: Stored) -> dict[str, Any]:
    """Without what another version may have added."""
    return {key: getattr(stored, key) for key in type(stored).model_fields}


# ---- Costs ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Of final runs."""

    runs: int
    flops: float
    seconds: float | None  # one run after another, at the pace of the finished ones; None: none has finished


def pace(plan: Plan) -> float | None:
    """Seconds of a finished run for each of its FLOPs."""
    seconds = flops = 0.0
    for run in plan.runs:
        result = run.stored.result if run.stored and run.state == "finished" else None
        if result and result.get("wall_seconds") and isinstance(run.run, ResolvedRun):
            seconds, flops = seconds + result["wall_seconds"], flops + training_flops(run.run)
    return seconds / flops if flops else None


def cost_of_next_look(plan: Plan, arms: dict[str, ArmSummary], looks: tuple[Look, ...]) -> Cost:
    """Of the runs that the look after these still needs."""
    seeds = plan.study.seeds[: plan.study.looks[len(looks)]]
    return _cost(plan, arms, dict.fromkeys(arms_of(plan.study, open_claims(plan.study, looks)), seeds))


def cost_saved(plan: Plan, arms: dict[str, ArmSummary], looks: tuple[Look, ...]) -> Cost:
    """Of the runs that nobody needs, and that nobody made."""
    return _cost(plan, arms, seeds_saved(plan, looks))


def seeds_saved(plan: Plan, looks: tuple[Look, ...]) -> dict[str, list[int]]:
    """By arm, the seeds beyond the look that decided the last of its claims."""
    found = {arm: seeds_of_arm(plan.study, looks, arm) for arm in plan.study.arms}
    return {arm: plan.study.seeds[each.needed :] for arm, each in found.items() if each.decided_at is not None}


def _cost(plan: Plan, arms: dict[str, ArmSummary], seeds: dict[str, list[int]]) -> Cost:
    """Of the runs of these seeds of each arm that have not ended."""
    ended = {(run.arm, run.seed) for run in plan.final if run.has_ended}
    runs = [arm for arm, which in seeds.items() for seed in which if (arm, seed) not in ended]
    flops, seconds_each = sum(arms[arm].flops for arm in runs), pace(plan)
    return Cost(len(runs), flops, None if seconds_each is None else flops * seconds_each)
