"""What a study wants to be run, given what is there."""

import json
import math
from pathlib import Path

import pytest

from oelm.core.config import fingerprint
from oelm.storage.files import write_json
from oelm.study.doubts import lines_on
from oelm.study.plan import planned
from oelm.study.shelf import Shelf
from stored_runs import DATA_DIGEST, VOCABULARY, sealed_again, small_study, store_finished, store_study

ARMS = ["trained", "frozen_head_orthogonal", "frozen_normal"]
RATE = "training.learning_rate"
GRID = {"grid": {"learning_rate": [1e-3, 2e-3, 4e-3]}}


def with_optimum(best: dict[str, float] | float):
    """A loss that is least where the arm's learning rate is the given one."""

    def loss(arm, seed, stage, point):
        wanted = best if isinstance(best, float) else best.get(arm, 2e-3)
        return 2.0 + 0.01 * seed + sum(abs(math.log(value / wanted)) for _, value in point)

    return loss


def wanted(study, folder=Path("nowhere")):
    return planned(study, Shelf(folder), facts={"vocabulary": VOCABULARY})


def test_without_a_grid_every_arm_runs_every_seed():
    plan = wanted(small_study(arms=ARMS, seeds=[5, 6]))
    assert [(run.seed, run.arm) for run in plan.final] == [(seed, arm) for seed in (5, 6) for arm in ARMS]
    assert plan.tuning == []
    assert plan.is_tuned
    assert plan.expected_final_runs == 6
    assert {run.state for run in plan.runs} == {"missing"}


def test_the_three_seeds_of_a_run_are_the_studys():
    for run in wanted(small_study(seeds=[3, 4])).final:
        assert set(run.run.seeds.model_dump().values()) == {run.seed}


def test_every_arm_is_tuned_on_the_same_points_before_any_seed_runs():
    plan = wanted(small_study(arms=ARMS, tuning=GRID | {"set": {"steps": 10}, "seeds": [7, 8]}))
    assert plan.final == []
    assert not plan.is_tuned
    assert len(plan.tuning) == 3 * 3 * 2
    for arm in ARMS:
        points = {(run.seed, *run.point) for run in plan.tuning if run.arm == arm}
        assert points == {(seed, (RATE, rate)) for seed in (7, 8) for rate in (1e-3, 2e-3, 4e-3)}
    assert {run.run.training.steps for run in plan.tuning} == {10}
    assert {run.run.training.validation_split for run in plan.tuning} == {"tune"}


def test_no_seed_runs_while_one_tuning_run_is_missing(tmp_path):
    study = small_study(arms=ARMS, tuning=GRID)

    def loss(arm, seed, stage, point):
        return None if arm == "frozen_normal" and point[0][1] == 4e-3 else 2.0

    assert planned(study, store_study(study, tmp_path, loss)).final == []


def test_the_chosen_value_of_each_arm_is_used_for_its_seeds(tmp_path):
    study = small_study(arms=ARMS, tuning={"grid": {"learning_rate": [1e-3, 2e-3, 4e-3, 8e-3]}})
    best = {"trained": 2e-3, "frozen_head_orthogonal": 4e-3}
    plan = planned(study, store_study(study, tmp_path, with_optimum(best)))
    assert {run.arm: run.run.training.learning_rate for run in plan.final} == best | {"frozen_normal": 2e-3}
    assert {run.run.training.validation_split for run in plan.final} == {"val"}
    assert all(choice.edges == () for choice in plan.choices.values())


@pytest.mark.parametrize(
    ("best", "grid"),
    [
        (5e-4, [2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3]),
        (8e-3, [1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2]),
    ],
)
def test_an_optimum_of_one_arm_at_an_edge_adds_points_for_all(tmp_path, best, grid):
    study = small_study(arms=ARMS, tuning=GRID)
    plan = planned(study, store_study(study, tmp_path, with_optimum({"frozen_normal": best})))
    assert plan.grid[RATE] == pytest.approx(grid)
    assert plan.choices["frozen_normal"].values == {RATE: pytest.approx(best)}
    for arm in ARMS:
        assert [rate for point in sorted(plan.choices[arm].losses) for _, rate in point] == pytest.approx(grid)


