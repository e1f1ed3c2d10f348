"""A bench counts for the config that it measured, and nothing worse takes its place."""

from __future__ import annotations

import json

import pytest

from oelm.core.accounting import as_at_first_step, step_work
from oelm.core.config import resolved
from oelm.execution.status import study_status, study_tree
from oelm.storage.files import write_sealed
from oelm.study.archives import runs_folder
from oelm.study.bench import BENCH_FILE, Bench
from oelm.study.bench_fit import bench_for, differences_text, lack_of, remarks_on, timed_settings
from oelm.study.declaration import Study
from oelm.study.plan import planned
from oelm.study.reading import load_study
from oelm.study.remarks import sentence
from oelm.study.shelf import Shelf
from small_runs import REPOSITORY
from stored_runs import DATA_DIGEST, facts_of, small_study, store_bench, store_study

SECONDS = {"trained": [0.1] * 8, "frozen_normal": [0.09] * 8, "frozen_head_orthogonal": [0.09] * 8}
BASE = small_study().base


def edited(*, arms=None, **changes) -> Study:
    """The study after somebody changed it: dotted keys of its base."""
    base = json.loads(json.dumps(BASE))
    for key, value in changes.items():
        section, _, name = key.partition("__")
        base.setdefault(section, {})[name] = value
    return small_study(base=base, **({"arms": arms} if arms else {}))


def found(study: Study, folder, **given) -> Bench:
    shelf = Shelf(folder)
    return bench_for(planned(study, shelf, **given), shelf)


def store_format_2(study: Study, folder, **changes) -> None:
    """As `oelm bench` wrote it before a bench had its runs."""
    store_bench(folder, study=study, baseline="trained", seconds=SECONDS)
    plan = planned(study, Shelf(folder))
    runs = {arm: resolved(timed_settings(plan, arm).run, facts_of(study)) for arm in SECONDS}
    tree = json.loads((folder / BENCH_FILE).read_text()) | {"format_version": 2}
    tree |= {"work": {arm: step_work(as_at_first_step(run)) for arm, run in runs.items()}} | changes
    write_sealed(folder / BENCH_FILE, {key: tree[key] for key in tree if key not in ("seal", "runs", "execution")})


# ---- What was measured ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"model__d_model": 128, "model__num_layers": 6}, "model.d_model 32, now 128; model.num_layers 2, now 6"),
        ({"model__vocabulary": 128}, "model.vocabulary 64, now 128"),
        ({"training__batch_size": 8}, "training.batch_size 4, now 8"),
        ({"training__gradient_clip": None}, "training.gradient_clip 1, now none"),
        ({"execution__threads": 2}, "execution.threads 1, now 2"),
        ({"execution__compile": "on"}, "execution.compile off, now on"),
        ({"execution__micro_batch_size": 2}, "execution.micro_batch_size 4, now 2"),
    ],
)
def test_every_setting_that_changes_a_step_is_named(tmp_path, changes, text):
    store_bench(tmp_path, baseline="trained", seconds=SECONDS)
    bench = found(edited(**changes), tmp_path)
    assert set(bench.other_config) == set(SECONDS)
    assert differences_text(bench, SECONDS) == text


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"training__learning_rate": 3e-3, "training__weight_decay": 0.0, "training__beta2": 0.9},
        {"training__steps": 2000, "training__warmup_steps": 3, "training__validate_every": 7},
        {"execution__log_every": 3, "execution__checkpoint_every": 10},
        # What the machine chose then is stated now.
        {"execution__precision": "float32", "execution__threads": 1, "execution__compile": "off"},
    ],
)
def test_what_changes_no_arithmetic_of_a_step_costs_no_bench(tmp_path, changes):
    store_bench(tmp_path, baseline="trained", seconds=SECONDS)
    assert found(edited(**changes), tmp_path).other_config == {}
    seeds = small_study(seeds=[7, 8])
    assert found(seeds, tmp_path).other_config == {}


