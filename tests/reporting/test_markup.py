"""S5: whatever looks like markup in a name, claim or error is shown as text in all three formats."""

import pytest
from example_studies import NASTY
from markdown_it import MarkdownIt
from reading import Page, pdf_text, without_spaces

from oelm.reporting.content import document_of
from oelm.reporting.document import Code, Document, Heading, Paragraph, Table, VerdictBox, visible_text
from oelm.reporting.html import html as as_html
from oelm.reporting.markdown import escaped, markdown
from oelm.reporting.pdf import pdf

SHOWN = " ".join(NASTY.split())


@pytest.mark.parametrize(
    "text",
    [
        NASTY, "- a list", "1. a list", "1) a list", "+ a list", "> a quote", "# a heading", "=====", "---", "***",
        "__init__", "a_b_c", "_a_ __b__", "`` ` ``", "![i](x)", "<a href=x>", "&lt;b&gt;", "\\*", "|a|b|", "~~~", "```",
        "http://x.y/_a_", "    four spaces", "* *", "[^1]", "a  \nb", ":-: :--",
    ],
)  # fmt: skip
def test_escaped_markdown_is_read_back_as_the_text(text):
    page = Page(MarkdownIt("gfm-like", {"linkify": False}).render(escaped(text)))
    assert set(page.tags) <= {"p"}
    assert page.text == " ".join(text.split())


def test_a_number_is_not_escaped():
    for text in ("+0.0585 nats", "0.960", "-1", "1.5 x", "a_b-c"):
        assert escaped(text) == text


def nasty_document() -> Document:
    return Document(
        language="en",
        title=NASTY,
        subtitle=NASTY,
        kicker=NASTY,
        blocks=[
            Heading(NASTY),
            Paragraph(NASTY),
            Paragraph(NASTY, tone="warning"),
            Table(NASTY, [NASTY, "x"], [[NASTY, NASTY]], ["left", "right"]),
            VerdictBox(NASTY, NASTY, "refuted", NASTY, NASTY, [(NASTY, NASTY)], [NASTY]),
            Code(NASTY),
        ],
    )


def test_markdown_shows_it_as_text():
    rendered = MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(
        markdown(nasty_document(), figure_paths={})
    )
    page = Page(rendered)
    assert not {"script", "a", "img", "s"} & set(page.tags)
    assert page.text.count(SHOWN) == 18
    assert page.tags.count("h1") == 1


def test_html_shows_it_as_text():
    page = Page(as_html(nasty_document(), figures={}, font=None))
    assert "script" not in page.tags
    assert page.text.count(SHOWN) >= 18


def test_pdf_shows_it_as_text():
    text = pdf_text(pdf(nasty_document(), figures={}, font=None))
    assert without_spaces(text).count(without_spaces(NASTY)) >= 18


def test_a_study_full_of_markup_is_reported_as_text(nasty):
    document = document_of(nasty, "en", figures=())
    assert visible_text(document).count("<script>") > 10
    page = Page(as_html(document, figures={}, font=None))
    assert "script" not in page.tags
    rendered = MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(markdown(document, figure_paths={}))
    assert not {"script", "img", "s", "b"} & set(Page(rendered).tags)
    assert without_spaces(NASTY) in without_spaces(pdf_text(pdf(document, figures={}, font=None)))


def test_figures_draw_labels_as_text(nasty):
    from oelm.reporting.figures.canvas import Canvas, drawing_settings, rendered
    from oelm.reporting.figures.comparisons import differences, final_perplexity

    canvas = Canvas(nasty, "en", None)
    with drawing_settings(canvas):
        for draw in (final_perplexity, differences):
            assert b"<script" not in rendered(draw(canvas)).svg
