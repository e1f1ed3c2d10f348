"""What a verdict allows for the rates that were chosen: exact where a loss is known, and enough in many studies."""

import math
import random
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oelm.analysis.findings import RATES, Rates
from oelm.analysis.many_studies import SUPPORTED, UNDECIDED, Claim, decided
from oelm.analysis.rate_allowance import excess
from oelm.analysis.summary import findings_of
from oelm.core.logarithms import nats
from oelm.study.claims.kinds import KINDS, Bounds
from stored_runs import hypothesis, small_probes, small_study, solving_claim, store_study

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from chosen_rates import LANDSCAPES, PARABOLAS, Studies, kink, parabola, simulated

RATE = "training.learning_rate"
FIVE = [5e-4, 1e-3, 2e-3, 4e-3, 8e-3]
SEEDS = [1000, 1001, 1002]
PARABOLA = parabola(0.3)


def tried(landscape, *, best=2.3e-3, values=FIVE, seeds=3, noise=0.0, draw=None):
    """By value and seed; each seed shifts all of its losses."""
    draw = draw or random.Random(0)
    shifts = [draw.gauss(0, 0.05) for _ in range(seeds)]
    return {
        value: {
            seed: 3 + shift + landscape(math.log(value / best)) + draw.gauss(0, noise)
            for seed, shift in enumerate(shifts)
        }
        for value in values
    }


@pytest.mark.parametrize("landscape", [parabola(0.2, 0.8), kink(0.4, 0.15)])
@pytest.mark.parametrize("chosen", [1.6e-3, 2.3e-3, 3e-3])
def test_it_is_at_least_what_the_rate_costs_and_little_more_where_there_is_little_noise(landscape, chosen):
    truth = landscape(math.log(chosen / 2.3e-3))
    assert truth - 1e-3 <= excess(tried(landscape, noise=1e-3), chosen) <= truth + 0.015


def test_a_kink_that_the_values_do_not_exclude_counts():
    """Two values on one side of the best are not enough to tell a kink from a curve."""
    few, many = (excess(tried(PARABOLA, values=values, noise=0.01), 2.3e-3) for values in (FIVE[1:], FIVE))
    assert many < 0.004 < 0.02 < few


def test_more_noise_is_a_larger_allowance_and_so_is_a_rate_further_away():
    noisy = [excess(tried(parabola(0.3), noise=noise, draw=random.Random(3)), 2.3e-3) for noise in (0.0, 0.01, 0.05)]
    assert noisy == sorted(noisy)
    away = [excess(tried(parabola(0.3), noise=0.01), rate) for rate in (2.3e-3, 2.8e-3, 3.5e-3, 4e-3)]
    assert away == sorted(away)


def test_shifts_of_seeds_and_the_unit_of_the_rate_change_nothing():
    losses = tried(parabola(0.2, 0.6), noise=0.01)
    reference = excess(losses, 2.2e-3)
    shifted = {value: {seed: loss + 0.7 * seed for seed, loss in own.items()} for value, own in losses.items()}
    assert excess(shifted, 2.2e-3) == pytest.approx(reference, rel=1e-6)
    assert excess({8 * value: own for value, own in losses.items()}, 8 * 2.2e-3) == pytest.approx(reference, rel=1e-6)
    scaled = {value: {seed: 5 * loss for seed, loss in own.items()} for value, own in losses.items()}
    assert excess(scaled, 2.2e-3) == pytest.approx(5 * reference, rel=1e-6)


def test_without_three_seeds_and_three_values_that_all_of_them_finished_there_is_none():
    losses = tried(parabola(0.3))
    assert excess({value: {0: own[0], 1: own[1]} for value, own in losses.items()}, 2e-3) is None
    assert excess({value: losses[value] for value in FIVE[:2]}, 1e-3) is None
    diverged = losses | {value: losses[value] | {1: math.inf} for value in FIVE[2:]}
    assert excess(diverged, 1e-3) is None
    one = losses | {8e-3: losses[8e-3] | {1: math.inf}}
    assert excess(one, 2.3e-3) == excess({value: losses[value] for value in FIVE[:4]}, 2.3e-3)


# ---- Verdicts ------------------------------------------------------------------------------------------------------


