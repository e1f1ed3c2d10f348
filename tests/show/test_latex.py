"""What a paper gets: macro names that no two things share, texts that LaTeX sets as they stand, files that compile."""

import itertools
import re
import shutil
import subprocess
from collections import Counter

import pytest
from example_studies import NASTY
from reading import pdf_text, without_spaces

from oelm.analysis.summary import findings_of
from oelm.show import tables
from oelm.show.article import Article, Table
from oelm.show.citable import citable, numbers_file
from oelm.show.content import unnumbered_article
from oelm.show.fonts import chinese_font
from oelm.show.latex import escaped, label
from oelm.show.latex import tables as latex_tables
from oelm.show.macro_names import BEFORE, BEFORE_STUDY, JOINTS, WORDS, macro_name, spelled
from oelm.show.numbers import learning_rate
from oelm.show.verdicts import verdict_box
from oelm.study.archives import runs_folder
from oelm.study.reading import load_study
from oelm.study.shelf import Shelf
from sized_studies import losses_with_slope, sized_study
from small_runs import REPOSITORY
from stored_runs import probe_curve, small_probes, solving_claim, store_study

INSTALL = "apt-get install texlive-latex-base texlive-latex-recommended texlive-xetex texlive-lang-chinese"
# Letters that begin our words, what follows them there, and everything that is spelled out.
NASTY_CHARACTERS = ["o", "n", "e", "f", "i", "_", "1", "O", "-", "é"]
NASTY_NAMES = [
    "of",
    "_of",
    "in",
    "one",
    "_one",
    "One",
    "1",
    "under",
    "_",
    "__",
    "cap",
    "capa",
    "A",
    "end",
    "charb",
    "表",
]


def test_no_two_names_are_spelled_alike():
    names = {"".join(letters) for count in range(5) for letters in itertools.product(NASTY_CHARACTERS, repeat=count)}
    names |= {"".join(parts) for parts in itertools.product(NASTY_NAMES, repeat=2)}
    for joint in JOINTS.values():
        assert len({spelled(name, joint=joint) for name in names}) == len(names)


def test_no_two_numbers_have_one_macro():
    measures = ("mean", "meanLoss", "difference", "differenceLow")
    names = {"mean", "loss", "of", "a", "a_of_b", "b", "in_b", "a_in_b", "a_for_b", "for", "low", *NASTY_NAMES}
    found = Counter(
        macro_name(measure, study, of=of, name=name)
        for measure in measures
        for study in names
        for of in BEFORE
        for name in names
    )
    found.update(macro_name(measure, study) for measure in measures for study in names)
    assert [name for name, times in found.items() if times > 1] == []
    assert all(re.fullmatch("[a-z][A-Za-z]*", name) for name in found)


def test_common_names_stay_readable():
    assert macro_name("adjustedP", "demo", of="claim", name="cost") == "adjustedPForCostInDemo"
    assert spelled("frozen_head_orthogonal") == "FrozenHeadOrthogonal"
    assert spelled("frozen+width64") == "FrozenPluswidthSixFour"
    assert macro_name("outcome", "demo", of="claim", name="queries-and-keys") == "outcomeForQueriesAndKeysInDemo"


def test_a_study_of_probes_has_macros_that_latex_takes(tmp_path):
    """`\\newcommand` refuses names that begin with `end`."""
    study = small_probes(hypotheses=[solving_claim("solves_sooner")])
    shelf = store_study(study, tmp_path, lambda *_: 1.0)
    names = [each.macro(study.name) for each in citable(findings_of(study, shelf))]
    assert any(name.startswith("runsEndedAt") for name in names)
    assert not [name for name in names if name.startswith("end")]


def test_measures_hold_no_word_that_comes_before_a_name(complete):
    """So that the first such word ends the measure."""
    found = list(citable(complete))
    between = "|".join([*BEFORE.values(), BEFORE_STUDY])
    assert not [each.measure for each in found if re.search(between, each.measure)]
    macros = [each.macro("study") for each in found]
    assert len(set(macros)) == len(macros) > 50
    assert len(set(WORDS)) == len(WORDS)


