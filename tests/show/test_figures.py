"""Figures: the same bytes again, no global state, never a box in place of a character."""

import itertools
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from example_studies import example_study, findings_from
from matplotlib.colors import to_hex

from every_option import OPTIONS_SET
from oelm.core.measures import LOSS, MEASURES
from oelm.show.figures import gallery
from oelm.show.figures.canvas import COLOURS, Canvas, drawing_settings, rendered, wrapped
from oelm.show.figures.comparisons import _spread_out, best_by_value, to_nats
from oelm.show.figures.costs import by_parameters, parameter_distribution, side_by_side
from oelm.show.fonts import chinese_font
from oelm.show.words import _phrase_of
from oelm.study.tuning import Choice
from small_runs import child_environment
from stored_runs import small_classification, small_probes, small_study

FIGURES = gallery.figures_of(LOSS)


def test_the_same_findings_give_the_same_bytes(complete):
    canvas = Canvas(complete, "en", None)
    with drawing_settings(canvas.language, canvas.font):
        one, other = (rendered(FIGURES["differences"](canvas)) for _ in range(2))
    assert one == other
    assert not re.search(rb"<dc:date>|20\d\d-\d\d-\d\dT", one.svg)


def test_drawing_leaves_no_global_state():
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import matplotlib\n"
        "def settings(): return {key: matplotlib.rcParams[key] for key in matplotlib.rcParams if key != 'backend'}\n"
        "before = settings()\n"
        "from pathlib import Path; import tempfile\n"
        "from example_studies import example_study, findings_from\n"
        "from oelm.show.figures.canvas import Canvas, drawing_settings, rendered\n"
        "from oelm.show.figures.comparisons import final\n"
        "canvas = Canvas(findings_from(example_study(tuning=None), Path(tempfile.mkdtemp())), 'en', None)\n"
        "with drawing_settings(canvas.language, canvas.font): rendered(final(canvas))\n"
        "assert settings() == before\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], env=child_environment(), check=True)


def test_a_step_of_the_ablation_is_blue_exactly_where_it_lowers_the_loss(complete):
    canvas = Canvas(complete, "en", None)
    with drawing_settings(canvas.language, canvas.font):
        (axis,) = FIGURES["decomposition"](canvas).axes
    means = [step.difference.mean for step in complete.decomposition if step.difference.mean is not None]
    assert {mean < 0 for mean in means} == {True, False}
    assert [to_hex(bar.get_facecolor()) for bar in axis.patches] == [
        "#56b4e9" if mean < 0 else "#e69f00" for mean in means
    ]


def test_of_several_keys_each_value_has_its_lowest_loss():
    losses = {(("rate", rate), ("decay", decay)): rate * 10 + decay for rate in (2.0, 1.0) for decay in (0.1, 0.5)}
    losses[("rate", 4.0), ("decay", 0.1)] = math.inf
    assert best_by_value(Choice("trained", losses, None), "rate") == {1.0: 10.1, 2.0: 20.1, 4.0: math.inf}


def test_arms_differ_in_colour_line_and_mark(tmp_path):
    study = example_study(
        arms=["trained", "trained_scaled_normal", "trained_orthogonal", "trained_head_orthogonal", "frozen_orthogonal",
              "frozen_head_orthogonal", "frozen_normal", "frozen_scaled_normal", "frozen_half", "late_unfreeze"],
        hypotheses=[], tuning=None, baseline="trained_orthogonal",
    )  # fmt: skip
    findings = findings_from(study, tmp_path, lambda *_: None)
    canvas = Canvas(findings, "en", None)
    looks = [canvas.look(arm) for arm in study.arms]
    assert len({(look.colour, look.marker, str(look.line)) for look in looks}) == len(looks)
    for attribute in ("colour", "marker"):
        assert len({getattr(look, attribute) for look in looks[:8]}) == 8
    assert [arm for arm in study.arms if canvas.look(arm).colour == COLOURS[0]] == ["trained_orthogonal"]