def test_the_grid_is_extended_so_often_and_then_the_edge_is_said(tmp_path):
    study = small_study(arms=ARMS, tuning=GRID | {"extend": 1})
    plan = planned(study, store_study(study, tmp_path, with_optimum({"trained": 1e-9})))
    assert plan.grid[RATE] == pytest.approx([5e-4, 1e-3, 2e-3, 4e-3])
    assert plan.choices["trained"].edges == (RATE,)
    assert plan.choices["frozen_normal"].edges == ()


def test_a_grid_is_not_extended_to_what_no_run_can_have(tmp_path):
    study = small_study(arms=ARMS[:1], tuning={"grid": {"warmup_steps": [10, 20]}, "extend": 3})
    plan = planned(study, store_study(study, tmp_path, lambda arm, seed, stage, point: 99.0 - sum(v for _, v in point)))
    assert plan.grid == {"training.warmup_steps": [10, 20, 40]}  # of 40 steps
    assert plan.choices[ARMS[0]].edges == ("training.warmup_steps",)
    assert plan.final


def test_a_whole_number_stays_whole_when_its_grid_is_extended(tmp_path):
    study = small_study(arms=ARMS[:1], tuning={"grid": {"warmup_steps": [0, 2, 4]}, "extend": 1})

    def loss(arm, seed, stage, point):
        return 2.0 - 0.01 * dict(point)["training.warmup_steps"]

    plan = planned(study, store_study(study, tmp_path, loss))
    assert plan.grid["training.warmup_steps"] == [0, 2, 4, 8]
    assert {run.run.training.warmup_steps for run in plan.final} == {8}


def test_two_keys_are_tuned_on_every_combination(tmp_path):
    study = small_study(
        arms=ARMS[:1], tuning={"grid": {"learning_rate": [1e-3, 2e-3], "warmup_steps": [2, 4]}, "extend": 0}
    )
    plan = planned(study, store_study(study, tmp_path, with_optimum(2e-3)))
    assert len(plan.tuning) == 4
    assert set(plan.choices["trained"].edges) == {RATE, "training.warmup_steps"}


def test_a_diverged_point_is_not_chosen_and_not_planned_anew(tmp_path):
    study = small_study(arms=ARMS[:1], tuning=GRID)

    def loss(arm, seed, stage, point):
        return math.inf if point[0][1] > 3e-3 else 2.0 + abs(point[0][1] - 2e-3)

    plan = planned(study, store_study(study, tmp_path, loss))
    assert plan.choices["trained"].values == {RATE: 2e-3}
    assert "diverged" in {run.state for run in plan.tuning}
    assert "missing" not in {run.state for run in plan.runs}


def test_an_arm_that_diverges_everywhere_gets_no_seeds_and_stops_no_other(tmp_path):
    study = small_study(arms=ARMS, tuning=GRID | {"extend": 0})

    def loss(arm, seed, stage, point):
        return math.inf if arm == "frozen_normal" else 2.0

    plan = planned(study, store_study(study, tmp_path, loss))
    assert plan.choices["frozen_normal"].best is None
    assert plan.by_arm["frozen_normal"] == []
    assert len(plan.by_arm["trained"]) == 5


def test_a_point_is_judged_by_all_its_tuning_seeds(tmp_path):
    study = small_study(arms=ARMS[:1], tuning=GRID | {"seeds": [101, 102], "extend": 0})

    def loss(arm, seed, stage, point):
        lucky = (seed, point[0][1]) == (101, 4e-3)
        return 1.0 if lucky else 2.0 if point[0][1] == 2e-3 else 4.0

    assert planned(study, store_study(study, tmp_path, loss)).choices["trained"].values == {RATE: 2e-3}


# ---- What is there counts ------------------------------------------------------------------------------------------


