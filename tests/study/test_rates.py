"""Tuning by halving and by a fitted optimum, from the declaration to the stored decision."""

import copy
import itertools
import json
import math
import shutil

import pytest

from oelm.analysis.summary import findings_as_json, findings_of
from oelm.execution.status import study_status
from oelm.machine.errors import UserError
from oelm.storage.files import SEAL, Damaged, digest_of, read_sealed, write_sealed
from oelm.study.decisions import CHOICES_FILE, choice_of, read_decisions, round_of, tuning_declaration
from oelm.study.declaration import declared_tree
from oelm.study.doubts import strays
from oelm.study.one_run import settings_for
from oelm.study.plan import planned
from oelm.study.shelf import Shelf
from stored_runs import VOCABULARY, small_probes, small_study, store_finished, store_study

RATE = "training.learning_rate"
RATES = [5e-4, 1e-3, 2e-3, 4e-3]
ARMS = ["trained", "frozen_normal"]
HALVING = {"method": "halving", "budgets": [0.25, 1], "margin": 0.2}
FITTED = {"choose": "fitted"}


def study_of(**tuning):
    own = {"grid": {"learning_rate": RATES}, "seeds": [1000, 1001, 1002], "extend": 0}
    return small_study(arms=ARMS, seeds=[0, 1], tuning=own | tuning)


def loss(arm, seed, stage, point, best=1.3e-3):
    """A quadratic in the logarithm of the rate, on which seeds and rates leave their marks."""
    rate = dict(point)[RATE]
    return 2.0 + 0.01 * (seed % 7) + 0.3 * math.log(rate / best) ** 2 + 0.001 * math.sin(seed * rate * 1e5)


def wanted(study, folder):
    return planned(study, Shelf(folder), facts={"vocabulary": VOCABULARY})


def rates_of(runs, arm):
    return sorted({dict(run.point)[RATE] for run in runs if run.arm == arm})


def test_halving_runs_all_values_shortly_and_the_remaining_ones_longer(tmp_path):
    study = study_of(**HALVING)
    first = wanted(study, tmp_path)
    assert {run.run.training.steps for run in first.tuning} == {10}
    assert len(first.tuning) == len(ARMS) * len(RATES) * 3
    plan = planned(study, store_study(study, tmp_path, loss))
    for arm in ARMS:
        assert rates_of(plan.last_round, arm) == [1e-3, 2e-3]
        assert plan.choices[arm].values == {RATE: 1e-3}
    assert {run.run.training.steps for run in plan.last_round} == {40}
    assert all(run.run.training.learning_rate == 1e-3 for run in plan.final)


def test_a_round_is_stored_before_the_runs_that_go_by_it_and_binds(tmp_path):
    study = study_of(**HALVING)
    shelf = store_study(study, tmp_path, loss, leaves=lambda run: run.budget == 1)
    decisions = read_decisions(tmp_path)
    assert [(each.kind, each.subject) for each in decisions] == [("tuning_round", f"{arm}, round 1") for arm in ARMS]
    assert {len(each.runs) for each in decisions} == {12}
    before = planned(study, shelf)
    gone = next(run for run in before.tuning if run.point == ((RATE, 5e-4),))
    shutil.rmtree(gone.stored.directory.path)
    after = planned(study, Shelf(tmp_path))
    assert after.rounds == before.rounds
    assert [run.title for run in after.later_rounds] == [run.title for run in before.later_rounds]
    (tmp_path / CHOICES_FILE).unlink()
    assert planned(study, Shelf(tmp_path)).rounds == ()


def test_a_value_that_is_added_later_is_run_in_the_first_round_of_all_arms(tmp_path):
    """The optimum of one arm is at the edge, so every arm gets another value; what is dropped stays dropped."""
    study = study_of(**HALVING, extend=1)

    def at_the_edge(arm, seed, stage, point):
        return loss(arm, seed, stage, point, best=4.5e-3 if arm == "trained" else 1.3e-3)

    plan = planned(study, store_study(study, tmp_path, at_the_edge))
    assert plan.grid[RATE] == [*RATES, 8e-3]
    first = [run for run in plan.tuning if run.budget == 0.25]
    assert {len(rates_of(first, arm)) for arm in ARMS} == {5}
    assert rates_of(plan.last_round, "trained") == [2e-3, 4e-3, 8e-3]
    assert plan.choices["trained"].edges == ()


def test_what_runs_have_become_since_changes_no_round_and_is_said(tmp_path):
    study = study_of(**HALVING)
    shelf = store_study(study, tmp_path, loss)
    plan = planned(study, shelf)
    assert plan.remarks == ()
    for run in plan.tuning:
        if run.budget == 0.25 and run.arm == "trained" and run.point == ((RATE, 2e-3),):
            shutil.rmtree(run.stored.directory.path)
            store_finished(run, tmp_path, 9.0)
    again = planned(study, Shelf(tmp_path))
    assert again.rounds == plan.rounds
    ((code, facts),) = again.remarks
    assert (code, facts["arm"], facts["now"]) == (
        "round_contradicted", "trained", "learning_rate=0.0005, learning_rate=0.002, learning_rate=0.004",
    )  # fmt: skip


