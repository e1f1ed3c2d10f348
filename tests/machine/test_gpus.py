"""GPUs of a shared machine, by a module in the place of NVML's: real processes."""

import os
import pwd
import re
import subprocess
import sys
import types

import pytest

from oelm.execution.costs import probed
from oelm.execution.local import Unit, environment_on, started, units_here
from oelm.machine import gpus
from oelm.machine.errors import UserError
from oelm.machine.gpus import gpus_here, gpus_to_use, user_of_process, visible_alone
from oelm.machine.nvml import listed
from wanted_runs import wanted_run

ME = pwd.getpwuid(os.getuid()).pw_name


NVML = """
class NVMLError(Exception):
    pass
class Memory:
    def __init__(self, used, total): self.used, self.total = used * 2**20, total * 2**20
class Process:
    def __init__(self, pid, used): self.pid, self.usedGpuMemory = pid, used
{init}
USED, RUNNING, DIVIDED = {used}, {running}, {divided}
def nvmlInit(): pass
def nvmlDeviceGetCount(): return len(USED)
def nvmlDeviceGetHandleByIndex(number): return number
def nvmlDeviceGetMigMode(handle):
    if handle not in DIVIDED: raise NVMLError("Not Supported")
    return [1, 1]
def nvmlDeviceGetMemoryInfo(handle):
    if handle in DIVIDED: raise NVMLError("Insufficient Permissions")
    return Memory(USED[handle], 24576)
def nvmlDeviceGetUUID(handle): return f"GPU-{{handle}}a".encode()
def nvmlDeviceGetName(handle): return "A Big GPU"
def nvmlDeviceGetComputeRunningProcesses(handle): return [Process(*each) for each in RUNNING.get(handle, [])]
"""
IN_USE = (4, 9000, 700, 0)