def losses_of(gap, landscape=PARABOLA, best=1.4e-3, noise=0.002):
    """The frozen arm above the trained one by so much; both have their best rate at one place."""

    def loss(arm, seed, stage, point):
        rate = dict(point).get(RATE, best)
        own = random.Random(f"{arm} {seed} {rate}").gauss(0, noise)
        above = gap if arm != "trained" else 0.0
        return 3 + 0.02 * random.Random(seed).random() + above + landscape(math.log(rate / best)) + own

    return loss


def verdict_of(folder, loss, *, claim=None, **changes):
    study = small_study(
        arms=["trained", "frozen_head_orthogonal"], seeds=list(range(6)), hypotheses=[claim or hypothesis()], **changes
    )
    (verdict,) = findings_of(study, store_study(study, folder, loss)).verdicts
    return verdict


FITTED = {"grid": {"learning_rate": FIVE[:3]}, "seeds": SEEDS, "choose": "fitted", "beyond": 2}


@pytest.mark.parametrize(
    ("tuning", "code"),
    [
        (None, "one_rate"),
        ({"grid": {"warmup_steps": [1, 2]}, "seeds": SEEDS}, "one_rate"),
        ({"grid": {"learning_rate": FIVE}}, "one_seed"),
        ({"grid": {"learning_rate": FIVE}, "seeds": SEEDS[:2]}, "few_seeds"),
        ({"grid": {"learning_rate": FIVE[:2]}, "seeds": SEEDS, "extend": 0}, "few_values"),
        ({"grid": {"learning_rate": FIVE, "warmup_steps": [1, 2]}, "seeds": SEEDS}, "several_settings"),
        ({"grid": {"learning_rate": FIVE}, "seeds": SEEDS}, "allowed"),
        (FITTED, "allowed"),
    ],
)
def test_a_verdict_has_an_allowance_or_says_why_it_has_none(tmp_path, tuning, code):
    rates = verdict_of(tmp_path, losses_of(0.01), **({"tuning": tuning} if tuning else {})).rates
    assert rates.code == code in RATES
    assert bool(rates.arms) == bool(rates.above) == (code == "allowed")


def test_rates_that_differ_by_declaration_are_fixed(tmp_path):
    arms = {"trained": {}, "frozen_head_orthogonal": {"set": {"learning_rate": 2e-3}}}
    study = small_study(arms=arms, seeds=[0, 1, 2], hypotheses=[hypothesis()])
    (verdict,) = findings_of(study, store_study(study, tmp_path, losses_of(0.01))).verdicts
    assert verdict.rates.code == "fixed_rates"


def test_what_tuning_does_not_compare_has_no_allowance(tmp_path):
    tuning = {"grid": {"learning_rate": FIVE}, "seeds": SEEDS}
    study = small_probes(tuning=tuning, hypotheses=[solving_claim()])
    shelf = store_study(
        study, tmp_path, lambda arm, seed, *rest: 1.0 + 0.01 * seed, also=lambda loss: {"accuracy": 0.95}
    )
    (verdict,) = findings_of(study, shelf).verdicts
    assert verdict.rates == Rates("other_measure", {"seeds": 3})


def test_a_claim_within_its_margin_by_less_than_the_allowance_is_undecided(tmp_path):
    """With the lowest of values a factor of two apart, the control may be off by more than what is left."""
    sharp = losses_of(0.03, parabola(0.6))
    tuning = {"grid": {"learning_rate": FIVE}, "seeds": SEEDS}
    lowest = verdict_of(tmp_path / "lowest", sharp, tuning=tuning)
    fitted = verdict_of(tmp_path / "fitted", sharp, tuning=FITTED)
    assert (lowest.outcome, fitted.outcome) == ("undecided", "supported")
    assert lowest.allowance > nats(5) - 0.03 > fitted.allowance > 0
    assert lowest.p > lowest.difference.standard_deviation  # and not for want of pairs:
    assert KINDS["not_worse"].bounds(nats(5)).contain(lowest.difference.low, lowest.difference.high)


