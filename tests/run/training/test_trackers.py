"""Trackers beside a run: it computes the same with them, without them, and with one that fails in every way."""

import contextlib
import json
import os
import sqlite3
import threading
import time
import tomllib

import pytest

from oelm.core.config import Execution
from oelm.core.settings import load_settings, settings_of, written_out
from oelm.core.trackers import beside, table
from oelm.run.directory import RunDirectory
from oelm.run.training.run import train
from small_runs import REPOSITORY, quiet_execution, small_run

STEPS = 4


class Broken:
    """Raises at whatever it is asked for."""

    def __init__(self, module, run):
        pass

    def log(self, numbers, step):
        raise RuntimeError("the disk of the tracker is full\nand more")

    def close(self):
        raise RuntimeError("still full")


class Leaving(Broken):
    def log(self, numbers, step):
        raise SystemExit(3)


class Panic(BaseException):
    """As libraries in Rust raise it."""


class Panicking(Broken):
    def log(self, numbers, step):
        raise Panic("called unwrap on nothing")


class Silent(Broken):
    """Never answers."""

    def log(self, numbers, step):
        threading.Event().wait()


class AtOnce:
    def __init__(self, module, run):
        raise ValueError("no account")


@pytest.fixture
def trackers(monkeypatch):
    """A run may name those that do not work too."""
    rows = {name: table.Tracker("json", begin) for name, begin in (
        ("broken", Broken), ("leaving", Leaving), ("silent", Silent), ("at_once", AtOnce), ("panicking", Panicking),
    )}  # fmt: skip
    rows["missing"] = table.Tracker("no_such_library", Broken)
    for name, row in rows.items():
        monkeypatch.setitem(table.TRACKERS, name, row)
    monkeypatch.setattr(beside, "CLOSING_SECONDS", 0.5)


def numbers_of(directory: RunDirectory) -> tuple:
    """All that a run computed: the weights to the last bit, and every record but for its times."""
    records = [{key: value for key, value in record.items() if "seconds" not in key} for record in directory.metrics()]
    weights = (directory.stored_checkpoints()[-1] / "model.safetensors").read_bytes()
    return weights, records


def test_a_tracker_that_fails_changes_nothing_and_is_said_once(token_folder, tmp_path, trackers):
    names = ["tensorboard", "broken", "leaving", "panicking", "silent", "at_once", "missing"]
    run = small_run(data=token_folder, steps=STEPS, validate_every=2)
    without = train(run, quiet_execution(), out=tmp_path / "without").directory
    with_all = train(run, quiet_execution(trackers=names), out=tmp_path / "with").directory
    assert numbers_of(with_all) == numbers_of(without)
    assert with_all.status()["state"] == "finished"
    log = with_all.log_file.read_text(encoding="utf-8")
    for name, why in (
        ("broken", "the disk of the tracker is full; the run"),
        ("leaving", "3; the run"),
        ("panicking", "called unwrap on nothing"),
        ("silent", "did not end in time"),
        ("at_once", "no account"),
        ("missing", "missing is not installed: "),
    ):
        assert log.count(f"execution.trackers: {name}: ") == 1
        assert f"execution.trackers: {name}: {why}" in log
    assert "execution.trackers: tensorboard" not in log


def test_a_tracker_that_falls_behind_is_dropped_and_never_waited_for(trackers, monkeypatch, tmp_path):
    monkeypatch.setattr(beside, "MOST_WAITING", 3)
    said = []
    all_of_them = beside.Trackers(["silent"], lambda _: table.Tracked("run", "study", {}, tmp_path), said.append)
    began = time.monotonic()
    with all_of_them.at_work():
        for step in range(100):
            all_of_them.log({"step": step, "train_loss": 1.0})
    assert time.monotonic() - began < 5
    assert len(said) == 1
    assert "records behind" in said[0]


def numbers_recorded(directory: RunDirectory) -> dict[str, list[tuple[int, float]]]:
    records = directory.metrics()
    return {
        key: [(record["step"], record[key]) for record in records if key in record]
        for key in ("train_loss", "val_loss", "learning_rate")
    }


