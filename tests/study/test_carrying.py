"""Values tuned at some sizes and carried over to the others by a power law, declared beforehand and stored."""

from __future__ import annotations

import math

import pytest

from oelm.analysis.summary import findings_as_json, findings_of
from oelm.machine.errors import UserError
from oelm.show.article import visible_text
from oelm.show.content import article_of
from oelm.study.carrying import tuned_arms
from oelm.study.decisions import read_decisions
from oelm.study.declaration import study_digest
from oelm.study.plan import planned
from sized_studies import PAIR, number_in, sized_study
from stored_runs import facts_of, hypothesis, store_study

RATES = [1e-3, 2e-3, 4e-3, 8e-3]
TUNING = {"grid": {"learning_rate": RATES}, "seeds": [1000], "extend": 0, "at": ["width16", "width32", "width64"]}
RATE = "training.learning_rate"


def carrying(**changes):
    """The best rate is 16e-3 x (8 / width), exactly a power law with the exponent -1."""
    given = {
        "sizes": {"width": [16, 32, 64, 128]},
        "tuning": TUNING,
        "hypotheses": [],
        "seeds": [0, 1],
        "main_size": None,
    }
    return sized_study(**given | changes)


def loss(arm, seed, stage, point):
    best = 8e-3 * 16 / number_in(arm)
    return 3.0 + 0.05 * math.log2(dict(point).get(RATE, best) / best) ** 2 + 0.001 * seed


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    study = carrying()
    return study, store_study(study, tmp_path_factory.mktemp("runs"), loss)


def test_a_size_that_two_dials_share_is_tuned_under_either_name():
    sizes = {"width": [16, 32, 64, 128], "steps": [20, 40, 80, 160]}  # steps40 is width32
    own = ["width16", "width64", "steps20", "steps80"]
    by_width, by_steps = (
        carrying(sizes=sizes, tuning=TUNING | {"at": [name, *own]}) for name in ("width32", "steps40")
    )
    assert tuned_arms(by_steps) == tuned_arms(by_width)
    assert study_digest(by_steps) == study_digest(by_width)


def test_only_the_named_sizes_are_tuned_and_the_others_follow_the_law(stored):
    study, shelf = stored
    plan = planned(study, shelf, facts=facts_of(study))
    assert (
        {run.arm for run in plan.tuning}
        == set(tuned_arms(study))
        == {f"{arm}+{size}" for arm in PAIR for size in TUNING["at"]}
    )
    assert plan.is_tuned
    for arm in PAIR:
        choice = plan.choices[f"{arm}+width128"]
        assert choice.values == {RATE: 1e-3}
        assert choice.carried.exponents == {RATE: pytest.approx(-1)}
        assert {run.run.training.learning_rate for run in plan.by_arm[f"{arm}+width128"]} == {1e-3}


def test_what_was_carried_over_is_stored_and_stays_when_tuning_runs_change(stored):
    study, shelf = stored
    kinds = {each.subject: each.kind for each in read_decisions(shelf.folder)}
    assert {arm: kind for arm, kind in kinds.items() if arm.endswith("width128")} == {
        f"{arm}+width128": "carried_values" for arm in PAIR
    }
    assert all(choice.made for choice in planned(study, shelf, facts=facts_of(study)).choices.values())


def test_nothing_is_carried_over_before_the_tuning_is_finished(tmp_path):
    study = carrying()
    some = store_study(study, tmp_path, loss, leaves=lambda run: run.arm == "trained+width64")
    choices = planned(study, some, facts=facts_of(study)).choices
    assert set(choices) == {f"{arm}+{size}" for arm in PAIR for size in ("width16", "width32")}


def test_a_report_says_what_was_carried_over(stored):
    found = findings_of(*stored)
    text = visible_text(article_of(found, "en", figures=()))
    assert "trained (width128): training.learning_rate 1e-3, not tuned at this size" in text
    assert "from width16, width32, width64 by a power law of the width (exponent: training.learning_rate −1.00)" in text
    assert findings_as_json(found)["tuning"]["arms"]["trained+width128"]["carried"]["dial"] == "width"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"tuning": TUNING | {"at": ["wide"]}}, "tuning.at: 'wide' is not one of the sizes"),
        ({"tuning": TUNING | {"at": ["width16", "width32"]}}, "tuning.at: trained is not tuned at width64"),
        ({"sizes": {"width": [16, 32, 64], "deep": {"num_layers": 4}}}, "tuning.at: trained is not tuned at deep"),
        ({"tuning": TUNING | {"grid": {"weight_decay": [0.0, 0.1]}}}, "tuning.grid.training.weight_decay: a power law"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(changes, line):
    with pytest.raises(UserError) as error:
        carrying(**changes)
    assert len(str(error.value).splitlines()) == 1
    assert line in str(error.value)


def test_sizes_to_tune_are_refused_without_sizes():
    with pytest.raises(UserError, match=r"tuning\.at: is for studies with sizes"):
        carrying(sizes={}, hypotheses=[hypothesis()])
