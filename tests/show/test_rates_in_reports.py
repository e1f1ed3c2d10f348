"""What a report says of halving and of a fitted optimum, in both languages, and what it draws."""

import csv
import io
import math
import re

import pytest
from example_studies import example_study, findings_from, plausible_loss

from oelm.analysis.findings import RATES
from oelm.analysis.summary import findings_as_json
from oelm.show.article import Table, visible_text
from oelm.show.board.standing import cards_of
from oelm.show.citable import citable
from oelm.show.content import article_of
from oelm.show.figures import comparisons
from oelm.show.figures.canvas import Canvas, drawing_settings
from oelm.show.notebook.results import VerdictView
from oelm.show.tables import comparison_csv, label_of
from oelm.show.verdicts import verdict_box
from oelm.show.words import say

ARMS = {"trained": {}, "frozen_scaled_normal": {}}
TUNING = {
    "grid": {"learning_rate": [1e-3, 2e-3, 4e-3]}, "set": {"steps": 20}, "seeds": [1000, 1001, 1002], "extend": 0,
    "method": "halving", "budgets": [0.5, 1], "margin": 0.01, "choose": "fitted",
}  # fmt: skip


@pytest.fixture(scope="module")
def findings(tmp_path_factory):
    """One arm has its optimum between two values, the other at the edge of the grid."""

    def loss(arm, seed, stage, point):
        edge = 2.0 * dict(point)["training.learning_rate"] if arm == "trained" else 0.0
        return plausible_loss(arm, seed, stage, point) + 10 * edge

    study = example_study(arms=ARMS, seeds=[0, 1], tuning=TUNING, hypotheses=[])
    return findings_from(study, tmp_path_factory.mktemp("rates"), loss)


def cells(article, header):
    (table,) = [block for block in article.blocks if isinstance(block, Table) and header in block.header]
    return {row[0]: row[1:] for row in table.rows}


def test_a_report_says_what_was_dropped_and_what_was_fitted(findings):
    for language in ("en", "zh"):
        article = article_of(findings, language, figures={"tuning"})
        rounds, curves = (cells(article, say(language, f"column.{name}")) for name in ("went_on", "optimum"))
        assert rounds["frozen_scaled_normal"][:3] == ["1/2", "10", "2e-3"]
        assert rounds["frozen_scaled_normal"][3].startswith("1e-3 (+0.0144)")
        assert list(curves) == ["frozen_scaled_normal"]
        assert curves["frozen_scaled_normal"][:2] == ["2e-3", "2e-3"]
        text = visible_text(article)
        facts = {"arm": label_of(findings, "trained", language), "value": "1e-3"}
        assert say(language, "note.not_fitted_edge", **facts) in text
        assert say(language, "table.halving", margin="0.01").strip() in text


def test_the_figure_draws_the_rounds_and_the_curve(findings):
    canvas = Canvas(findings, "en", None)
    with drawing_settings(canvas.language, canvas.font):
        (axis,) = comparisons.tuning(canvas).axes
    dotted = [line for line in axis.lines if line.get_linestyle() == ":" and len(line.get_xdata()) > 10]
    assert len(dotted) == 1
    thin = [line for line in axis.lines if line.get_linewidth() == 0.6]
    assert len(thin) == len(ARMS)


# ---- The allowance -------------------------------------------------------------------------------------------------

THREE = {"grid": {"learning_rate": [1e-3, 2e-3, 4e-3]}, "set": {"steps": 20}, "seeds": [1000, 1001, 1002]}


@pytest.fixture(scope="module")
def allowed(tmp_path_factory):
    """A study that says nothing of how its rates are chosen."""
    return findings_from(example_study(tuning=THREE, looks="none"), tmp_path_factory.mktemp("allowed"), plausible_loss)


def test_a_verdict_names_its_allowance_and_its_box_that_of_each_arm(allowed):
    sentences = {"en": r"p [=<] [\d.]+ over 2 claims, .*[\d.]+ %\.", "zh": r"（计入 2 个假设），.*[\d.]+ %。"}
    for language, sentence in sentences.items():
        box, name = verdict_box(allowed, allowed.verdicts[0], language), say(language, "box.rates")
        assert re.search(sentence, box.sentence)
        of_arms = dict(box.numbers)[name]
        assert all(label_of(allowed, arm, language) in of_arms for arm in ("frozen_head_orthogonal", "trained"))
        card = cards_of(allowed, language)[0]
        assert card["sentence"] == box.sentence
        assert any(key == name for key, _ in card["numbers"])


@pytest.mark.parametrize(
    ("tuning", "code"),
    [(None, "one_rate"), (THREE | {"seeds": [1000]}, "one_seed"), (THREE | {"seeds": [1000, 1001]}, "few_seeds")],
)
def test_a_verdict_without_an_allowance_says_so(tmp_path, tuning, code):
    found = findings_from(example_study(tuning=tuning, looks="none"), tmp_path, plausible_loss)
    for verdict in found.verdicts[:3]:
        for language in ("en", "zh"):
            assert say(language, f"rates.{code}", seeds=2) in verdict_box(found, verdict, language).sentence


def test_everything_that_can_be_said_of_rates_has_words():
    facts = {"allowance": "1 %", "seeds": 3, "arms": "trained"}
    for language in ("en", "zh"):
        assert len({say(language, f"rates.{code}", **facts) for code in RATES}) == len(RATES)


def test_numbers_of_the_allowance_are_those_of_the_box(allowed):
    verdict = allowed.verdicts[0]
    macros = {(each.measure, each.name): each.text for each in citable(allowed)}
    box, name = verdict_box(allowed, verdict, "en"), verdict.hypothesis.name
    assert f"rate allowance of {macros['rateAllowance', name]} %" in box.sentence
    shown = dict(box.numbers)["rate allowance"]
    for side in ("Treatment", "Control"):
        assert f"{macros[f'rateAllowance{side}', name]} %" in shown
    (stored, *_) = findings_as_json(allowed)["verdicts"]
    assert stored["rates"]["code"] == "allowed"
    assert stored["rates"]["arms"] == verdict.rates.arms
    rows = {row["arm"]: row for row in csv.DictReader(io.StringIO(comparison_csv(allowed)))}
    assert float(rows["trained"]["rate_allowance_nats"]) == verdict.rates.arms["trained"]
    assert VerdictView(allowed, verdict).row["rate_allowance"] == pytest.approx(100 * math.expm1(verdict.allowance))
