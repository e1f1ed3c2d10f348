"""Finished runs that a study, since its file was edited, has no place for."""

import json
import math
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from oelm.analysis.summary import findings_of
from oelm.execution.status import study_status
from oelm.study.decisions import CHOICES_FILE
from oelm.study.doubts import strays
from oelm.study.plan import planned
from oelm.study.remarks import sentence
from oelm.study.shelf import Shelf
from stored_runs import DATA_DIGEST, VOCABULARY, small_study, store_finished, store_study

ARMS = ["trained", "frozen_head_orthogonal"]
GRID = {"grid": {"learning_rate": [1e-3, 2e-3, 4e-3]}}


def study_of(*, steps: int = 60, training=None, **changes):
    base = small_study().base
    tree = {"arms": ARMS, "seeds": [0, 1], "base": base | {"training": base["training"] | {"steps": steps}}}
    tree["base"]["training"] |= training or {}
    return small_study(**tree | changes)


def loss(arm, seed, stage, point):
    return 2.0 + 0.01 * seed + sum(abs(math.log(value / 2e-3)) for _, value in point)


@pytest.fixture(scope="module")
def untuned(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("untuned")
    store_study(study_of(), folder, loss)
    return folder


@pytest.fixture(scope="module")
def tuned(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    store_study(study_of(tuning=GRID), folder, loss)
    return folder


def said(folder: Path, study, **given) -> list[str]:
    shelf = Shelf(folder)
    plan = planned(study, shelf, facts={"vocabulary": VOCABULARY}, **given)
    return [sentence(*remark) for remark in strays(plan, shelf)]


def test_nothing_is_said_of_runs_that_have_their_place(untuned, tuned):
    assert said(untuned, study_of()) == []
    assert said(tuned, study_of(tuning=GRID)) == []


def test_a_value_that_follows_from_others_is_named_where_it_alone_differs(tmp_path):
    store_study(study_of(training={"warmup_steps": 3}), tmp_path, loss)
    assert said(tmp_path, study_of()) == [
        "4 finished runs here belong to another config: training.warmup_steps 3, now 6"
    ]


OTHER_GAIN = {"trained": {}, "frozen_head_orthogonal": {"set": {"model.parts.query.gain": 2.0}}}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"steps": 2000}, "4 finished runs here belong to another config: training.steps 60, now 2000"),
        ({"arms": ARMS[:1]}, f"2 finished runs here belong to arms that the study does not have: {ARMS[1]}"),
        ({"seeds": [1, 2]}, "2 finished runs here are of seeds that the study does not have: 0"),
        ({"arms": OTHER_GAIN}, "2 finished runs here belong to another config: model.parts.query.gain 1, now 2"),
        ({"arms": {"ours": {"arm": "gpt_base"}, "theirs": {"arm": ARMS[1]}}}, None),  # renamed
        ({"base": study_of().base | {"data": "another/place"}}, None),
    ],
)
def test_what_differs_is_named_without_what_follows_from_it(untuned, changes, line):
    assert said(untuned, study_of(**changes)) == ([] if line is None else [line])


def test_one_run_is_one_run(tmp_path):
    store_study(study_of(arms=ARMS[:1], seeds=[0]), tmp_path, loss)
    for changes, expected in (
        ({"steps": 2000}, "1 finished run here belongs to another config: training.steps 60, now 2000"),
        ({"arms": ARMS[1:]}, "1 finished run here belongs to an arm that the study does not have: trained"),
        ({"seeds": [7]}, "1 finished run here is of a seed that the study does not have: 0"),
    ):
        assert said(tmp_path, study_of(**{"arms": ARMS[:1], "seeds": [0]} | changes)) == [expected]


def test_several_kinds_are_counted_in_one_line(untuned, tmp_path):
    folder = shutil.copytree(untuned, tmp_path / "runs")
    store_study(study_of(seeds=[0], training={"weight_decay": 0.2}), folder, loss)
    assert said(folder, study_of(steps=2000)) == [
        "6 finished runs here belong to another config: training.steps 60, now 2000 (4); training.steps 60, now 2000; "
        "training.weight_decay 0.2, now 0.1 (2)"
    ]


def test_a_second_copy_of_a_run_is_no_stray(untuned, tmp_path):
    folder = shutil.copytree(untuned, tmp_path / "runs")
    run = planned(study_of(), Shelf(folder)).final[0]
    store_finished(run, folder, 2.0, name="a copy")
    assert said(folder, study_of()) == []


def test_two_runs_of_one_computation_with_different_numbers_are_named(untuned, tmp_path):
    """By name alone one of them counts: nobody may be able to choose a number by renaming a folder in silence."""
    folder = shutil.copytree(untuned, tmp_path / "runs")
    run = planned(study_of(), Shelf(folder)).final[0]
    store_finished(run, folder, 2.125, name="another")
    line = (
        "Finished runs of one computation report different numbers, and of each pair only the first counts: "
        f"another (val_loss 2.125), {run.stored.name} (val_loss 2); move the one that should not count elsewhere"
    )
    assert said(folder, study_of()) == [line]
    assert line in study_status(study_of(), folder)[1]
    assert "unlike_copies" in dict(findings_of(study_of(), Shelf(folder)).notes)