def test_without_a_font_a_chinese_label_gives_way_to_the_key(complete):
    assert Canvas(complete, "zh", None).label("frozen_head_orthogonal") == "frozen_head_orthogonal"


def test_long_labels_break_between_words_and_overlong_ones_give_way_to_the_key(complete):
    assert wrapped("trained_head_orthogonal", 22) == "trained_head_\northogonal"
    assert wrapped("frozen, normal at the same scale", 24) == "frozen, normal at the\nsame scale"
    assert wrapped("冻结，分头正交初始化", 10) == "冻结，分头\n正交初始化"
    arms = {arm: {"label": "long " * 20} for arm in ("trained", "frozen_normal")}
    long = replace(complete, study=example_study(arms=arms, hypotheses=[], tuning=None))
    assert Canvas(long, "en", None).label("frozen_normal") == "frozen_normal"


@pytest.mark.parametrize("length", [1, 32])
def test_no_legend_is_wider_than_its_figure(length, tmp_path):
    """With an arm for every option, whatever the length of its name."""
    arms = {"trained": {}} | {
        "w" * length + str(number): {"arm": "trained", "set": {setting: value}}
        for number, (setting, (value, *_)) in enumerate(OPTIONS_SET.items())
    }
    study = example_study(arms=arms, hypotheses=[], tuning=None, seeds=[0])
    canvas = Canvas(findings_from(study, tmp_path, lambda *_: 2.0), "en", None)
    with drawing_settings(canvas.language, canvas.font):
        for figure in (parameter_distribution(canvas), by_parameters(canvas)):
            rendered(figure)
            (legend,) = figure.legends
            box = legend.get_window_extent()
            assert 0 <= box.x0 < box.x1 <= figure.bbox.width
            assert box.y0 >= 0


def test_arms_of_one_size_stand_side_by_side_and_none_past_a_smaller_one():
    counts = {"a": 42_304, "b": 41_288, "c": 42_304, "d": 41_289, "e": 42_304, "f": 41_288}
    places = side_by_side(counts)
    assert len(set(places.values())) == len(counts)
    assert [counts[arm] for arm in sorted(counts, key=places.__getitem__)] == sorted(counts.values())
    assert side_by_side({"a": 41_288, "b": 42_304}) == {"a": 41_288, "b": 42_304}


def test_equal_results_are_drawn_too(tmp_path):
    findings = findings_from(example_study(tuning=None), tmp_path, lambda *_: 2.0)
    canvas = Canvas(findings, "en", None)
    with drawing_settings(canvas.language, canvas.font):
        assert all(FIGURES[name](canvas) for name in ("decomposition", "differences", "final_perplexity"))


def test_chinese_labels_are_drawn_with_real_glyphs(complete):
    font = chinese_font()
    if font is None:
        pytest.skip("no Chinese font here; pip install 'oelm[fonts]'")
    import warnings

    canvas = Canvas(complete, "zh", font)
    with drawing_settings(canvas.language, canvas.font), warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*[Gg]lyph.*")
        rendered(FIGURES["parameter_distribution"](canvas))


@pytest.mark.parametrize("measure", MEASURES.values(), ids=lambda measure: measure.key)
def test_every_figure_has_its_caption_before_it_has_data(measure):
    makers = {"gpt": small_study, "encoder": small_classification, "probe": small_probes}
    study = makers[measure.kinds[0]]()
    own = {name: code for code, name in vars(measure.figures).items()}
    codes = [f"caption.{own.get(name, name)}" for name in gallery.figures_of(measure)]
    assert all(all(_phrase_of(study, code)) for code in codes)


@pytest.mark.parametrize("high", [1.2, 2.9, 5.0, 9.0])
def test_percentages_of_a_wide_axis_keep_their_distance(high):
    ticks = _spread_out(-0.1, high)
    assert 0 in ticks
    places = [to_nats(tick) for tick in ticks]
    assert len(places) >= 4
    assert all(later - earlier >= 0.09 * (high + 0.1) for earlier, later in itertools.pairwise(places))
