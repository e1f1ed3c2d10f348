"""Reports of studies that classify: accuracy in points with the right sign, and never a word about perplexity."""

import csv
import io
import random
from dataclasses import replace

import pytest

from oelm.analysis.summary import findings_of
from oelm.core.measures import ACCURACY
from oelm.show import tables
from oelm.show.article import Bullets, Picture, Table, VerdictBox, visible_text
from oelm.show.content import article_of
from oelm.show.figures import gallery
from oelm.show.figures.canvas import Canvas, drawing_settings
from oelm.show.report import write_report, write_tables
from oelm.show.words import say, say_of
from oelm.study.declaration import in_language
from oelm.study.reading import load_study
from oelm.study.shelf import Shelf
from stored_runs import (
    EXAMPLES,
    accuracy_claim,
    small_classification,
    small_study,
    store_bench,
    store_study,
    without_seal,
)  # fmt: skip

FIGURES = gallery.figures_of(ACCURACY)

FORBIDDEN = ("perplexity", "Perplexity", "困惑度")
FRESH = {"treatment": "frozen_head_orthogonal", "varies": ["start", "scale", "moves"]}
EFFECTS = {"frozen_orthogonalised": 0.02, "frozen_head_orthogonal": 0.06, "frozen_normal": 0.07}


def error(arm, seed, stage, point):
    rate = dict(point).get("training.learning_rate", 1e-4)
    away = 0.0 if rate == 1e-4 else 0.02
    own = random.Random(f"{arm} {seed} {stage}").gauss(0, 0.003)
    return 0.3 + EFFECTS.get(arm, 0.0) + random.Random(seed).gauss(0, 0.01) + own + (away if stage == "tuning" else 0)


def study_with(**changes):
    claims = [
        accuracy_claim(name="kept", claim={"en": "It costs at most two points", "zh": "代价不超过两个百分点"}),
        accuracy_claim(name="fresh", margin_points=1, **FRESH),
        accuracy_claim("better", name="gain", **FRESH),
        accuracy_claim("equivalent", name="same", margin_points=1.5, confirmatory=False),
        {"name": "time", "claim": "It is faster", "kind": "faster", "control": "fine_tuned", **FRESH},
        {"name": "count", "claim": "It rests", "kind": "fewer_parameters", "control": "fine_tuned", "least_frozen": 9}
        | FRESH,
    ]
    tuning = {"grid": {"learning_rate": [5e-5, 1e-4, 2e-4]}, "set": {"steps": 20}}
    question = {"en": "Can they stay frozen?", "zh": "可以冻结吗？"}
    tree = {"hypotheses": claims, "tuning": tuning, "question": question, "seeds": [0, 1, 2, 3]}
    return small_classification(**tree | changes)


def findings_from(study, folder, errors=error):
    folder.mkdir(parents=True, exist_ok=True)
    source = {"encoder_source": "an-encoder", "encoder_digest": "e" * 64}
    shelf = store_study(study, folder, errors, environment=source)
    jitter = random.Random(7)
    seconds = {
        arm: [(0.97 if arm != "fine_tuned" else 1) * jitter.gauss(1, 0.005) for _ in range(8)] for arm in study.arms
    }
    store_bench(folder, study=study, baseline="fine_tuned", seconds=seconds)
    return findings_of(study, shelf)


@pytest.fixture(scope="module")
def classified(tmp_path_factory):
    return findings_from(study_with(), tmp_path_factory.mktemp("classified"))


@pytest.fixture(scope="module")
def report(classified, tmp_path_factory):
    return write_report(classified, tmp_path_factory.mktemp("report"), languages=["en"], formats=["md", "html"])


def boxes_of(findings, language="en"):
    blocks = article_of(findings, language, figures=()).blocks
    return {block.name: block for block in blocks if isinstance(block, VerdictBox)}


def table_with(findings, column, language="en"):
    blocks = article_of(findings, language, figures=()).blocks
    return next(
        block
        for block in blocks
        if isinstance(block, Table) and say_of(findings.study, language, f"column.{column}") in block.header
    )


