"""Kinds of hypothesis: one row is all there is of a kind, and nothing takes an unknown one for another."""

import math
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from oelm.analysis.summary import findings_of
from oelm.show.closing import side_of
from oelm.show.figures.comparisons import _edges
from oelm.show.verdicts import as_text
from oelm.show.words import WORDS
from oelm.study.claims.kinds import GROUNDS, KINDS, Bounds, Evidence, documentation, kinds_about
from oelm.study.claims.reasons import REASONS
from oelm.study.shelf import Shelf
from stored_runs import accuracy_claim, hypothesis, small_classification, small_study, store_bench, store_study

REPOSITORY = Path(__file__).parents[3]


def test_every_row_is_whole():
    for key, kind in KINDS.items():
        assert all(kind.criterion), key
        assert all(kind.documentation), key
    rows = [rows for kind in KINDS.values() for rows in (kind, kind.of_fewer) if rows]
    named = [reason for row in rows for reason in row.reasons.values()]
    assert set(named) < set(REASONS)  # the others: why there is nothing to decide by


def test_every_kind_of_evidence_has_its_ground():
    assert GROUNDS.keys() == set(get_args(Evidence))
    assert all(kinds_about(evidence) for evidence in get_args(Evidence))


@pytest.mark.parametrize(
    ("row", "changes", "problem"),
    [
        ("fewer_parameters", {"needs": "margin"}, "needs is None or 'least_frozen', not 'margin'"),
        ("better", {"needs": "least_frozen"}, "needs is None or 'margin', not 'least_frozen'"),
        ("not_worse", {"reasons": {"supported": "shown", "refuted": "contradicted"}}, "its outcomes are"),
        ("faster", {"reasons": {"supported": "faster", "refuted": "not_faster"}}, "its outcomes are"),
        ("faster", {"reasons": KINDS["faster"].reasons | {"refuted": "shown"}}, "shown names pairs, difference"),
        ("faster", {"reasons": KINDS["faster"].reasons | {"refuted": "slow"}}, "slow is not in claims/reasons.py"),
        ("better", {"bounds": lambda margin: Bounds(None, None)}, "has no bound"),
        ("fewer_parameters", {"criterion_with_margin": ("a", "b")}, "criterion_with_margin is for a kind whose margin"),
        ("better", {"evidence": "taste"}, "evidence is one of quality, contrast, scale, solved_seeds"),
    ],
)  # fmt: skip
def test_a_row_that_could_not_be_decided_rightly_cannot_be_made(row, changes, problem):
    with pytest.raises(ValueError, match=problem):
        replace(KINDS[row], **changes)


