"""A whole report: from a complete, a partial and an empty study; with and without a Chinese font."""

import base64
import html
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from example_studies import example_study, findings_from
from fontTools.ttLib import TTFont
from reading import pdf_text, without_spaces

from oelm.analysis.summary import findings_of
from oelm.core.measures import LOSS
from oelm.machine.errors import UserError
from oelm.machine.installation import install_command
from oelm.show import report as report_module
from oelm.show.article import Bullets, Facts, Heading, Picture, VerdictBox, visible_text
from oelm.show.content import article_of
from oelm.show.figures import gallery
from oelm.show.fonts import HOW_TO_GET_ONE, chinese_font, has_chinese
from oelm.show.report import FORMATS, write_report, write_tables
from oelm.show.verdicts import reason_sentence
from oelm.show.words import say
from oelm.study.registration import register
from oelm.study.shelf import Shelf
from stored_runs import store_finished

FIGURES = gallery.figures_of(LOSS)

TABLES = {
    "comparison_table.txt", "comparison_table.csv", "runs.csv", "hypothesis_validation.txt",
    "analysis_results.json", "numbers.tex", "tables.en.tex", "tables.zh.tex",
}  # fmt: skip


@pytest.fixture
def quick(monkeypatch, few_figures):
    """Two figures instead of twelve."""
    monkeypatch.setattr(gallery, "figures_of", lambda _: few_figures)


# ---- Complete ------------------------------------------------------------------------------------------------------


def test_every_file_is_there_and_whole(complete_report):
    assert set(complete_report.tables) == TABLES
    for path in [*complete_report.tables.values(), *complete_report.articles.values()]:
        assert path.stat().st_size > 100
    assert not list(complete_report.folder.rglob(".partial-*"))
    json.loads(complete_report.tables["analysis_results.json"].read_text(encoding="utf-8"))
    if chinese_font() is not None:
        assert complete_report.remarks == []
        assert len(complete_report.articles) == 6


def test_the_answer_comes_first_and_figures_in_the_order_of_the_originals(complete):
    blocks = article_of(complete, "en", figures=set(FIGURES)).blocks
    assert isinstance(blocks[0], Heading)
    assert blocks[0].text == say("en", "heading.verdicts")
    boxes = [block for block in blocks if isinstance(block, VerdictBox)]
    assert [box.name for box in boxes] == [each.hypothesis.name for each in complete.verdicts]
    assert blocks.index(boxes[-1]) < len(boxes) + 3
    assert [block.name for block in blocks if isinstance(block, Picture)] == list(FIGURES)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_pdf_holds_the_sentences(complete, complete_report, language):
    if f"{language}.pdf" not in complete_report.articles:
        pytest.skip("no Chinese font here; pip install 'oelm[fonts]'")
    text = without_spaces(pdf_text(complete_report.articles[f"{language}.pdf"].read_bytes()))
    for block in article_of(complete, language, figures=set(FIGURES)).blocks:
        said = [block.text] if isinstance(block, Heading) else []
        said += [block.claim, block.sentence] if isinstance(block, VerdictBox) else []
        assert all(without_spaces(each) in text for each in said)


def test_html_asks_for_nothing_and_runs_nothing(complete_report):
    page = complete_report.articles["en.html"].read_text(encoding="utf-8")
    assert "<script" not in page
    assert not re.search(r"""(?:src|href)=["'](?!data:|#)""", page)
    assert not re.search(r"""@import|url\((?!"data:)""", page)
    assert page.count("<img ") == len(FIGURES)


def test_the_chinese_page_brings_its_letters(complete, complete_report):
    if chinese_font() is None:
        pytest.skip("no Chinese font here; pip install 'oelm[fonts]'")
    page = complete_report.articles["zh.html"].read_text(encoding="utf-8")
    enclosed = base64.b64decode(re.search(r"data:font/ttf;base64,([^\"]+)", page)[1])
    text = visible_text(article_of(complete, "zh", figures=set(FIGURES)))
    known = TTFont(io.BytesIO(enclosed)).getBestCmap()
    assert {character for character in text if has_chinese(character)} <= set(map(chr, known))
    assert len(enclosed) < 400_000
    assert "@font-face" not in complete_report.articles["en.html"].read_text(encoding="utf-8")


