"""A whole report: from a complete, a partial and an empty study; with and without a Chinese font."""

import base64
import io
import json
import re

import pytest
from example_studies import example_study, findings_from
from fontTools.ttLib import TTFont
from reading import pdf_text, without_spaces

from oelm.errors import UserError
from oelm.reporting import report as report_module
from oelm.reporting.content import document_of
from oelm.reporting.document import Heading, Picture, VerdictBox, visible_text
from oelm.reporting.figures import gallery
from oelm.reporting.fonts import HOW_TO_GET_ONE, chinese_font, has_chinese
from oelm.reporting.report import FORMATS, write_report, write_tables
from oelm.reporting.words import say
from oelm.study.shelf import Shelf

TABLES = {
    "comparison_table.txt", "comparison_table.md", "comparison_table.csv", "runs.csv", "hypothesis_validation.txt",
    "analysis_results.json",
}  # fmt: skip


@pytest.fixture
def quick(monkeypatch, few_figures):
    """Two figures instead of twelve."""
    monkeypatch.setattr(gallery, "FIGURES", few_figures)


# ---- Complete ------------------------------------------------------------------------------------------------------


def test_every_file_is_there_and_whole(complete_report):
    assert set(complete_report.tables) == TABLES
    for path in [*complete_report.tables.values(), *complete_report.documents.values()]:
        assert path.stat().st_size > 100
    assert not list(complete_report.folder.rglob(".partial-*"))
    json.loads(complete_report.tables["analysis_results.json"].read_text(encoding="utf-8"))


def test_the_answer_comes_first(complete):
    blocks = document_of(complete, "en", figures=set(gallery.FIGURES)).blocks
    assert isinstance(blocks[0], Heading)
    assert blocks[0].text == say("en", "heading.verdicts")
    boxes = [block for block in blocks if isinstance(block, VerdictBox)]
    assert [box.name for box in boxes] == [each.hypothesis.name for each in complete.verdicts]
    assert blocks.index(boxes[-1]) < len(boxes) + 3


def test_figures_and_sections_come_in_the_order_of_the_documents(complete):
    blocks = document_of(complete, "en", figures=set(gallery.FIGURES)).blocks
    assert [block.name for block in blocks if isinstance(block, Picture)] == list(gallery.FIGURES)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_pdf_holds_the_sentences(complete, complete_report, language):
    if f"{language}.pdf" not in complete_report.documents:
        pytest.skip("no Chinese font here; pip install 'oelm[fonts]'")
    text = without_spaces(pdf_text(complete_report.documents[f"{language}.pdf"].read_bytes()))
    document = document_of(complete, language, figures=set(gallery.FIGURES))
    for block in document.blocks:
        if isinstance(block, Heading):
            assert without_spaces(block.text) in text
        if isinstance(block, VerdictBox):
            assert without_spaces(block.claim) in text
            assert without_spaces(block.sentence) in text


def test_html_asks_for_nothing_and_runs_nothing(complete_report):
    page = complete_report.documents["en.html"].read_text(encoding="utf-8")
    assert "<script" not in page
    assert not re.search(r"""(?:src|href)=["'](?!data:|#)""", page)
    assert not re.search(r"""@import|url\((?!"data:)""", page)
    assert page.count("<img ") == len(gallery.FIGURES)


def test_the_chinese_page_brings_its_letters(complete, complete_report):
    if chinese_font() is None:
        pytest.skip("no Chinese font here; pip install 'oelm[fonts]'")
    page = complete_report.documents["zh.html"].read_text(encoding="utf-8")
    enclosed = base64.b64decode(re.search(r"data:font/ttf;base64,([^\"]+)", page)[1])
    text = visible_text(document_of(complete, "zh", figures=set(gallery.FIGURES)))
    known = TTFont(io.BytesIO(enclosed)).getBestCmap()
    assert {character for character in text if has_chinese(character)} <= set(map(chr, known))
    assert len(enclosed) < 400_000
    assert "@font-face" not in complete_report.documents["en.html"].read_text(encoding="utf-8")


def test_markdown_links_to_figures_that_are_there(complete_report):
    for language in ("en", "zh"):
        text = complete_report.documents[f"{language}.md"].read_text(encoding="utf-8")
        links = re.findall(r"\]\((figures/[^)]+)\)", text)
        assert len(links) == len(gallery.FIGURES)
        assert all((complete_report.folder / link).is_file() for link in links)


def test_the_same_findings_give_the_same_report(complete, tmp_path, quick):
    one, other = (write_report(complete, tmp_path / name, languages=["en"]) for name in ("one", "other"))
    for ending in FORMATS:
        assert one.documents[f"en.{ending}"].read_bytes() == other.documents[f"en.{ending}"].read_bytes()


