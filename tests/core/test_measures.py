"""Measures: every entry is whole, and what is shown and stated agrees with what is compared."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from oelm.analysis.statistics import PAIR_TESTS
from oelm.core.measures import ACCURACY, LOSS, MEASURES, PERCENT, POINTS, SCALES, documentation, measures_of
from oelm.core.settings import KINDS as KINDS_OF_MODEL
from oelm.run.directory import measured
from oelm.show.quality import FORMATS
from oelm.study.declaration import Hypothesis
from small_runs import child_environment

REPOSITORY = Path(__file__).parents[2]
KINDS_OF_RUN = {*KINDS_OF_MODEL, "probe"}  # a probe is learnt by a GPT


def test_every_entry_is_whole():
    assert {PERCENT.stored_margin, POINTS.stored_margin} == {"margin_nats", "margin_error"}  # of analysis_results.json
    assert {scale.key for scale in SCALES} == FORMATS.keys()
    assert {scale.margin_key for scale in SCALES} <= Hypothesis.model_fields.keys()
    for key, measure in MEASURES.items():
        assert measure.key == key
        assert measure.scale in SCALES
        assert measure.test in PAIR_TESTS
        assert set(measure.kinds) <= KINDS_OF_RUN
        assert all(measure.name)
    names = [name for each in MEASURES.values() for name in vars(each.figures).values()]
    assert len(set(names)) == len(names)


def test_runs_of_every_kind_of_model_are_compared_by_something():
    usual = {"gpt": "loss", "encoder": "accuracy", "probe": "probe_accuracy"}
    assert {kind: measures_of(kind)[0].key for kind in KINDS_OF_RUN} == usual


@pytest.mark.parametrize("scale", SCALES, ids=lambda scale: scale.key)
def test_a_margin_is_shown_as_it_is_stated(scale):
    for stated in (-50, 0, 0.1, 1, 5, 30):
        assert scale.shown_difference(scale.margin(stated)) == pytest.approx(stated)


def test_less_cost_is_better_whichever_way_the_values_go():
    assert LOSS.cost(2.0) < LOSS.cost(2.1)
    assert ACCURACY.cost(0.7) < ACCURACY.cost(0.6)
    assert ACCURACY.shown_difference(ACCURACY.cost(0.7) - ACCURACY.cost(0.6)) == pytest.approx(10)
    assert LOSS.shown_difference(math.log(1.05)) == pytest.approx(5)
    assert LOSS.shown_difference(0.0) == ACCURACY.shown_difference(0.0) == 0
    assert math.copysign(1, ACCURACY.shown_difference(0.0)) == 1  # never "-0"
    assert ACCURACY.ends(-0.1, None) == (None, -0.1)


def test_what_has_no_room_in_a_float_is_infinite():
    for loss in (710.0, 1e4, math.inf):
        assert PERCENT.shown(loss) == PERCENT.shown_difference(loss) == math.inf
    assert all(PERCENT.shown(loss) == math.exp(loss) for loss in (0.0, 20.0, 705.0))  # never clamped


@pytest.mark.parametrize("value", [None, "0.5", -0.1, 1.1, math.nan, math.inf, [0.5], True])
def test_a_result_that_is_no_share_is_no_value(value):
    assert ACCURACY.value_of({"accuracy": value}) is None
    assert ACCURACY.value_of({}) is None


def test_a_run_is_summed_up_by_its_own_measure():
    assert measured({"accuracy": 0.7012, "val_loss": 0.9}) == "accuracy 70.12%"
    assert measured({"perplexity": 4.2711}) == "perplexity 4.271"
    assert measured({"perplexity": None}) == measured({}) == "perplexity inf"


def test_the_documentation_has_the_table():
    lines = (REPOSITORY / "docs" / "studies.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in documentation() if line not in lines] == []  # add these


def test_the_tables_load_neither_numpy_nor_pydantic():
    """Whoever reads a run directory reads them."""
    code = "import oelm.study.claims.kinds, oelm.study.claims.reasons, sys\n"
    code += "sys.exit(bool({'numpy', 'pydantic'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], env=child_environment(), check=False).returncode == 0
