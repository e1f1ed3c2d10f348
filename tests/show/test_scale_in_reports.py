"""The section on scale: every size in words, tables and one figure, in both languages; nothing of it without sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from example_studies import example_study, findings_from

from oelm.analysis.findings import Findings
from oelm.analysis.summary import findings_as_json, findings_of
from oelm.show import numbers
from oelm.show.article import Article, Heading, Paragraph, Picture, Table, VerdictBox, visible_text
from oelm.show.board.standing import cards_of
from oelm.show.citable import citable
from oelm.show.content import article_of
from oelm.show.figures import scale as figure
from oelm.show.figures.canvas import Canvas, drawing_settings
from oelm.show.fonts import chinese_font
from oelm.show.tables import adjusted_p
from oelm.show.words import LANGUAGES, WORDS, say
from oelm.study.sizes import DIALS, NAMED
from sized_studies import STEPS, WIDTHS, losses_with_slope, sized_study
from stored_runs import hypothesis, store_study


@pytest.fixture(scope="module")
def sized(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    study = sized_study(forecast={"width": 128})
    return findings_of(study, store_study(study, tmp_path_factory.mktemp("runs"), losses_with_slope()))


def section(article: Article, heading: str) -> list:
    """The blocks under a heading."""
    places = [at for at, block in enumerate(article.blocks) if isinstance(block, Heading)]
    start = next(at for at in places if article.blocks[at].text == heading)
    return article.blocks[start + 1 : next((at for at in places if at > start), None)]


def test_every_dial_and_count_has_words():
    for dial in (*DIALS, NAMED):
        assert f"dial.{dial}" in WORDS
    for count in ("parameters", "tokens", "flops"):
        assert {f"per.{count}", f"axis.per.{count}"} <= set(WORDS)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_section_has_slopes_sizes_laws_multipliers_and_forecasts(sized, language):
    blocks = section(article_of(sized, language, figures={"scale"}), say(language, "heading.scale"))
    assert [block.name for block in blocks if isinstance(block, Picture)] == ["scale"]
    slopes, by_size, laws, multipliers, forecasts = (block for block in blocks if isinstance(block, Table))
    sizes = len(WIDTHS) + len(STEPS) - 1
    assert [len(table.rows) for table in (slopes, by_size, laws, multipliers, forecasts)] == [4, 2 * sizes, 4, 4, 1]
    assert {row[-1] for row in slopes.rows} == {f"{len(WIDTHS)}/{len(WIDTHS)}", f"{len(STEPS)}/{len(STEPS)}"}
    warnings = [block for block in blocks if isinstance(block, Paragraph) and block.tone == "warning"]
    assert len(warnings) == 1  # that a forecast is an extrapolation


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_claim_about_scale_has_its_slope_its_test_and_its_sizes(sized, language):
    box = next(block for block in article_of(sized, language, figures=()).blocks if isinstance(block, VerdictBox))
    named = dict(box.numbers)
    assert set(named) == {say(language, f"box.{code}") for code in ("criterion", "slope", "sizes", "floor")}
    assert f"p {numbers.probability(sized.verdicts[0].p)}" in box.sentence
    assert "width96" in named[say(language, "box.sizes")]
    assert say(language, "per.parameters") in box.sentence


def test_a_contrast_names_both_sizes_wherever_it_is_shown(tmp_path):
    language = "zh"
    claim = hypothesis("contrast", size="width64", against="width16", margin_percent=1)
    sizes = {"sizes": {"width": WIDTHS}, "hypotheses": [claim]}
    study = sized_study(**sizes)
    found = findings_of(study, store_study(study, tmp_path, losses_with_slope()))
    box = next(block for block in article_of(found, language, figures=()).blocks if isinstance(block, VerdictBox))
    named = dict(box.numbers)
    for text in (box.sentence, named[say(language, "box.criterion")]):
        assert "width64" in text
        assert "width16" in text
    assert "(width64)" not in named[say(language, "box.criterion")]  # of an arm, which it is about at two sizes
    (card,) = cards_of(found, language)
    assert card["interval"]["low"] < card["interval"]["mean"] < card["interval"]["high"]
    assert found.verdicts[0].outcome in box.outcome
    for code in ("contrast", "margin"):
        assert say(language, f"box.{code}") in named
    (stored,) = findings_as_json(found)["verdicts"]
    assert stored["facts"]["pairs"] == 3
    assert {"difference", "margin", "adjustedP"} <= {each.measure for each in citable(found) if each.of == "claim"}
    of_the_main_size = replace(found, study=sized_study(**sizes, main_size="width64"))
    for each in (found, of_the_main_size):
        assert adjusted_p(each, "frozen_head_orthogonal+width64") == []  # of the pair at one size


def test_what_is_not_about_the_main_size_says_so(sized):
    english = article_of(sized, "en", figures=())
    assert "are about the size width32" in visible_text(english)
    quality = next(block for block in section(english, "Results") if isinstance(block, Table))
    assert len(quality.rows) == 2


def test_the_figure_has_two_panels_for_each_dial_and_the_forecast(sized):
    canvas = Canvas(sized, "zh", chinese_font())
    with drawing_settings(canvas.language, canvas.font):
        drawn = figure.scale(canvas)
    assert len(drawn.axes) == 4
    (width, _, steps, _) = drawn.axes
    largest = max(sized.scale.forecasts[0].predicted.counts["parameters"], 0)
    assert width.dataLim.x1 == pytest.approx(largest)
    assert steps.dataLim.x1 < 2 * max(STEPS) * 64


def test_a_forecast_that_may_be_anything_is_not_shown_and_why(tmp_path):
    language = "en"
    study = sized_study(forecast={"width": 128}, sizes={"width": WIDTHS}, hypotheses=[])
    found = findings_of(study, store_study(study, tmp_path, losses_with_slope(noise=0.05)))
    (forecast,) = found.scale.forecasts
    assert forecast.predicted.high - forecast.predicted.low > 0.1
    article = article_of(found, language, figures={"scale"})
    blocks = section(article, say(language, "heading.scale"))
    assert "10" in next(block.text for block in blocks if isinstance(block, Paragraph) and "width128" in block.text)
    columns = {cell for block in blocks if isinstance(block, Table) for cell in block.header}
    assert say(language, "column.predicted") not in columns
    assert not any("forecast" in each.measure for each in citable(found))
    assert findings_as_json(found)["scale"]["forecasts"][0]["predicted"]["middle"] == forecast.predicted.middle
    canvas = Canvas(found, language, chinese_font())
    with drawing_settings(canvas.language, canvas.font):
        assert figure.scale(canvas).axes[0].dataLim.x1 < forecast.predicted.counts["parameters"]


def test_a_dial_of_which_no_pair_is_finished_has_no_panels_yet(tmp_path):
    study = sized_study()
    some = store_study(study, tmp_path, losses_with_slope(), leaves=lambda run: run.arm.split("+")[1] != "width16")
    canvas = Canvas(findings_of(study, some), "en", None)
    with drawing_settings(canvas.language, canvas.font):
        assert len(figure.scale(canvas).axes) == 2


def test_an_arm_at_one_size_is_no_part_of_the_figure(tmp_path):
    once = {"arm": "frozen_orthogonal", "sizes": ["width32"]}
    study = sized_study(
        arms={"trained": {}, "frozen_head_orthogonal": {}, "once": once}, sizes={"width": [16, 32]}, hypotheses=[]
    )
    canvas = Canvas(findings_of(study, store_study(study, tmp_path, losses_with_slope())), "en", None)
    with drawing_settings(canvas.language, canvas.font):
        (legend,) = figure.scale(canvas).legends
    assert [text.get_text() for text in legend.get_texts()] == ["trained", "frozen_head_orthogonal"]


def test_one_size_has_a_sentence_in_place_of_slopes(tmp_path):
    study = sized_study(sizes={"width": [32]}, hypotheses=[hypothesis("grows")])
    found = findings_of(study, store_study(study, tmp_path, losses_with_slope()))
    text = visible_text(article_of(found, "en", figures=()))
    assert "No slope over width for frozen_head_orthogonal. Complete sizes: 1," in text
    assert "a slope needs at least 3" in text


def test_missing_runs_are_named_with_their_size(tmp_path):
    study = sized_study(sizes={"width": [16, 32]}, hypotheses=[])
    some = store_study(study, tmp_path, losses_with_slope(), leaves=lambda run: run.arm == "trained+width16")
    assert "trained (width16): no result" in visible_text(article_of(findings_of(study, some), "en", figures=()))


def test_a_report_without_sizes_says_nothing_of_them(tmp_path):
    text = visible_text(article_of(findings_from(example_study(), tmp_path), "en", figures={"scale"}))
    assert say("en", "heading.scale") not in text
    assert "main size" not in text
