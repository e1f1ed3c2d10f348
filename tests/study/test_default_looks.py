"""Studies whose file says nothing of looks: those that begin now have some, those that began without keep none."""

import pytest

from oelm.analysis.summary import findings_of
from oelm.machine.errors import UserError
from oelm.study.claims.kinds import LEAST_PAIRS
from oelm.study.declaration import declared_tree, study_digest
from oelm.study.reading import study_of
from oelm.study.registration import as_it_began, register, registration_of
from oelm.study.shelf import Shelf
from stored_runs import COMPARED_ARMS, hypothesis, solving_claim, store_study
from study.test_departures import store_runs

MODEL = {"seq_len": 16, "d_model": 32, "num_layers": 2, "num_heads": 4}
TREE = {
    "name": "small",
    "question": "Does it hold?",
    "base": {"model": MODEL, "training": {"steps": 40, "batch_size": 4, "learning_rate": 1e-3}, "data": "data/small"},
    "arms": COMPARED_ARMS,
    "seeds": list(range(8)),
    "hypotheses": [hypothesis()],
}
GRID = {"grid": {"learning_rate": [1e-3, 2e-3]}, "extend": 0}


def declared(**changes):
    return study_of(TREE | changes, name="small")


@pytest.mark.parametrize(
    ("seeds", "looks"),
    [(3, []), (4, []), (5, [3, 4, 5]), (6, [3, 5, 6]), (7, [4, 6, 7]), (8, [4, 6, 8]), (12, [6, 9, 12])],
)
def test_looks_are_at_a_half_three_quarters_and_all_seeds_where_a_half_can_be_tested(seeds, looks):
    assert declared(seeds=list(range(seeds))).looks == looks
    assert all(look >= LEAST_PAIRS for look in looks)


def test_a_file_may_say_that_there_is_one_look_or_none():
    assert declared(looks="none").looks == []
    assert declared(looks=[8]).looks == [8]
    assert not declared(looks="none").has_default_looks
    with pytest.raises(UserError, match="looks"):
        declared(looks="some")


def test_studies_without_claims_of_differences_have_none():
    assert declared(hypotheses=[]).looks == []
    assert declared(hypotheses=[hypothesis("fewer_parameters")]).looks == []
    probe = {"model": MODEL | {"seq_len": 32}, "training": {"steps": 40}, "data": "probe:recall?pairs=4,8&length=32"}
    assert declared(base=probe, hypotheses=[solving_claim()]).looks == []


def test_no_looks_are_declared_as_they_were_before_there_were_any():
    assert "looks" not in declared_tree(declared(looks="none"))
    assert declared_tree(declared())["looks"] == [4, 6, 8]
    assert study_digest(declared()) == study_digest(declared(looks=[4, 6, 8]))


def outcomes(study, folder):
    return [
        (each.outcome, each.p, each.difference.low, dict(each.reservations))
        for each in findings_of(study, Shelf(folder)).verdicts
    ]


def test_a_study_that_was_registered_without_looks_keeps_its_numbers(tmp_path):
    register(declared(looks="none"), tmp_path)
    store_runs(tmp_path, declared(looks="none"))
    study = as_it_began(declared(), tmp_path)
    assert study.looks == []
    assert registration_of(study, Shelf(tmp_path)).changes == ()
    assert outcomes(study, tmp_path) == outcomes(declared(looks="none"), tmp_path)
    assert not outcomes(study, tmp_path)[0][-1]
    assert "changed" in outcomes(declared(), tmp_path)[0][-1]
    assert as_it_began(declared(looks=[4, 6, 8]), tmp_path).looks == [4, 6, 8]  # as its file says


def test_a_half_finished_study_of_before_that_was_never_registered_goes_on_without_looks(tmp_path):
    store_study(declared(looks="none"), tmp_path, lambda arm, seed, *rest: None if seed > 2 else 2.0 + 0.01 * seed)
    assert as_it_began(declared(), tmp_path).looks == []
    assert register(as_it_began(declared(), tmp_path), tmp_path, made_by="run")
    assert as_it_began(declared(), tmp_path).looks == []


def test_a_study_that_began_with_its_default_looks_keeps_them_and_says_if_more_seeds_change_them(tmp_path):
    register(declared(), tmp_path)
    store_runs(tmp_path, declared())
    study = as_it_began(declared(), tmp_path)
    assert study.looks == [4, 6, 8]
    assert not outcomes(study, tmp_path)[0][-1]
    more = as_it_began(declared(seeds=list(range(12))), tmp_path)
    assert {key for key, *_ in registration_of(more, Shelf(tmp_path)).changes} == {"seeds", "looks"}


def test_a_study_that_has_only_tuned_has_not_begun(tmp_path):
    study = declared(tuning=GRID)
    store_study(study, tmp_path, lambda arm, seed, stage, point: None if stage == "final" else 2.0)
    for file in tmp_path.rglob("experiment_result.json"):
        assert "tuning" in str(file)
    for begun in (as_it_began(study, tmp_path / "nothing"), as_it_began(study, tmp_path)):
        assert (begun.looks, begun.tuning) == ([4, 6, 8], study.tuning)