def test_a_finished_study_is_not_planned_anew(tmp_path):
    study = small_study(arms=ARMS, tuning=GRID)
    shelf = store_study(study, tmp_path, with_optimum(5e-4))
    plan = planned(study, shelf)
    assert {run.state for run in plan.runs} == {"finished"}
    assert len({run.stored.name for run in plan.runs}) == len(plan.runs) == len(shelf.runs)


def test_the_plan_does_not_depend_on_what_folders_are_called(tmp_path):
    study = small_study(arms=ARMS, tuning=GRID)
    plan = planned(study, store_study(study, tmp_path, with_optimum(2e-3)))
    before = [(run.title, run.loss) for run in plan.runs]
    for number, path in enumerate(sorted(tmp_path.rglob("config.json"), reverse=True)):
        path.parent.rename(path.parent.with_name(f"brought from elsewhere {number}"))
    after = planned(study, Shelf(tmp_path))
    assert {run.state for run in after.runs} == {"finished"}
    assert [(run.title, run.loss) for run in after.runs] == before


def test_other_data_is_another_run(tmp_path):
    study = small_study(arms=ARMS)
    shelf = store_study(study, tmp_path, with_optimum(2e-3))
    assert {run.state for run in planned(study, shelf, data_digest=DATA_DIGEST).runs} == {"finished"}
    assert {run.state for run in planned(study, shelf, data_digest="another").runs} == {"missing"}


# ---- Runs of several data ------------------------------------------------------------------------------------------

NEW, OLD = "e" * 64, "d" * 64
LATER, EARLIER = "2026-02-02T00:00:00+00:00", "2026-01-01T00:00:00+00:00"


def prepared_with(folder: Path, digest: str) -> Path:
    """As far as a manifest goes: no token file is looked at."""
    folder.mkdir(exist_ok=True)
    write_json(folder / "manifest.json", {"format_version": 1, "digest": digest})
    return folder


def store_from(digest: str, study, folder: Path, *, seeds, loss: float = 2.0, started: str = LATER, **changes) -> None:
    for run in planned(study, Shelf(folder), facts={"vocabulary": VOCABULARY}).final:
        if run.seed in seeds:
            path = store_finished(run, folder, loss, environment={"data_digest": digest}, **changes)
            status = json.loads((path / "status.json").read_text()) | {"started": started}
            write_json(path / "status.json", status)
            sealed_again(path)


def digests_of(plan) -> dict[int, str | None]:
    return {run.seed: run.stored.data_digest if run.stored else None for run in plan.final}


@pytest.fixture
def mixed(tmp_path):
    """Two seeds made from data that were prepared again since, then all four."""
    study = small_study(
        arms=["trained"], seeds=[0, 1, 2, 3], base=small_study().base | {"data": str(tmp_path / "data")}
    )
    folder = tmp_path / "runs"
    store_from(OLD, study, folder, seeds=(1, 2), loss=1.0, started=EARLIER)
    store_from(NEW, study, folder, seeds=(0, 1, 2, 3))
    return study, folder


def test_only_runs_of_the_data_that_are_here_count(mixed, tmp_path):
    study, folder = mixed
    prepared_with(tmp_path / "data", NEW)
    assert digests_of(planned(study, Shelf(folder))) == dict.fromkeys(range(4), NEW)
    prepared_with(tmp_path / "data", OLD)
    assert digests_of(planned(study, Shelf(folder))) == {0: None, 1: OLD, 2: OLD, 3: None}
    prepared_with(tmp_path / "data", "f" * 64)
    assert digests_of(planned(study, Shelf(folder))) == dict.fromkeys(range(4))


def test_of_data_that_are_not_here_those_count_that_most_runs_share(mixed):
    study, folder = mixed
    assert digests_of(planned(study, Shelf(folder))) == dict.fromkeys(range(4), NEW)
    assert "2 finished runs here were made from other data" in "".join(
        lines_on(planned(study, Shelf(folder)), Shelf(folder))
    )
    two = study.model_copy(update={"seeds": [1, 2]})
    assert digests_of(planned(two, Shelf(folder))) == {1: NEW, 2: NEW}  # as many of either: the later ones


