"""Stored runs as they stand, whole, damaged or half-way."""

import json
import math
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import pytest

from oelm.storage.files import Damaged, write_json
from oelm.storage.ownership import STALE_SECONDS, Process
from oelm.study.plan import planned
from oelm.study.shelf import Shelf, computation, read_stored
from small_runs import finished
from stored_runs import ENVIRONMENT, VOCABULARY, small_study, store_bench, store_finished, without_seal


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


@pytest.mark.parametrize("first", ["diverged", "finished"])
def test_of_two_runs_of_one_computation_the_finished_one_counts(tmp_path, first):
    study = small_study(arms=["trained"], seeds=[0])
    (run,) = planned(study, Shelf(tmp_path), facts={"vocabulary": VOCABULARY}).final
    for name, loss in zip("ab", (math.inf, 2.5) if first == "diverged" else (2.5, math.inf), strict=True):
        store_finished(run, tmp_path, loss, name=name)
    (found,) = planned(study, Shelf(tmp_path)).final
    assert (found.state, found.loss) == ("finished", 2.5)


def test_with_a_digest_only_a_run_of_that_data_is_found(tmp_path):
    study = small_study(arms=["trained"], seeds=[0])
    (run,) = planned(study, Shelf(tmp_path), facts={"vocabulary": VOCABULARY}).final
    for digest in ("a", "b"):
        store_finished(run, tmp_path, 2.5, name=digest, environment={"data_digest": 64 * digest})
    shelf, identity = Shelf(tmp_path), computation(run.resolved_run)
    assert [shelf.computed(identity, data_digest=64 * each).name for each in "ab"] == ["a", "b"]
    assert shelf.computed(identity, data_digest=64 * "c") is None


def test_no_folder_is_an_empty_shelf(tmp_path):
    shelf = Shelf(tmp_path / "nowhere")
    assert (shelf.runs, shelf.facts, shelf.bench(), shelf.unreadable) == ([], {}, None, [])


def test_a_result_without_a_status_is_a_result(stored):
    (stored / "status.json").unlink()
    assert read_stored(stored).state == "finished"


def test_a_config_alone_is_queued(stored):
    for file in stored.iterdir():
        if file.name != "config.json":
            file.unlink()
    assert read_stored(stored).state == "queued"


def test_an_unsealed_run_that_lost_its_result_is_taken_up_again(stored):
    (without_seal(stored) / "experiment_result.json").unlink()
    assert read_stored(stored).state == "interrupted"


def unfinished(path: Path) -> Path:
    """As a run is before its end."""
    for name in ("experiment_result.json", "seal.json"):
        (path / name).unlink()
    return path


def test_a_running_process_of_this_machine_that_is_gone_was_interrupted(stored):
    unfinished(stored)
    dead = Process.current().__dict__ | {"pid": 2**22 + 1, "pid_started": "1"}
    set_status(stored, state="running", **dead)
    assert read_stored(stored).state == "interrupted"
    set_status(stored, **Process.current().__dict__)
    assert read_stored(stored).state == "running"


def test_a_process_of_another_host_is_judged_by_its_lock(stored):
    unfinished(stored)
    elsewhere = Process.current().__dict__ | {"host": "another"}
    set_status(stored, state="running", **elsewhere)
    assert read_stored(stored).state == "running"  # brought here: its lock stayed there
    for heartbeat, state in ((time.time(), "running"), (time.time() - 2 * STALE_SECONDS, "interrupted")):
        write_json(stored / "lock.json", elsewhere | {"since": "then", "heartbeat": heartbeat})
        assert read_stored(stored).state == state
    (stored / "lock.json").write_bytes(b"")  # left behind by one that ended
    assert read_stored(stored).state == "interrupted"


def test_only_a_finished_run_has_a_result(stored):
    set_status(without_seal(stored), state="failed")
    assert read_stored(stored).result is None


