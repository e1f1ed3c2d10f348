"""The floor stands wherever a number of quality does: tables, captions, boxes, cards, plans, spreadsheets."""

import csv
import io

import pytest

from oelm.analysis.planning import prospect_of
from oelm.analysis.summary import findings_of
from oelm.show import tables
from oelm.show.article import Picture, Table, VerdictBox
from oelm.show.board.standing import cards_of
from oelm.show.content import article_of
from oelm.show.figures.canvas import Canvas, floor_levels
from oelm.show.figures.comparisons import final
from oelm.show.plan_table import plan_lines, plan_tree
from oelm.show.report import _write_tables
from oelm.show.verdicts import as_text, outcome_in_short
from oelm.study.shelf import Shelf
from stored_runs import hypothesis, small_study, store_study

KNOWN = {"unigram_loss": 3.0, "bigram_loss": 2.0}  # perplexities of 20.086 and 7.389
SAID = {
    "en": "20.086 (a unigram of the training tokens), 7.389 (an interpolated bigram of the training tokens)",
    "zh": "20.086（训练 token 的一元模型）、7.389（训练 token 的插值二元模型）",
}
UNKNOWN = {"en": "Floor: unknown.", "zh": "下限：未知。"}
ARMS = ["trained", "frozen_head_orthogonal"]


def stored(folder, control, known=KNOWN):
    study = small_study(arms=ARMS, seeds=[0, 1, 2, 3], hypotheses=[hypothesis()], tuning=None)

    def loss(arm, seed, *_):
        return control + 0.01 * seed + 0.001 * (seed % 2) * (arm == ARMS[1])

    return study, store_study(study, folder, loss, result=known)


def found(folder, control, known=KNOWN):
    return findings_of(*stored(folder, control, known))


@pytest.fixture(scope="module")
def between(tmp_path_factory):
    """A control that has learnt little."""
    return found(tmp_path_factory.mktemp("runs"), 2.5)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_tables_figures_boxes_and_cards_show_it(between, language):
    said = SAID[language]
    figures = (
        "final_perplexity",
        "val_ppl_comparison",
        "perplexity_by_parameters",
        "differences",
        "target",
        "decomposition",
    )
    blocks = article_of(between, language, figures=figures).blocks
    captions = {block.name: block.caption for block in blocks if isinstance(block, Picture)}
    assert set(captions) == set(figures)
    assert all(said in caption for caption in captions.values())
    assert sum(said in block.caption for block in blocks if isinstance(block, Table)) == 3  # the target, the steps
    assert said in tables.quality_table(between, language).caption
    assert said in tables.whole_table(between, language).caption
    (box,) = (block for block in blocks if isinstance(block, VerdictBox))
    (card,) = cards_of(between, language)
    assert said in dict(box.numbers).values()
    assert said in dict(card["numbers"]).values()
    assert said in as_text(between, language)


def test_a_control_that_has_learnt_little_is_named_beside_the_outcome(between):
    (verdict,) = between.verdicts
    assert outcome_in_short(verdict, "en").startswith("supported (has learnt little")
    assert outcome_in_short(verdict, "zh").startswith("成立（所学甚少")
    text = " ".join(as_text(between, "en").split())
    assert (
        "trained has learnt little: its perplexity (12.367) is not clearly below 7.389, which an interpolated" in text
    )


def test_a_control_that_has_learnt_nothing_is_the_reason(tmp_path):
    findings = found(tmp_path, 3.2)
    english, chinese = as_text(findings, "en"), as_text(findings, "zh")
    assert "[undecided" in english
    assert "Nothing learnt yet: the perplexity of trained (24.903)" in english
    assert "is not clearly below the floor of 20.086, which a unigram of the training tokens reaches" in english
    assert "尚未学到任何内容：trained 的困惑度（24.903）并不明显低于下限 20.086" in chinese


@pytest.mark.parametrize("language", ["en", "zh"])
def test_runs_of_before_say_that_it_is_unknown(tmp_path, language):
    findings = found(tmp_path, 2.5, dict.fromkeys(KNOWN))
    assert tables.quality_table(findings, language).caption.endswith(UNKNOWN[language])
    assert {"en": "floor unknown", "zh": "下限未知"}[language] in outcome_in_short(findings.verdicts[0], language)


def test_it_is_a_line_of_a_figure_where_it_lies_among_the_values_and_never_widens_it(between, tmp_path):
    canvas = Canvas(found(tmp_path, 3.0), "en", None)
    assert floor_levels(canvas) == pytest.approx([20.0855, 7.3891], abs=1e-3)
    (axis,) = final(canvas).axes
    drawn = [line.get_xdata()[0] for line in axis.lines if list(line.get_ydata()) == [0, 1]]
    assert drawn == pytest.approx([20.0855], abs=1e-3)
    (axis,) = final(Canvas(between, "en", None)).axes
    assert not [line for line in axis.lines if list(line.get_ydata()) == [0, 1]]


def test_the_table_as_text_has_it_below(between, tmp_path):
    _write_tables(tmp_path, between, ["en"])
    assert (tmp_path / "comparison_table.txt").read_text(encoding="utf-8").endswith(f" Floor: {SAID['en']}.\n")


def test_plans_and_spreadsheets_have_it(tmp_path):
    study, _ = stored(tmp_path, 2.5)
    prospect = prospect_of(study, Shelf(tmp_path))
    assert f"floor: {SAID['en']}" in list(plan_lines(prospect))
    assert plan_tree(prospect)["floor"]["learnt_little"] == 2.0
    rows = list(csv.DictReader(io.StringIO(tables.comparison_csv(findings_of(study, Shelf(tmp_path))))))
    assert {(row["floor_learnt_nothing"], row["floor_learnt_little"]) for row in rows} == {("3.0", "2.0")}
