"""Sizes of a study: every arm at every size is an arm; a study without them is what it was."""

from __future__ import annotations

import math
from unittest import mock

import pytest

from oelm.analysis.summary import findings_of
from oelm.cli.studies import _chosen_arms
from oelm.machine.errors import UserError
from oelm.show.article import visible_text
from oelm.show.content import article_of
from oelm.study.carrying import tuned_arms
from oelm.study.decisions import read_decisions
from oelm.study.declaration import SizedArm, study_digest
from oelm.study.one_run import settings_for
from oelm.study.plan import planned
from oelm.study.registration import register, registration_of
from oelm.study.scaled import arms_compared, at_main_size, compared_with, dials_of, families_of, sizes_of
from oelm.study.shelf import Shelf
from oelm.study.sizes import DIALS, documentation
from sized_studies import PAIR, STEPS, WIDTHS, losses_with_slope, sized_study
from small_runs import REPOSITORY
from stored_runs import facts_of, hypothesis, small_study, store_study

FROZEN = "frozen_head_orthogonal"


def contrast(**changes):
    return hypothesis("contrast", **changes)


@pytest.fixture(scope="module")
def study():
    return sized_study()


# ---- Reading -------------------------------------------------------------------------------------------------------


def test_a_width_keeps_heads_as_wide_and_grows_the_rest_in_proportion(study):
    for width in WIDTHS:
        model = settings_for(study, f"trained+width{width}", seed=0).run.model
        assert (model.d_model, model.d_model // model.num_heads) == (width, 8)
        assert model.num_layers == max(1, round(2 * width / 32))
        assert settings_for(study, f"trained+width{width}", seed=0).run.training.steps == 40  # equal tokens


def test_the_stated_rank_of_a_residual_and_a_stated_warm_up_grow_too():
    arms = {"trained": {}, "low": {"arm": "frozen_orthogonal_residual", "set": {"model.repairs.residual.rank": 4}}}
    base = sized_study().base | {"training": {"steps": 40, "batch_size": 4, "warmup_steps": 10}}
    changed = sized_study(
        arms=arms, base=base, sizes={"width": [16, 32, 64], "steps": [80]}, hypotheses=[], main_size=None
    )
    ranks = {
        size: settings_for(changed, f"low+{size}", seed=0).run for size in ("width16", "width32", "width64", "steps80")
    }
    assert [run.model.repairs.residual.rank for run in ranks.values()] == [2, 4, 8, 4]
    assert [run.training.warmup_steps for run in ranks.values()] == [10, 10, 10, 20]


def test_points_of_two_dials_that_compute_the_same_are_one_size(study):
    assert dials_of(study) == {
        "width": [f"width{width}" for width in WIDTHS],
        "steps": ["width32", *(f"steps{steps}" for steps in STEPS if steps != 40)],
    }
    assert len(study.arms) == 2 * (len(WIDTHS) + len(STEPS) - 1)
    assert sized_study(main_size="steps40").main_size == "width32"


def test_an_arm_may_have_some_of_the_sizes_only():
    arms = {"trained": {}, FROZEN: {"sizes": ["width32"]}}
    some = sized_study(arms=arms, hypotheses=[])
    assert [name for name in some.arms if name.startswith(FROZEN)] == [f"{FROZEN}+width32"]
    assert families_of(some) == PAIR
    assert len(sizes_of(some)) == len(WIDTHS) + len(STEPS) - 1


def test_claims_are_about_one_size_or_about_the_sizes_of_a_dial(study):
    grows, not_worse, shrinks = study.hypotheses
    assert (not_worse.treatment, not_worse.control) == (f"{FROZEN}+width32", "trained+width32")
    assert arms_compared(study, grows)[0] == (f"{FROZEN}+width16", "trained+width16")
    assert [len(arms_compared(study, each)) for each in (grows, not_worse, shrinks)] == [len(WIDTHS), 1, len(STEPS)]
    listed = sized_study(hypotheses=[hypothesis("holds", over=["width16", "steps40"], margin_percent=1)])
    assert listed.hypotheses[0].over == ["width16", "width32"]


def test_tables_are_about_the_main_size_and_arms_are_compared_at_their_own(study):
    assert at_main_size(study) == ["trained+width32", f"{FROZEN}+width32"]
    assert compared_with(study, f"{FROZEN}+steps80") == "trained+steps80"


def test_a_study_without_sizes_is_what_it_was():
    plain = small_study(hypotheses=[hypothesis()])
    assert at_main_size(plain) == families_of(plain) == list(plain.arms)
    assert not any(isinstance(arm, SizedArm) for arm in plain.arms.values())
    # As it was before there were sizes.
    assert study_digest(plain) == "6076f84f448c793d1faf4dd29de94637051d12d8fbec77a2a05447cb26a48159"


def test_other_sizes_are_another_declaration(study):
    assert study_digest(study) != study_digest(sized_study(sizes={"width": WIDTHS, "steps": STEPS[:-1]}))
    assert study_digest(study) == study_digest(sized_study())


def test_the_documentation_has_the_dials():
    page = (REPOSITORY / "docs" / "studies_advanced.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in documentation() if line not in page] == []  # add these


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"sizes": {"width": [20]}}, "sizes.width: 20 is not divisible into heads of 8"),
        ({"sizes": {"odd": {"d_model": 33}}}, "sizes.odd: model: d_model 33 is not divisible by num_heads 4"),
        (
            {"sizes": {"width": [32, 64], "width64": {"num_layers": 2}}, "main_size": None},
            "sizes.width64: is also the name of a value of width; choose another",
        ),
        ({"sizes": {"": {"num_layers": 2}}}, "sizes: '' cannot be the name of a size; use letters"),
        ({"sizes": {"named": {"num_layers": 2}}}, "sizes: 'named' cannot be the name of a size"),
        ({"sizes": {"other": {"seeds.weights": 5}}}, "sizes.other.seeds.weights: the seeds are those of the study"),
        ({"forecast": {"big": {"d_model": 256, "vocabulary": 99}}}, "forecast.big.model.vocabulary: losses with"),
        ({"sizes": {"width": {"d_model": 64}}}, "sizes.width: is a dial; list its values"),
        ({"forecast": {"depth": 128}}, "forecast.depth: a number is for a dial (width, steps)"),
        ({"main_size": "wide"}, "main_size: 'wide' is not one of the sizes"),
        ({"arms": {"trained": {"sizes": ["width16"]}, FROZEN: {}}}, "main_size: the baseline trained is not run"),
        ({"arms": {"trained": {}, FROZEN: {"sizes": ["wide"]}}}, f"arms.{FROZEN}.sizes: 'wide' is not one of"),
        ({"arms": {"trained": {}, FROZEN: {"set": {"d_model": 8}}}}, f"arms.{FROZEN}.set.model.d_model: is also set"),
        ({"hypotheses": [hypothesis("grows")]}, "grows.over: say over which sizes: width, steps"),
        ({"hypotheses": [hypothesis("grows", over="depth")]}, "grows.over: 'depth' is none of width, steps"),
        (
            {"arms": {"trained": {"sizes": ["width32"]}, FROZEN: {"sizes": ["width16"]}},
             "hypotheses": [hypothesis("grows")]},
            f"grows: {FROZEN} and trained have no size in common",
        ),
        (
            {"hypotheses": [hypothesis("grows", over="width", per="tokens")]},
            "width64, width96) have the same number of training tokens",
        ),
        (
            {"hypotheses": [hypothesis("grows", over="steps", per="parameters")]},
            "have the same number of parameters",
        ),
        ({"hypotheses": [hypothesis("grows", over="width", size="width16")]}, "grows takes no size; leave it out"),
        ({"hypotheses": [hypothesis(over="width")]}, "not_worse takes no over; leave it out"),
        ({"hypotheses": [contrast()]}, "contrast needs against, the size"),
        ({"hypotheses": [contrast(against="width16", size="width16")]}, "contrast.against: is width16 as well; a"),
        ({"hypotheses": [contrast(against="steps40")]}, "contrast.against: is width32 as well; a contrast compares"),
        (
            {"arms": {"trained": {}, FROZEN: {"sizes": ["width32"]}}, "hypotheses": [contrast(against="width16")]},
            f"contrast.against: {FROZEN} is not run at width16, but at width32",
        ),
        ({"hypotheses": [hypothesis(against="width16")]}, "not_worse takes no against; leave it out"),
        ({"hypotheses": [hypothesis("faster", size="width16")]}, "faster.size: faster is measured at the main"),
        ({"forecast": {"width": 64}}, "forecast.width64: is not larger than the sizes tried (width)"),
        ({"forecast": {"steps": 640}}, "forecast.steps640: needs at least 5 sizes; this study has 4 sizes (steps)"),
        ({"forecast": {"tiny": {"d_model": 8, "steps": 640}}}, "forecast.tiny: is not larger than the sizes tried"),
        ({"forecast": {"big": {"d_model": 256, "steps": 640}}}, "forecast.big: has another number of training tokens"),
        (
            {"sizes": {"steps": [10, *STEPS]}, "main_size": None, "forecast": {"big": {"d_model": 256, "steps": 640}}},
            "forecast.big: has another number of parameters",
        ),
        (
            {"sizes": {f"s{steps}": {"steps": steps} for steps in STEPS} | {"wide": {"d_model": 64}}, "main_size": None,
             "forecast": {"big": {"d_model": 256}}},
            "forecast.big: needs at least 5 different numbers of parameters among the sizes tried (named)",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(changes, line):
    with pytest.raises(UserError) as error:
        sized_study(**{"hypotheses": []} | changes)
    assert len(str(error.value).splitlines()) == 1
    assert line in str(error.value)


@pytest.mark.parametrize(
    "changes",
    [{"main_size": "width16"}, {"forecast": {"width": 64}}, {"hypotheses": [hypothesis("shrinks")]},
     {"hypotheses": [contrast(against="width16")]},
     {"arms": {"trained": {}, FROZEN: {"sizes": ["width16"]}}}],
)  # fmt: skip
def test_what_belongs_to_sizes_is_refused_without_them(changes):
    with pytest.raises(UserError, match="is for studies with sizes"):
        small_study(**changes)


# ---- Planning ------------------------------------------------------------------------------------------------------


def test_every_arm_is_run_at_every_size_under_its_own_name(study, tmp_path):
    shelf = store_study(study, tmp_path, losses_with_slope())
    plan = planned(study, shelf, facts=facts_of(study))
    assert len(plan.final) == len(study.arms) * len(study.seeds)
    assert all(run.state == "finished" for run in plan.final)
    assert {run.stored.name.rpartition("-s")[0] for run in plan.final if run.stored} == set(study.arms)
    assert [run.seed for run in plan.final] == sorted(run.seed for run in plan.final)  # whole pairs first


def test_rates_are_tuned_for_every_arm_at_every_size_and_stored_so(tmp_path):
    tuning = {"grid": {"learning_rate": [1e-3, 2e-3, 4e-3]}, "seeds": [1000], "extend": 0}
    tuned = sized_study(tuning=tuning, sizes={"width": WIDTHS[:3]}, hypotheses=[])

    def loss(arm, seed, stage, point):
        best = {"width16": 4e-3, "width32": 2e-3, "width48": 1e-3}[arm.partition("+")[2]]
        rate = dict(point).get("training.learning_rate", best)
        return 3.0 + (0.0 if rate == best else 0.1)

    shelf = store_study(tuned, tmp_path, loss)
    stored = {each.subject: each.decided["values"]["training.learning_rate"] for each in read_decisions(tmp_path)}
    assert stored == {
        f"{arm}+width{width}": rate for width, rate in ((16, 4e-3), (32, 2e-3), (48, 1e-3)) for arm in PAIR
    }
    plan = planned(tuned, shelf, facts=facts_of(tuned))
    assert {run.run.training.learning_rate for run in plan.by_arm["trained+width48"]} == {1e-3}


RATE, RATES = "training.learning_rate", [1e-3, 2e-3, 4e-3]
OPTIMA = {"width16": 8e-3, "width32": 2e-3, "width48": 2e-3}  # of one arm; of the other it is 2e-3 at every size


def tuned_at_widths(**tuning):
    tuning = {"grid": {RATE: RATES}, "seeds": [1000], "extend": 2} | tuning
    return sized_study(tuning=tuning, sizes={"width": WIDTHS[:3]}, hypotheses=[])


def loss_of_rates(arm, seed, stage, point):
    family, _, size = arm.partition("+")
    best = OPTIMA[size] if family == "trained" else 2e-3
    return 3.0 + 0.2 * math.log2(dict(point)[RATE] / best) ** 2 + 0.001 * (seed % 7)


def rates_at(plan, arm):
    return sorted({dict(run.point)[RATE] for run in plan.tuning if run.arm == arm})


@pytest.mark.parametrize("tuning", [{}, {"method": "halving", "seeds": [1000, 1001]}])
def test_an_optimum_at_an_edge_adds_points_for_all_arms_of_that_size_and_no_other(tmp_path, tuning):
    tuned = tuned_at_widths(**tuning)
    plan = planned(tuned, store_study(tuned, tmp_path, loss_of_rates), facts=facts_of(tuned))
    rates = {size: [rates_at(plan, f"{arm}+{size}") for arm in PAIR] for size in OPTIMA}
    assert rates["width16"] == [[*RATES, 8e-3, 16e-3]] * 2
    assert rates["width32"] == rates["width48"] == [RATES] * 2
    assert plan.is_tuned
    assert plan.choices["trained+width16"].values == {RATE: 8e-3}
    stored = {each.subject: each.decided["grid"] for each in read_decisions(tmp_path) if each.kind == "tuned_values"}
    assert stored == plan.grids
    assert plan.grid == {RATE: [*RATES, 8e-3, 16e-3]}


def test_a_report_says_at_which_size_points_were_added(tmp_path):
    tuned = tuned_at_widths()
    findings = findings_of(tuned, store_study(tuned, tmp_path, loss_of_rates))
    text = visible_text(article_of(findings, "en", figures=()))
    assert "The grid of width16 was extended beyond the declared points: training.learning_rate = 8e-3, 0.016." in text
    text = visible_text(article_of(findings, "zh", figures=()))
    assert "width16 的网格已在声明的取值之外扩展：training.learning_rate = 8e-3、0.016。" in text


def test_a_size_has_its_values_before_another_is_tuned(tmp_path):
    tuned = tuned_at_widths()
    shelf = store_study(tuned, tmp_path, loss_of_rates, leaves=lambda run: run.arm.endswith("width48"))
    plan = planned(tuned, shelf, facts=facts_of(tuned))
    assert set(plan.choices) == {f"{arm}+{size}" for arm in PAIR for size in ("width16", "width32")}
    assert not plan.is_tuned
    assert {run.arm for run in plan.final} == set(plan.choices)


def test_choices_from_one_grid_for_all_sizes_are_read_as_they_were_made(tmp_path):
    """As oelm stored them before each size had its own: what was added for one size stands in every choice."""
    tuned = tuned_at_widths()
    with mock.patch("oelm.study.plan.tuned_together", lambda study: [tuned_arms(study)]):
        shelf = store_study(tuned, tmp_path, loss_of_rates)
    plan = planned(tuned, shelf, facts=facts_of(tuned))
    assert plan.blocked is None
    assert plan.remarks == ()
    assert plan.is_done
    assert all(grid == {RATE: [*RATES, 8e-3, 16e-3]} for grid in plan.grids.values())


def test_the_registration_covers_sizes(study, tmp_path):
    register(study, tmp_path)
    assert not registration_of(study, Shelf(tmp_path)).changes
    other = sized_study(sizes={"width": WIDTHS, "steps": [20, 40, 80, 200]})
    changed = {key for key, *_ in registration_of(other, Shelf(tmp_path)).changes}
    assert {"arms.trained+steps160", "arms.trained+steps200"} <= changed


def test_arms_are_chosen_by_arm_by_size_or_by_both(study):
    assert len(_chosen_arms("trained", study)) == len(sizes_of(study))
    assert _chosen_arms("width16", study) == ["trained+width16", f"{FROZEN}+width16"]
    assert _chosen_arms("trained+width16", study) == ["trained+width16"]
    with pytest.raises(UserError, match="is not one of the arms"):
        _chosen_arms("width17", study)


def test_every_dial_turns_the_setting_that_it_names():
    run = settings_for(small_study(), "trained", seed=0).run
    for dial in DIALS.values():
        assert dial.rule(run, 64)[dial.key] == 64
