"""S5, S7: whatever looks like markup in a name, claim or error is shown as text in all three formats; and no character
that would act on a terminal, or hide, gets into any file of a report.
"""

import json

import pytest
from example_studies import ABOVE_TRAINED, NASTY, example_study, findings_from, hypothesis, partial_loss
from markdown_it import MarkdownIt
from reading import Page, pdf_text, without_spaces

from oelm.analysis.summary import findings_of
from oelm.machine.visible import visible
from oelm.show.article import Article, Bullets, Code, Facts, Heading, Paragraph, Table, VerdictBox, visible_text
from oelm.show.content import article_of
from oelm.show.figures import gallery
from oelm.show.html import html as as_html
from oelm.show.markdown import escaped, markdown
from oelm.show.pdf import pdf
from oelm.show.report import write_report
from oelm.study.shelf import Shelf

SHOWN = " ".join(NASTY.split())


def test_escaped_markdown_is_read_back_as_the_text():
    for text in (
        NASTY, "- a list", "1. a list", "1) a list", "+ a list", "> a quote", "# a heading", "=====", "---", "***",
        "__init__", "a_b_c", "_a_ __b__", "`` ` ``", "![i](x)", "<a href=x>", "&lt;b&gt;", "\\*", "|a|b|", "~~~", "```",
        "http://x.y/_a_", "    four spaces", "* *", "[^1]", "a  \nb", ":-: :--",
    ):  # fmt: skip
        page = Page(MarkdownIt("gfm-like", {"linkify": False}).render(escaped(text)))
        assert set(page.tags) <= {"p"}, text
        assert page.text == " ".join(text.split())


def test_a_number_is_not_escaped():
    for text in ("+0.0585 nats", "0.960", "-1", "1.5 x", "a_b-c"):
        assert escaped(text) == text


def article_full_of(text: str) -> Article:
    """In every place of every kind of block."""
    blocks = [
        Heading(text), Paragraph(text), Paragraph(text, tone="warning"), Bullets([text], title=text),
        Table(text, [text, "x"], [[text, text]], ["left", "right"]),
        VerdictBox(text, text, text, "refuted", text, text, [(text, text)], [text]), Facts([(text, text)]), Code(text),
    ]  # fmt: skip
    return Article("en", text, text, text, blocks)


PLACES = 23  # in which it stands


def test_markdown_shows_it_as_text():
    rendered = MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(
        markdown(article_full_of(NASTY), figure_paths={})
    )
    page = Page(rendered)
    assert not {"script", "a", "img", "s"} & set(page.tags)
    assert page.text.count(SHOWN) == PLACES
    assert page.tags.count("h1") == 1


@pytest.mark.parametrize("text", ["a: 1", "```\n# no heading\n```", "````yaml\n<b>\n`````\nend"])
def test_code_ends_where_it_ends_whatever_fences_are_in_it(text):
    written = markdown(Article("en", "t", "s", "k", [Code(text), Paragraph("after")]), figure_paths={})
    *_, code, opened, after, closed = MarkdownIt("gfm-like", {"linkify": False}).parse(written)
    assert (code.type, code.content) == ("fence", f"{text}\n")
    assert (opened.type, after.content, closed.type) == ("paragraph_open", "after", "paragraph_close")


def test_html_and_pdf_show_it_as_text():
    page = Page(as_html(article_full_of(NASTY), figures={}, font=None))
    assert "script" not in page.tags
    assert page.text.count(SHOWN) >= PLACES
    text = pdf_text(pdf(article_full_of(NASTY), figures={}, font=None))
    assert without_spaces(text).count(without_spaces(NASTY)) >= PLACES


def test_a_study_full_of_markup_is_reported_as_text(nasty):
    article = article_of(nasty, "en", figures=())
    assert visible_text(article).count("<script>") > 10
    page = Page(as_html(article, figures={}, font=None))
    assert "script" not in page.tags
    rendered = MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(markdown(article, figure_paths={}))
    assert not {"script", "img", "s", "b"} & set(Page(rendered).tags)
    assert without_spaces(NASTY) in without_spaces(pdf_text(pdf(article, figures={}, font=None)))


def test_figures_draw_labels_as_text(nasty):
    from oelm.show.figures.canvas import Canvas, drawing_settings, rendered
    from oelm.show.figures.comparisons import differences, final

    canvas = Canvas(nasty, "en", None)
    with drawing_settings(canvas.language, canvas.font):
        for draw in (final, differences):
            assert b"<script" not in rendered(draw(canvas)).svg


# ---- Control characters --------------------------------------------------------------------------------------------

ACTING = "\x1b[2J\x07\x00 \x9b31m\x7f\x85 \u202egnp\u2066 \ud800 \r end"
SHOWN_ACTING = r"\x1b[2J\x07\x00 \x9b31m\x7f\x85 \u202egnp\u2066 \ud800 \x0d end"


def test_control_characters_are_shown_in_every_format():
    written = markdown(article_full_of(ACTING), figure_paths={})
    page = as_html(article_full_of(ACTING), figures={}, font=None)
    for text in (written, page):
        assert visible(text) == text
        text.encode()
    read_back = Page(MarkdownIt("gfm-like", {"linkify": False}).render(written)).text
    assert read_back.count(SHOWN_ACTING) >= PLACES
    assert Page(page).text.count(SHOWN_ACTING) >= PLACES
    shown = without_spaces(pdf_text(pdf(article_full_of(ACTING), figures={}, font=None)))
    assert shown.count(without_spaces(SHOWN_ACTING)) >= PLACES
    assert visible(shown) == shown


def test_a_study_full_of_control_characters_is_reported_whole(tmp_path, monkeypatch, few_figures):
    """Label, claims, question, notes, and an error that a run left behind: all files of a report, figures too."""
    claim = hypothesis("H\x1b[1m", "not_worse", "frozen_head_orthogonal", "trained", margin_percent=5.0)
    study = example_study(
        question=ACTING,
        arms={arm: {"label": f"{arm} \x1b[31m\u202e\x9b"} for arm in ABOVE_TRAINED},
        hypotheses=[claim | {"claim": ACTING, "fails_when": ACTING}],
        tuning=None, notes=ACTING, cite=ACTING,
    )  # fmt: skip
    findings_from(study, tmp_path / "runs", partial_loss)
    for file in (tmp_path / "runs").glob("*/status.json"):
        status = json.loads(file.read_text())
        file.write_text(json.dumps(status | ({"error": ACTING} if status["state"] == "failed" else {})))
    findings = findings_of(study, Shelf(tmp_path / "runs"))
    monkeypatch.setattr(gallery, "figures_of", lambda _: few_figures)
    files = write_report(findings, tmp_path / "out", languages=["en"])
    assert set(files.articles) == {"en.md", "en.html", "en.pdf"}
    for path in [*files.tables.values(), *files.figures.values(), *files.articles.values()]:
        if path.suffix not in (".png", ".pdf"):
            text = path.read_bytes().decode()
            assert visible(text) == text, path.name
    assert r"\x1b[2J" in files.tables["runs.csv"].read_text()
    assert ACTING in json.loads(files.tables["analysis_results.json"].read_text())["study"]["question"]
    assert r"\x1b" in pdf_text(files.articles["en.pdf"].read_bytes())