def test_a_round_for_another_declaration_is_decided_again_and_that_is_said(tmp_path):
    shelf = store_study(study_of(**HALVING), tmp_path, loss, leaves=lambda run: run.budget == 1)
    plan = planned(study_of(**HALVING | {"margin": 0.5}), shelf)
    assert {done.made for done in plan.rounds} == {None}
    assert [(code, facts["arm"], facts["differences"]) for code, facts in plan.remarks] == [
        ("choice_replaced", f"{arm}, round 1", "tuning.margin 0.2, now 0.5") for arm in ARMS
    ]


def test_a_fitted_optimum_is_what_the_final_runs_use(tmp_path):
    study = study_of(**FITTED)
    shelf = store_study(study, tmp_path, loss)
    plan = planned(study, shelf)
    for arm in ARMS:
        choice = plan.choices[arm]
        assert choice.curve.best == 1e-3
        assert choice.values[RATE] == pytest.approx(1.3e-3, rel=0.02)
        assert {run.run.training.learning_rate for run in plan.by_arm[arm]} == {choice.values[RATE]}
    assert plan.remarks == ()
    (tmp_path / CHOICES_FILE).unlink()
    computed = planned(study, Shelf(tmp_path))
    assert [(each.best, each.curve, each.losses) for each in computed.choices.values()] == [
        (each.best, each.curve, each.losses) for each in plan.choices.values()
    ]


def test_a_curve_gets_the_neighbours_that_halving_dropped(tmp_path):
    study = study_of(**HALVING | {"margin": 0.001}, **FITTED)
    plan = planned(study, store_study(study, tmp_path, loss))
    assert rates_of(plan.last_round, "trained") == [5e-4, 1e-3, 2e-3]
    assert {len(done.kept) for done in plan.rounds} == {1}
    assert plan.choices["trained"].values[RATE] == pytest.approx(1.3e-3, rel=0.02)


def test_without_a_neighbour_the_best_value_of_the_grid_stands_in(tmp_path):
    study = study_of(**FITTED)
    shelf = store_study(study, tmp_path, lambda *run: loss(*run, best=1e-4))
    plan = planned(study, shelf)
    assert {(choice.values[RATE], choice.not_fitted) for choice in plan.choices.values()} == {(5e-4, "edge")}
    notes = findings_of(study, shelf).notes
    assert ("not_fitted_edge", {"arm": "trained", "value": 5e-4}) in notes


def test_a_stored_optimum_that_is_not_its_curves_is_damaged(tmp_path):
    store_study(study_of(**FITTED), tmp_path, loss)
    tree = read_sealed(tmp_path / CHOICES_FILE)
    tree["decisions"][0]["decided"]["values"][RATE] = 1.9e-3
    write_sealed(tmp_path / CHOICES_FILE, tree)
    with pytest.raises(Damaged, match="is not of its grid"):
        read_decisions(tmp_path)


def test_status_and_results_say_what_was_dropped(tmp_path):
    study = study_of(**HALVING, **FITTED)
    shelf = store_study(study, tmp_path, loss, leaves=lambda run: run.budget != 0.25)
    _, lines = study_status(study, tmp_path)
    dropped = "learning_rate=0.0005, learning_rate=0.004"
    assert f"trained: round 1 (10 steps): 2 of 4 values get the next budget, dropped: {dropped}" in lines
    rounds = findings_as_json(findings_of(study, shelf))["tuning"]["rounds"]
    assert [(each["arm"], each["round"], each["steps"], each["margin"]) for each in rounds] == [
        (arm, 1, 10, 0.2) for arm in ARMS
    ]
    assert [each["went_on"] for each in rounds[0]["points"]] == [False, True, True, False]
    assert list(strays(planned(study, shelf), shelf)) == []


def test_status_says_how_many_runs_may_follow(tmp_path):
    _, lines = study_status(study_of(**HALVING), tmp_path)
    said = "tuning: round 1 of 2; later rounds have at most 24 runs, which no estimate of time includes"
    assert said in lines


def test_a_study_that_uses_neither_says_nothing_of_them(tmp_path):
    plain, halving = study_of(), study_of(method="halving")
    assert not {"method", "budgets", "margin", "choose"} & set(declared_tree(plain)["tuning"])
    assert not [key for key in tuning_declaration(plain, "trained") if "budgets" in key or "choose" in key]
    assert declared_tree(halving)["tuning"]["budgets"] == [0.25, 1.0]  # also where they are the default
    assert "tuning.margin" in tuning_declaration(halving, "trained")


