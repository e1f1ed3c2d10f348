"""Studies whose file does not say how values are chosen: fitted from three seeds, unless they began before that."""

import math

import pytest

from oelm.study.catalogue import PACKAGED
from oelm.study.declaration import declared_tree, study_digest
from oelm.study.plan import planned
from oelm.study.reading import load_study, study_of
from oelm.study.registration import as_it_began, register, registration_of
from oelm.study.shelf import Shelf
from oelm.study.tuning import extended
from stored_runs import VOCABULARY, hypothesis, store_study
from study.test_default_looks import TREE

RATE = "training.learning_rate"
GRID = {"learning_rate": [1e-3, 2e-3, 4e-3]}
BEFORE = {"seeds": [1000], "choose": "lowest"}


def declared(tuning, **changes):
    return study_of(TREE | {"looks": "none", "tuning": tuning} | changes, name="small")


def loss(arm, seed, stage, point):
    return 2.0 + 0.01 * (seed % 7) + 0.3 * math.log(dict(point)[RATE] / 2.3e-3) ** 2


def wanted(study, folder):
    return planned(study, Shelf(folder), facts={"vocabulary": VOCABULARY})


def test_a_grid_of_rates_is_fitted_from_three_seeds():
    tuning = declared({"grid": GRID}).tuning
    assert (tuning.seeds, tuning.choose) == ([1000, 1001, 1002], "fitted")
    assert study_digest(declared({"grid": GRID})) == study_digest(
        declared({"grid": GRID, "seeds": [1000, 1001, 1002], "choose": "fitted", "beyond": 2})
    )


@pytest.mark.parametrize(
    "tuning",
    [
        {"grid": GRID, "seeds": [2000, 2001]},
        {"grid": GRID, "choose": "lowest"},
        {"grid": GRID | {"warmup_steps": [1, 2]}},
    ],
)
def test_where_no_optimum_can_be_fitted_the_lowest_is_taken(tuning):
    assert declared(tuning).tuning.choose == "lowest"


def test_one_seed_and_the_lowest_are_declared_as_they_were_before_there_was_a_choice():
    assert "choose" not in declared_tree(declared({"grid": GRID} | BEFORE))["tuning"]


def test_studies_that_come_with_oelm_say_what_their_findings_were_made_with():
    files = list(PACKAGED.glob("*.yaml"))
    assert len(files) > 10
    for file in files:
        name, study = file.stem, load_study(file)
        assert study.tuning is None or "seeds" not in study.default_tuning, name
        assert study.tuning is None or (study.tuning.choose == "fitted") == (name == "tinystories_scale"), name
        assert study.tuning is None or "beyond" not in declared_tree(study)["tuning"], name


def test_a_file_that_states_how_values_are_chosen_says_all_of_it():
    """It may have been registered, and its runs may have begun."""
    stated = declared({"grid": GRID, "seeds": [1000, 1001, 1002], "choose": "fitted"})
    assert stated.tuning.beyond == 1
    assert "beyond" not in declared_tree(stated)["tuning"]
    halving = declared({"grid": GRID, "method": "halving"}).tuning
    assert (halving.seeds, halving.choose, halving.beyond) == ([1000, 1001, 1002], "fitted", 1)


# ---- Studies that began before -------------------------------------------------------------------------------------


def test_a_study_that_was_registered_with_one_seed_keeps_it(tmp_path):
    before = declared({"grid": GRID} | BEFORE)
    register(before, tmp_path)
    store_study(before, tmp_path, loss)
    study = as_it_began(declared({"grid": GRID}), tmp_path)
    assert study_digest(study) == study_digest(before)
    assert registration_of(study, Shelf(tmp_path)).changes == ()
    assert registration_of(declared({"grid": GRID}), Shelf(tmp_path)).changes


@pytest.mark.parametrize("stores_choices", [True, False])
def test_a_study_that_was_never_registered_goes_by_its_choices_or_its_final_runs(tmp_path, stores_choices):
    before = declared({"grid": GRID} | BEFORE)
    store_study(before, tmp_path, loss, stores_choices=stores_choices)
    study = as_it_began(declared({"grid": GRID}), tmp_path)
    assert study_digest(study) == study_digest(before)
    assert wanted(study, tmp_path).is_done


def test_what_it_was_chosen_from_stays_where_no_final_run_has_started(tmp_path):
    before = declared({"grid": GRID, "seeds": [1000, 1001], "choose": "lowest"})
    store_study(
        before, tmp_path, lambda arm, seed, stage, point: None if stage == "final" else loss(arm, seed, stage, point)
    )
    assert as_it_began(declared({"grid": GRID}), tmp_path).tuning.seeds == [1000, 1001]


def test_a_study_that_began_fitted_stays_so(tmp_path):
    study = declared({"grid": GRID})
    store_study(study, tmp_path, loss)
    assert as_it_began(declared({"grid": GRID}), tmp_path).tuning == study.tuning
    register(study, tmp_path)
    assert as_it_began(declared({"grid": GRID}), tmp_path).tuning == study.tuning


def test_what_a_file_states_is_never_taken_back(tmp_path):
    register(declared({"grid": GRID} | BEFORE), tmp_path)
    stated = {"grid": GRID, "seeds": [2000, 2001, 2002], "choose": "fitted"}
    assert as_it_began(declared(stated), tmp_path).tuning.seeds == [2000, 2001, 2002]


# ---- The grid ------------------------------------------------------------------------------------------------------


def grown(study, best):
    grid = {key: list(values) for key, values in study.tuning.grid.items()}
    while (larger := extended(study.tuning, grid, [((RATE, best),)])) != grid:
        grid = larger
    return grid[RATE]


def test_a_fitted_optimum_has_two_values_on_each_side():
    """As far as the study lets its grid grow."""
    fitted, lowest = declared({"grid": GRID}), declared({"grid": GRID, "choose": "lowest"})
    assert grown(fitted, 2e-3) == [5e-4, 1e-3, 2e-3, 4e-3, 8e-3]
    assert grown(fitted, 1e-3) == [2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3]
    assert grown(lowest, 2e-3) == [1e-3, 2e-3, 4e-3]
    assert grown(declared({"grid": GRID, "extend": 0}), 2e-3) == [1e-3, 2e-3, 4e-3]


def test_all_arms_get_the_values_that_one_of_them_needs(tmp_path):
    study = declared({"grid": GRID}, hypotheses=[hypothesis()], seeds=[0, 1])
    plan = planned(study, store_study(study, tmp_path, loss))
    assert {len({run.point for run in plan.tuning if run.arm == arm}) for arm in study.arms} == {5}
    assert plan.is_done
