"""Finished runs that count, and of which something should be known first."""

import json
import shutil
from pathlib import Path

import pytest

from oelm.analysis.summary import findings_of
from oelm.execution.status import study_status
from oelm.storage.files import read_sealed
from oelm.study.doubts import doubts
from oelm.study.plan import planned
from oelm.study.remarks import sentence
from oelm.study.shelf import Shelf
from stored_runs import DATA_DIGEST, fingerprint, resolved, sealed_again, small_study, store_study

ARMS = ["trained", "frozen_head_orthogonal"]


def study_of(**execution):
    return small_study(arms=ARMS, seeds=[0, 1], base=small_study().base | {"execution": execution})


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("stored")
    store_study(study_of(), folder, lambda arm, seed, stage, point: 2.0 + 0.01 * seed)
    return folder


def said(folder: Path, study) -> list[str]:
    return [sentence(*remark) for remark in doubts(planned(study, Shelf(folder)))]


# ---- Execution -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "execution",
    [{}, {"precision": "auto", "compile": "auto"}, {"precision": "float32", "threads": 1, "compile": "off"},
     {"device": "cpu:0"}, {"micro_batch_size": 64}],
)  # fmt: skip
def test_nothing_is_said_where_runs_were_computed_as_declared_or_it_was_left_to_the_machine(execution, stored):
    """A micro-batch is never larger than the batch, which is 4."""
    assert said(stored, study_of(**execution)) == []


def test_execution_that_was_edited_after_the_runs_is_named_in_status_and_report(stored):
    study = study_of(precision="bfloat16", threads=2)
    differences = "execution.precision float32, now bfloat16; execution.threads 1, now 2"
    line = "4 finished runs here were computed otherwise than the study now declares, and still count: " + differences
    assert said(stored, study) == [line]
    assert line in study_status(study, stored)[1]
    assert ("other_execution", {"runs": 4, "differences": differences}) in findings_of(study, Shelf(stored)).notes


def test_compiled_is_on_and_one_run_is_one_run(tmp_path):
    study = small_study(arms=ARMS[:1], seeds=[0])
    store_study(study, tmp_path, lambda *_: 2.0, environment={"compile": True})
    edited = small_study(arms=ARMS[:1], seeds=[0], base=study.base | {"execution": {"compile": "off"}})
    assert said(tmp_path, edited) == [
        "1 finished run here was computed otherwise than the study now declares, and still counts: execution.compile "
        "on, now off"
    ]


# ---- Seeds ---------------------------------------------------------------------------------------------------------


def copied_as_another_seed(folder: Path) -> tuple[str, str]:
    """Seed 0 of the baseline in the place of seed 1, with every digest as it should be."""
    runs = {run.seed: run for run in planned(study_of(), Shelf(folder)).by_arm["trained"]}
    original, replaced = runs[0].stored.directory.path, runs[1].stored.directory.path
    shutil.rmtree(replaced)
    shutil.copytree(original, replaced)
    config = json.loads((replaced / "config.json").read_text())
    config["seeds"] = runs[1].run.seeds.model_dump()
    (replaced / "config.json").write_text(json.dumps(config))
    result = json.loads((replaced / "experiment_result.json").read_text())
    result |= {"seeds": config["seeds"], "fingerprint": fingerprint(resolved(runs[1].run), data_digest=DATA_DIGEST)}
    (replaced / "experiment_result.json").write_text(json.dumps(result))
    sealed_again(replaced)
    return original.name, replaced.name


def test_a_run_that_was_copied_as_another_seed_is_named(stored, tmp_path):
    folder = Path(shutil.copytree(stored, tmp_path / "runs"))
    names = ", ".join(sorted(copied_as_another_seed(folder)))
    assert {run.state for run in planned(study_of(), Shelf(folder)).final} == {"finished"}
    line = (
        "Finished runs of one arm with different seeds report exactly the same losses from the first record to the "
        f"last: {names}; either one is a copy of the other, or the seed has no effect"
    )
    assert said(folder, study_of()) == [line]
    assert line in study_status(study_of(), folder)[1]
    assert ("same_losses", {"copies": names}) in findings_of(study_of(), Shelf(folder)).notes


def test_the_reported_loss_alone_makes_no_copy(stored, tmp_path):
    folder = Path(shutil.copytree(stored, tmp_path / "runs"))
    copy = folder / copied_as_another_seed(folder)[1]
    first, *others = (copy / "metrics.jsonl").read_text().splitlines()
    other = json.dumps(json.loads(first) | {"train_loss": 3.25})
    (copy / "metrics.jsonl").write_text("\n".join([other, *others]) + "\n")
    sealed_again(copy)
    assert read_sealed(copy / "seal.json")["state"] == "finished"
    assert said(folder, study_of()) == []
