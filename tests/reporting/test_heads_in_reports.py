"""Heads in a report: when they form in each arm and where they are, wherever runs recorded them and nowhere else."""

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
from example_studies import example_study, findings_from

from oelm.analysis.heads import heads_of
from oelm.analysis.summary import findings_of
from oelm.heads.kinds import KINDS, NAMES
from oelm.reporting.content import article_of
from oelm.reporting.figures.canvas import Canvas, drawing_settings, rendered
from oelm.reporting.figures.heads import forming, heat_map_files, last_scores
from oelm.run_directory import RunDirectory
from oelm.study.shelf import Shelf
from stored_runs import sealed_again

LAYERS, HEADS = 3, 4


def invented(arm: str, seed: int, share: float) -> dict:
    """An induction head in the last layer that forms with the share of training done, late where keys are frozen."""
    draw = random.Random(f"{arm} {seed}")
    tables = {
        name: [[round(draw.uniform(0.01, 0.06), 3) for _ in range(HEADS)] for _ in range(LAYERS)] for name in NAMES
    }
    when = 0.35 if arm == "trained" else 0.6
    formed = 1 / (1 + math.exp(-20 * (share - when - 0.02 * seed)))
    tables["previous"][0][1] = round(0.05 + 0.9 * formed, 3)
    tables["induction"][2][seed % HEADS] = round(0.02 + 0.8 * formed, 3)
    return tables


def record_heads(directory: RunDirectory, arm: str, seed: int) -> None:
    records = [json.loads(line) for line in directory.metrics_file.read_text().splitlines()]
    last = max(record["step"] for record in records)
    for record in records:
        if "val_loss" in record:
            record["head_scores"] = invented(arm, seed, record["step"] / last)
    directory.metrics_file.write_text("".join(json.dumps(record) + "\n" for record in records))
    sealed_again(directory.path)


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """All runs of two arms recorded their heads, and those of the third did not."""
    study, folder = example_study(), tmp_path_factory.mktemp("scored")
    findings = findings_from(study, folder)
    for run in findings.plan.runs:
        if run.arm != "frozen_scaled_normal" and run.stored:
            record_heads(run.stored.directory, run.arm, run.seed)
    return findings_of(study, Shelf(folder))


def test_the_strongest_head_of_an_arm_is_the_mean_over_its_seeds(scored):
    heads = scored.arms["trained"].heads
    assert heads.seeds == 4
    expected = [max(map(max, invented("trained", seed, 1.0)["induction"])) for seed in range(4)]
    curve = heads.strongest["induction"]
    assert curve.mean[-1] == pytest.approx(np.mean(expected))
    assert (curve.low[-1], curve.high[-1]) == (min(expected), max(expected))
    assert curve.mean[0] < curve.mean[-1]
    assert set(heads.last) == set(KINDS)
    assert np.array(heads.last["induction"])[2, 0] == pytest.approx(curve.mean[-1])  # wherever it formed
    assert np.array(heads.last["induction"])[2, 1] < 0.1


def test_runs_that_recorded_no_heads_have_none(scored, tmp_path):
    assert scored.arms["frozen_scaled_normal"].heads is None
    some = [
        run.stored.directory for run in scored.plan.runs if run.arm != "trained" and run.stored and run.stage == "final"
    ]
    runs = [(directory, directory.metrics()) for directory in some]
    assert heads_of(runs).seeds == 4
    assert heads_of([(RunDirectory(Path("nowhere")), [])]) is None


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_report_has_a_section_on_heads_where_runs_recorded_them(scored, tmp_path, language):
    pictures = ("heads_forming", "head_scores")
    text = str(article_of(scored, language, figures=pictures))
    title = {"en": "Attention heads", "zh": "注意力头"}[language]
    assert title in text
    assert all(f"'{name}'" in text for name in pictures)
    without = findings_from(example_study(), tmp_path)
    assert title not in str(article_of(without, language, figures=()))
    canvas = Canvas(without, language, None)
    assert forming(canvas) is None
    assert last_scores(canvas) is None


def test_both_figures_show_the_arms_that_recorded_heads(scored):
    canvas = Canvas(scored, "en", None)
    with drawing_settings(canvas):
        lines, maps = forming(canvas), last_scores(canvas)
        assert rendered(lines) == rendered(forming(canvas))
        assert [len(axis.lines) for axis in lines.axes] == [2, 2]
        assert len(maps.axes) == 2 * len(KINDS) + 1
        rendered(maps)


def test_a_heat_map_is_written_as_png_and_svg(tmp_path):
    written = heat_map_files(tmp_path / "heads.svg", invented("trained", 0, 1.0))
    assert [path.name for path in written] == ["heads.png", "heads.svg"]
    assert written[0].read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in written[1].read_bytes()