def test_markdown_links_to_figures_that_are_there(complete_report):
    for language in ("en", "zh"):
        text = complete_report.articles[f"{language}.md"].read_text(encoding="utf-8")
        links = re.findall(r"\]\((figures/[^)]+)\)", text)
        assert len(links) == len(FIGURES)
        assert all((complete_report.folder / link).is_file() for link in links)


def test_every_figure_is_there_fine_enough_for_print_and_with_its_fonts_inside(complete_report):
    from PIL import Image
    from pypdf import PdfReader

    for name in FIGURES:
        assert {f"{name}.en.png", f"{name}.en.svg", f"{name}.en.pdf"} <= set(complete_report.figures)
    for path in complete_report.figures.values():
        assert path.read_bytes().startswith({".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[path.suffix])
        if path.suffix == ".pdf":
            fonts = PdfReader(path).pages[0]["/Resources"]["/Font"].get_object().values()
            assert fonts
            for font in (each.get_object() for each in fonts):
                assert font["/Subtype"] == "/Type0"
                assert "/FontFile2" in font["/DescendantFonts"][0].get_object()["/FontDescriptor"].get_object()
    with Image.open(complete_report.figures["differences.en.png"]) as image:
        assert image.width == 2100
        assert round(image.info["dpi"][0]) == 300


def test_the_same_findings_give_the_same_report(complete, tmp_path, quick):
    one, other = (write_report(complete, tmp_path / name, languages=["en"]) for name in ("one", "other"))
    for ending in FORMATS:
        assert one.articles[f"en.{ending}"].read_bytes() == other.articles[f"en.{ending}"].read_bytes()


def test_a_bench_is_the_only_source_about_speed(complete, partial):
    with_bench, without = (visible_text(article_of(each, "en", figures=())) for each in (complete, partial))
    assert ["says nothing about speed" in text for text in (with_bench, without)] == [False, True]


def test_one_fixed_learning_rate_is_said(tmp_path):
    findings = findings_from(example_study(tuning=None), tmp_path)
    assert "every arm uses the one learning rate" in visible_text(article_of(findings, "en", figures=()))


def test_an_explanation_is_given_in_the_language_of_the_report(tmp_path):
    reason = {"en": "the scale is part of it", "zh": "尺度是其中一部分"}
    given = {"varies": ["start", "moves"], "explained": {"start.scale": reason}}
    study = example_study(hypotheses=[example_study().hypotheses[0].model_dump() | given])
    findings = findings_from(study, tmp_path)
    for language, text in reason.items():
        assert text in visible_text(article_of(findings, language, figures=()))


# ---- Partial and empty ---------------------------------------------------------------------------------------------


def test_a_partial_report_says_first_what_is_missing(partial):
    for language in ("en", "zh"):
        first = article_of(partial, language, figures=()).blocks[0]
        assert first.title == say(language, "partial.title")
        told = " ".join(first.items)
        assert say(language, "partial.final", finished=9, planned=12) in told
        assert all(say(language, f"state.{state}") in told for state in ("diverged", "failed", "missing"))
    boxes = {each.name: each for each in article_of(partial, "en", figures=()).blocks if isinstance(each, VerdictBox)}
    assert boxes["start"].outcome == "undecided"  # and without a p
    assert ["; p " in boxes[name].sentence for name in ("start", "cost")] == [False, True]


def test_the_seed_of_a_missing_run_cannot_be_read_as_a_count(partial):
    facts = {"pairs": 1, "planned": 2, "treatment": {"missing": [0]}, "control": {}}
    verdict = replace(partial.verdicts[0], outcome="undecided", reason="incomplete", facts=facts)
    for language, said in (("en", "(seeds: 0)"), ("zh", "（种子：0）")):
        assert said in reason_sentence(partial, verdict, language)


def test_a_study_in_tuning_is_reported(tmp_path, quick):
    findings = findings_from(
        example_study(), tmp_path / "runs", lambda arm, seed, stage, point: 2.0 if arm == "trained" else None
    )
    files = write_report(findings, tmp_path / "out", languages=["en"])
    assert "Tuning is not finished" in files.articles["en.md"].read_text(encoding="utf-8")


def test_an_empty_study_gives_a_short_report(tmp_path, quick):
    (tmp_path / "runs").mkdir()
    findings = findings_of(example_study(), Shelf(tmp_path / "runs"))
    files = write_report(findings, tmp_path / "out", languages=["en"])
    text = files.articles["en.md"].read_text(encoding="utf-8")
    assert "Nothing has run yet" in text
    assert len(text) < 6000


def test_a_study_without_hypotheses_is_reported(tmp_path):
    findings = findings_from(example_study(hypotheses=[], tuning=None), tmp_path)
    assert say("en", "verdicts.none") in visible_text(article_of(findings, "en", figures=()))


# ---- Without a font, without the libraries, without room -----------------------------------------------------------


def test_without_a_font_the_chinese_report_has_no_pdf_and_says_why(complete, tmp_path, monkeypatch, quick):
    monkeypatch.setattr(report_module, "chinese_font", lambda: None)
    files = write_report(complete, tmp_path, languages=["zh", "en"])
    assert set(files.articles) == {"zh.md", "zh.html", "en.md", "en.html", "en.pdf"}
    assert files.remarks == [HOW_TO_GET_ONE]
    assert "\n" not in HOW_TO_GET_ONE
    assert all(".zh." not in name for name in files.figures)


def test_missing_libraries_are_one_line(complete, tmp_path, monkeypatch):
    monkeypatch.setattr(report_module, "LIBRARIES", ("matplotlib", "no_such_library"))
    with pytest.raises(UserError, match=re.escape(f"a report needs no_such_library: {install_command('report')}")):
        write_report(complete, tmp_path)


def test_tables_need_no_figures(complete, tmp_path):
    files = write_tables(complete, tmp_path, language="zh")
    assert {path.name for path in tmp_path.iterdir()} == set(files.tables) == TABLES - {"tables.en.tex"}


# ---- As a whole or not at all --------------------------------------------------------------------------------------


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def without_figures(monkeypatch):
    monkeypatch.setattr(gallery, "figures_of", lambda _: {})


@pytest.fixture
def reported(complete, tmp_path, without_figures):
    """A folder with a report in both languages, and a reader's notes beside it."""
    out = tmp_path / "reports" / "example"
    write_report(complete, out, formats=["md", "html"])
    (out / "notes.txt").write_text("mine")
    return out


@pytest.mark.parametrize("moment", ["_galleries", "_write_figures", "article_of", "html", "write_json"])
def test_a_report_that_fails_leaves_the_old_one_whole(partial, reported, monkeypatch, moment):
    before = contents(reported)

    def failing(*arguments, **options):
        raise ValueError("bad text")

    monkeypatch.setattr(report_module, moment, failing)
    with pytest.raises(ValueError, match="bad text"):
        write_report(partial, reported, formats=["md", "html"])
    assert contents(reported) == before
    assert [path.name for path in reported.parent.iterdir()] == [reported.name]


def test_a_full_disk_leaves_the_old_report_whole(partial, reported, tmp_path):
    """A real one, at several sizes from nothing to almost enough."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", disk], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mounting a tmpfs is not permitted here: {done.stderr.strip()}")
    try:
        shutil.copytree(reported, disk / "example")
        before = contents(disk / "example")
        free = shutil.disk_usage(disk).free
        for room in (0, 8 * 2**10, 32 * 2**10, 64 * 2**10):
            (disk / "ballast").write_bytes(bytes(free - room))
            with pytest.raises(UserError, match=r"disk full: |No space left on device"):
                write_report(partial, disk / "example", formats=["md", "html"])
            assert contents(disk / "example") == before
            (disk / "ballast").unlink()
        write_report(partial, disk / "example", formats=["md", "html"])
        assert contents(disk / "example")["notes.txt"] == b"mine"
        assert contents(disk / "example")["report.en.md"] != before["report.en.md"]
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_folder_holds_one_report_and_the_readers_own_files(partial, reported):
    """In one language after both, or tables alone: the others would be an older report's beside it."""
    files = write_report(partial, reported, languages=["en"], formats=["md", "html"])
    assert [name for name in contents(reported) if ".zh." in name] == []
    assert files.remarks == [f"{reported}: removed together with the previous report: report.zh.html, report.zh.md"]
    assert (reported / "notes.txt").read_text() == "mine"
    tables = write_tables(partial, reported)
    assert set(contents(reported)) == {*TABLES, "notes.txt"} - {"tables.zh.tex"}
    assert "report.en.html, report.en.md" in tables.remarks[0]


def test_a_folder_that_is_no_reports_is_refused(complete, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(UserError, match=r"contains files that are not part of a report \(thesis\.tex\)"):
        write_tables(complete, tmp_path)
    assert contents(tmp_path) == {"thesis.tex": b"mine"}


# ---- What was written down beforehand ------------------------------------------------------------------------------


@pytest.fixture
def edited(tmp_path):
    """Registered, run, and then edited: one more tuning run, other steps in the file, and a registration after it."""
    study, folder = example_study(), tmp_path / "runs"
    register(study, folder)
    findings = findings_from(study, folder)
    run = next(run for run in findings.plan.tuning if run.arm == "trained" and run.point[0][1] == 4e-3)
    store_finished(run, folder, 0.5, name="a copy that is found first")
    changed = example_study(seeds=[1, 2, 3], hypotheses=[])
    register(changed, folder)
    return findings_of(changed, Shelf(folder))


def test_an_edited_study_says_so_in_every_format(edited, tmp_path, quick):
    files = write_report(edited, tmp_path / "report", languages=["en"])
    facts = [
        "when final runs had started: ",  # these stored runs say that they started earlier
        "seeds: [0, 1, 2, 3], now [1, 2, 3]", "hypotheses.cost: declared, now none", "registered after that",
        "before the first final run", "it would be learning_rate=0.004", "3 finished runs here are of seeds",
    ]  # fmt: skip
    for ending in FORMATS:
        content = files.articles[f"en.{ending}"].read_bytes()
        text = pdf_text(content) if ending == "pdf" else html.unescape(content.decode()).replace("\\", "")
        for fact in facts:
            assert without_spaces(fact) in without_spaces(text), ending
    chinese = visible_text(article_of(edited, "zh", figures=()))
    for fact in ("[0, 1, 2, 3]", "learning_rate=0.004", "hypotheses.cost"):
        assert fact in chinese


def test_what_was_changed_afterwards_stands_before_the_verdicts(edited, tmp_path):
    changed = "hypotheses.cost declared, now none"
    blocks = article_of(edited, "en", figures=()).blocks
    opening = blocks[: next(place for place, block in enumerate(blocks) if isinstance(block, Heading))]
    lines = [line for block in opening if isinstance(block, Bullets) for line in block.items]
    assert any(changed in line for line in lines)
    assert any("of seeds that the study does not have: 0" in line for line in lines)
    written = write_tables(edited, tmp_path / "tables").tables["hypothesis_validation.txt"].read_text()
    assert changed in written.splitlines()[1]


def test_a_damaged_registration_stands_before_the_verdicts(tmp_path):
    study, folder = example_study(), tmp_path / "runs"
    register(study, folder)
    (folder / "registration.json").write_text("{}")
    written = write_tables(findings_from(study, folder), tmp_path / "tables", language="zh")
    assert "registration.json: damaged: has no seal" in written.tables["hypothesis_validation.txt"].read_text()


def test_runs_of_another_config_alone_are_not_called_nothing(tmp_path):
    study, folder = example_study(), tmp_path / "runs"
    findings_from(study, folder)
    training = study.base["training"] | {"batch_size": 5}
    findings = findings_of(example_study(base=study.base | {"training": training}), Shelf(folder))
    text = visible_text(article_of(findings, "en", figures=()))
    assert "Nothing has run yet" not in text
    assert "final runs that the study plans now has run" in text
    assert "finished runs here belong to another config: training.batch_size" in text
    assert say("en", "heading.provenance") in text


def test_a_study_that_was_not_registered_says_so_in_a_word(complete):
    facts = [block for block in article_of(complete, "en", figures=()).blocks if isinstance(block, Facts)]
    values = dict(pair for block in facts for pair in block.pairs)
    assert values[say("en", "provenance.registration")] == say("en", "registration.none")
