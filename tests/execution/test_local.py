"""This machine as an engine: whom a controller believes alive, whom it may stop, how many runs it takes at a time."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from oelm.execution import local
from oelm.execution.handles import DamagedHandle, StudyEngines
from oelm.execution.local import LocalEngine, LocalHandle, LocalSlots, Unit, undisturbed, units_here
from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory
from oelm.storage.ownership import Process


@pytest.fixture
def sleeper():
    """An unrelated process of this machine, the leader of its own group."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def store_handle(folder, process: Process) -> RunDirectory:
    directory = RunDirectory(folder)
    directory.handle_file.write_text(json.dumps({**process.__dict__, "numbers": [0]}))
    return directory


def test_a_process_of_this_machine_is_found_and_stopped(sleeper, tmp_path):
    handle = StudyEngines(tmp_path).found(store_handle(tmp_path, Process.of(sleeper.pid)))
    assert handle is not None
    LocalEngine(tmp_path).cancel([handle])
    assert sleeper.wait(10) == -signal.SIGTERM


@pytest.mark.parametrize("change", [{"host": "another-host"}, {"boot_id": "another boot"}, {"pid_started": "1"}])
def test_nobody_elses_process_is_believed_or_signalled(sleeper, tmp_path, change):
    stranger = replace(Process.of(sleeper.pid), **change)
    directory = store_handle(tmp_path, stranger)
    assert StudyEngines(tmp_path).found(directory) is None
    LocalEngine(tmp_path).cancel([LocalHandle(directory, stranger, (0,))])
    time.sleep(0.3)
    assert sleeper.poll() is None


def test_a_run_of_several_processes_waits_for_as_many_slots_and_none_overtakes_it(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "started", lambda run, units, warm: [unit.number for unit in units])
    slots = LocalSlots(LocalEngine(tmp_path), [Unit(number, None) for number in range(4)], warm=None)
    two, one = (SimpleNamespace(processes=count) for count in (2, 1))
    busy = LocalHandle(RunDirectory(tmp_path), Process.current(), (1,))
    assert list(slots.submit([two, two, one], [])) == [[0, 1], [2, 3]]
    assert list(slots.submit([two, two, one], [busy])) == [[0, 2]]
    assert list(slots.submit([one, one, two], [busy])) == [[0], [2]]


def test_one_started_by_hand_is_asked_without_its_group(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])  # in our own group
    LocalEngine(tmp_path).cancel([LocalHandle(RunDirectory(tmp_path), Process.of(child.pid), ())])
    assert child.wait(10) == -signal.SIGTERM


def test_a_signal_waits_until_a_started_run_can_be_found():
    """Raised again afterwards, it does what it would have done."""
    done = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: done.append(number))
    with undisturbed():
        signal.raise_signal(signal.SIGTERM)
        done.append("to the end")
    signal.signal(signal.SIGTERM, before)
    assert done == ["to the end", signal.SIGTERM]


@pytest.mark.parametrize("content", ["{", '{"kind": 3}', '{"numbers": 3}'])
def test_a_damaged_handle_is_not_taken_for_none(tmp_path, content):
    directory = RunDirectory(tmp_path)
    directory.handle_file.write_text(content)
    with pytest.raises(
        DamagedHandle, match=r"slot\.json: damaged: .* delete the file with `rm .*slot\.json` and repeat"
    ):
        StudyEngines(tmp_path).found(directory)


def test_a_run_that_says_itself_that_it_runs_here_is_found_without_its_handle(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.handle_file.write_text("{")
    directory.write_status("running")
    assert StudyEngines(tmp_path).found(directory).process == Process.current()


def test_slots_are_gpus_or_groups_of_cores(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    assert len(units_here(None, device="cpu", threads=2)) == 4
    assert len(units_here(3, device="cpu", threads=2)) == 3
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert [str(unit) for unit in units_here(None, device="auto", threads=None)] == ["gpu 2", "gpu 5"]
    assert [str(unit) for unit in units_here(1, device="auto", threads=None)] == ["gpu 2"]
    with pytest.raises(UserError, match="--slots 3: only 2 GPUs are available"):
        units_here(3, device="auto", threads=None)