def nvml_text(running: dict | None = None, *, divided: tuple = (), init: str = "pass") -> str:
    return NVML.format(used=IN_USE, running=running or {}, divided=divided, init=init)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Four GPUs: 0 free, 1 with a process of ours, 2 with memory taken by nobody to be seen, 3 free."""
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])

    def install(running: dict | None = None, **further) -> int:
        (tmp_path / "modules").mkdir(exist_ok=True)
        running = {1: [(sleeper.pid, 8900 * 2**20)]} if running is None else running
        (tmp_path / "modules" / "pynvml.py").write_text(nvml_text(running, **further))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
        monkeypatch.syspath_prepend(tmp_path / "modules")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        return sleeper.pid

    yield install
    sleeper.kill()
    sleeper.wait()


def test_who_uses_which_gpu(machine):
    pid = machine()
    free, used, full, _ = gpus_here()
    assert free.why_busy is None
    assert free.name == "A Big GPU"
    assert used.why_busy == f"{ME} (pid {pid}); 8.8 of 24.0 GiB in use"
    assert full.why_busy == "0.7 of 24.0 GiB in use"


def test_busy_ones_are_skipped_and_every_one_is_accounted_for(machine):
    pid = machine()
    said = []
    units = units_here(None, device="auto", threads=None, say=said.append)
    assert [(unit.number, str(unit)) for unit in units] == [(0, "gpu 0"), (3, "gpu 3")]
    assert said == [
        "gpu 0: used",
        f"gpu 1: skipped, busy: {ME} (pid {pid}); 8.8 of 24.0 GiB in use",
        "gpu 2: skipped, busy: 0.7 of 24.0 GiB in use",
        "gpu 3: used",
    ]
    assert [unit.gpu for unit in units_here(1, device="auto", threads=None, say=said.append)] == ["0"]
    assert said[-1] == "gpu 3: skipped, more than the requested slots"


def test_gpus_of_our_own_living_runs_and_their_workers_are_not_busy(machine):
    pid = machine()
    assert [gpu.name for gpu in gpus_to_use(None, ours=[pid], say=print)] == ["0", "1", "3"]
    assert [gpu.name for gpu in gpus_to_use(None, ours=[os.getpid()], say=print)] == ["0", "1", "3"]  # its parent


def test_chosen_ones_are_taken_busy_or_not(machine):
    machine()
    said = []
    assert [gpu.name for gpu in gpus_to_use("2,0", say=said.append)] == ["2", "0"]
    assert said[2] == "gpu 2: used, although busy: 0.7 of 24.0 GiB in use"
    assert said[3] == "gpu 3: skipped, not requested"


@pytest.mark.parametrize(
    ("wanted", "slots", "expected"),
    [
        ("7", None, "--gpus 7: '7' is not a GPU of this machine, which has 0, 1, 2, 3"),
        ("0;ls", None, "'0;ls' is not a GPU"),
        (None, 3, "--slots 3: only 2 GPUs are available"),
    ],
)
def test_wrong_words_are_one_line(machine, wanted, slots, expected):
    machine()
    with pytest.raises(UserError, match=re.escape(expected)) as caught:
        units_here(slots, device="auto", threads=None, gpus=wanted)
    assert "\n" not in str(caught.value)


def test_when_all_are_busy_it_says_by_whom(machine):
    machine({index: [(os.getpid(), None)] for index in range(4)})
    with pytest.raises(UserError, match=rf"every GPU is busy \(0: {ME} \(pid {os.getpid()}\)"):
        units_here(None, device="auto", threads=None)


def test_a_study_for_the_cpu_asks_nobody(machine):
    machine()
    assert all(unit.gpu is None for unit in units_here(2, device="cpu", threads=1))
    with pytest.raises(UserError, match="the study runs on the CPU"):
        units_here(None, device="cpu", threads=1, gpus="0")


@pytest.mark.parametrize(
    ("init", "reason"),
    [
        (None, "NVML for Python is not installed"),
        ("import sys; sys.exit('Driver Not Loaded')", "NVML fails: Driver Not Loaded"),
        ("import time; time.sleep(60)", "NVML did not answer within 4 s"),
    ],
)
def test_where_nvml_does_not_answer_there_are_no_gpus_or_a_driver_without_an_answer(
    tmp_path, machine, monkeypatch, init, reason
):
    machine(init=init or "pass")
    monkeypatch.setattr(gpus, "QUERY_SECONDS", 4.0)
    if init is None:
        monkeypatch.setattr(gpus.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(gpus, "DRIVER_FILES", (str(tmp_path / "nvidiactl"),))
    assert gpus_here() == []
    (tmp_path / "nvidiactl").touch()
    with pytest.raises(UserError, match=rf"{reason}.*CUDA_VISIBLE_DEVICES") as caught:
        units_here(None, device="auto", threads=None)
    assert "\n" not in str(caught.value)
    assert all(unit.gpu is None for unit in units_here(1, device="cpu", threads=1))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [str(unit) for unit in units_here(None, device="auto", threads=None)] == ["gpu 1"]


@pytest.mark.parametrize(("units", "seen"), [([Unit(0, None)], ""), ([Unit(3, "3"), Unit(1, "1")], "3,1")])
def test_a_run_sees_the_gpus_of_its_units_alone(tmp_path, monkeypatch, units, seen):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    show = [sys.executable, "-c", "import os; print(repr(os.environ['CUDA_VISIBLE_DEVICES']))"]
    monkeypatch.setattr("oelm.execution.engine.train_command", lambda directory, processes: show)
    run = wanted_run(tmp_path / "run")
    started(run, units).child.wait()
    assert run.directory.output_file.read_text() == f"{seen!r}\n"


def test_the_dry_runs_probe_takes_a_free_gpu(machine, tmp_path, monkeypatch):
    """The first card is a colleague's; the probe sees the first free one, and no other."""
    machine({0: [(os.getpid(), 8000 * 2**20)], 1: [(os.getpid(), 8000 * 2**20)]})
    modules = tmp_path / "modules"
    (modules / "stub_probe.py").write_text("import json, os; print(json.dumps(os.environ['CUDA_VISIBLE_DEVICES']))")
    monkeypatch.setenv("PYTHONPATH", str(modules))
    monkeypatch.setattr("oelm.execution.costs.PROBE", "stub_probe")
    units = units_here(None, device="auto", threads=None)
    settings = wanted_run(tmp_path / "run").settings
    assert probed(settings, timeout=60, variables=environment_on(units[:1])) == "3"
    assert environment_on([Unit(0, None)])["CUDA_VISIBLE_DEVICES"] == ""


