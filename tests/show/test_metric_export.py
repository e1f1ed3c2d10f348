"""Stored metrics for other trackers: every record of every run, from a folder, an archive and one run."""

import csv
import io
import shutil
from pathlib import Path

import pytest

from oelm.core.trackers import table
from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory
from oelm.show.metric_export import CSV_FILE, curves_csv, exported
from oelm.study.archiving import archive
from oelm.study.given_results import given_results
from oelm.study.reading import study_of
from stored_runs import VOCABULARY, store_study

STUDY = {
    "name": "walk",
    "question": "Can queries and keys stay frozen?",
    "base": {
        "preset": "tiny",
        "data": "data/invented",
        "model": {"vocabulary": VOCABULARY, "seq_len": 16, "d_model": 32, "num_layers": 2, "num_heads": 2},
        "training": {"steps": 60, "batch_size": 4},
    },
    "arms": ["trained", "frozen_orthogonal"],
    "seeds": [0, 1],
    "tuning": {"grid": {"learning_rate": [1e-3, 2e-3]}, "set": {"steps": 20}, "seeds": [1000]},
}
RUNS = 4 + 8  # every seed of two arms; at two rates for tuning


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs") / "walk"
    place.mkdir()
    store_study(study_of(STUDY, name="walk.yaml"), place, lambda arm, seed, stage, point: 2.0 + 0.1 * seed)
    return place


def records_in(folder):
    runs = given_results(folder).runs
    assert len(runs) == RUNS
    return sum(len(RunDirectory(run.path).metrics()) for run in runs)


def test_a_table_has_a_row_for_every_record(folder, tmp_path):
    assert exported(given_results(folder), to="csv", out=tmp_path / "out") == RUNS
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / CSV_FILE).read_text(encoding="utf-8"))))
    assert len(rows) == records_in(folder) > RUNS
    assert {(row["stage"], row["arm"], row["seed"]) for row in rows if row["stage"] == "final"} == {
        ("final", arm, seed) for arm in STUDY["arms"] for seed in "01"
    }
    assert len({row["run"] for row in rows}) == RUNS


def test_an_archive_says_the_same_as_its_folder(folder, tmp_path):
    archive("walk", folder, tmp_path / "walk.zip")
    assert curves_csv(given_results(tmp_path / "walk.zip")) == curves_csv(given_results(folder))
    assert given_results(tmp_path / "walk.zip").name == "walk"


def test_damaged_runs_are_named_and_left_out(folder, tmp_path):
    copy = tmp_path / "walk"
    shutil.copytree(folder, copy)
    first, second, *others = [run.path for run in given_results(copy).runs]
    (first / "config.json").unlink()
    with (second / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 1, "loss": 0.1}\n')
    given = given_results(copy)
    assert exported(given, to="csv", out=tmp_path / "out") == len(others)
    assert [first.name in given.damage[0], second.name in given.damage[1], len(given.damage)] == [True, True, 2]
    rows = csv.DictReader(io.StringIO((tmp_path / "out" / CSV_FILE).read_text(encoding="utf-8")))
    assert {Path(row["run"]).name for row in rows} == {path.name for path in others}


def test_one_run_is_exported_alone(folder):
    run = given_results(folder).runs[0]
    given = given_results(run.path)
    assert [each.path for each in given.runs] == [run.path]
    assert curves_csv(given).count("\n") == len(run.metrics()) + 1


def test_tensorboard_gets_a_folder_for_every_run(folder, tmp_path):
    pytest.importorskip("tensorboard", reason="pip install 'oelm[tensorboard]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    exported(given_results(folder), to="tensorboard", out=tmp_path / "out")
    for run in given_results(folder).runs:
        written = EventAccumulator(str(tmp_path / "out" / run.path.relative_to(folder))).Reload()
        expected = [(record["step"], record["val_loss"]) for record in run.metrics() if "val_loss" in record]
        assert [(event.step, event.value) for event in written.Scalars("val_loss")] == [
            (step, pytest.approx(value)) for step, value in expected
        ]


def test_what_cannot_be_written_is_one_line(folder, tmp_path, monkeypatch):
    def broken(module, run):
        raise type("Panic", (BaseException,), {})("no account\nsecond line")  # as libraries in Rust raise it

    monkeypatch.setitem(table.TRACKERS, "wandb", table.Tracker("json", broken))
    monkeypatch.setitem(table.TRACKERS, "trackio", table.Tracker("no_such_library", broken))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    given = given_results(folder)
    for to, out, line in (
        ("wandb", "a", "wandb: no account"),
        ("trackio", "b", "trackio is not installed: "),
        ("mlflow", "c", "--to mlflow: must be one of tensorboard, wandb, trackio, csv"),
        ("csv", "full", "exists already"),
    ):
        with pytest.raises(UserError) as error:
            exported(given, to=to, out=tmp_path / out)
        assert line in str(error.value)
        assert "\n" not in str(error.value)


def test_a_mistyped_source_is_one_line_and_a_folder_without_runs_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for source, said in (("nothing-here", "nothing"), ("nothing/here.zip", "nothing"), (tmp_path, "no runs there")):
        with pytest.raises(UserError, match=said) as error:
            given_results(source)
        assert "\n" not in str(error.value)


def test_the_name_in_an_archive_leads_nowhere(folder, tmp_path):
    """It would be the default folder of an export."""
    archive("../../elsewhere", folder, tmp_path / "walk.zip")
    with pytest.raises(UserError, match=r"walk\.zip: .*'\.\./\.\./elsewhere'"):
        given_results(tmp_path / "walk.zip")
