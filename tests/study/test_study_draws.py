"""Several draws for each seed: which runs they are, and what of a study without draws stays as it was."""

import itertools
from pathlib import Path

import pytest

from oelm.config import Seeds
from oelm.errors import UserError
from oelm.experiments.status import find_run
from oelm.study.confounds import confounds
from oelm.study.declaration import declared_tree, study_digest
from oelm.study.doubts import lines_on
from oelm.study.draws import MOST_DRAWS, draw_of, draw_seed
from oelm.study.plan import Planner, planned
from oelm.study.shelf import Shelf
from stored_runs import VOCABULARY, hypothesis, small_study, store_finished, store_study

ARMS = ["trained", "frozen_normal", "trained_head_orthogonal"]
GRID = {"grid": {"learning_rate": [1e-3, 2e-3, 4e-3]}, "extend": 0}


def wanted(study, folder=Path("nowhere")):
    return planned(study, Shelf(folder), facts={"vocabulary": VOCABULARY})


def loss(arm, seed, stage, point):
    return 2.0 + 0.01 * seed + sum(abs(value - 2e-3) for _, value in point)


def test_each_seed_of_an_arm_that_draws_has_so_many_runs_and_any_other_one():
    plan = wanted(small_study(arms=ARMS, seeds=[5, 6], draws=3))
    found = [(run.seed, run.draw, run.arm) for run in plan.final]
    drawn = [(seed, draw, arm) for seed in (5, 6) for draw in range(3) for arm in ARMS if arm != "trained" or not draw]
    assert found == drawn
    assert plan.expected_final_runs == len(found) == 2 * (1 + 3 + 3)
    assert len({run.title for run in plan.final}) == len(found)


def test_draws_of_a_seed_differ_in_the_projections_alone_and_are_the_same_in_every_arm():
    plan = wanted(small_study(arms=ARMS, seeds=[5, 6], draws=3))
    for run in plan.final:
        expected = Seeds(weights=run.seed, projections=draw_seed(run.seed, run.draw), data=run.seed)
        assert run.run.seeds == expected
        assert draw_of(run.run.seeds) == run.draw


def test_the_first_draw_is_the_seed_and_no_two_draws_meet():
    seeds = [draw_seed(seed, draw) for seed, draw in itertools.product(range(200), range(MOST_DRAWS))]
    assert seeds[::MOST_DRAWS] == list(range(200))
    assert len(set(seeds)) == len(seeds)
    assert max(seeds) < 2**53
    assert draw_seed(3, 2) == 7601789048142156  # as stored runs have it
    assert draw_of(Seeds(weights=3, projections=7)) is None


def test_only_a_further_draw_is_named():
    first, second = (run for run in wanted(small_study(arms=["frozen_normal"], seeds=[4], draws=2)).final)
    assert (first.title, second.title) == ("frozen_normal s4", "frozen_normal s4 d1")
    assert first.folder_name("").startswith("frozen_normal-s4-")
    assert second.folder_name("").startswith("frozen_normal-s4-d1-")


def test_a_study_without_draws_keeps_its_digest():
    assert "draws" not in declared_tree(small_study(draws=1))
    assert study_digest(small_study(draws=1)) == study_digest(small_study())
    assert study_digest(small_study(draws=2)) != study_digest(small_study())


def test_runs_of_a_study_without_draws_count_when_it_gets_some_and_the_others_are_named_when_it_loses_them(tmp_path):
    one, two = (small_study(arms=ARMS, seeds=[0, 1], draws=draws) for draws in (1, 2))
    store_study(one, tmp_path, loss)
    missing = [run.title for run in wanted(two, tmp_path).final if run.state == "missing"]
    assert missing == [f"{arm} s{seed} d1" for seed in (0, 1) for arm in ARMS[1:]]
    shelf = store_study(two, tmp_path, loss, shift=lambda run: 0.001 * run.draw)
    assert {run.state for run in wanted(two, tmp_path).final} == {"finished"}
    assert lines_on(wanted(two, tmp_path), shelf) == []
    assert lines_on(wanted(one, tmp_path), shelf) == [
        "4 finished runs here are draws that the study does not have (the first is 0): 1"
    ]


def test_tuning_goes_by_the_first_draw_and_what_waits_for_it_is_counted(tmp_path):
    study = small_study(arms=ARMS[:2], seeds=[0, 1], draws=3, tuning=GRID)
    plan = wanted(study)
    assert len(plan.tuning) == 2 * 3
    assert {run.draw for run in plan.tuning} == {0}
    assert plan.expected_final_runs == 2 * (1 + 3)
    assert len(Planner(study, {"vocabulary": VOCABULARY}, {}).final_at_base(plan)) == plan.expected_final_runs
    assert len(planned(study, store_study(study, tmp_path, loss)).final) == plan.expected_final_runs


def test_choices_stand_when_draws_are_added(tmp_path):
    one, two = (small_study(arms=ARMS[:2], seeds=[0, 1], draws=draws, tuning=GRID) for draws in (1, 2))
    store_study(one, tmp_path, loss)
    plan = wanted(two, tmp_path)
    assert (plan.blocked, plan.remarks) == (None, ())
    assert [run.title for run in plan.runs if run.state == "missing"] == ["frozen_normal s0 d1", "frozen_normal s1 d1"]


def test_a_run_is_found_by_the_beginning_of_its_name(tmp_path):
    study = small_study(arms=["frozen_normal"], seeds=[1, 10], draws=2)
    store_study(study, tmp_path / "small", loss)
    for name in ("frozen_normal-s1", "frozen_normal-s1-d1", "frozen_normal-s10"):
        assert find_run(name, tmp_path).path.name.rpartition("-")[0] == name


def test_a_draw_that_was_computed_elsewhere_is_a_confound_of_its_seed(tmp_path):
    study = small_study(arms=ARMS[:2], seeds=[0, 1], draws=2, hypotheses=[hypothesis(treatment="frozen_normal")])
    for run in wanted(study).final:
        elsewhere = {"precision": "bfloat16"} if (run.seed, run.draw) == (1, 1) else {}
        store_finished(run, tmp_path, 2.0, environment=elsewhere)
    found = confounds(study, wanted(study, tmp_path))["not_worse"]
    assert [(each.key, each.treatment, each.control) for each in found if "precision" in each.key] == [
        ("environment.precision", "bfloat16 / float32", "float32")
    ]


def test_an_arm_that_fixes_the_seed_of_its_projections_has_no_draws():
    arms = {"trained": {}, "frozen_normal": {}, "one_draw": {"arm": "frozen_normal", "set": {"seeds.projections": 7}}}
    plan = wanted(small_study(arms=arms, draws=2))
    assert plan.draws == {"trained": 1, "frozen_normal": 2, "one_draw": 1}


@pytest.mark.parametrize(
    ("draws", "line"),
    [
        (0, "small: draws: "),
        (MOST_DRAWS + 1, "small: draws: "),
        (1.5, "small: draws: "),
        (2, "small: draws: 2, but no arm draws anything that it treats; leave draws out"),
    ],
)
def test_wrong_draws_are_one_line(draws, line):
    with pytest.raises(UserError) as error:
        small_study(arms=["trained", "identity_query"], draws=draws)
    assert str(error.value).startswith(line)
    assert len(str(error.value).splitlines()) == 1