def test_tensorboard_gets_every_number_at_its_step(token_folder, tmp_path):
    pytest.importorskip("tensorboard", reason="pip install 'oelm[tensorboard]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = small_run(data=token_folder, steps=STEPS, validate_every=2)
    directory = train(run, quiet_execution(trackers=["tensorboard"], log_every=1), out=tmp_path / "run").directory
    written = EventAccumulator(str(directory.trackers / "tensorboard")).Reload()
    for key, expected in numbers_recorded(directory).items():
        seen = [(event.step, pytest.approx(event.value, rel=1e-6)) for event in written.Scalars(key)]
        assert seen == expected


def test_a_tracker_gets_the_numbers_that_an_export_has(token_folder, tmp_path, monkeypatch):
    seen = {}

    class Listening(Broken):
        def log(self, numbers, step):
            seen.setdefault(step, {}).update(numbers)

        def close(self):
            pass

    monkeypatch.setitem(table.TRACKERS, "listening", table.Tracker("json", Listening))
    run = small_run(data=token_folder, steps=STEPS, validate_every=2, head_scores=True)
    directory = train(run, quiet_execution(trackers=["listening"]), out=tmp_path / "run").directory
    stored = {}
    for record in directory.metrics():
        stored.setdefault(record["step"], {}).update(table.numbers_in(record))
    assert seen == stored
    assert "head_scores.induction" in stored[STEPS]


def test_steps_that_a_resumed_run_takes_again_count_once(tmp_path):
    pytest.importorskip("tensorboard", reason="pip install 'oelm[tensorboard]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for begin, steps, loss in ((0, range(1, 4), 3.0), (0, range(1, 9), 2.0), (4, range(5, 11), 1.0)):
        sink = table.begun("tensorboard", table.Tracked("run", "study", {}, tmp_path, begin))
        for step in steps:
            sink.log({"train_loss": loss}, step)
        sink.close()
    seen = [(event.step, event.value) for event in EventAccumulator(str(tmp_path)).Reload().Scalars("train_loss")]
    assert seen == [(step, 2.0 if step <= 4 else 1.0) for step in range(1, 11)]


def test_without_a_thread_to_spare_a_run_goes_on(trackers, monkeypatch, tmp_path):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    said = []
    all_of_them = beside.Trackers(["broken"], lambda _: table.Tracked("run", "study", {}, tmp_path), said.append)
    with all_of_them.at_work():
        all_of_them.log({"step": 1, "train_loss": 1.0})
    assert said == ["execution.trackers: broken: can't start new thread; the run does not depend on it"]


def test_an_empty_variable_is_none(monkeypatch, tmp_path):
    """Not a choice of the user's: nothing is uploaded."""
    monkeypatch.setenv("TRACKER_MODE", "")
    monkeypatch.setitem(table.TRACKERS, "some", table.Tracker("json", Broken, (("TRACKER_MODE", "offline"),)))
    table.begun("some", table.Tracked("run", "study", {}, tmp_path))
    assert os.environ["TRACKER_MODE"] == "offline"


def test_wandb_writes_to_this_machine(token_folder, tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="pip install 'oelm[wandb]'")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    run = small_run(data=token_folder, steps=STEPS, validate_every=2)
    directory = train(run, quiet_execution(trackers=["wandb"]), out=tmp_path / "study" / "run").directory
    assert "execution.trackers: wandb" not in directory.log_file.read_text(encoding="utf-8")
    (written,) = (directory.trackers / "wandb").rglob("*.wandb")
    assert written.stat().st_size > 1000


def test_trackio_gets_every_number_at_its_step(token_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # which the library reads when it is imported
    pytest.importorskip("trackio", reason="pip install 'oelm[trackio]'")
    run = small_run(data=token_folder, steps=STEPS, validate_every=2)
    execution = quiet_execution(trackers=["trackio"], log_every=1)
    directory = train(run, execution, out=tmp_path / "study" / "run").directory
    with contextlib.closing(sqlite3.connect(tmp_path / "trackio" / "study.db")) as database:
        written = list(database.execute("select run_name, step, metrics from metrics order by id"))
    assert {name for name, _, _ in written} == {"run"}
    numbers = [(step, json.loads(metrics)) for _, step, metrics in written]
    for key, expected in numbers_recorded(directory).items():
        assert [(step, values[key]) for step, values in numbers if key in values] == expected


def test_the_older_key_means_a_tracker():
    assert Execution.model_validate({"tensorboard": True}).trackers == ("tensorboard",)
    assert Execution.model_validate({"tensorboard": True, "trackers": ["wandb"]}).trackers == ("wandb", "tensorboard")
    assert Execution.model_validate({"tensorboard": False}).trackers == ()
    assert load_settings(assignments=["tensorboard=true"]).execution.trackers == ("tensorboard",)
    assert load_settings(assignments=["trackers=[wandb, trackio]"]).execution.trackers == ("wandb", "trackio")
    named = load_settings(assignments=["trackers=tensorboard,wandb"])
    assert named.execution.trackers == ("tensorboard", "wandb")
    assert settings_of(written_out(named), name="file") == named


def test_an_unknown_tracker_is_one_line():
    from oelm.machine.errors import UserError

    with pytest.raises(
        UserError, match=r"--set execution.trackers.*must be one of tensorboard, wandb, trackio"
    ) as error:
        load_settings(assignments=["trackers=[mlflow]"])
    assert len(str(error.value).splitlines()) == 1


def test_numbers_under_a_name_are_numbers_too():
    record = {"step": 3, "loss": 1.5, "flag": True, "accuracy_by_difficulty": {"2": 0.5}, "text": "x", "none": None}
    assert table.numbers_in(record) == {"loss": 1.5, "accuracy_by_difficulty/2": 0.5}


def test_a_run_that_is_stopped_waits_for_no_tracker(trackers, monkeypatch, tmp_path):
    monkeypatch.setattr(beside, "CLOSING_SECONDS", 60.0)
    monkeypatch.setattr(beside, "LEAVING_SECONDS", 0.2)
    all_of_them = beside.Trackers(["silent"], lambda _: table.Tracked("run", "study", {}, tmp_path), lambda _: None)

    def stopped():
        with all_of_them.at_work():
            all_of_them.log({"step": 1, "train_loss": 1.0})
            raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert time.monotonic() - began < 10


def test_every_tracker_is_an_extra_and_a_line_of_the_page():
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (REPOSITORY / "docs" / "trackers.md").read_text(encoding="utf-8")
    for name in table.TRACKERS:
        assert name in extras["optional-dependencies"]
        assert f"| `{name}` | `pip install 'oelm[{name}]'` |" in page
