"""Kinds of hypothesis: one row is all there is of a kind, and nothing takes an unknown one for another."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from oelm.analysis.summary import findings_of
from oelm.claims.kinds import KINDS, Bounds, Evidence, documentation, kinds_about
from oelm.claims.reasons import REASONS
from oelm.reporting.figures.comparisons import _edges
from oelm.reporting.verdicts import as_text
from oelm.study.shelf import Shelf
from stored_runs import accuracy_claim, hypothesis, small_classification, small_study, store_study

REPOSITORY = Path(__file__).parents[2]


def test_every_row_is_whole():
    for key, kind in KINDS.items():
        assert kind.evidence in get_args(Evidence), key
        assert set(kind.reasons.values()) <= REASONS.keys(), key
        assert all(kind.criterion), key
        assert all(kind.documentation), key
    named = [reason for kind in KINDS.values() for reason in kind.reasons.values()]
    assert {"supported", "refuted"} <= set.intersection(*(set(kind.reasons) for kind in KINDS.values()))
    assert set(named) < set(REASONS)  # the others: why there is nothing to decide by


def test_every_kind_of_evidence_is_asked_for():
    assert all(kinds_about(evidence) for evidence in get_args(Evidence))


def test_the_documentation_has_the_table():
    text = (REPOSITORY / "docs" / "studies.md").read_text(encoding="utf-8")
    assert "\n".join(documentation()) in text


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
        (hypothesis("better", margin_percent=5), (None, "-margin")),
        (accuracy_claim("not_worse"), (-2, None)),
        (accuracy_claim("equivalent"), (-2, 2)),
        (accuracy_claim("better"), (0, None)),
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


def test_an_unknown_kind_falls_through_nowhere(tmp_path, monkeypatch):
    """Also if its evidence is one that nobody gathers."""
    study = small_study(hypotheses=[hypothesis("better")], seeds=[0, 1, 2])
    findings = findings_of(study, store_study(study, tmp_path, lambda arm, seed, *_: 2.0 + 0.01 * seed * len(arm)))
    (verdict,) = findings.verdicts
    unknown = replace(verdict, hypothesis=verdict.hypothesis.model_copy(update={"kind": "nicer"}))
    with pytest.raises(KeyError):
        _edges(unknown)
    monkeypatch.setitem(KINDS, "better", replace(KINDS["better"], evidence="taste"))
    for use in (lambda: findings_of(study, Shelf(tmp_path)), lambda: as_text(findings, "en")):
        with pytest.raises(AssertionError):
            use()
