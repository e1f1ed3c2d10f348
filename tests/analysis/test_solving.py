"""Claims about solved seeds and steps to solve: what decides them, what does not, and how often they err."""

import math
from dataclasses import asdict

import numpy as np
import pytest

from oelm.analysis import statistics
from oelm.analysis.findings import SignTest, SolvedSeeds, Verdict
from oelm.analysis.hypotheses import verdicts
from oelm.analysis.speed import Speed
from oelm.analysis.statistics import sign_test, solving_pairs
from oelm.analysis.summary import findings_as_json, findings_of
from oelm.core.solving import Criterion, Solved, solved
from oelm.show.content import article_of
from oelm.show.markdown import markdown
from oelm.show.numbers import NONE
from oelm.show.probes import probes
from oelm.show.verdicts import as_text, reason_sentence
from oelm.study.claims.kinds import KINDS, Bounds
from oelm.study.claims.reasons import REASONS
from oelm.study.declaration import Hypothesis
from stored_runs import probe_curve, small_probes, solving_claim, store_study

FROZEN, TRAINED = "frozen_head_orthogonal", "trained"
BOTH = [solving_claim("solves_more"), solving_claim("solves_sooner")]
HALF = Bounds(0.5, None)


def by_arm(frozen, trained):
    """The step from which each seed of an arm has solved it; None: never."""
    return lambda arm, seed, *_: (frozen if arm == FROZEN else trained)[seed]


def stored(folder, frozen, trained, claims=tuple(BOTH), *, loss=lambda *_: 1.0, **changes):
    study = small_probes(hypotheses=list(claims), **changes)
    return findings_of(study, store_study(study, folder, loss, measured=probe_curve(by_arm(frozen, trained))))


def outcomes(findings):
    return [(verdict.outcome, verdict.reason) for verdict in findings.verdicts]


# ---- When a run counts as solved -----------------------------------------------------------------------------------


def curve(*accuracies):
    return [{"step": 10 * number, "accuracy": each} for number, each in enumerate(accuracies, start=1)]


@pytest.mark.parametrize(
    ("final", "accuracies", "expected"),
    [
        (1.0, (0.2, 0.95, 1.0), Solved(10, 20)),
        (0.9, (0.9, 0.9, 0.9), Solved(0, 10)),  # the level itself is enough
        (0.89, (0.95, 0.95, 0.95), None),  # lost at the end
        (0.9, (0.2, 0.2, 0.2), Solved(20, 30)),  # found by the reported accuracy alone
        (0.95, (0.2, 0.92, 0.3), Solved(10, 20)),  # the first validation that reached it
        (0.95, (), Solved(0, 30)),
    ],
)
def test_a_run_is_solved_by_its_end_and_in_the_interval_of_the_first_validation_that_found_it(
    final, accuracies, expected
):
    assert solved(Criterion(0.9), {"accuracy": final}, curve(*accuracies), steps=30) == expected


def test_intervals_that_overlap_are_equally_soon():
    early, late = Solved(0, 10), Solved(10, 20)
    assert early.is_before(late)
    assert not late.is_before(early)
    assert not early.is_before(early)
    assert not Solved(0, 15).is_before(late)
    assert not late.is_before(Solved(0, 15))
    assert late.is_before(None)


# ---- Outcomes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frozen", "trained", "more", "sooner"),
    [
        ([100] * 8, [None] * 8, ("supported", "solves_more"), ("supported", "solves_sooner")),
        ([None] * 8, [100] * 8, ("refuted", "solves_fewer"), ("refuted", "solves_later")),
        ([50] * 8, [100] * 8, ("undecided", "too_few_informative"), ("supported", "solves_sooner")),
        ([100] * 8, [93] * 8, ("undecided", "too_few_informative"), ("undecided", "too_few_informative")),  # ties
        ([None] * 8, [None] * 8, ("undecided", "too_few_informative"), ("undecided", "too_few_informative")),
        (
            [50] * 4 + [None] * 4, [None] * 4 + [50] * 4,
            ("undecided", "solved_unclear"), ("undecided", "steps_unclear"),
        ),
    ],
)  # fmt: skip
def test_the_outcome_follows_the_signs(tmp_path, frozen, trained, more, sooner):
    findings = stored(tmp_path, frozen, trained)
    assert outcomes(findings) == [more, sooner]
    for verdict in findings.verdicts:
        assert set(verdict.facts) == set(REASONS[verdict.reason].facts)
        assert verdict.sign_test.pairs == 8
        for language in ("en", "zh"):
            assert as_text(findings, language)


