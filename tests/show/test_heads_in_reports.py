"""Heads in a report: when they form in each arm and where they are, wherever runs recorded them and nowhere else."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from example_studies import example_study, findings_from, invented_heads

from oelm.analysis.arm_summaries import heads_of
from oelm.models.heads.kinds import KINDS
from oelm.run.directory import RunDirectory
from oelm.show.content import article_of
from oelm.show.figures.canvas import Canvas, drawing_settings, rendered
from oelm.show.figures.heads import forming, heat_map_files, last_scores


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """All runs of two arms recorded their heads, and those of the third did not."""
    folder = tmp_path_factory.mktemp("scored")
    return findings_from(example_study(), folder, heads_of=("trained", "frozen_head_orthogonal"))


def test_the_strongest_head_of_an_arm_is_the_mean_over_its_seeds(scored):
    heads = scored.arms["trained"].heads
    assert heads.seeds == 4
    expected = [max(map(max, invented_heads("trained", seed, 1.0)["induction"])) for seed in range(4)]
    curve = heads.strongest["induction"]
    assert curve.mean[-1] == pytest.approx(np.mean(expected))
    assert (curve.low[-1], curve.high[-1]) == (min(expected), max(expected))
    assert curve.mean[0] < curve.mean[-1]
    assert set(heads.last) == set(KINDS)
    assert np.array(heads.last["induction"])[2, 0] == pytest.approx(curve.mean[-1])  # wherever it formed
    assert np.array(heads.last["induction"])[2, 1] < 0.1


def test_runs_that_recorded_no_heads_have_none(scored):
    assert scored.arms["frozen_scaled_normal"].heads is None
    some = [
        run.stored.directory for run in scored.plan.runs if run.arm != "trained" and run.stored and run.stage == "final"
    ]
    assert len(some) == 8
    assert heads_of([(directory, directory.metrics()) for directory in some]).seeds == 4
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
    with drawing_settings(canvas.language, canvas.font):
        lines, maps = forming(canvas), last_scores(canvas)
        assert rendered(lines) == rendered(forming(canvas))
        assert [len(axis.lines) for axis in lines.axes] == [2, 2]
        assert len(maps.axes) == 2 * len(KINDS) + 1
        rendered(maps)


LONG_LABELS = {
    "trained": "Trained orthogonal with rotary positions",
    "frozen_head_orthogonal": "frozen_head_orthogonal_with_a_shift",
    "frozen_scaled_normal": "Frozen orthogonal with rotary positions",
}


def test_no_two_texts_of_the_heat_maps_overlap(tmp_path):
    """Whatever the arms are called. (Of two numbers, one may be a mark of an axis that is beyond its end.)"""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    study = example_study(arms={arm: {"label": label} for arm, label in LONG_LABELS.items()})
    canvas = Canvas(findings_from(study, tmp_path, heads_of=LONG_LABELS), "en", None)
    with drawing_settings(canvas.language, canvas.font):
        figure = last_scores(canvas)
        drawn = FigureCanvasAgg(figure)
        drawn.draw()
        texts = [each for each in figure.findobj(Text) if each.get_text().strip() and each.get_visible()]
        boxes = [(each.get_text(), each.get_window_extent(drawn.get_renderer())) for each in texts]
    shown = " ".join(text.replace("\n", " ") for text, _ in boxes)
    assert "Frozen orthogonal with rotary positions" in shown
    assert shown.count("head, strongest first") == 1
    overlapping = [(one, other) for (one, a), (other, b) in combinations(boxes, 2) if a.overlaps(b)]
    assert not [pair for pair in overlapping if any(map(str.isalpha, "".join(pair)))]


def test_a_heat_map_is_written_as_png_and_svg(tmp_path):
    written = heat_map_files(tmp_path / "heads.svg", invented_heads("trained", 0, 1.0))
    assert [path.name for path in written] == ["heads.png", "heads.svg"]
    assert written[0].read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in written[1].read_bytes()
