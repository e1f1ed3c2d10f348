"""Verdicts by looks, over thousands of simulated studies: how often they err, and what they find.

A tenth of the studies here; all of them under the marker.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from oelm.analysis import looks as looking
from oelm.analysis.looks import looks_taken, verdicts_by_looks
from oelm.analysis.spending import Levels, error_rates, interval_level
from oelm.analysis.statistics import paired_difference
from oelm.analysis.summary import findings_of
from oelm.core.measures import LOSS
from oelm.study.shelf import Shelf
from stored_runs import hypothesis, probe_curve, small_probes, small_study, solving_claim, store_study, with_values

MANY, FEW = 5000, 500
LOOKS = [4, 6, 8]
MARGIN = math.log(1.05)
ARMS = ["trained", "frozen_head_orthogonal", "frozen_orthogonal", "frozen_normal", "frozen_scaled_normal"]
SPREAD = 0.0153  # of the paired differences of cost-of-freezing in docs/findings/tinystories_cpu, in nats

in_numbers = pytest.mark.parametrize(
    "studies", [pytest.param(FEW, id="a tenth"), pytest.param(MANY, id="all", marks=pytest.mark.trial)]
)


def highest(studies: int) -> float:
    """What a rate of 5 % rarely exceeds; of all studies 0.055."""
    return max(0.055, 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / studies)) if studies < MANY else 0.055


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory):
    """From losses held in memory: the verdicts of a study by its looks."""

    def make(claims: list[dict], **changes):
        study = small_study(arms=ARMS, seeds=list(range(LOOKS[-1])), looks=LOOKS, hypotheses=claims, **changes)
        folder = tmp_path_factory.mktemp("simulated")
        store_study(study, folder, lambda *_: 2.0)
        findings = findings_of(study, Shelf(folder))

        def look(losses: dict[str, np.ndarray]):
            arms = {arm: with_values(findings.arms[arm], LOSS, values) for arm, values in losses.items()}
            taken = looks_taken(findings.plan, arms)
            return verdicts_by_looks(taken, findings.plan, arms), taken

        return look

    return make


def simulated(studies: int, effects: dict[str, float], seed: int = 1616):
    """Losses of studies whose paired differences have the spread of the stored ones. Every second one is the mirror
    image of the one before, so that no luck of the seed favours a side."""
    generator = np.random.default_rng(seed)
    for _ in range((studies + 1) // 2):
        common = generator.normal(2.0, 0.02, LOOKS[-1])
        noise = {arm: generator.normal(0, SPREAD / math.sqrt(2), LOOKS[-1]) for arm in ARMS}
        for side in (1, -1):
            yield {arm: common + effects.get(arm, 0.0) + side * noise[arm] for arm in ARMS}


def rate_of(outcome: str, look, studies: int, effects: dict[str, float]) -> float:
    """How often any claim comes to an outcome."""
    found = (look(losses)[0].values() for losses in simulated(studies, effects))
    return sum(any(each.outcome == outcome for each in verdicts) for verdicts in found) / studies


TREATMENT = ARMS[1]


@in_numbers
@pytest.mark.parametrize(("kind", "effect"), [("not_worse", MARGIN), ("equivalent", -MARGIN), ("better", 0.0)])
def test_a_false_claim_at_its_margin_is_rarely_supported_at_any_look(looked_at, studies, kind, effect):
    rate = rate_of("supported", looked_at([hypothesis(kind)]), studies, {TREATMENT: effect})
    assert 0.03 < rate <= highest(studies)


@in_numbers
@pytest.mark.parametrize(("kind", "effect"), [("not_worse", MARGIN), ("equivalent", MARGIN), ("better", 0.0)])
def test_a_true_claim_at_its_margin_is_rarely_refuted_at_any_look(looked_at, studies, kind, effect):
    rate = rate_of("refuted", looked_at([hypothesis(kind)]), studies, {TREATMENT: effect})
    assert 0.03 < rate <= highest(studies)


def family() -> list[dict]:
    return [hypothesis(name=arm, treatment=arm) for arm in ARMS[1:]]


@in_numbers
@pytest.mark.parametrize("true_ones", [0, 2])
def test_of_a_family_rarely_any_false_claim_is_supported_at_any_look(looked_at, studies, true_ones):
    """Also where others are true and leave their share of the error to the rest."""
    look, false = looked_at(family()), ARMS[1 + true_ones :]
    wrong = 0
    for losses in simulated(studies, dict.fromkeys(false, MARGIN)):
        verdicts, _ = look(losses)
        wrong += any(verdicts[arm].outcome == "supported" for arm in false)
    assert 0.01 < wrong / studies <= highest(studies)


@pytest.mark.parametrize("fault", ["the same level at every look", "a level twice too large"])
def test_a_fault_in_the_bounds_is_found_out_by_these_laws(looked_at, monkeypatch, fault):
    rates = tuple(error_rates())
    nominal = rates if fault == "the same level at every look" else tuple(min(0.6, 2 * rate) for rate in rates)
    monkeypatch.setattr(looking, "t_levels", lambda looks: (Levels(rates, nominal),) * len(looks))
    rate = rate_of("supported", looked_at([hypothesis()]), FEW, {TREATMENT: MARGIN})
    assert rate > highest(FEW)


@in_numbers
def test_intervals_of_all_looks_hold_at_once(studies):
    truth = 0.01
    held = 0
    for losses in simulated(studies, {TREATMENT: truth}):
        prefixes = [{arm: dict(enumerate(losses[arm][:pairs])) for arm in ARMS[:2]} for pairs in LOOKS]
        levels = [interval_level(LOOKS, pairs) for pairs in LOOKS]
        found = [
            paired_difference(each[TREATMENT], each["trained"], level=level)
            for each, level in zip(prefixes, levels, strict=True)
        ]
        held += all(each.low <= truth <= each.high for each in found)
    assert held / studies >= 0.94 - (0.02 if studies < MANY else 0)


# ---- What an earlier look showed -----------------------------------------------------------------------------------


def test_what_an_earlier_look_showed_is_supported_only_while_the_mean_is_within_the_bound(looked_at):
    """By itself the claim has crossed at the first look; by the time another one of its family is shown, its mean lies
    beyond the margin."""
    early, late = ARMS[1:3]
    losses = next(simulated(1, {}))
    tight = np.array([0.02, -0.02, 0.02, -0.02]) / 2
    losses[early] = losses["trained"] + [*tight, 0.05, 0.13, 0.21, 0.17]
    losses[late] = losses["trained"] + 0.03 + np.array([0.02, -0.02, 0.02, -0.02, 0.0, 0.0, 0.0, 0.0])
    verdicts, taken = looked_at([hypothesis(name=arm, treatment=arm) for arm in (early, late)])(losses)
    assert min(look.claims[early].sequential_p or 1.0 for look in taken) <= 0.05
    assert verdicts[late].outcome == "supported"
    assert (verdicts[early].outcome, verdicts[early].reason) == ("undecided", "no_longer_shown")
    assert verdicts[early].difference.mean > MARGIN
    assert verdicts[early].p_adjusted <= 0.05


@in_numbers
def test_what_is_refuted_has_the_p_of_its_refutation(looked_at, studies):
    """Over all looks, and at most the level; that of the claim itself is near 1."""
    look = looked_at([hypothesis()])
    refuted = [each for losses in simulated(studies // 4, {TREATMENT: MARGIN + 0.02})
               if (each := look(losses)[0]["not_worse"]).outcome == "refuted"]  # fmt: skip
    assert len(refuted) > studies / 8
    assert all(0 < each.refutation_p <= 0.0501 for each in refuted)
    assert min(each.p for each in refuted) > 0.9


# ---- What looks are ------------------------------------------------------------------------------------------------


def test_a_claim_about_solving_is_looked_at_by_the_increments_of_the_spending(tmp_path):
    """Six seeds of six reach 1/64, which is below what may be spent by then: 0.0236."""
    study = small_probes(looks=[6, 8], hypotheses=[solving_claim()])
    curve = probe_curve(lambda arm, *_: 100 if arm == TREATMENT else None)
    verdict = findings_of(study, store_study(study, tmp_path, lambda *_: 1.0, measured=curve)).verdicts[0]
    assert (verdict.outcome, verdict.look.number, len(verdict.sign_test.ahead)) == ("supported", 1, 6)
    assert verdict.p == pytest.approx(1 / 64)
    assert verdict.p < verdict.sequential_p < 0.05


def test_every_interval_shown_at_a_look_holds_at_all_looks_at_once(tmp_path):
    """In verdict, table and ablation alike: wider than the plain one of its pairs."""
    study = small_study(arms=ARMS, seeds=list(range(8)), looks=LOOKS, hypotheses=[hypothesis()])
    losses = next(simulated(1, {}))
    done = {seed: {arm: float(losses[arm][seed]) for arm in ARMS} for seed in range(LOOKS[0])}
    shelf = store_study(study, tmp_path, lambda arm, seed, *_: done[seed][arm] if seed in done else None)
    found = findings_of(study, shelf)
    shown = [found.verdicts[0].difference, found.arms[TREATMENT].quality.difference]
    shown += [step.difference for step in found.decomposition]
    assert len(shown) > 3
    for each in shown:
        assert len(each.seeds) == LOOKS[0]
        scale = each.standard_deviation / math.sqrt(LOOKS[0])
        reach = (each.high - each.mean) / scale
        assert 2 * stats.t.sf(reach, LOOKS[0] - 1) == pytest.approx(interval_level(LOOKS, LOOKS[0]), rel=1e-6)
        assert reach > 2 * stats.t.isf(0.025, LOOKS[0] - 1)


def test_a_claim_with_a_run_that_diverged_asks_for_no_further_seeds(tmp_path):
    study = small_study(arms=ARMS[:2], seeds=list(range(8)), looks=LOOKS, hypotheses=[hypothesis()])
    diverged = TREATMENT, 1
    shelf = store_study(study, tmp_path, lambda arm, seed, *_: math.inf if (arm, seed) == diverged else 2 + seed / 100)
    (verdict,) = findings_of(study, shelf).verdicts
    assert (verdict.outcome, verdict.reason) == ("undecided", "diverged")
    assert (verdict.look.number, verdict.look.is_settled) == (1, True)


def test_the_last_look_without_earlier_ones_is_the_verdict_of_all_seeds(looked_at, tmp_path):
    """A study with one look decides as one without: the same p-values, bounds and outcome."""
    losses = next(simulated(1, {TREATMENT: 0.02}))
    found = []
    for looks in ([], [8]):
        study = small_study(arms=ARMS[:2], seeds=list(range(8)), looks=looks, hypotheses=[hypothesis()])
        shelf = store_study(study, tmp_path / str(len(looks)), lambda arm, seed, *_: float(losses[arm][seed]))
        found.append(findings_of(study, shelf).verdicts[0])
    plain, by_look = found
    assert by_look.p == plain.p
    assert by_look.p_adjusted == pytest.approx(plain.p_adjusted, rel=1e-3)
    assert by_look.upper_bound == pytest.approx(plain.upper_bound, rel=1e-6)
    assert replace(by_look, hypothesis=plain.hypothesis).outcome == plain.outcome


@pytest.mark.parametrize(
    ("early", "late", "outcome", "is_said"),
    [(0.0, 0.15, "supported", True), (0.0, 0.03, "supported", False), (0.15, -0.3, "refuted", True)],
)
def test_a_decision_that_all_finished_pairs_speak_against_says_so(tmp_path, early, late, outcome, is_said):
    """The look after four of eight seeds binds; the other four ended too, and the mean of all may lie elsewhere."""
    study = small_study(
        arms=["trained", "frozen_head_orthogonal"], seeds=list(range(8)), hypotheses=[hypothesis("not_worse")],
        tuning=None, looks=[4, 8],
    )  # fmt: skip

    def loss(arm, seed, *_):
        return 2.0 + (0.0 if arm == "trained" else (early if seed < 4 else late) + 0.001 * (seed % 3))

    verdict = findings_of(study, store_study(study, tmp_path, loss)).verdicts[0]
    assert (verdict.outcome, verdict.look.seeds) == (outcome, 4)
    said = dict(verdict.reservations).get("later_pairs")
    assert (said is not None) is is_said
    if said:
        mean = (4 * early + 4 * late) / 8 + 0.001 * sum(seed % 3 for seed in range(8)) / 8
        assert said == {"looked": 4, "pairs": 8, "difference": pytest.approx(100 * math.expm1(mean))}