def test_the_numbers_are_those_of_the_tables(complete):
    """Rounded alike: a paper's text and its tables agree."""
    text = {(each.measure, each.name): each.text for each in citable(complete)}
    shown_tables = (tables.quality_table(complete, "en"), tables.cost_table(complete, "en"))
    quality, cost = (dict(zip(complete.arms, table.rows, strict=True)) for table in shown_tables)
    for arm in complete.arms:
        shown = " | ".join([*quality[arm], *cost[arm]])
        for measure in ("mean", "meanLoss", "learningRate", "trainableParameters", "flops", "stepTime", "memory"):
            assert text[measure, arm] in shown
        if arm != complete.study.baseline:
            low, high = text["differenceLow", arm], text["differenceHigh", arm]
            assert f"{text['difference', arm]} [{low}, {high}]" in shown
    first = cells_of(complete, "The ablation")[0]
    low, high = text["baselineToFrozenDifferenceLow", ""], text["baselineToFrozenDifferenceHigh", ""]
    assert first[2:4] == [text["baselineToFrozenDifference", ""], f"[{low}, {high}]"]
    for arm, row in zip(complete.arms, cells_of(complete, "Steps, tokens, training time"), strict=True):
        names = ("stepsToTarget", "tokensToTarget", "timeToTarget", "flopsToTarget")
        assert row[2:] == [text.get((name, arm), "–") for name in names]
    for verdict in complete.verdicts:
        if verdict.p_adjusted is not None:
            p = "refutationP" if verdict.outcome == "refuted" else "adjustedP"
            assert text[p, verdict.hypothesis.name] in verdict_box(complete, verdict, "en").sentence


def cells_of(findings, caption: str) -> list[list[str]]:
    """Of the one table whose caption begins so."""
    blocks = unnumbered_article(findings, "en", figures=()).blocks
    (found,) = [each.rows for each in blocks if isinstance(each, Table) and each.caption.startswith(caption)]
    return found


def test_the_numbers_of_every_size_are_those_of_the_tables(tmp_path):
    """Perplexities and FLOPs of very different size, each in a unit and with decimals of its own."""
    study = sized_study(forecast={"width": 128})
    loss = losses_with_slope()
    found = findings_of(study, store_study(study, tmp_path, lambda *run: loss(*run) + 2 * run[0].endswith("width16")))
    text = {(each.measure, each.name): each.text for each in citable(found)}
    assert len(text) == len(list(citable(found)))
    by_size = dict(zip(found.at_all_sizes, cells_of(found, "Every size"), strict=True))
    for arm, row in by_size.items():
        assert text["mean", arm] == row[7]
        assert text["flops", arm] == row[4] or arm in found.arms
        if ("difference", arm) in text:
            low, high = text["differenceLow", arm], text["differenceHigh", arm]
            assert row[8] == f"{text['difference', arm]} [{low}, {high}]"
    frozen = "frozen_head_orthogonal"
    slope = next(row for row in cells_of(found, "Change of the difference") if "tokens" in row[2])
    ends = text["slopeOverStepsPerTokensLow", frozen], text["slopeOverStepsPerTokensHigh", frozen]
    assert slope[3:5] == [text["slopeOverStepsPerTokens", frozen], f"[{ends[0]}, {ends[1]}]"]
    law = next(row for row in cells_of(found, "Loss against training FLOPs") if row[:2] == [frozen, "width"])
    assert law[2] == text["exponentOverWidth", frozen]
    (budget, *_) = cells_of(found, "How many times the tokens")
    assert budget[2].removesuffix(" *") in {
        value for (name, _), value in text.items() if name.startswith("timesTokensAt")
    }
    (forecast,) = cells_of(found, "Forecast of the difference")
    ends = text["forecastAtWidthOneTwoEightLow", frozen], text["forecastAtWidthOneTwoEightHigh", frozen]
    assert forecast[4:6] == [text["forecastAtWidthOneTwoEight", frozen], f"[{ends[0]}, {ends[1]}]"]
    over_width, at_width, _ = cells_of(found, "The hypotheses and what the runs say")
    assert over_width[2] == f"{text['slope', over_width[0]]} per doubling"
    assert at_width[2] == text["difference", at_width[0]]


