"""Tuning by solving: which point is best, that the grid grows by it, and that a choice is kept as any other is."""

import json
import math

import pytest

from oelm.analysis.summary import findings_as_json, findings_of
from oelm.show.probes import tuning_table
from oelm.storage.files import read_sealed
from oelm.study.decisions import CHOICES_FILE, read_decisions, tuning_declaration
from oelm.study.declaration import Tuning
from oelm.study.plan import planned
from oelm.study.shelf import Shelf
from oelm.study.tuning import Solving, Tried, chosen
from stored_runs import probe_curve, small_probes, small_study, store_study

RATE = "training.learning_rate"
RATES = [1e-3, 2e-3, 4e-3]
GRID = {RATE: RATES}


def point(rate):
    return ((RATE, rate),)


def best(*tried, by_solving=True):
    """Of the three points of the grid, each with its seeds."""
    points = {point(rate): list(runs) for rate, runs in zip(RATES, tried, strict=True)}
    ranked = {"rank": "solved", "solved_at": 0.9} if by_solving else {}
    return chosen("trained", points, GRID, Tuning(grid=GRID, **ranked)).values.get(RATE)


def solves(steps, loss=1.0):
    return Tried(loss, solved=True, steps=steps)


def fails(loss=1.0):
    return Tried(loss, solved=False, steps=200)


@pytest.mark.parametrize(
    ("tried", "expected"),
    [
        (([solves(190), solves(190)], [solves(10), fails()], [fails(), fails()]), 1e-3),  # more seeds first
        (([solves(90), fails()], [solves(80), fails()], [fails(), fails()]), 2e-3),  # then fewer steps
        (([solves(90, 2.0)], [solves(90, 1.0)], [solves(90, 3.0)]), 2e-3),  # then the loss
        (([fails(2.0)], [fails(3.0)], [fails(1.0)]), 4e-3),
        (([solves(90)], [solves(90)], [solves(90)]), 1e-3),  # of equal ones the smallest
        (([solves(90), fails(math.inf)], [fails(), fails()], [fails(), fails()]), 1e-3),  # one diverged, one solves it
        (([fails(math.inf)], [fails(5.0)], [fails(math.inf)]), 2e-3),
        (([fails(math.inf)], [fails(math.inf)], [fails(math.inf)]), None),
    ],
)
def test_points_are_ranked_by_seeds_that_solve_then_steps_then_loss(tried, expected):
    assert best(*tried) == expected


def test_by_loss_nothing_else_counts():
    assert best([solves(10, 2.0)], [fails(1.0)], [solves(10, 3.0)], by_solving=False) == 2e-3


# ---- In a study ----------------------------------------------------------------------------------------------------


def study_of(**changes):
    tuning = {"grid": {"learning_rate": RATES}, "seeds": [1000, 1001], "rank": "solved", "solved_at": 0.9}
    return small_probes(**{"seeds": [0, 1], "tuning": tuning | changes.pop("tuning", {})} | changes)


def solved_by(wanted):
    """Sooner at larger rates, up to the one from which no seed solves it."""

    def step(arm, seed, stage, at):
        rate = dict(at)[RATE]
        return None if rate > wanted else round(0.05 / rate)

    return step


def stored(folder, wanted=2e-3, **changes):
    """Losses are least at the smallest rate, so that ranking by them would choose it."""
    study = study_of(**changes)
    loss = lambda arm, seed, stage, at: 1.0 + dict(at)[RATE]  # noqa: E731
    return study, store_study(study, folder, loss, measured=probe_curve(solved_by(wanted)))


def test_a_study_takes_the_point_that_solves_it(tmp_path):
    study, shelf = stored(tmp_path)
    plan = planned(study, shelf)
    assert {choice.values[RATE] for choice in plan.choices.values()} == {2e-3}
    assert plan.choices["trained"].solving == {
        point(1e-3): Solving(1.0, 50), point(2e-3): Solving(1.0, 30), point(4e-3): Solving(0.0, 200),
    }  # fmt: skip
    by_loss = study_of(tuning={"rank": "loss", "solved_at": None})
    (tmp_path / CHOICES_FILE).unlink()
    assert {choice.values[RATE] for choice in planned(by_loss, Shelf(tmp_path)).choices.values()} <= {1e-3}


def test_the_grid_grows_where_the_point_that_solves_it_lies(tmp_path):
    study, shelf = stored(tmp_path, wanted=8e-3)
    plan = planned(study, shelf)
    assert plan.grid == {RATE: [*RATES, 8e-3, 16e-3]}
    assert plan.choices["trained"].values == {RATE: 8e-3}


def test_a_stored_choice_keeps_how_it_was_ranked(tmp_path):
    study, shelf = stored(tmp_path)
    plan = planned(study, shelf)
    assert (plan.remarks, plan.blocked) == ((), None)
    (decision, _) = read_decisions(tmp_path)
    assert decision.declaration["tuning.rank"] == "solved"
    assert decision.decided["losses"][1] == {"values": {RATE: 2e-3}, "loss": 1.002, "solved": 1.0, "steps": 30.0}
    (tmp_path / CHOICES_FILE).unlink()
    computed = planned(study, Shelf(tmp_path))
    for arm, choice in plan.choices.items():
        again = computed.choices[arm]
        assert (choice.best, choice.solving, choice.edges) == (again.best, again.solving, again.edges)


def test_another_rank_is_another_declaration(tmp_path):
    _, shelf = stored(tmp_path)
    plan = planned(study_of(tuning={"solved_at": 0.5}), shelf)
    assert "tuning.solved_at 0.9, now 0.5" in plan.blocked


def test_by_loss_everything_is_stored_as_before(tmp_path):
    study = small_study(seeds=[0], arms=["trained"], tuning={"grid": {"learning_rate": RATES}})
    store_study(study, tmp_path, lambda arm, seed, stage, at: 1.0 + abs(dict(at)[RATE] - 2e-3))
    assert not {"tuning.rank", "tuning.solved_at"} & tuning_declaration(study, "trained").keys()
    (stored,) = read_sealed(tmp_path / CHOICES_FILE)["decisions"]
    assert all(each.keys() == {"values", "loss"} for each in stored["decided"]["losses"])


def test_the_report_shows_the_grid_by_solving(tmp_path):
    study, shelf = stored(tmp_path)
    findings = findings_of(study, shelf)
    rows = tuning_table(findings, "en").rows
    assert rows[1] == ["trained", "learning_rate=0.002 *", "100 %", "30", "1.0020"]
    assert rows[2] == ["trained", "learning_rate=0.004", "0 %", "200", "1.0040"]
    points = json.loads(json.dumps(findings_as_json(findings)))["tuning"]["arms"]["trained"]["points"]
    assert points[1] == {"values": {RATE: 2e-3}, "val_loss": 1.002, "solved": 1.0, "steps": 30.0}