def test_no_text_of_the_report_speaks_of_perplexity(classified, report):
    texts = {path.name: path.read_text(encoding="utf-8") for path in (report.tables | report.articles).values()}
    texts["zh"] = visible_text(article_of(classified, "zh", figures=set(FIGURES)))
    for name, text in texts.items():
        assert not [word for word in FORBIDDEN if word in text], name
    assert not [name for name in report.figures if "ppl" in name or "perplexity" in name]


def test_every_figure_is_drawn_and_shown_once_in_order(classified, report):
    for name in FIGURES:
        assert f"{name}.en.svg" in report.figures
    blocks = article_of(classified, "en", figures=set(FIGURES)).blocks
    assert [block.name for block in blocks if isinstance(block, Picture)] == list(FIGURES)


def test_a_loss_of_accuracy_is_below_zero_everywhere(classified):
    points = -100 * classified.arms["frozen_head_orthogonal"].quality.difference.mean
    assert points == pytest.approx(-6, abs=0.7)
    shown = f"−{abs(points):.2f}"
    box = boxes_of(classified)["fresh"]
    assert box.outcome == "refuted"
    assert f"{abs(points):.2f} points" in box.sentence
    numbers = dict(box.numbers)
    assert numbers["difference"].startswith(f"{shown} points (95 % interval [−")
    assert numbers["margin"] == "1 point"
    assert "accuracy at most 1 point below" in numbers["passes when"]
    assert numbers["McNemar's p"].startswith("by seed: 0: ")
    row = table_with(classified, "value").rows[3]
    low, high = row[5].split("[")[1].rstrip("]").replace("−", "-").split(", ")
    assert float(low) < points < float(high) < 0
    fields = {each["arm"]: each for each in csv.DictReader(io.StringIO(tables.comparison_csv(classified)))}
    csv_row = fields["frozen_head_orthogonal"]
    assert float(csv_row["difference_accuracy"]) == pytest.approx(points / 100)
    assert float(csv_row["difference_low_accuracy"]) < float(csv_row["difference_high_accuracy"]) < 0


def test_the_forest_is_in_points_and_shades_where_the_claims_hold(classified):
    canvas = Canvas(classified, "en", None)
    with drawing_settings(canvas.language, canvas.font):
        (axis,) = FIGURES["differences"](canvas).axes
    assert axis.get_xlabel() == say_of(classified.study, "en", "axis.shown_difference")
    shaded = [each.get_paths()[0].get_extents() for each in axis.collections]
    assert [round(area.x0, 6) for area in shaded] == [-2, -1, 0, -1.5]
    assert [round(area.x1, 6) for area in shaded] == [1000, 1000, 1000, 1.5]
    low, high = axis.get_xlim()
    assert low < -6 < 1.5 < high < 10


def test_the_tables_have_what_a_referee_asks_for(classified):
    quality = table_with(classified, "value")
    asked = ("learning_rate", "seeds", "value", "loss", "shown_difference", "p_adjusted", "ratio")
    assert quality.header[1:] == [say_of(classified.study, "en", f"column.{name}") for name in asked]
    assert quality.rows[0][3].endswith("%")
    assert float(quality.rows[1][-1]) == pytest.approx(0.97, abs=0.01)
    table = table_with(classified, "both_right")  # every pair is counted once, however many claims it serves
    assert [row[0] for row in table.rows] == ["kept, same"] * 4 + ["fresh, gain"] * 4
    for row in table.rows:
        assert sum(int(cell) for cell in row[2:6]) == EXAMPLES
    text = visible_text(article_of(classified, "en", figures=()))
    for said in ("chosen by the loss on the tuning split", "encoder's files (SHA-256)", "an-encoder"):
        assert said in text
    assert f"on {EXAMPLES} examples has a standard error of 2." in text
    assert "2,490 examples" not in text  # claims of others are shown only where the study quotes them
    rows = list(csv.DictReader(io.StringIO(tables.runs_csv(classified))))
    assert len(rows) == 5 * 4 + 5 * 3
    assert all(0.5 < float(row["accuracy"]) < 0.8 and row["examples"] == str(EXAMPLES) for row in rows)