def test_the_numbers_of_a_probe_are_those_of_its_table(tmp_path):
    study = small_probes(hypotheses=[solving_claim("solves_sooner")])
    curve = probe_curve(lambda arm, seed, *_: 100 + 10 * seed if arm == "trained" else None)
    found = findings_of(study, store_study(study, tmp_path, lambda *_: 1.0, measured=curve))
    text = {(each.measure, each.name): each.text for each in citable(found)}
    for arm, row in zip(found.arms, cells_of(found, "Solved runs of all"), strict=True):
        assert row[1] == f"{text['runsSolvedAtNineZero', arm]}/{text['runsEndedAtNineZero', arm]}"
        steps = text.get(("stepsToSolveAtNineZero", arm), "–")
        fewest, most = (text.get((f"{name}StepsToSolveAtNineZero", arm)) for name in ("fewest", "most"))
        assert row[2:4] == [steps, f"{fewest} – {most}" if fewest else "–"]
    assert text["accuracyAtEight", "trained"] == "84.00 %"


NUMBER = re.compile(r"[+−]?(?:\d[\d,]*(?:\.\d+)?(?:e-?\d+)?|∞)")
# Nothing that was found: settings that differ, runs without a result, names and moments.
NO_RESULTS = ("Everything besides the declared treatment", "Runs without a result")
NO_NUMBERS = {"arm", "treated parts", "claim", "taken", "model and task", "source", "size", "values", "from → to"}


def numbers_in(text: str) -> list[str]:
    return NUMBER.findall(re.sub(r"[A-Za-z_]+[\w.+-]*", " ", text))


@pytest.mark.parametrize("name", ["hops", "tinystories_scale", "xnli_bert"])
def test_every_number_in_the_tables_of_a_finding_has_a_macro(name):
    study = load_study(name)
    found = findings_of(study, Shelf(runs_folder(REPOSITORY / "docs" / "findings" / name / "runs")))
    declared = {
        learning_rate(value) for grid in found.plan.grids.values() for values in grid.values() for value in values
    }
    texts = [*declared, *(each.text for each in citable(found))]
    known = {number for text in texts for number in numbers_in(text)}
    shown = [block for block in unnumbered_article(found, "en", figures=()).blocks if isinstance(block, Table)]
    seen = 0
    for table in shown:
        quoted = study.reported if "trainable share" in table.header else []  # in the words of others, and last
        rows = [] if table.caption.startswith(NO_RESULTS) else table.rows[: len(table.rows) - len(quoted)]
        for row in rows:
            cells = {column: numbers_in(cell) for column, cell in zip(table.header, row, strict=True)}
            without = {column: cell for column, cell in cells.items() if column not in NO_NUMBERS and set(cell) - known}
            assert without == {}, (table.caption, row[0])
            seen += sum(map(len, cells.values()))
    assert seen > 100


def test_what_a_study_does_not_know_has_no_macro(partial, complete):
    known = {each.macro("s") for each in citable(complete)}
    less = {each.macro("s") for each in citable(partial)}
    missing = {name for name in known - less if "FrozenScaledNormal" in name}
    assert any(name.startswith("differenceLow") for name in missing)
    assert "–" not in numbers_file(partial)


def test_every_special_character_is_escaped():
    plain = escaped(NASTY)
    without_commands = re.sub(r"\\[a-z]+\{[^}]*\}|\\[&%$#_{}]|\{[\[\]*]?\}", "", plain)
    assert not set(without_commands) & set("\\{}$&#_%~^[]*<>|`\n")
    assert escaped("a--b''c") == "a-{}-b'{}'c"


def test_long_texts_are_broken_into_lines_and_not_made_tiny():
    """A claim on one line would shrink its table to a third."""
    claim = "Freezing queries and keys where they start costs at most 10 % perplexity."
    table = Table("Claims.", ["name", "claim", "difference"], [["cost", claim, "+1.0"]], ["left", "left", "right"])
    article = Article("en", "t", "s", "k", [table])
    text = latex_tables(article, study="demo")
    assert r"\begin{tabular}{lp{0.5\linewidth}r}" in text
    assert rf"cost & \raggedright {escaped(claim)} & +1.0 \tabularnewline" in text


def test_no_two_studies_share_a_label():
    names = ["demo", "a_b", "a-b", "a b", "a.b", "实验", "表", "étude"]
    labels = [label(name) for name in names]
    assert labels[:3] == names[:3]
    assert len(set(labels)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_.+:-]+", each) for each in labels)


