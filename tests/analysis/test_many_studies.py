"""Many studies at once decide as one study does, and their error rates are those that looks promise."""

import math

import numpy as np
import pytest

from oelm.analysis.looks import looks_taken
from oelm.analysis.many_studies import (
    REFUTED,
    SUPPORTED,
    UNDECIDED,
    Claim,
    decided,
    distance_seen_by_looks,
    power_by_looks,
)
from oelm.analysis.spending import WITHOUT_LOOKS
from oelm.analysis.statistics import POWER, distance_seen, power
from oelm.analysis.summary import findings_of
from oelm.claims.kinds import KINDS, Bounds
from oelm.claims.measures import LOSS
from oelm.study.kept_looks import settled_at
from stored_runs import hypothesis, small_study, store_study, with_values

LOOKS = (4, 6, 8)
MARGIN = math.log(1.05)
ARMS = ["trained", "frozen_head_orthogonal", "frozen_orthogonal", "frozen_normal", "frozen_scaled_normal"]
KINDS_OF_ARMS = ["not_worse", "equivalent", "better", "better"]
OUTCOMES = {"supported": SUPPORTED, "undecided": UNDECIDED, "refuted": REFUTED}
ON_THE_BOUND = Claim(Bounds(None, 0.0))


@pytest.mark.parametrize("futility", [False, True])
def test_a_study_among_many_is_decided_as_it_is_alone(tmp_path, futility):
    """At the same look, with Holm's correction over three claims and one beside the family."""
    kinds = [kind for kind in KINDS_OF_ARMS if not futility or kind != "equivalent"]  # which is not given up here
    arms = ARMS[: len(kinds) + 1]
    claims = [
        hypothesis(kind, name=arm, treatment=arm, confirmatory=arm != arms[-1])
        for kind, arm in zip(kinds, arms[1:], strict=True)
    ]
    study = small_study(arms=arms, seeds=list(range(8)), looks=list(LOOKS), futility=futility, hypotheses=claims)
    findings = findings_of(study, store_study(study, tmp_path, lambda *_: 2.0))
    generator = np.random.default_rng(16)
    effects = {"not_worse": (0.0, 0.05), "equivalent": (0.0, 0.04), "better": (-0.03, 0.02)}
    losses = generator.normal(2.0, 0.014, (40, len(arms), 8))
    for number, kind in enumerate(kinds, start=1):
        losses[:, number] += generator.uniform(*effects[kind], (40, 1))

    tested = [Claim(KINDS[kind].bounds(MARGIN if kind != "better" else 0.0), arm != arms[-1])
              for kind, arm in zip(kinds, arms[1:], strict=True)]  # fmt: skip
    many = decided(losses[:, 1:] - losses[:, :1], tested, LOOKS, futility=futility)
    assert len(np.unique(many.verdicts)) == 3
    assert len(np.unique(many.seeds)) == 3
    for place, own in enumerate(losses):
        summaries = {arm: with_values(findings.arms[arm], LOSS, own[number]) for number, arm in enumerate(arms)}
        looks = looks_taken(findings.plan, summaries)
        settled = settled_at(looks)
        for number, arm in enumerate(arms[1:]):
            last = next(look for look in reversed(looks) if arm in look.claims)
            assert OUTCOMES[last.claims[arm].verdict.outcome] == many.verdicts[place, number]
            assert LOOKS[settled.get(arm, len(LOOKS)) - 1] == many.seeds[place, number]


def family_error(**how) -> float:
    """How often any of three claims on their bounds is supported; they share their control."""
    losses = np.random.default_rng(16).standard_normal((5000, 4, 8))
    outcomes = decided(losses[:, 1:] - losses[:, :1], [ON_THE_BOUND] * 3, LOOKS, **how)
    return float((outcomes.verdicts == SUPPORTED).any(axis=1).mean())


def test_of_a_family_rarely_any_false_claim_is_supported_at_any_look():
    assert 0.03 < family_error() <= 0.055
    assert family_error(futility=True) <= family_error()


def test_a_fault_in_the_bounds_turns_the_simulation_red():
    assert family_error(levels=lambda looks: (WITHOUT_LOOKS,) * len(looks)) > 0.08


@pytest.mark.parametrize("looks", [LOOKS, (8,)])
def test_a_claim_with_two_bounds_is_refuted_by_luck_more_often_only_where_they_are_far_within_the_spread(looks):
    """There are two ways to refute it; beyond a fifth of a standard deviation, only one is ever near."""
    for margin, most in ((0.02, 0.1), (0.1, 0.07), (0.2, 0.06), (0.5, 0.055)):
        samples = np.random.default_rng(7).standard_normal((20_000, 1, 8)) + margin
        refuted = decided(samples, [Claim(Bounds(-margin, margin))], looks).verdicts == REFUTED
        assert 0.045 < refuted.mean() <= most


def test_looks_see_what_they_say_with_the_probability_they_say():
    for level in (0.05, 0.05 / 4):
        distance = distance_seen_by_looks(LOOKS, bounds=1, level=level)
        assert power_by_looks([distance], LOOKS, level=level) == pytest.approx(POWER, abs=1e-3)
    samples = np.random.default_rng(7).standard_normal((20_000, 1, 8)) - distance_seen_by_looks(
        LOOKS, bounds=1, level=0.05
    )
    shown = decided(samples, [ON_THE_BOUND], LOOKS).verdicts == SUPPORTED
    assert shown.mean() == pytest.approx(POWER, abs=0.015)


def test_one_look_sees_what_all_seeds_see():
    for bounds in (1, 2):
        seen = distance_seen(8, bounds=bounds, level=0.05)
        assert distance_seen_by_looks((8,), bounds=bounds, level=0.05) == pytest.approx(seen, rel=0.02)
        assert power([seen] * bounds, 8, level=0.05) == pytest.approx(POWER, abs=1e-6)
        assert distance_seen_by_looks(LOOKS, bounds=bounds, level=0.05) > seen