def test_a_verdict_names_its_pairs_by_their_seeds(tmp_path):
    steps = [50, 50, None, None, 60, 61, 50, 50]
    verdict = stored(tmp_path, steps, [None, 100, 50, None, 70, 70, 50, 43]).verdicts[1]
    test = verdict.sign_test
    assert (test.ahead, test.behind, test.tied, test.neither) == ([0, 1, 4], [2], [5, 6, 7], [3])
    assert test.informative == 4


@pytest.mark.parametrize(
    ("ahead", "behind", "doubt"), [(5, 3, "few"), (7, 1, None), (6, 2, "few"), (6, 5, "near"), (2, 9, "few")]
)
def test_signs_near_even_are_told_from_too_few_of_them(ahead, behind, doubt):
    pairs = SignTest(list(range(ahead)), list(range(behind)), [], [], p=0.5, p_opposite=0.5)
    outcome = "undecided" if doubt else "supported"
    claim = Hypothesis.model_validate(BOTH[0])
    reason = "solved_unclear" if doubt else "solves_more"
    assert Verdict(claim, outcome, outcome, reason, p=0.5, sign_test=pairs).doubt == doubt


def test_a_run_that_diverged_did_not_solve_it(tmp_path):
    findings = stored(tmp_path, [50] * 8, [50] * 8, loss=lambda arm, *_: math.inf if arm == TRAINED else 1.0)
    assert outcomes(findings) == [("supported", "solves_more"), ("supported", "solves_sooner")]
    assert findings.arms[TRAINED].probe.solving[0].accuracies == dict.fromkeys(range(8))


def test_while_a_run_is_missing_nothing_is_decided(tmp_path):
    findings = stored(tmp_path, [50] * 8, [None] * 8, loss=lambda arm, seed, *_: None if seed == 7 else 1.0)
    assert outcomes(findings) == [("undecided", "incomplete")] * 2
    assert findings.verdicts[0].facts["pairs"] == 7
    for verdict in findings.verdicts:  # what the pairs say so far is shown, and not tested
        assert (verdict.pairs_so_far.ahead, verdict.sign_test, verdict.p) == ([*range(7)], None, None)
    assert "only the treatment solves it 7" in as_text(findings, "en")


def test_a_claim_may_be_about_one_difficulty(tmp_path):
    claims = [solving_claim(name=str(each), difficulty=each) for each in (4, 8)]
    findings = stored(tmp_path, [50] * 8, [None] * 8, claims)
    assert outcomes(findings) == [("supported", "solves_more"), ("undecided", "too_few_informative")]
    assert "accuracy of at least 90 % at difficulty 4 at the end" in as_text(findings, "en")


def test_at_a_difficulty_that_the_runs_do_not_report_it_says_so(tmp_path):
    study = small_probes(hypotheses=[solving_claim(difficulty=8)])
    partly = lambda *_: {"accuracy": 0.5, "accuracy_by_difficulty": {"4": 0.5}}  # noqa: E731
    findings = findings_of(study, store_study(study, tmp_path, lambda *_: 1.0, measured=partly))
    assert outcomes(findings) == [("undecided", "no_such_difficulty")]
    assert "do not report accuracy at difficulty 8; they report it at: 4." in as_text(findings, "en")


def test_solving_is_of_one_family_with_quality(tmp_path):
    margin = {"measure": "probe_accuracy", "margin_points": 2}
    claims = [
        *BOTH,
        solving_claim("not_worse", solved_at=None, **margin),
        solving_claim(name="aside", confirmatory=False),
    ]
    found = {each.hypothesis.name: each for each in stored(tmp_path, [50] * 8, [100] * 8, claims).verdicts}
    assert (found["solves_sooner"].p, found["solves_sooner"].facts["interval"]) == (2**-8, 10)
    assert found["solves_sooner"].p_adjusted == 3 * 2**-8
    assert found["solves_more"].p_adjusted == 1.0
    assert found["aside"].p_adjusted is None
    assert found["not_worse"].outcome == "supported"  # equal
    assert found["not_worse"].p_adjusted == 3 * 2**-8


