"""Stored runs as they stand, whole, damaged or half-way."""

import json
import time
from pathlib import Path

import pytest

from oelm.files import write_json
from oelm.ownership import STALE_SECONDS, Process
from oelm.study.plan import planned
from oelm.study.shelf import Shelf, computation, read_stored
from stored_runs import ENVIRONMENT, VOCABULARY, small_study, store_bench, store_finished


@pytest.fixture
def stored(tmp_path):
    study = small_study(arms=["trained"], seeds=[0])
    (run,) = planned(study, Shelf(tmp_path), facts={"vocabulary": VOCABULARY}).final
    return store_finished(run, tmp_path, 2.5)


def set_status(path: Path, **changes):
    status = json.loads((path / "status.json").read_text())
    (path / "status.json").write_text(json.dumps(status | changes))


def test_a_stored_run_knows_itself(stored):
    run = read_stored(stored)
    assert (run.state, run.name) == ("finished", stored.name)
    assert run.result["val_loss"] == 2.5
    assert run.environment["threads"] == ENVIRONMENT["threads"]
    assert run.parameters["frozen"] == 0
    assert run.data_digest == ENVIRONMENT["data_digest"]


def test_no_folder_is_an_empty_shelf(tmp_path):
    shelf = Shelf(tmp_path / "nowhere")
    assert (shelf.runs, shelf.facts, shelf.bench(), shelf.unreadable) == ([], {}, None, [])


def test_a_result_without_a_status_is_a_result(stored):
    (stored / "status.json").unlink()
    assert read_stored(stored).state == "finished"


def test_a_config_alone_is_queued(stored):
    (stored / "status.json").unlink()
    (stored / "experiment_result.json").unlink()
    assert read_stored(stored).state == "queued"


def test_a_finished_run_that_lost_its_result_is_taken_up_again(stored):
    (stored / "experiment_result.json").unlink()
    assert read_stored(stored).state == "interrupted"


def test_a_running_process_of_this_machine_that_is_gone_was_interrupted(stored):
    (stored / "experiment_result.json").unlink()
    dead = Process.current().__dict__ | {"pid": 2**22 + 1, "pid_started": "1"}
    set_status(stored, state="running", **dead)
    assert read_stored(stored).state == "interrupted"
    set_status(stored, **Process.current().__dict__)
    assert read_stored(stored).state == "running"


def test_a_process_of_another_host_is_judged_by_its_lock(stored):
    (stored / "experiment_result.json").unlink()
    elsewhere = Process.current().__dict__ | {"host": "another"}
    set_status(stored, state="running", **elsewhere)
    assert read_stored(stored).state == "running"  # brought here: its lock stayed there
    for heartbeat, state in ((time.time(), "running"), (time.time() - 2 * STALE_SECONDS, "interrupted")):
        write_json(stored / "lock.json", elsewhere | {"since": "then", "heartbeat": heartbeat})
        assert read_stored(stored).state == state
    (stored / "lock.json").write_bytes(b"")  # left behind by one that ended
    assert read_stored(stored).state == "interrupted"


def test_only_a_finished_run_has_a_result(stored):
    set_status(stored, state="failed")
    assert read_stored(stored).result is None


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"format_version": 99}', '{"format_version": 1}'])
def test_a_damaged_config_is_named_and_hides_no_other_run(stored, content):
    damaged = stored.with_name("damaged")
    damaged.mkdir()
    (damaged / "config.json").write_text(content)
    shelf = Shelf(stored.parent)
    assert [run.name for run in shelf.runs] == [stored.name]
    assert shelf.unreadable
    assert all("damaged" in line for line in shelf.unreadable)


@pytest.mark.parametrize("file", ["environment.json", "parameters.json", "experiment_result.json", "status.json"])
@pytest.mark.parametrize("content", ["", "{", "[]", "\xff"])
def test_no_damaged_file_stops_the_reading(stored, file, content):
    (stored / file).write_text(content, encoding="latin-1")
    shelf = Shelf(stored.parent)
    for run in shelf.runs:
        assert isinstance(run.environment, dict)
        assert isinstance(run.parameters, dict)
        assert run.result is None or run.result["val_loss"] == 2.5
    assert shelf.runs or shelf.unreadable


def test_files_and_strange_folders_beside_the_runs_are_ignored(stored):
    (stored.parent / "notes.txt").write_text("x")
    (stored.parent / "empty").mkdir()
    assert len(Shelf(stored.parent).runs) == 1


def test_the_bench_is_read_and_a_damaged_one_is_none(stored):
    store_bench(stored.parent, baseline="trained", seconds={"trained": [0.1, 0.2]})
    assert Shelf(stored.parent).bench()["seconds"] == {"trained": [0.1, 0.2]}
    (stored.parent / "bench.json").write_text("{")
    assert Shelf(stored.parent).bench() is None


def test_runs_whose_data_is_unknown_count_for_any(stored):
    (stored / "environment.json").unlink()
    shelf = Shelf(stored.parent)
    run = shelf.runs[0].run
    assert shelf.computed(computation(run), data_digest="anything") is not None