def test_a_damaged_manifest_is_no_data(mixed, tmp_path):
    study, folder = mixed
    (prepared_with(tmp_path / "data", OLD) / "manifest.json").write_text("{")
    assert digests_of(planned(study, Shelf(folder))) == dict.fromkeys(range(4), NEW)


def test_data_of_another_vocabulary_make_other_runs_of_the_same_study(tmp_path):
    """What the data say of the model is taken from runs of the same data."""
    study = small_study(arms=["trained"], seeds=[0, 1, 2])
    for vocabulary, digest, seeds in ((VOCABULARY, OLD, (0,)), (VOCABULARY * 2, NEW, (1, 2))):
        for run in planned(study, Shelf(tmp_path / "none"), facts={"vocabulary": vocabulary}).final:
            if run.seed in seeds:
                store_finished(run, tmp_path, 2.0, environment={"data_digest": digest})
    assert digests_of(planned(study, Shelf(tmp_path))) == {0: None, 1: NEW, 2: NEW}


def test_an_arm_may_have_data_of_its_own(tmp_path):
    arms = {"trained": {}, "frozen_normal": {"set": {"data": str(tmp_path / "other")}}}
    study = small_study(arms=arms, seeds=[0, 1])
    for run in planned(study, Shelf(tmp_path / "runs"), facts={"vocabulary": VOCABULARY}).final:
        digest = OLD if run.arm == "trained" else NEW
        store_finished(run, tmp_path / "runs", 2.0, environment={"data_digest": digest})
    assert {run.state for run in planned(study, Shelf(tmp_path / "runs")).final} == {"finished"}
    prepared_with(tmp_path / "other", "f" * 64)
    plan = planned(study, Shelf(tmp_path / "runs"))
    assert {run.arm for run in plan.final if run.state == "finished"} == {"trained"}
    wanted = [run.directory(tmp_path, data_digest=OLD).path.name for run in plan.final if run.state == "missing"]
    assert all(not (tmp_path / "runs" / name).exists() for name in wanted)


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [("training", "steps", 41), ("model", "dropout", 0.1)],
)
def test_a_changed_config_is_another_run(tmp_path, section, key, value):
    study = small_study(arms=ARMS)
    store_study(study, tmp_path, with_optimum(2e-3))
    base = study.base | {section: study.base[section] | {key: value}}
    assert {run.state for run in wanted(small_study(arms=ARMS, base=base), tmp_path).runs} == {"missing"}


def test_new_seeds_add_runs_and_repeat_none(tmp_path):
    store_study(small_study(arms=ARMS), tmp_path, with_optimum(2e-3))
    plan = wanted(small_study(arms=ARMS, seeds=[0, 1, 2, 3, 4, 5]), tmp_path)
    assert {(run.arm, run.seed) for run in plan.runs if run.state == "missing"} == {(arm, 5) for arm in ARMS}


def test_a_folder_is_named_after_arm_seed_and_computation():
    (run,) = wanted(small_study(arms=["trained"], seeds=[3])).final
    assert run.folder_name(DATA_DIGEST) == f"trained-s3-{fingerprint(run.run, data_digest=DATA_DIGEST)}"
    assert run.title == "trained s3"


def test_a_study_that_has_not_begun_knows_its_models_from_prepared_data(tmp_path, monkeypatch):
    """So that its cost can be counted; data whose manifest is damaged say nothing."""
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "data" / "small"
    data.mkdir(parents=True)
    for manifest, known in (({"vocabulary": 512}, {"vocabulary": 512}), ({"vocabulary": "many"}, {}), ({}, {})):
        write_json(data / "manifest.json", {"format_version": 1} | manifest)
        assert planned(small_study(), Shelf(tmp_path / "runs")).facts == known