def test_how_a_sealed_run_ended_is_for_its_seal_to_say(stored):
    set_status(stored, state="failed")
    assert read_stored(stored).state == "finished"
    (stored / "status.json").write_text("{")
    assert read_stored(stored).state == "finished"
    assert [line.partition(": ")[0] for line in Shelf(stored.parent).unreadable] == [str(stored / "status.json")]


@pytest.mark.parametrize("content", ["{", "[]", '{"format_version": 99}', '{"format_version": 1}'])
def test_a_damaged_config_is_named_and_hides_no_other_run(stored, content):
    damaged = stored.with_name("damaged")
    damaged.mkdir()
    (damaged / "config.json").write_text(content)
    shelf = Shelf(stored.parent)
    assert [run.name for run in shelf.runs] == [stored.name]
    assert shelf.unreadable
    assert all("damaged" in line for line in shelf.unreadable)


@pytest.mark.parametrize("trace", ["seal.json", "status.json", "experiment_result.json"])
def test_a_folder_that_lost_its_config_is_named_by_what_is_left_of_it(stored, trace):
    for file in stored.iterdir():
        if file.name != trace:
            file.unlink()
    shelf = Shelf(stored.parent)
    assert (shelf.runs, shelf.unreadable) == ([], [f"{stored / 'config.json'}: damaged: missing"])
    assert [run.path for run in shelf.lost] == [stored]


def test_a_run_that_only_waits_and_lost_its_config_is_simply_prepared_again(stored):
    for file in stored.iterdir():
        if file.name != "status.json":
            file.unlink()
    set_status(stored, state="queued")
    assert Shelf(stored.parent).unreadable == []


PERMISSIONS = """
import os, sys
from pathlib import Path
from oelm.study.shelf import Shelf
folder, refused, mode = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3], 8)
os.chmod(refused, mode)
if os.geteuid() == 0:
    os.seteuid(65534)
shelf = Shelf(folder)
print(len(shelf.runs), *shelf.unreadable, sep="\\n")
"""


@pytest.mark.parametrize(
    ("refused", "mode", "runs", "line"),
    [
        ("a", "0", 1, "a/config.json: damaged: cannot be read (Permission denied)"),
        ("a/config.json", "0", 1, "a/config.json: damaged: cannot be read (Permission denied)"),
        ("tuning", "0", 2, "tuning: damaged: cannot be read (Permission denied)"),
        (".", "0", 0, ": damaged: cannot be read (Permission denied)"),
    ],
)
def test_what_the_user_may_not_read_is_named(stored, refused, mode, runs, line):
    with tempfile.TemporaryDirectory() as name:  # one that another user may look into, unlike pytest's
        folder = Path(name) / "study"
        for each in ("a", "b"):
            shutil.copytree(stored, folder / each)
        (folder / "tuning").mkdir()
        os.chmod(name, 0o755)
        done = finished([sys.executable, "-c", PERMISSIONS, str(folder), str(folder / refused), mode])
        os.chmod(folder / refused, 0o755)
        assert done.returncode == 0, done.stderr
        count, *lines = done.stdout.splitlines()
        assert int(count) == runs
        assert any(each.endswith(line) for each in lines), lines


@pytest.mark.parametrize("file", ["environment.json", "parameters.json", "experiment_result.json", "status.json"])
@pytest.mark.parametrize("content", ["[]", "\xff"])
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


def test_the_bench_is_read_and_a_damaged_one_says_so(stored):
    store_bench(stored.parent, baseline="trained", seconds={"trained": [0.1, 0.2]})
    assert Shelf(stored.parent).bench().seconds == {"trained": [0.1, 0.2]}
    (stored.parent / "bench.json").write_text("{")
    assert isinstance(Shelf(stored.parent).bench(), Damaged)


def test_runs_whose_data_is_unknown_count_for_any(stored):
    (stored / "environment.json").unlink()
    shelf = Shelf(stored.parent)
    run = shelf.runs[0].run
    assert shelf.computed(computation(run), data_digest="anything") is not None
