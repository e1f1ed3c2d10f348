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
from oelm.core.measures import LOSS
from oelm.study.claims.kinds import KINDS, Bounds
from oelm.study.kept_looks import settled_at
from stored_runs import hypothesis, small_study, store_study, with_values

LOOKS = (4, 6, 8)
MARGIN = math.log(1.05)
ARMS = ["trained", "frozen_head_orthogonal", "frozen_orthogonal", "frozen_normal", "frozen_scaled_normal"]
KINDS_OF_ARMS = ["not_worse", "equivalent", "better", "better"]
OUTCOMES = {"supported": SUPPORTED, "undecided": UNDECIDED, "refuted": REFUTED}
ON_THE_BOUND = Claim(Bounds(None, 0.0))


def test_a_study_among_many_is_decided_as_it_is_alone(tmp_path):
    """At the same look, with Holm's correction over three claims and one beside the family; some runs fail."""
    kinds, arms = KINDS_OF_ARMS, ARMS
    claims = [
        hypothesis(kind, name=arm, treatment=arm, confirmatory=arm != arms[-1])
        for kind, arm in zip(kinds, arms[1:], strict=True)
    ]
    study = small_study(arms=arms, seeds=list(range(8)), looks=list(LOOKS), hypotheses=claims)
    findings = findings_of(study, store_study(study, tmp_path, lambda *_: 2.0))
    generator = np.random.default_rng(16)
    effects = {"not_worse": (0.0, 0.05), "equivalent": (0.0, 0.04), "better": (-0.03, 0.02)}
    losses = generator.normal(2.0, 0.014, (40, len(arms), 8))
    for number, kind in enumerate(kinds, start=1):
        losses[:, number] += generator.uniform(*effects[kind], (40, 1))

    losses += 0.3 * (generator.random(losses.shape) < 0.01)
    tested = [Claim(KINDS[kind].bounds(MARGIN if kind != "better" else 0.0), arm != arms[-1], MARGIN)
              for kind, arm in zip(kinds, arms[1:], strict=True)]  # fmt: skip
    many = decided(losses[:, 1:] - losses[:, :1], tested, LOOKS)
    assert len(np.unique(many.verdicts)) == 3
    assert len(np.unique(many.seeds)) == 3
    reasons = set()
    for place, own in enumerate(losses):
        summaries = {arm: with_values(findings.arms[arm], LOSS, own[number]) for number, arm in enumerate(arms)}
        looks = looks_taken(findings.plan, summaries)
        settled = settled_at(looks)
        for number, arm in enumerate(arms[1:]):
            last = next(look for look in reversed(looks) if arm in look.claims)
            assert OUTCOMES[last.claims[arm].verdict.outcome] == many.verdicts[place, number]
            assert LOOKS[settled.get(arm, len(LOOKS)) - 1] == many.seeds[place, number]
            reasons.add(last.claims[arm].verdict.reason)
    assert "run_failed" in reasons


def family_error(**how) -> float:
    """How often any of three claims on their bounds is supported; they share their control."""
    losses = np.random.default_rng(16).standard_normal((5000, 4, 8))
    outcomes = decided(losses[:, 1:] - losses[:, :1], [ON_THE_BOUND] * 3, LOOKS, **how)
    return float((outcomes.verdicts == SUPPORTED).any(axis=1).mean())


def test_of_a_family_rarely_any_false_claim_is_supported_at_any_look():
    assert 0.03 < family_error() <= 0.055


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


# ---- Runs that fail ------------------------------------------------------------------------------------------------

STUDIES = 20_000
NOISE = 0.01 * math.sqrt(2)  # of a pair of runs, in nats
FAILURE, SHARE = 0.087, 0.08
PAIRS = [4, 8, *(pytest.param(pairs, marks=pytest.mark.trial) for pairs in (6, 12))]


def failing(pairs: int, side: int, mean: float, *, share: float = SHARE) -> np.ndarray:
    """Differences by study and pair: of the runs of the treatment (1) or of the control (-1), some fail."""
    generator = np.random.default_rng([16, pairs])
    fails = generator.random((STUDIES, 1, pairs)) < share
    return generator.normal(mean, NOISE, (STUDIES, 1, pairs)) + side * FAILURE * fails


def rates(differences: np.ndarray, *, least: float = MARGIN) -> tuple[float, float]:
    """How often the claim at the margin is supported, and refuted."""
    found = decided(differences, [Claim(Bounds(None, MARGIN), least_apart=least)], (differences.shape[2],)).verdicts
    return float((found == SUPPORTED).mean()), float((found == REFUTED).mean())


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("side", [1, -1])
def test_of_runs_that_do_not_fail_a_verdict_says_no_more_than_it_may_although_others_fail(pairs, side):
    """Their mean lies at the margin."""
    assert max(rates(failing(pairs, side, MARGIN))) <= 0.06


@pytest.mark.parametrize("pairs", PAIRS)
def test_pairs_without_failures_lose_hardly_a_verdict(pairs):
    for mean in (MARGIN, MARGIN - 0.02, MARGIN + 0.02):
        differences = failing(pairs, 1, mean, share=0.0)
        with_rule, without = (np.array(rates(differences, least=least)) for least in (MARGIN, math.inf))
        assert (with_rule <= without).all()
        assert (without - with_rule).max() < 0.01


@pytest.mark.parametrize("pairs", PAIRS)
def test_the_mean_with_failures_that_were_not_seen_is_beyond_any_test(pairs):
    """A study in which no run failed is the same whether some could have failed or not: a claim about the mean of all
    runs errs at least as often as no run fails and as clean pairs so far within the margin are shown. What remains is
    this; where a failure is seen, nothing is supported."""
    shift = SHARE * FAILURE
    differences = failing(pairs, 1, MARGIN - shift)
    is_clean = np.abs(differences - (MARGIN - shift)).max(axis=(1, 2)) < FAILURE / 2
    found = decided(differences, [Claim(Bounds(None, MARGIN), least_apart=MARGIN)], (pairs,)).verdicts[:, 0]
    assert is_clean.mean() == pytest.approx((1 - SHARE) ** pairs, abs=0.02)
    assert (found[~is_clean] == SUPPORTED).mean() < 0.01
    clean, _ = rates(failing(pairs, 1, MARGIN - shift, share=0.0))
    assert (found == SUPPORTED).mean() == pytest.approx((1 - SHARE) ** pairs * clean, abs=0.015)
    assert 0.13 < (found == SUPPORTED).mean() < 0.18  # docs/studies.md, Outcomes