def test_the_documentation_has_the_table():
    lines = (REPOSITORY / "docs" / "studies.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in documentation() if line not in lines] == []  # add these


@pytest.mark.parametrize(
    ("bounds", "low", "high", "contained", "excluded"),
    [
        (Bounds(None, 1.0), 0.8, 0.9, True, False),
        (Bounds(None, 1.0), 0.9, 1.1, False, False),
        (Bounds(None, 1.0), 0.9, 1.0, False, False),
        (Bounds(None, 1.0), 1.1, 1.2, False, True),
        (Bounds(5, None), 5, 5, True, False),
        (Bounds(5, None), 4, 4, False, True),
        (Bounds(-1, 1), -0.5, 0.5, True, False),
        (Bounds(-1, 1), -3, -2, False, True),
        (Bounds(-1, 1), -3, 2, False, False),
    ],
)
def test_an_interval_lies_within_the_bounds_beyond_one_or_neither(bounds, low, high, contained, excluded):
    assert bounds.contain(low, high) == contained
    assert bounds.exclude(low, high) == excluded


@pytest.mark.parametrize(
    ("claim", "edges"),
    [
        (hypothesis("not_worse"), (None, "margin")),
        (hypothesis("equivalent"), ("-margin", "margin")),
        (hypothesis("better"), (None, 0)),
        (accuracy_claim("not_worse"), (-2, None)),
        (accuracy_claim("better", margin_points=3), (3, None)),
    ],
)  # fmt: skip
def test_the_figure_has_its_edges_where_the_verdict_has_its_bounds(tmp_path, claim, edges):
    of_accuracy = "measure" in claim
    make, arms = (small_classification, ["fine_tuned", "frozen_pretrained"]) if of_accuracy else (small_study, None)
    study = make(hypotheses=[claim], seeds=[0], arms=arms or ["trained", "frozen_head_orthogonal"])
    verdict = findings_of(study, store_study(study, tmp_path, lambda *_: 0.3)).verdicts[0]
    of_margin = {"margin": verdict.margin, "-margin": -verdict.margin}
    for found, expected in zip(_edges(verdict), edges, strict=True):
        assert found == (expected if expected is None else pytest.approx(of_margin.get(expected, expected)))


def test_a_margin_in_points_has_no_blank_before_chinese(tmp_path):
    claim = accuracy_claim("better", margin_points=1)
    study = small_classification(hypotheses=[claim], seeds=[0], arms=["fine_tuned", "frozen_pretrained"])
    text = as_text(findings_of(study, store_study(study, tmp_path, lambda *_: 0.3)), "zh")
    assert "且相差超过 1 个百分点\n" in text


def test_an_unknown_kind_falls_through_nowhere(tmp_path, monkeypatch):
    """Also if its evidence is one that nobody gathers."""
    study = small_study(hypotheses=[hypothesis("better")], seeds=[0, 1, 2])
    findings = findings_of(study, store_study(study, tmp_path, lambda arm, seed, *_: 2.0 + 0.01 * seed * len(arm)))
    (verdict,) = findings.verdicts
    unknown = replace(verdict, hypothesis=verdict.hypothesis.model_copy(update={"kind": "nicer"}))
    with pytest.raises(KeyError):
        _edges(unknown)
    of_taste = copy(KINDS["better"])
    object.__setattr__(of_taste, "evidence", "taste")
    monkeypatch.setitem(KINDS, "better", of_taste)
    for use in (lambda: findings_of(study, Shelf(tmp_path)), lambda: as_text(findings, "en")):
        with pytest.raises(AssertionError):
            use()


# ---- One more row ----------------------------------------------------------------------------------------------------

WORSE = replace(KINDS["not_worse"], bounds=lambda margin: Bounds(margin, None))
FASTER_BY = replace(KINDS["faster"], needs="margin")
FEWER_THAN = replace(KINDS["fewer_parameters"], bounds=lambda most: Bounds(None, most))
LENIENT = replace(KINDS["not_worse"], bounds=lambda margin: Bounds(None, 2 * margin))


@pytest.fixture
def findings_with(tmp_path, monkeypatch):
    """Of a study with one claim of a kind that is one more row."""

    def make(kind, loss=lambda arm, seed, *_: 2.0 + 0.01 * seed * len(arm), *, seconds=None, **stated):
        monkeypatch.setitem(KINDS, "new", kind)
        monkeypatch.setitem(WORDS, "criterion.new", kind.criterion)
        if kind.of_fewer:
            monkeypatch.setitem(WORDS, "criterion.new.of_fewer", kind.of_fewer.criterion)
        study = small_study(arms=ARMS, seeds=[0, 1, 2], hypotheses=[hypothesis("new", **stated)])
        shelf = store_study(study, tmp_path, loss)
        if seconds:
            store_bench(tmp_path, baseline="trained", seconds=seconds, study=study)
        findings = findings_of(study, shelf)
        for language in ("en", "zh"):
            assert as_text(findings, language)
        return findings

    return make


ARMS = ["trained", "frozen_head_orthogonal"]


def test_a_claim_of_more_speed_than_was_measured_is_not_supported(findings_with):
    def seconds(ratio):
        return {"trained": [1.0 + 0.001 * (block % 3) for block in range(12)],
                "frozen_head_orthogonal": [ratio + 0.001 * (block % 2) for block in range(12)]}  # fmt: skip

    half = findings_with(FASTER_BY, seconds=seconds(0.975), margin_percent=5).verdicts[0]
    assert (half.outcome, half.facts["margin"]) == ("refuted", 5)


def test_a_claim_of_less_speed_than_was_measured_is_supported(findings_with):
    seconds = {
        arm: [size + 0.001 * (block % 2) for block in range(12)] for arm, size in zip(ARMS, (1, 0.9), strict=True)
    }
    assert findings_with(FASTER_BY, seconds=seconds, margin_percent=5).verdicts[0].outcome == "supported"


def test_a_treatment_that_always_diverges_is_worse_as_claimed(findings_with):
    diverging = lambda arm, seed, *_: 2.0 if arm == "trained" else math.inf  # noqa: E731
    verdict = findings_with(WORSE, diverging, margin_percent=5).verdicts[0]
    assert (verdict.outcome, verdict.reason) == ("supported", "all_diverged")


@pytest.mark.parametrize(("most", "outcome"), [(4097, "supported"), (4096, "refuted"), (4095, "refuted")])
def test_a_count_lies_within_the_bounds_or_does_not(findings_with, most, outcome):
    verdict = findings_with(FEWER_THAN, least_frozen=most).verdicts[0]
    assert (verdict.facts["frozen"], verdict.outcome) == (4096, outcome)


@pytest.mark.parametrize(("least", "outcome"), [(4096, "supported"), (4097, "refuted")])
def test_fewer_trained_parameters_are_counted_against_the_control(findings_with, least, outcome):
    verdict = findings_with(KINDS["fewer_parameters"], least_fewer=least).verdicts[0]
    assert (verdict.facts["fewer"], verdict.outcome) == (4096, outcome)


def test_what_still_counts_as_equal_is_what_the_claim_allows(findings_with):
    """8 per cent worse, of 10 that are allowed by twice a margin of 5."""

    def loss(arm, seed, *_):
        return 2.0 + (0.0 if arm == "trained" else math.log(1.08) + 0.001 * seed)

    assert side_of(findings_with(LENIENT, loss, margin_percent=5).verdicts[0]) == "equal"
