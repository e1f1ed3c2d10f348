"""The figure of when runs solve a probe: a mark for each run where it solved it, or beyond the last step."""

import pytest

from oelm.analysis.summary import findings_of
from oelm.show.content import article_of
from oelm.show.figures.canvas import Canvas, drawing_settings, rendered
from oelm.show.figures.comparisons import steps_to_solve
from oelm.show.words import say
from stored_runs import probe_curve, small_probes, solving_claim, store_study

FROZEN, STEPS = "frozen_head_orthogonal", 200
WHEN = {"trained": [50, 50, 60, 80, 90, 100, 110, 120], FROZEN: [None, 130, None, 140, 140, None, 150, 160]}


@pytest.fixture(scope="module")
def canvas(tmp_path_factory):
    study = small_probes(hypotheses=[solving_claim("solves_sooner")])
    runs = store_study(
        study, tmp_path_factory.mktemp("runs"), lambda *_: 1.0,
        measured=probe_curve(lambda arm, seed, *_: WHEN[arm][seed]),
    )  # fmt: skip
    return Canvas(findings_of(study, runs), "en", None)


def test_every_run_has_a_mark_where_it_solved_it(canvas):
    with drawing_settings(canvas.language, canvas.font):
        figure = steps_to_solve(canvas)
        assert rendered(figure) == rendered(steps_to_solve(canvas))
    (axis,) = figure.axes
    marks = [line for line in axis.lines if line.get_marker() not in ("None", "", None)]
    for row, (arm, steps) in enumerate(WHEN.items()):
        mine = [line for line in marks if line.get_marker() == canvas.look(arm).marker]
        assert len(mine) == len(steps)
        for line, step in zip(mine, steps, strict=True):
            (at,), (height,) = line.get_data()
            assert round(height) == row
            assert at == step if step is not None else STEPS < at < axis.get_xlim()[1]
            assert (line.get_markerfacecolor() == "none") == (step is None)
    places = [tuple(float(each[0]) for each in line.get_data()) for line in marks]
    assert len(set(places)) == len(places)  # two seeds with equal steps do not hide each other
    bars = [line.get_xdata()[0] for line in axis.lines if len(line.get_xdata()) == 2]
    assert {85.0, 140.0} <= set(bars)  # medians of those that solve it


def test_a_study_that_calls_nothing_solved_has_no_such_figure(tmp_path):
    study = small_probes(hypotheses=[])
    runs = store_study(study, tmp_path, lambda *_: 1.0, measured=probe_curve(lambda *_: 50))
    assert steps_to_solve(Canvas(findings_of(study, runs), "en", None)) is None


def test_the_report_shows_it(canvas):
    words = say("en", "caption.steps_to_solve", solved="")[:30]
    assert words in str(article_of(canvas.findings, "en", figures=("steps_to_solve",)))
    assert words not in str(article_of(canvas.findings, "en", figures=()))