# ---- Compiled ------------------------------------------------------------------------------------------------------


def compiled(folder, engine: str, preamble: str, body: str) -> str:
    """The log of a run that ended well."""
    if shutil.which(engine) is None:
        pytest.skip(f"no {engine} here; {INSTALL}")
    document = (
        rf"\documentclass{{article}}\usepackage{{booktabs,graphicx}}{preamble}\begin{{document}}{body}\end{{document}}"
    )
    (folder / "paper.tex").write_text(document, encoding="utf-8")
    command = [engine, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "paper.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (folder / "paper.pdf").stat().st_size > 10_000
    return (folder / "paper.log").read_text(encoding="utf-8", errors="replace")


def written(folder, findings, language):
    article = unnumbered_article(findings, language, figures=())
    text = latex_tables(article, study=findings.study.name)
    (folder / "tables.tex").write_text(text, encoding="utf-8")
    (folder / "numbers.tex").write_text(numbers_file(findings), encoding="utf-8")
    return text


@pytest.mark.parametrize("findings", ["complete", "nasty"])
def test_english_tables_and_all_macros_compile(findings, request, tmp_path):
    found = request.getfixturevalue(findings)
    text = written(tmp_path, found, "en")
    cited = " ".join(f"\\{each.macro(found.study.name)}{{}}" for each in citable(found))
    log = compiled(tmp_path, "pdflatex", r"\input{numbers}", rf"\input{{tables}} {cited}")
    assert text.count(r"\begin{table}") >= 5
    if findings == "nasty":
        read = without_spaces(pdf_text((tmp_path / "paper.pdf").read_bytes()))
        for shown in ("#panic()$a$", "&{f}", "100%", "[c](d)", "</script>*x*"):
            assert shown in read
    assert "Missing character" not in log


def test_every_letter_that_needs_no_other_engine_compiles(tmp_path):
    """As the first lines of the file say: with a font encoding that has them, where the usual one has not."""
    letters = "".join(map(chr, [*range(0x20, 0x7F), *range(0xA1, 0x100)]))
    for text, preamble in ((letters, r"\usepackage[T1]{fontenc}"), (re.sub("[«»ÐðÞþ]", "", letters), "")):
        table = Table("Letters.", ["letters"], [[each] for each in re.findall(".{1,30}", text)], ["left"])
        (tmp_path / "tables.tex").write_text(found := latex_tables(Article("en", "", "", "", [table]), study="s"))
        assert ("fontenc" in found) == bool(preamble)
        compiled(tmp_path, "pdflatex", preamble, r"\input{tables}" + "words " * 500)


def test_chinese_tables_compile_with_a_font_of_ones_own(complete, tmp_path):
    font = chinese_font()
    if font is None:
        pytest.skip("no Chinese font here; pip install 'oelm[fonts]'")
    text = written(tmp_path, complete, "zh")
    shutil.copy(font.path, tmp_path / f"chinese{font.path.suffix}")
    preamble = rf"\usepackage{{fontspec}}\setmainfont[Extension={font.path.suffix}]{{chinese}}\input{{numbers}}"
    log = compiled(tmp_path, "xelatex", preamble, r'\XeTeXlinebreaklocale "zh" \input{tables}')
    assert "可训练" in text
    assert "xelatex" in text.splitlines()[2]
    assert "Missing character" not in log


@pytest.mark.parametrize("findings", ["complete", "nasty"])
def test_chinese_tables_and_all_macros_compile_with_ctex(findings, request, tmp_path):
    """As the first lines of the file say."""
    if not shutil.which("kpsewhich") or subprocess.run(["kpsewhich", "ctex.sty"], capture_output=True).returncode:
        pytest.skip(f"no ctex here; {INSTALL}")
    found = request.getfixturevalue(findings)
    text = written(tmp_path, found, "zh")
    assert r"\usepackage{ctex}" in text.splitlines()[2]
    cited = " ".join(f"\\{each.macro(found.study.name)}{{}}" for each in citable(found))
    log = compiled(tmp_path, "xelatex", r"\usepackage{ctex}\input{numbers}", rf"\input{{tables}} {cited}")
    assert "Missing character" not in log
    read = without_spaces(pdf_text((tmp_path / "paper.pdf").read_bytes()))
    assert (findings == "nasty") == ("100%" in read)