def test_a_setting_of_one_arm_concerns_that_arm(tmp_path):
    store_bench(tmp_path, baseline="trained", seconds=SECONDS)
    arms = {"trained": {}, "frozen_normal": {"arm": "frozen_half"}, "frozen_head_orthogonal": {}}
    bench = found(edited(arms=arms), tmp_path)
    assert set(bench.other_config) == {"frozen_normal"}
    assert differences_text(bench, SECONDS).endswith("(frozen_normal)")
    assert "model.parts.query.share 1, now 0.5" in differences_text(bench, ["frozen_normal"])
    assert differences_text(bench, ["trained", "frozen_head_orthogonal"]) == ""
    other_start = {"trained": {}, "frozen_normal": {"arm": "frozen_orthogonal"}}
    assert found(edited(arms=other_start), tmp_path).other_config == {}


def test_a_renamed_arm_keeps_its_bench_and_the_names_are_said(tmp_path):
    store_bench(tmp_path, baseline="trained", seconds=SECONDS)
    arms = {"ours": {"arm": "frozen_head_orthogonal"}, "theirs": {"arm": "trained"}, "frozen_normal": {}}
    study = small_study(arms=arms, baseline="theirs")
    bench = found(study, tmp_path)
    assert (bench.baseline, bench.other_config) == ("theirs", {})
    assert bench.seconds["ours"] == SECONDS["frozen_head_orthogonal"]
    assert bench.ratio("ours", "theirs") == found(small_study(), tmp_path).ratio("frozen_head_orthogonal", "trained")
    (remark,) = remarks_on(bench, study)
    assert sentence(*remark) == (
        "The bench measured arms that the study now calls otherwise, and counts for them: frozen_head_orthogonal, now "
        "ours; trained, now theirs"
    )
    assert remarks_on(found(small_study(), tmp_path), small_study()) == []


def test_a_bench_goes_by_what_was_measured_even_if_names_changed_places(tmp_path):
    store_bench(tmp_path, baseline="trained", seconds=SECONDS)
    swapped = {"trained": {"arm": "frozen_normal"}, "frozen_normal": {"arm": "trained"}, "new": {"arm": "frozen_half"}}
    bench = found(edited(arms=swapped), tmp_path)
    assert bench.names == {"trained": "frozen_normal", "frozen_normal": "trained"}
    assert (bench.seconds["trained"], bench.baseline) == (SECONDS["frozen_normal"], "frozen_normal")
    assert not bench.has("new")
    one = {"trained": {"arm": "frozen_half"}, "ours": {"arm": "trained"}}  # another arm took the name
    bench = found(edited(arms=one), tmp_path)
    assert (bench.baseline, bench.has("trained")) == ("ours", False)


def test_what_was_stated_then_and_is_left_to_the_machine_now_may_be_another(tmp_path):
    store_bench(tmp_path, study=edited(execution__precision="float32"), baseline="trained", seconds=SECONDS)
    bench = found(small_study(), tmp_path)
    assert differences_text(bench, SECONDS) == "execution.precision float32, now auto"


def test_chosen_values_are_those_of_the_runs(tmp_path):
    """A grid of batch sizes: what was measured before the choice is not what the final runs compute."""
    study = small_study(tuning={"grid": {"batch_size": [4, 8]}, "extend": 0})
    store_bench(tmp_path, study=study, baseline="trained", seconds=SECONDS)
    assert found(study, tmp_path).other_config == {}
    store_study(study, tmp_path, lambda arm, seed, stage, point: 2.0 - 0.1 * dict(point)["training.batch_size"])
    assert differences_text(found(study, tmp_path), SECONDS) == "training.batch_size 4, now 8"
    store_bench(tmp_path, study=study, baseline="trained", seconds=SECONDS)
    assert found(study, tmp_path).other_config == {}


def test_other_data_is_another_measurement(tmp_path):
    store_bench(tmp_path, baseline="trained", seconds=SECONDS)
    assert found(small_study(), tmp_path, data_digest=DATA_DIGEST).other_config == {}
    text = differences_text(found(small_study(), tmp_path, data_digest="e" * 64), SECONDS)
    assert text == f"data digest {'d' * 12}, now {'e' * 12}"
    store_bench(tmp_path, baseline="trained", seconds=SECONDS, data_digest="")  # of drawn tokens
    assert found(small_study(), tmp_path, data_digest="e" * 64).other_config == {}