# ---- What is shown -------------------------------------------------------------------------------------------------


def test_findings_have_the_accuracies_and_steps_of_every_seed(tmp_path):
    findings = stored(tmp_path, [50, 60, 70, 80, 90, 100, 110, None], [None] * 8)
    probe = findings.arms[FROZEN].probe
    assert probe.validate_every == 10
    assert probe.accuracies == {**dict.fromkeys(range(7), pytest.approx(0.92)), 7: 0.1875}
    assert probe.by_difficulty[7] == {"4": 0.25, "8": 0.125}
    assert probe.solving[0].solved[0] == Solved(40, 50)
    assert (probe.solving[0].runs, probe.solving[0].steps) == (8, [50, 60, 70, 80, 90, 100, 110])
    tree = findings_as_json(findings)
    (seeds,) = tree["arms"][FROZEN]["probe"]["solving"]
    assert seeds["criterion"] == {"level": 0.9, "difficulty": None}
    assert (seeds["solved"]["0"], seeds["solved"]["7"]) == ({"after": 40, "by": 50}, None)
    assert tree["verdicts"][0]["sign_test"]["ahead"] == [0, 1, 2, 3, 4, 5, 6]
    (table,) = [block for block in probes(findings, "en", ()) if hasattr(block, "rows")]
    assert table.rows[1] == [FROZEN, "7/8", "80", "50 – 110", "10"]
    assert table.rows[0] == [TRAINED, "0/8", NONE, NONE, "10"]


# ---- Error rates ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def settled_by(tmp_path_factory):
    """Verdicts of thousands of studies of 8 seeds, from steps held in memory."""
    findings = stored(tmp_path_factory.mktemp("simulated"), [50] * 8, [50] * 8)

    def seeds_of(steps):
        return SolvedSeeds(Criterion(0.9), {}, by_seed(steps))

    def settle(frozen, trained):
        arms = {}
        for arm, steps in ((FROZEN, frozen), (TRAINED, trained)):
            summary = findings.arms[arm]
            probe = summary.probe.__class__(10, {}, {}, [seeds_of(steps)])
            arms[arm] = summary.__class__(**vars(summary) | {"probe": probe})
        return verdicts(findings.plan, arms, speed_of=lambda *_: Speed(), confounds={})

    return settle


def by_seed(steps):
    return {seed: None if step is None else Solved(step - 10, step) for seed, step in enumerate(steps)}


def simulated_steps(generator, share, size=8):
    """Seeds that solve it with a probability, at some validation of twenty."""
    steps = 10 * generator.integers(1, 21, size)
    return [int(step) if lucky else None for step, lucky in zip(steps, generator.random(size) < share, strict=True)]


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_equal_arms_are_called_different_in_at_most_one_study_of_twenty(settled_by, share):
    """In each direction."""
    assert _different(settled_by, share, studies=2000) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)


def _different(settle, share, *, studies):
    generator = np.random.default_rng([15, round(100 * share)])
    found = [settle(simulated_steps(generator, share), simulated_steps(generator, share)) for _ in range(studies)]
    outcomes = [[each[claim].outcome for each in found] for claim in (0, 1)]
    return max(each.count(called) for each in outcomes for called in ("supported", "refuted")) / studies


@pytest.mark.parametrize("by_steps", [False, True])
@pytest.mark.parametrize(("share", "pairs"), [(0.2, 20), (0.6, 8)])
def test_signs_err_in_at_most_one_of_twenty_whatever_the_share_of_ties(share, pairs, by_steps):
    generator = np.random.default_rng(2)

    def arm():
        return by_seed(simulated_steps(generator, share, pairs))

    tests = [sign_test(solving_pairs(arm(), arm(), by_steps=by_steps), HALF) for _ in range(2000)]
    assert all(test.pairs == pairs for test in tests)
    for p in ("p", "p_opposite"):
        assert sum(getattr(test, p) <= 0.05 for test in tests) / 2000 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_the_t_test_of_accuracies_that_are_all_or_nothing_errs_in_at_most_six_of_a_hundred(share):
    """Exactly, over all that 8 seeds of two equal arms can come to: the nominal rate is 5 %."""
    bounds, apart, wrong = KINDS["better"].bounds(0.0), share * (1 - share), 0.0
    for ahead, behind in ((one, other) for one in range(9) for other in range(9 - one)):
        equal = 8 - ahead - behind
        differences = [-0.75] * ahead + [0.75] * behind + [0.0] * equal
        test = statistics.p_within if statistics.can_be_tested(differences) else statistics.same_p_within
        ways = math.comb(8, ahead) * math.comb(8 - ahead, behind)
        wrong += ways * apart ** (ahead + behind) * (1 - 2 * apart) ** equal * (test(differences, bounds) <= 0.05)
    assert wrong <= 0.06


