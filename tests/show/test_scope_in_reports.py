"""Size and training stand in the line of every claim: in every format, in the README and on the findings' pages."""

import functools
import re
from dataclasses import replace

import pytest
from example_studies import example_study, findings_from, hypothesis
from markdown_it import MarkdownIt
from reading import Page, pdf_text, without_spaces

from oelm.analysis.beside import scope_of
from oelm.analysis.findings import Findings, Scope, Span
from oelm.analysis.summary import findings_of
from oelm.show.article import Table, VerdictBox
from oelm.show.content import article_of
from oelm.show.html import html
from oelm.show.markdown import markdown
from oelm.show.pdf import pdf
from oelm.show.tables import scope_line
from oelm.show.verdicts import as_text
from oelm.show.words import say
from oelm.study.archives import runs_folder
from oelm.study.reading import load_study
from oelm.study.shelf import Shelf
from small_runs import REPOSITORY

FINDINGS = REPOSITORY / "docs" / "findings"
STUDIES = sorted(path.name for path in FINDINGS.iterdir() if path.is_dir())
MILLION = Span(1_331_968, 1_331_968)
TOKENS = Span(614_400, 614_400)


def test_a_scope_is_one_line():
    one = Scope(MILLION, TOKENS, None, ["stories"], None)
    of_examples = Scope(MILLION, TOKENS, Span(4800, 4800), ["xnli-en"], "one corpus")
    spans = Scope(Span(1_331_968, 5_200_000), Span(614_400, 614_500), None, ["a", "b"], None)
    assert scope_line(one, "en") == "1.3M parameters, 0.6M tokens a run, stories"
    assert scope_line(of_examples, "en") == "1.3M parameters, 4,800 examples a run, xnli-en; one corpus"
    assert scope_line(spans, "en") == "1.3M to 5.2M parameters, 0.6M tokens a run, a, b"
    assert scope_line(spans, "zh") == "1.3M 至 5.2M 参数，每次运行 0.6M 个 token，a、b"


# ---- Reports -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stated(tmp_path_factory):
    claims = [
        hypothesis("cost", "not_worse", "frozen_head_orthogonal", "trained", margin_percent=5.0),
        hypothesis("count", "fewer_parameters", "frozen_head_orthogonal", "trained", least_frozen=100),
        hypothesis("time", "faster", "frozen_head_orthogonal", "trained"),
    ]
    study = example_study(hypotheses=claims, tuning=None, scope={"en": "a toy corpus", "zh": "玩具语料"})
    return findings_from(study, tmp_path_factory.mktemp("stated"))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_verdict_has_it_in_the_line_of_its_claim_and_every_table_in_its_caption(stated, language):
    line = scope_line(stated.verdicts[0].scope, language)
    assert line.endswith({"en": "; a toy corpus", "zh": "；玩具语料"}[language])
    article = article_of(stated, language, figures=())
    boxes = [block for block in article.blocks if isinstance(block, VerdictBox)]
    in_text = as_text(stated, language).splitlines()
    lines = markdown(article, figure_paths={}).splitlines()
    in_markdown = [Page(MarkdownIt().render(each.lstrip("> "))) for each in lines]
    in_html = html(article, figures={}, font=None).splitlines()
    assert len(boxes) == 3
    for box in boxes:
        assert any(line in each and box.claim in each and f"[{box.outcome_word}" in each for each in in_text)
        assert any(line in each.text and box.claim in each.text and "em" in each.tags for each in in_markdown)
        assert any(line in each and box.claim in each for each in in_html)
    captions = [block.caption for block in article.blocks if isinstance(block, Table)]
    without = [caption for caption in captions if scope_line(stated.scope, language) not in caption]
    assert without == [say(language, "confounds.table")] * bool(without)  # which is about settings


def test_the_pdf_has_it_right_after_each_claim(stated):
    article = article_of(stated, "en", figures=())
    text = without_spaces(pdf_text(pdf(article, figures={}, font=None)))
    for box in (block for block in article.blocks if isinstance(block, VerdictBox)):
        assert without_spaces(box.claim + box.scope) in text


# ---- Findings that are kept here -----------------------------------------------------------------------------------


@functools.cache
def kept(study: str) -> Findings:
    declared = load_study(study).model_copy(update={"beside": []})
    return findings_of(declared, Shelf(runs_folder(FINDINGS / study / "runs")))


def counted(scope: Scope) -> str:
    """From the stored runs, without the name of the data."""
    return scope_line(replace(scope, data=[], stated=None), "en").removesuffix(", ")


def size_and_length(study: str) -> str:
    """As counted, at the main size; of a probe what the study itself says it was tried on."""
    declared = load_study(study)
    return declared.scope.en if declared.probe is not None else counted(kept(study).scope)


def of_each_claim(study: str) -> list[str]:
    declared = load_study(study)
    if not declared.sizes:
        return [size_and_length(study)] * len(declared.hypotheses)
    return [counted(verdict.scope) for verdict in kept(study).verdicts]


def of_all_sizes(study: str) -> str:
    if not load_study(study).sizes:
        return size_and_length(study)
    found = kept(study)
    return counted(scope_of(found.study, list(found.at_all_sizes.values())))


def table_below(text: str, header: str) -> list[str]:
    """The rows of a Markdown table."""
    lines = text[text.index(header) :].splitlines()
    rows = lines[2 : lines.index("")]
    assert rows
    return rows


@pytest.mark.parametrize("study", STUDIES)
def test_every_claim_of_a_page_and_the_index_has_size_and_length_in_its_line(study):
    page = (FINDINGS / study / "README.md").read_text(encoding="utf-8")
    for row, line in zip(table_below(page, "| claim, as declared |"), of_each_claim(study), strict=True):
        assert line in row
    assert f"| arm ({size_and_length(study)}) |" in page
    if load_study(study).probe is None:
        assert re.search("(may grow|grows) with training", page)
    index = (FINDINGS / "README.md").read_text(encoding="utf-8")
    (row,) = [row for row in table_below(index, "| study |") if row.startswith(f"| [{study}]")]
    assert of_all_sizes(study) in row


IN_THE_READMES = {  # claims of tinystories_scale, and what they were tried on as Chinese counts
    "cost-grows-with-training": "44.5 万参数，每次训练 60 万至 490 万个 token",
    "cost-holds-over-widths": "17.3 万至 290 万参数，每次训练 60 万个 token",
    "cost-of-freezing": "44.5 万参数，每次训练 120 万个 token",
    "orthogonal-against-random": "44.5 万参数，每次训练 120 万个 token",
}


def test_the_readmes_have_it_in_the_line_of_each_claim():
    verdicts = {each.hypothesis.name: each for each in kept("tinystories_scale").verdicts}
    rows = {
        name: table_below((REPOSITORY / name).read_text(encoding="utf-8"), header)
        for name, header in (("README.md", "| claim, declared beforehand |"), ("README.zh.md", "| 事先写定的假设 |"))
    }
    for claim, english, chinese in zip(IN_THE_READMES, rows["README.md"], rows["README.zh.md"], strict=True):
        verdict = verdicts[claim]
        assert counted(verdict.scope) in english
        assert IN_THE_READMES[claim] in chinese
        assert f"| {say('en', f'outcome.{verdict.outcome}')} |" in english
        assert f"| {say('zh', f'outcome.{verdict.outcome}')} |" in chinese