def test_status_says_it_in_one_line(tmp_path):
    store_bench(tmp_path, baseline="trained", seconds=SECONDS)
    line = "The bench measured another config: model.d_model 32, now 128; measure again with oelm bench small"
    study = edited(model__d_model=128)
    assert study_status(study, tmp_path)[1].count(line) == 1
    assert line in study_tree(study, tmp_path)["remarks"]
    assert not any("bench" in line for line in study_status(small_study(), tmp_path)[1])


# ---- Before a bench had its runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tinystories_cpu", "xnli_bert"])
def test_the_benches_of_the_findings_measured_their_studies(name):
    bench = found(load_study(name), runs_folder(REPOSITORY / "docs" / "findings" / name / "runs"))
    assert (bench.runs, bench.other_config) == (None, {})


def test_an_older_bench_is_held_to_its_work(tmp_path):
    study = edited(model__vocabulary=64)
    store_format_2(study, tmp_path)
    assert found(study, tmp_path).other_config == {}
    text = differences_text(found(edited(model__vocabulary=64, model__d_model=64), tmp_path), SECONDS)
    assert text.startswith("products of a step ")
    assert "optimizer of a step" in text
    assert found(edited(model__vocabulary=64, execution__threads=1), tmp_path).other_config == {}
    text = differences_text(found(edited(model__vocabulary=64, execution__threads=2), tmp_path), SECONDS)
    assert text == "execution.threads 1, now 2"
    assert found(study, tmp_path, data_digest="e" * 64).other_config != {}


# ---- Which of two stays --------------------------------------------------------------------------------------------


def bench_of_arms(*arms: str, quiet: int = 8, disturbed: int = 0, other=()) -> Bench:
    causes = ((),) * quiet + (("others",),) * disturbed
    seconds = {arm: [1.0] * len(causes) for arm in arms}
    return Bench(arms[0], seconds, [1.0] * len(causes), causes, other_config=dict.fromkeys(other, (("x", 1, 2),)))


PAIR = ("trained", "frozen_normal")


@pytest.mark.parametrize(
    ("stored", "new", "lack"),
    [
        (bench_of_arms(*PAIR), bench_of_arms(*PAIR), None),
        (bench_of_arms(*PAIR, quiet=60), bench_of_arms(*PAIR, quiet=30), None),
        (
            bench_of_arms(*PAIR, quiet=60),
            bench_of_arms(*PAIR, quiet=29),
            "has 29 undisturbed blocks, but the stored one has 60",
        ),
        (
            bench_of_arms(*PAIR),
            bench_of_arms(*PAIR, quiet=3, disturbed=9),
            "has too few undisturbed blocks (3 of at least 8)",
        ),
        (bench_of_arms(*PAIR), bench_of_arms("trained", "frozen_head_orthogonal"), "is missing frozen_normal"),
        # The stored one is no loss.
        (bench_of_arms(*PAIR, quiet=3, disturbed=9), bench_of_arms("trained", quiet=1, disturbed=9), None),
        (bench_of_arms(*PAIR, other=PAIR), bench_of_arms(*PAIR, quiet=3, disturbed=9), None),
        (bench_of_arms("trained", "gone"), bench_of_arms("trained"), None),
    ],
)
def test_a_measurement_that_lacks_something_does_not_replace_one_that_has_it(stored, new, lack):
    assert lack_of(new, beside=stored, study=small_study()) == lack


def test_no_ratio_decides_which_one_stays():
    fast, slow = ({"trained": [1.0] * 8, "frozen_normal": [time] * 8} for time in (0.5, 2.0))
    one, other = (Bench("trained", seconds, [1.0] * 8, ((),) * 8) for seconds in (fast, slow))
    assert lack_of(one, beside=other, study=small_study()) is None
    assert lack_of(other, beside=one, study=small_study()) is None