def test_the_environments_choice_goes_before_ours(machine, monkeypatch):
    machine()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    assert [gpu.name for gpu in gpus_to_use(None, say=print)] == ["1", "2"]
    said = []
    units = units_here(None, device="auto", threads=None, say=said.append)
    assert environment_on(units[1:]) == {"CUDA_VISIBLE_DEVICES": "2"}  # numbered as whoever set it meant it
    assert said == [f"gpu {name}: used, listed in CUDA_VISIBLE_DEVICES" for name in "12"]


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ("0, 2", ["0", "2"]),
        ("NoDevFiles", []),
        ("1,-1,2", ["1"]),
        ("GPU-8a,MIG-1", ["GPU-8a", "MIG-1"]),
    ],
)
def test_the_environment_is_read_as_cuda_reads_it(monkeypatch, given, seen):
    """Up to the first that names no GPU; a job of Slurm without GPUs has NoDevFiles."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert [gpu.name for gpu in gpus_to_use(None, say=print)] == seen


@pytest.mark.parametrize("already", [None, "1,2"])
def test_chosen_ones_are_numbered_by_their_bus_whatever_the_environment_says(machine, monkeypatch, already):
    """Our numbers are the tool's: CUDA's own order may be another."""
    machine()
    if already is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", already)
    units = units_here(None, device="auto", threads=None, gpus="3")
    assert environment_on(units) == {"CUDA_VISIBLE_DEVICES": "3", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert visible_alone([]) == {"CUDA_VISIBLE_DEVICES": "", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def test_a_process_that_cannot_be_seen_is_somebodys():
    assert user_of_process(2**22 + 1) == "somebody"


# ---- What NVML says ------------------------------------------------------------------------------------------------


def test_gpus_are_asked_for_by_number_or_uuid_and_slices_by_uuid(machine):
    machine()
    for wanted, names in (("GPU-0", ["0"]), ("0,GPU-0", ["0"]), ("MIG-2,MIG-1", ["MIG-2", "MIG-1"])):
        chosen = gpus_to_use(wanted, say=print)
        assert [gpu.name for gpu in chosen] == names
        assert len({gpu.number for gpu in chosen}) == len(names)
    with pytest.raises(UserError, match="begins the UUIDs of 4 GPUs"):
        gpus_to_use("GPU-", say=print)


def test_a_divided_gpu_is_not_free(machine):
    machine({}, divided=(0,))
    said = []
    assert [gpu.name for gpu in gpus_to_use(None, say=said.append)] == ["3"]
    assert "MIG-" in said[0]


@pytest.mark.parametrize("lacking", [None, "a driver without it", "a package without its number"])
def test_what_the_driver_reserves_is_not_in_use(lacking):
    """An idle A100 whose driver reserves 900 MiB; where only the first version is known, all of it counts as used."""
    nvml = types.ModuleType("pynvml")
    exec(nvml_text(), vars(nvml))
    nvml.nvmlMemory_v2 = 0x02000028

    def memory(handle, version=None):
        if version and lacking == "a driver without it":
            raise nvml.NVMLError("Function Not Found")
        return nvml.Memory(0 if version == 0x02000028 else 912, 81920)

    if lacking == "a package without its number":
        del nvml.nvmlMemory_v2
    nvml.nvmlDeviceGetMemoryInfo = memory
    assert listed(nvml)[0]["used_mib"] == (912 if lacking else 0)