EARLY, LATE = Solved(0, 10), Solved(10, 20)


@pytest.mark.parametrize(
    ("treatment", "control", "by_steps", "side"),
    [
        (LATE, None, False, "ahead"),
        (EARLY, LATE, False, "tied"),
        (EARLY, LATE, True, "ahead"),
        (LATE, EARLY, True, "behind"),
        (EARLY, EARLY, True, "tied"),
        (None, LATE, True, "behind"),
        (None, None, True, "neither"),
    ],
)
def test_who_is_ahead_in_a_pair(treatment, control, by_steps, side):
    pairs = solving_pairs({3: treatment, 4: EARLY}, {3: control}, by_steps=by_steps)
    assert {name: seeds for name, seeds in asdict(pairs).items() if seeds} == {side: [3]}


# ---- Accuracy ------------------------------------------------------------------------------------------------------


def accuracy_at(difficulty, kind="not_worse", **changes):
    margin = {"margin_points": 2} if kind != "better" else {}
    stated = {"measure": "probe_accuracy", "solved_at": None, "difficulty": difficulty, **margin}
    return solving_claim(kind, name=f"{kind} at {difficulty}", **stated | changes)


def test_a_claim_about_accuracy_may_be_about_one_difficulty(tmp_path):
    """The frozen arm breaks at 8 pairs."""
    study = small_probes(hypotheses=[accuracy_at(None), accuracy_at(4), accuracy_at(8), accuracy_at(8, "better")])

    def measured(run, step):
        broken = run.arm == FROZEN
        found = {"4": 1.0, "8": 0.5 + 0.01 * run.seed if broken else 1.0}
        return {"accuracy": sum(found.values()) / 2, "accuracy_by_difficulty": found}

    findings = findings_of(study, store_study(study, tmp_path, lambda *_: 1.0, measured=measured))
    broken = "refuted", "contradicted"
    assert outcomes(findings) == [broken, ("supported", "same_shown"), broken, broken]
    assert findings.verdicts[2].facts["difference"] == pytest.approx(-46.5)
    for language, name in (("en", "accuracy at difficulty 8"), ("zh", "难度 8 的准确率")):
        assert name in reason_sentence(findings, findings.verdicts[2], language)


# ---- Report --------------------------------------------------------------------------------------------------------


def test_a_whole_report_in_both_languages(tmp_path):
    tuning = {"grid": {"learning_rate": [1e-3, 2e-3, 4e-3]}, "rank": "solved", "solved_at": 0.8, "extend": 0}
    study = small_probes(hypotheses=[*BOTH, accuracy_at(8)], tuning=tuning)
    steps = lambda arm, seed, stage, point: 50 + 20 * (arm == TRAINED) + 10 * (seed % 2)  # noqa: E731
    findings = findings_of(study, store_study(study, tmp_path, lambda *_: 1.0, measured=probe_curve(steps)))
    texts = {
        language: markdown(article_of(findings, language, figures=()), figure_paths={}) for language in ("en", "zh")
    }
    for words in (
        "accuracy of at least 80 %",
        "\n## Probe\n",
        "8/8",
        "sign test",
        "(here 3 in all)",
        "grid by solving",
    ):
        assert words in texts["en"], words
    for words in ("探测任务", "盲猜的准确率", "精确单侧符号检验", "共 3 个", "按解出情况列出的网格"):
        assert words in texts["zh"], words


def test_a_criterion_at_a_difficulty_reads_that_one():
    measured = {"accuracy": 0.5, "accuracy_by_difficulty": {"4": 0.95, "8": 0.05}}
    assert [Criterion(0.9, each).accuracy(measured) for each in (None, 4, 8, 16)] == [0.5, 0.95, 0.05, None]
    assert Criterion(0.9, 4).accuracy({"accuracy_by_difficulty": [0.5]}) is None