def test_a_refuted_claim_allows_for_the_treatment(tmp_path):
    tuning = {"grid": {"learning_rate": FIVE}, "seeds": SEEDS}
    verdict = verdict_of(tmp_path, losses_of(0.07, parabola(0.6)), tuning=tuning)
    assert verdict.outcome == "undecided"
    assert verdict.lower_bound > nats(5) > verdict.lower_bound - verdict.rates.below
    assert verdict.allowance == verdict.rates.below != verdict.rates.above
    far = verdict_of(tmp_path / "far", losses_of(0.3, parabola(0.6)), tuning=tuning)
    assert far.outcome == "refuted"
    assert far.allowance == far.rates.below


@pytest.mark.parametrize("kind", ["not_worse", "equivalent", "better"])
def test_an_allowance_only_takes_verdicts_away(kind):
    bounds = KINDS[kind].bounds(nats(5))
    for below, above in ((0.0, 0.01), (0.02, 0.0), (0.03, 0.04)):
        to_show, to_exclude = Rates("allowed", below=below, above=above).moved(bounds)
        for mean in np.linspace(-0.2, 0.2, 81):
            assert bounds.contain(mean, mean) or not to_show.contain(mean, mean)
            assert bounds.exclude(mean, mean) or not to_exclude.exclude(mean, mean)
            # Wherever the true difference lies that the allowance admits, it is what is claimed.
            assert to_show.contain(mean, mean) <= bounds.contain(mean - below, mean + above)
            assert to_exclude.exclude(mean, mean) <= bounds.exclude(mean - below, mean + above)


def test_studies_at_once_are_decided_as_one_by_one(tmp_path):
    """The simulation moves differences, a verdict moves bounds."""
    for number, (gap, landscape) in enumerate([(0.01, 0.3), (0.03, 0.6), (0.045, 0.3), (0.02, 0.05)]):
        verdict = verdict_of(tmp_path / str(number), losses_of(gap, parabola(landscape), noise=0.005), tuning=FITTED)
        differences = np.array(verdict.difference.differences)
        moved = differences + verdict.rates.above
        found = decided(moved[None, None, :], [Claim(Bounds(None, nats(5)), least_apart=nats(5))], (6,))
        assert {SUPPORTED: "supported", UNDECIDED: "undecided"}[found.verdicts[0, 0]] == verdict.outcome


def test_looks_keep_the_allowance_that_they_were_taken_with(tmp_path):
    study = small_study(
        arms=["trained", "frozen_head_orthogonal"], seeds=list(range(6)), hypotheses=[hypothesis()], looks=[3, 6],
        tuning=FITTED,
    )  # fmt: skip
    shelf = store_study(study, tmp_path, losses_of(0.01))
    (verdict,) = findings_of(study, shelf).verdicts
    assert verdict.look is not None
    assert verdict.rates.code == "allowed"
    whole = replace(verdict, look=None)
    assert whole.p < 0.05


# ---- The law, in many studies --------------------------------------------------------------------------------------


def check(studies: Studies, landscape: str, slack: float) -> None:
    limit = 0.05 if landscape in PARABOLAS else 0.06
    share = studies.supported(nats(2), has_allowance=True)
    assert share <= limit + slack * math.sqrt(limit * (1 - limit) / len(studies.noise))


@pytest.mark.parametrize("landscape", LANDSCAPES)
def test_equal_arms_at_the_margin_are_rarely_supported(landscape):
    check(simulated(landscape, "fitted of 3", 300), landscape, slack=3)


@pytest.mark.trial
@pytest.mark.parametrize("way", ["fitted of 3", "lowest of 3"])
@pytest.mark.parametrize("landscape", LANDSCAPES)
def test_equal_arms_at_the_margin_are_supported_as_rarely_as_stated(landscape, way):
    check(simulated(landscape, way, 4000), landscape, slack=2)


def test_without_an_allowance_they_often_are():
    """What it repairs: otherwise the simulation above could not fail."""
    found = simulated("control kinked", "lowest of 3", 200)
    assert found.supported(nats(2), has_allowance=False) > 0.4
    assert found.supported(nats(2), has_allowance=True) < 0.1


def test_parabolas_lose_little_power():
    found = simulated("equal parabolas", "fitted of 3", 200)
    known = found.supported(0.0, has_allowance=False, knows_best=True)
    assert found.supported(0.0, has_allowance=True) > known - 0.05