def test_runs_of_other_data_are_named_where_the_data_is_known(untuned):
    assert said(untuned, study_of(), data_digest=DATA_DIGEST) == []
    assert said(untuned, study_of(), data_digest="e" * 64) == [
        "4 finished runs here were made from other data, and do not count: digest dddddddddddd, not eeeeeeeeeeee"
    ]
    assert said(untuned, study_of(steps=2000), data_digest="e" * 64) == [
        "4 finished runs here belong to another config: training.steps 60, now 2000; data digest dddddddddddd, now "
        "eeeeeeeeeeee"
    ]


def test_a_run_of_other_data_is_no_copy_of_one_that_has_its_place(untuned, tmp_path):
    folder = shutil.copytree(untuned, tmp_path / "runs")
    run = planned(study_of(), Shelf(folder)).final[0]
    store_finished(run, folder, 2.0, environment={"data_digest": "e" * 64})
    line = "1 finished run here was made from other data, and does not count: digest eeeeeeeeeeee, not dddddddddddd"
    assert said(folder, study_of()) == [line]
    assert line in study_status(study_of(), folder)[1]
    facts = {"runs": 1, "digests": "e" * 12, "counted": "d" * 12}
    assert ("other_data", facts) in findings_of(study_of(), Shelf(folder)).notes


def test_unfinished_runs_are_not_spoken_of(untuned, tmp_path):
    folder = shutil.copytree(untuned, tmp_path / "runs")
    for file in folder.rglob("status.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"state": "failed"}))
        (file.parent / "experiment_result.json").unlink()
    assert said(folder, study_of(steps=2000)) == []


# ---- The grid ------------------------------------------------------------------------------------------------------


def test_a_point_that_the_grid_no_longer_has_is_told_as_that(tuned, tmp_path):
    folder = shutil.copytree(tuned, tmp_path / "runs")
    (folder / CHOICES_FILE).unlink()
    smaller = {"grid": {"learning_rate": [1.5e-3, 2e-3, 4e-3]}, "extend": 0}
    store_study(study_of(tuning=smaller), folder, loss)
    assert said(folder, study_of(tuning=smaller)) == [
        "2 finished tuning runs here are of points that the grid does not have, and no choice uses them: "
        "learning_rate=0.001"
    ]


def test_points_of_an_extension_are_no_strays_while_the_choice_is_open(tmp_path):
    study = study_of(tuning=GRID)
    store_study(study, tmp_path, lambda arm, seed, stage, point: 1 + sum(value for _, value in point))
    assert said(tmp_path, study) == []
    (tmp_path / CHOICES_FILE).unlink()
    shutil.rmtree(next(path for path in (tmp_path / "tuning").iterdir() if _rate(path) == 1e-3))
    assert said(tmp_path, study) == [
        "4 finished final runs here do not count: their values (learning_rate=0.00025) were not chosen by the tuning "
        "runs that are here, and no stored choice names them"
    ]


def _rate(path: Path) -> float:
    return json.loads((path / "config.json").read_text())["training"]["learning_rate"]


def test_final_runs_of_another_choice_are_named_with_it(tuned, tmp_path):
    folder = shutil.copytree(tuned, tmp_path / "runs")
    (folder / CHOICES_FILE).unlink()
    other = {"grid": {"learning_rate": [1e-3, 4e-3]}, "extend": 0}
    found = said(folder, study_of(tuning=other))
    assert "4 finished runs here belong to another config: training.learning_rate 0.002, now 0.001" in found


def test_a_study_that_is_no_longer_tuned_names_its_tuning_runs(tuned):
    assert "training.validation_split tune, now val" in said(tuned, study_of())[0]


# ---- Where it is said ----------------------------------------------------------------------------------------------


def test_a_thousand_strays_take_moments(untuned, tmp_path):
    template = next(untuned.glob("*/config.json")).parent
    for number in range(1000):
        (tmp_path / str(number)).symlink_to(template)
    study, shelf = study_of(steps=2000), Shelf(tmp_path)
    plan = planned(study, shelf)
    began = time.process_time()
    assert strays(plan, shelf)[0][1]["runs"] == 1000
    assert time.process_time() - began < 5


def test_a_run_of_a_further_draw_is_one_of_another_seed(untuned, tmp_path):
    """Studies of earlier versions could draw what an arm treats several times for a seed."""
    shutil.copytree(untuned, tmp_path, dirs_exist_ok=True)
    run = next(
        each for each in planned(study_of(), Shelf(tmp_path), facts={"vocabulary": VOCABULARY}).final if each.seed
    )
    seeds = run.run.seeds.model_copy(update={"projections": 7601789048142156})
    settings = run.settings.model_copy(update={"run": run.run.model_copy(update={"seeds": seeds})})
    store_finished(replace(run, settings=settings, stored=None), tmp_path, 2.0)
    assert said(tmp_path, study_of()) == [
        "1 finished run here is of a seed that the study does not have: 7601789048142156"
    ]