def test_a_bench_is_the_only_source_about_speed(complete, partial):
    with_bench, without = (visible_text(document_of(each, "en", figures=())) for each in (complete, partial))
    assert "interleaved on one device" in with_bench
    assert "makes no statement about speed" in without
    assert "makes no statement about speed" not in with_bench


def test_one_fixed_learning_rate_is_said(tmp_path):
    findings = findings_from(example_study(tuning=None), tmp_path)
    assert "every arm uses the one learning rate" in visible_text(document_of(findings, "en", figures=()))


def test_an_explanation_is_given_in_the_language_of_the_report(tmp_path):
    reason = {"en": "the scale is part of it", "zh": "尺度是其中一部分"}
    claim = example_study().hypotheses[0].model_dump() | {
        "varies": ["start", "moves"],
        "explained": {"start.scale": reason},
    }
    findings = findings_from(example_study(hypotheses=[claim]), tmp_path)
    assert reason["en"] in visible_text(document_of(findings, "en", figures=()))
    assert reason["zh"] in visible_text(document_of(findings, "zh", figures=()))


# ---- Partial and empty ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_partial_report_says_first_what_is_missing(partial, language):
    first = document_of(partial, language, figures=()).blocks[0]
    assert first.title == say(language, "partial.title")
    told = " ".join(first.items)
    assert say(language, "partial.final", finished=9, planned=12) in told
    for state in ("diverged", "failed", "missing"):
        assert say(language, f"state.{state}") in told


def test_a_partial_verdict_is_undecided_and_has_no_p(partial):
    document = document_of(partial, "en", figures=())
    boxes = {block.name: block for block in document.blocks if isinstance(block, VerdictBox)}
    assert boxes["start"].outcome == "undecided"
    assert "p" not in dict(boxes["start"].numbers)
    assert "p" in dict(boxes["cost"].numbers)


def test_a_study_in_tuning_is_reported(tmp_path, quick):
    findings = findings_from(
        example_study(), tmp_path / "runs", lambda arm, seed, stage, point: 2.0 if arm == "trained" else None
    )
    files = write_report(findings, tmp_path / "out", languages=["en"])
    assert "Tuning is not over" in files.documents["en.md"].read_text(encoding="utf-8")


def test_an_empty_study_gives_a_short_report(tmp_path, quick):
    from oelm.analysis.summary import findings_of

    (tmp_path / "runs").mkdir()
    findings = findings_of(example_study(), Shelf(tmp_path / "runs"))
    files = write_report(findings, tmp_path / "out", languages=["en"])
    text = files.documents["en.md"].read_text(encoding="utf-8")
    assert "Nothing has run yet" in text
    assert len(text) < 6000


def test_a_study_without_hypotheses_is_reported(tmp_path):
    findings = findings_from(example_study(hypotheses=[], tuning=None), tmp_path)
    assert say("en", "verdicts.none") in visible_text(document_of(findings, "en", figures=()))


# ---- Without a font, without the libraries, without room -----------------------------------------------------------


def test_without_a_font_the_chinese_report_has_no_pdf_and_says_why(complete, tmp_path, monkeypatch, quick):
    monkeypatch.setattr(report_module, "chinese_font", lambda: None)
    files = write_report(complete, tmp_path, languages=["zh", "en"])
    assert set(files.documents) == {"zh.md", "zh.html", "en.md", "en.html", "en.pdf"}
    assert files.remarks == [HOW_TO_GET_ONE]
    assert "\n" not in HOW_TO_GET_ONE
    assert all(".zh." not in name for name in files.figures)


def test_with_a_font_nothing_is_remarked(complete_report):
    if chinese_font() is None:
        pytest.skip("no Chinese font here; pip install 'oelm[fonts]'")
    assert complete_report.remarks == []
    assert len(complete_report.documents) == 6


def test_missing_libraries_are_one_line(complete, tmp_path, monkeypatch):
    monkeypatch.setattr(report_module, "LIBRARIES", ("matplotlib", "no_such_library"))
    with pytest.raises(UserError, match=r"^a report needs no_such_library: pip install 'oelm\[report\]'$"):
        write_report(complete, tmp_path)


def test_tables_need_no_figures(complete, tmp_path):
    files = write_tables(complete, tmp_path, language="zh")
    assert {path.name for path in tmp_path.iterdir()} == set(files.tables) == TABLES


def test_a_full_disk_leaves_the_old_report(complete, tmp_path, monkeypatch, quick):
    import errno

    files = write_report(complete, tmp_path, languages=["en"], formats=["md"])
    before = files.documents["en.md"].read_bytes()

    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(report_module, "write_bytes", full)
    with pytest.raises(UserError, match="disk full: needs"):
        write_report(complete, tmp_path, languages=["en"], formats=["md"])
    assert files.documents["en.md"].read_bytes() == before