def test_runs_without_predictions_are_reported_all_the_same(tmp_path):
    study = study_with(tuning=None)
    findings_from(study, tmp_path / "runs")
    for path in (tmp_path / "runs").glob("*/predictions.json"):
        path.unlink()
        without_seal(path.parent)
    findings = findings_of(study, Shelf(tmp_path / "runs"))
    text = visible_text(article_of(findings, "en", figures=()))
    assert say("en", "examples.none") in text
    assert "stored no predictions" in text


def test_chance_is_said_in_the_results_in_the_tuning_and_in_the_next_steps(tmp_path):
    findings = findings_from(
        study_with(), tmp_path, lambda arm, seed, *_: 0.66 if "normal" in arm else 0.3 + 0.01 * (seed % 3)
    )
    text = visible_text(article_of(findings, "en", figures=()))
    assert "not clearly above the floor of 33.50 % (naming the most common label always)" in text
    assert "Its value was chosen by noise" in text
    assert say("en", "next.floor", arms="frozen_normal") in text


def test_a_partial_study_is_reported(tmp_path):
    study = study_with(tuning=None)
    findings = findings_from(study, tmp_path, lambda arm, seed, *rest: None if seed else error(arm, seed, *rest))
    article = article_of(findings, "zh", figures=())
    assert article.blocks[0].title == say("zh", "partial.title")
    assert all(box.outcome == "undecided" for name, box in boxes_of(findings).items() if name not in ("time", "count"))


# ---- Side by side --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_neighbours(tmp_path_factory, pytestconfig):
    root = pytestconfig.rootpath
    beside = [
        {"study": "tinystories_cpu", "runs": f"{root}/docs/findings/tinystories_cpu/runs"},
        {"study": "nowhere <b> $x$ #y"},
    ]
    study = study_with(
        beside=beside, reported=[claim.model_dump() for claim in load_study("xnli_bert").reported], tuning=None
    )
    return findings_from(study, tmp_path_factory.mktemp("beside"))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_an_encoder_stands_beside_a_gpt_and_the_claims_that_its_study_quotes(with_neighbours, language):
    table = table_with(with_neighbours, "trainable_share", language)
    assert len(table.rows) == 4
    own, other, bert, gpt = (" | ".join(row) for row in table.rows)
    assert own.startswith("sentences")
    for row, numbers in (
        (own, ["% →"]), (other, ["82.466 → 85.155", "1.3M", "0.6M", "+3.26 %"]), (bert, ["76.71 % → 77.79 %", "57 %"]),
        (gpt, ["4.27 → 4.69"]),
    ):  # fmt: skip
        assert all(number in row for number in numbers), row
    article = article_of(with_neighbours, language, figures=())
    remarks = [remark for claim in with_neighbours.study.reported for remark in claim.remarks]
    assert len(remarks) == 4
    assert all(in_language(remark, language) in visible_text(article) for remark in remarks)
    if language == "en":  # perplexity is named only here
        speaking = [each for each in article.blocks if "perplexity" in visible_text(replace(article, blocks=[each]))]
        assert speaking == [table]


def test_a_lost_neighbour_is_said_and_harms_nothing(with_neighbours, tmp_path):
    blocks = article_of(with_neighbours, "en", figures=()).blocks
    warnings = [
        item for block in blocks if isinstance(block, Bullets) and block.tone == "warning" for item in block.items
    ]
    assert any("is not shown: study 'nowhere <b> $x$ #y': no such file" in item for item in warnings)
    files = write_tables(with_neighbours, tmp_path)
    assert '"beside"' in files.tables["analysis_results.json"].read_text(encoding="utf-8")


def test_language_models_beside_each_other_need_no_word_on_bert(tmp_path, pytestconfig):
    root = pytestconfig.rootpath
    neighbour = {"study": "tinystories_cpu", "runs": f"{root}/docs/findings/tinystories_cpu/runs"}
    study = small_study(seeds=[0, 1], beside=[neighbour])
    findings = findings_of(study, store_study(study, tmp_path, lambda arm, seed, *_: 2.0 + 0.01 * seed))
    assert len(table_with(findings, "trainable_share").rows) == 2
    text = visible_text(article_of(findings, "en", figures=()))
    assert say("en", "heading.beside") in text
    assert "BERT" not in text
