"""What a report says of halving and of a fitted optimum, in both languages, and what it draws."""

import pytest
from example_studies import example_study, findings_from, plausible_loss

from oelm.reporting.article import Table, visible_text
from oelm.reporting.content import article_of
from oelm.reporting.figures import comparisons
from oelm.reporting.figures.canvas import Canvas, drawing_settings

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


@pytest.mark.parametrize(
    ("language", "columns", "parts"),
    [
        (
            "en",
            ("continued", "fitted optimum"),
            ["By halving: values more than 0.01 nats behind", "optimum of tuning runs of 20 steps",
             "trained: no optimum could be fitted, because the best value has no neighbour on one side"],
        ),
        ("zh", ("进入下一轮", "拟合最优值"), ["采用逐轮淘汰", "它是 20 步调优运行的最优值", "一侧没有相邻取值"]),
    ],
)  # fmt: skip
def test_a_report_says_what_was_dropped_and_what_was_fitted(findings, language, columns, parts):
    article = article_of(findings, language, figures={"tuning"})
    rounds, curves = (cells(article, column) for column in columns)
    assert rounds["frozen_scaled_normal"][:3] == ["1/2", "10", "2e-3"]
    assert rounds["frozen_scaled_normal"][3].startswith("1e-3 (+0.0144)")
    assert list(curves) == ["frozen_scaled_normal"]
    assert curves["frozen_scaled_normal"][:2] == ["2e-3", "2e-3"]
    text = visible_text(article)
    for part in parts:
        assert part in text


def test_the_figure_draws_the_rounds_and_the_curve(findings):
    canvas = Canvas(findings, "en", None)
    with drawing_settings(canvas):
        (axis,) = comparisons.tuning(canvas).axes
    dotted = [line for line in axis.lines if line.get_linestyle() == ":" and len(line.get_xdata()) > 10]
    assert len(dotted) == 1
    thin = [line for line in axis.lines if line.get_linewidth() == 0.6]
    assert len(thin) == len(ARMS)