def test_a_short_run_has_a_whole_schedule():
    """A declared warm-up keeps its share; one that is left to a rule follows the steps."""
    for declared, expected in ((None, None), (8, 2)):
        training = {"steps": 40, "batch_size": 4} | ({} if declared is None else {"warmup_steps": declared})
        study = small_study(base=study_of().base | {"training": training})
        short = settings_for(study, "trained", seed=0, budget=0.25).run.training
        assert (short.steps, short.warmup_steps) == (10, expected)
        assert settings_for(study, "trained", seed=0, budget=20).run.training.steps == 20


@pytest.mark.parametrize(
    ("tuning", "line"),
    [
        ({"budgets": [0.5, 1]}, "tuning.budgets: is for method: halving"),
        (HALVING | {"budgets": [1, 0.5]}, "tuning.budgets: list them in increasing order, each once"),
        (HALVING | {"budgets": [0.5, 20]}, "tuning.budgets: either shares of at most 1, or numbers of steps, not both"),
        (HALVING | {"budgets": [10.5, 20]}, "tuning.budgets: a number of steps is a whole number"),
        (HALVING | {"seeds": [1000]}, "tuning.seeds: halving needs at least two, or a single run that diverges could"),
        (HALVING | {"grid": {"steps": [10, 20]}}, "tuning.grid.training.steps: is what the budgets of halving decide"),
        (
            HALVING | {"budgets": [10, 20], "set": {"steps": 30}},
            "tuning.set.training.steps: the budgets are numbers of steps and would replace it; write them as shares",
        ),
        (HALVING | {"budgets": [0.5, 0.51, 1]}, "tuning.budgets: 0.5 and 0.51 are the same number of steps, 20"),
        (FITTED | {"seeds": [1000, 1001]}, "tuning.seeds: choose: fitted needs at least 3"),
        (
            FITTED | {"grid": {"weight_decay": [0.1, 0.2]}},
            "tuning.choose: fitted needs a grid of",
        ),
    ],
)
def test_what_cannot_be_tuned_so_is_one_line(tuning, line):
    with pytest.raises(UserError) as error:
        study_of(**tuning)
    (only,) = str(error.value).splitlines()
    assert only.startswith(f"small: {line}")


@pytest.mark.parametrize(("own", "name"), [(HALVING, "method: halving"), (FITTED, "choose: fitted")])
def test_solving_a_probe_is_not_what_losses_rank(own, name):
    ranked = {"grid": {"learning_rate": RATES}, "seeds": [1000, 1001, 1002], "rank": "solved", "solved_at": 0.9}
    with pytest.raises(UserError, match=f"tuning.{name} compares losses, and rank: solved does not"):
        small_probes(tuning=ranked | own)


def leaves(tree, path=()):
    if isinstance(tree, dict | list):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from leaves(value, (*path, key))
    else:
        yield path


def test_a_stored_round_or_curve_with_another_value_ends_in_no_traceback(tmp_path):
    """Each number in turn: it is damaged, or it can be read to the end."""
    store_study(study_of(**HALVING, **FITTED), tmp_path, loss, leaves=lambda run: run.stage == "final")
    whole = read_sealed(tmp_path / CHOICES_FILE)
    places = [path for path in leaves(whole) if path[0] == "decisions" and path[2] == "decided" and path[1] in (0, 2)]
    assert {"curve", "points"} <= {path[3] for path in places}
    for path, value in itertools.product(places, (None, -1.0, 1e300)):
        tree = copy.deepcopy(whole)
        inner = tree
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value
        (tmp_path / CHOICES_FILE).write_text(json.dumps(tree | {SEAL: digest_of(tree)}))
        try:
            decisions = read_decisions(tmp_path)
        except Damaged:
            continue
        for decision in decisions:
            if decision.kind == "tuning_round":
                done, _ = round_of(decision)
                assert {*done.kept, *done.dropped} == set(done.losses)
            else:
                assert math.isfinite(choice_of(decision)[0].loss)


def test_a_curve_that_was_stored_with_intervals_of_its_optimum_is_read_as_it_was(tmp_path):
    study = study_of(**FITTED)
    shelf = store_study(study, tmp_path, loss)
    stored = read_sealed(tmp_path / CHOICES_FILE)
    for each in stored["decisions"]:
        each["decided"]["curve"] |= {"low": 1e-3, "high": 2e-3, "convex_low": 1e-3, "convex_high": 2e-3}
    before = planned(study, shelf)
    write_sealed(tmp_path / CHOICES_FILE, {key: stored[key] for key in ("format_version", "decisions")})
    assert planned(study, Shelf(tmp_path)).choices == before.choices
