"""GPUs of a shared machine, by a program in the place of nvidia-smi: real processes, real parsing."""

import os
import pwd
import re
import subprocess
import sys
import time
import types

import pytest
from wanted_runs import wanted_run

from oelm.errors import UserError
from oelm.experiments import costs
from oelm.experiments.gpu_queries import Gpu, gpus_here, user_of_process, with_slices
from oelm.experiments.gpus import gpus_to_use, visible_alone
from oelm.experiments.local import Unit, environment_on, started, units_here
from oelm.experiments.nvml import listed
from oelm.study.plan import planned
from oelm.study.shelf import Shelf
from stored_runs import small_study

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Four GPUs: 0 free, 1 with a process of ours, 2 with memory taken by nobody to be seen, 3 free."""
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])

    def install(processes: str | None = None) -> int:
        listing = "".join(
            f"{index}, GPU-{index}, {used}, 24576, A Big GPU, 24 GB\n" for index, used in enumerate((4, 9000, 700, 0))
        )
        running = f"GPU-1, {sleeper.pid}, 8900\n" if processes is None else processes
        tool = tmp_path / "nvidia-smi"
        tool.write_text(
            f"#!{sys.executable}\nimport sys\n"
            f"asked = sys.argv[1].partition('=')[2].split(',')\n"
            f"assert sys.argv[2] == '--format=csv,noheader,nounits'\n"
            f"print({listing!r} if asked[0] == 'index' else {running!r}, end='')\n"
        )
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        return sleeper.pid

    yield install
    sleeper.kill()
    sleeper.wait()


def test_who_uses_which_gpu(machine):
    pid = machine()
    free, used, full, _ = gpus_here()
    assert free.why_busy is None
    assert free.name == "A Big GPU, 24 GB"
    assert used.why_busy == f"{ME} (pid {pid}); 8.8 of 24.0 GiB in use"
    assert full.why_busy == "0.7 of 24.0 GiB in use"


def test_busy_ones_are_skipped_and_every_one_is_accounted_for(machine):
    pid = machine()
    said = []
    units = units_here(None, device="auto", threads=None, say=said.append)
    assert [str(unit) for unit in units] == ["gpu 0", "gpu 3"]
    assert said == [
        "gpu 0: used, free according to nvidia-smi",
        f"gpu 1: skipped, busy: {ME} (pid {pid}); 8.8 of 24.0 GiB in use",
        "gpu 2: skipped, busy: 0.7 of 24.0 GiB in use",
        "gpu 3: used, free according to nvidia-smi",
    ]


def test_a_gpu_keeps_its_number_whichever_others_are_busy(machine):
    machine()
    assert [unit.number for unit in units_here(None, device="auto", threads=None)] == [0, 3]


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


def test_no_more_than_the_slots(machine):
    machine()
    said = []
    assert [unit.gpu for unit in units_here(1, device="auto", threads=None, say=said.append)] == ["0"]
    assert said[3] == "gpu 3: skipped, more than the requested slots"


@pytest.mark.parametrize(
    ("wanted", "slots", "expected"),
    [
        ("7", None, "--gpus 7: '7' is not a GPU of this machine, which has 0, 1, 2, 3"),
        ("0,", None, "--gpus 0,: '' is not a GPU"),
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
    machine("".join(f"GPU-{index}, {os.getpid()}, [N/A]\n" for index in range(4)))
    with pytest.raises(UserError, match=rf"every GPU is busy \(0: {ME} \(pid {os.getpid()}\)"):
        units_here(None, device="auto", threads=None)


def test_a_study_for_the_cpu_asks_nobody(machine):
    machine()
    assert all(unit.gpu is None for unit in units_here(2, device="cpu", threads=1))
    with pytest.raises(UserError, match="the study runs on the CPU"):
        units_here(None, device="cpu", threads=1, gpus="0")


def test_without_the_tool_or_with_a_broken_one_there_are_none(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'Failed to initialize NVML'; exit 9\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus_here() == []
    tool.unlink()
    assert gpus_here() == []


@pytest.fixture
def torch_sees_two(tmp_path, monkeypatch):
    """A driver's device file, and a torch that sees two GPUs, for the process that is asked."""
    (tmp_path / "nvidiactl").touch()
    (tmp_path / "modules" / "torch").mkdir(parents=True)
    stub = "class cuda:\n    device_count = staticmethod(lambda: 2)\n"
    (tmp_path / "modules" / "torch" / "__init__.py").write_text(stub)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    monkeypatch.setattr("oelm.experiments.gpu_queries.DEVICE_FILES", (str(tmp_path / "nvidiactl"),))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        (None, "nvidia-smi is not installed"),
        ("#!/bin/sh\necho 'Failed to initialize NVML'; exit 9\n", "nvidia-smi fails: Failed to initialize NVML"),
        ("#!/bin/sh\nexit 0\n", "nvidia-smi lists none"),
    ],
)
def test_gpus_that_torch_sees_and_the_tool_does_not_show_are_refused(torch_sees_two, monkeypatch, tool, reason):
    if tool is not None:
        (torch_sees_two / "nvidia-smi").write_text(tool)
        (torch_sees_two / "nvidia-smi").chmod(0o755)
    with pytest.raises(UserError, match=rf"torch sees 2 GPUs, but {reason}, .*CUDA_VISIBLE_DEVICES") as caught:
        units_here(None, device="auto", threads=None)
    assert "\n" not in str(caught.value)
    assert all(unit.gpu is None for unit in units_here(1, device="cpu", threads=1))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [str(unit) for unit in units_here(None, device="auto", threads=None)] == ["gpu 1"]


@pytest.mark.parametrize(("units", "seen"), [([Unit(0, None)], ""), ([Unit(3, "3"), Unit(1, "1")], "3,1")])
def test_a_run_sees_the_gpus_of_its_units_alone(tmp_path, monkeypatch, units, seen):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    show = [sys.executable, "-c", "import os; print(repr(os.environ['CUDA_VISIBLE_DEVICES']))"]
    monkeypatch.setattr("oelm.experiments.engine.train_command", lambda directory, processes: show)
    run = wanted_run(tmp_path / "run")
    started(run, units).child.process.wait()
    assert run.directory.output_file.read_text() == f"{seen!r}\n"


def test_the_dry_runs_probe_takes_a_free_gpu(machine, tmp_path, monkeypatch):
    """The first card is a colleague's; the probe of each arm sees the first free one, and no other."""
    machine(f"GPU-0, {os.getpid()}, 8000\nGPU-1, {os.getpid()}, 8000\n")
    modules, study = tmp_path / "modules", small_study()
    modules.mkdir()
    (modules / "stub_probe.py").write_text("import json, os; print(json.dumps(os.environ['CUDA_VISIBLE_DEVICES']))")
    monkeypatch.setenv("PYTHONPATH", str(modules))
    monkeypatch.setattr("oelm.timing.probing.PROBE", "stub_probe")
    units = units_here(None, device="auto", threads=None)
    todo, problems = planned(study, Shelf(tmp_path)).runs, []
    found = costs._probes(todo[:2], 60, problems, variables=environment_on(units[:1]))
    assert problems == []
    assert set(found.values()) == {"3"}
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
        ("", []),
        ("-1", []),
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


# ---- Who is asked --------------------------------------------------------------------------------------------------

NVML = """
class NVMLError(Exception):
    pass
class Memory:
    def __init__(self, used, total): self.used, self.total = used * 2**20, total * 2**20
class Process:
    def __init__(self, pid, used): self.pid, self.usedGpuMemory = pid, used
def nvmlInit(): {init}
def nvmlDeviceGetCount(): return 3
def nvmlDeviceGetHandleByIndex(number): return f"GPU-{{number}}"
def nvmlDeviceGetMigMode(handle):
    if handle != "GPU-2": raise NVMLError("Not Supported")
    return [1, 1]
def nvmlDeviceGetMaxMigDeviceCount(handle): return 4
def nvmlDeviceGetMigDeviceHandleByIndex(handle, place):
    if place == 1: raise NVMLError("Not Found")
    return f"MIG-{{place}}"
def nvmlDeviceGetMemoryInfo(handle): return Memory(9000 if handle in ("GPU-1", "MIG-0") else 1, 24576)
def nvmlDeviceGetUUID(handle): return handle.encode()
def nvmlDeviceGetName(handle): return "A Big GPU"
def nvmlDeviceGetComputeRunningProcesses(handle):
    return [Process({pid}, None)] if handle in ("GPU-1", "MIG-0") else []
"""


@pytest.fixture
def nvml(tmp_path, monkeypatch):
    """Three GPUs: 0 free, 1 ours, 2 divided: of its slices 0 is ours, 2 and 3 are free, and there is no 1."""

    def install(init: str = "pass") -> None:
        (tmp_path / "modules").mkdir()
        (tmp_path / "modules" / "pynvml.py").write_text(NVML.format(init=init, pid=os.getpid()))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
        monkeypatch.syspath_prepend(tmp_path / "modules")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return install


def test_nvml_is_asked_first_and_knows_slices(nvml):
    nvml()
    said = []
    units = units_here(None, device="auto", threads=None, say=said.append)
    assert said == [
        "gpu 0: used, free according to NVML",
        f"gpu 1: skipped, busy: {ME} (pid {os.getpid()}); 8.8 of 24.0 GiB in use",
        f"gpu 2:0: skipped, busy: {ME} (pid {os.getpid()}); 8.8 of 24.0 GiB in use",
        "gpu 2:2: used, free according to NVML",
        "gpu 2:3: used, free according to NVML",
    ]
    assert [(unit.number, unit.gpu) for unit in units] == [(0, "GPU-0"), (3, "MIG-2"), (4, "MIG-3")]


def test_gpus_and_slices_are_asked_for_by_number_or_uuid(nvml):
    nvml()
    for wanted, name in (("GPU-0", "0"), ("0,GPU-0", "0"), ("2:2", "MIG-2"), ("MIG-2", "MIG-2")):
        assert [gpu.name for gpu in gpus_to_use(wanted, say=print)] == [name]
    with pytest.raises(UserError, match="begins the UUIDs of 3 GPUs"):
        gpus_to_use("MIG-", say=print)


@pytest.mark.parametrize("init", ["raise NVMLError('Driver Not Loaded')", "import time; time.sleep(60)"])
def test_where_nvml_fails_or_hangs_the_tool_is_asked(machine, nvml, monkeypatch, init):
    machine()
    nvml(init)
    monkeypatch.setattr("oelm.experiments.gpu_queries.QUERY_SECONDS", 4.0)
    assert {gpu.source for gpu in gpus_here()} == {"nvidia-smi"}


@pytest.mark.parametrize(
    "lacking", [None, "a driver without it", "a package without it", "a package without its number"]
)
def test_what_the_driver_reserves_is_not_in_use(lacking):
    """An idle A100 whose driver reserves 900 MiB; where only the first version is known, all of it counts as used."""
    nvml = types.ModuleType("pynvml")
    exec(NVML.format(init="pass", pid=os.getpid()), vars(nvml))
    nvml.nvmlMemory_v2 = 0x02000028

    def memory(handle, version=None):
        if version and lacking == "a driver without it":
            raise nvml.NVMLError("Function Not Found")
        if version and lacking == "a package without it":
            raise TypeError("unexpected keyword argument")
        return nvml.Memory(0 if version == 0x02000028 else 912, 81920)

    if lacking == "a package without its number":
        del nvml.nvmlMemory_v2
    nvml.nvmlDeviceGetMemoryInfo = memory
    assert listed(nvml)[0]["used_mib"] == (912 if lacking else 0)


LISTED = """\
GPU 0: A100 (UUID: GPU-0)
  MIG 3g.40gb     Device  0: (UUID: MIG-a)
  MIG 3g.40gb     Device  1: (UUID: MIG-b)
GPU 1: A100 (UUID: GPU-1)
"""


def test_a_gpu_in_mig_mode_without_a_slice_is_not_free(tmp_path, nvml, monkeypatch):
    """By NVML, and by the tool; an older tool does not know of it."""
    nvml()
    import pynvml

    def refused(handle, **_):
        if handle == "GPU-2":
            raise pynvml.NVMLError("Insufficient Permissions")
        return pynvml.Memory(1, 24576)

    pynvml.nvmlDeviceGetMemoryInfo = refused  # of a divided one, except to an administrator
    assert [each["index"] for each in listed(pynvml)] == ["0", "1", "2:0", "2:2", "2:3"]
    pynvml.nvmlDeviceGetMaxMigDeviceCount = lambda handle: 0
    assert [each["is_divided"] for each in listed(pynvml)] == [False, False, True]
    assert Gpu("2", "A100", 0, 81920, is_divided=True).why_busy == "in MIG mode, without a slice"
    gpus = [Gpu(str(number), "A100", 0, 81920, uuid=f"GPU-{number}") for number in range(3)]
    found = with_slices(gpus, LISTED, "0, Enabled\n1, Disabled\n2, Enabled\n")
    assert [gpu.index for gpu in found] == ["0:0", "0:1", "1", "2"]
    assert [gpu.index for gpu in found if gpu.why_busy] == ["2"]
    assert with_slices(gpus, "", "") == gpus


def test_slices_as_the_tool_lists_them(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    answers = {"index": "0, GPU-0, 4, 81920, A100\n1, GPU-1, 9000, 81920, A100", "gpu_uuid": "", "": LISTED}
    tool.write_text(
        f"#!{sys.executable}\nimport sys\nprint({answers!r}[sys.argv[1].partition('=')[2].split(',')[0]])\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [(gpu.index, gpu.name, gpu.uuid) for gpu in gpus_here()] == [
        ("0:0", "A100 MIG 3g.40gb", "MIG-a"),
        ("0:1", "A100 MIG 3g.40gb", "MIG-b"),
        ("1", "A100", "GPU-1"),
    ]
    assert [gpu.name for gpu in gpus_to_use(None, say=print)] == ["MIG-a", "MIG-b"]


def test_a_tool_that_hangs_is_given_up_and_torch_says_what_is_in_use(torch_sees_two, monkeypatch):
    (torch_sees_two / "nvidia-smi").write_text("#!/bin/sh\n/bin/sleep 60 & wait\n")
    (torch_sees_two / "nvidia-smi").chmod(0o755)
    (torch_sees_two / "modules" / "torch" / "__init__.py").write_text(
        "class Known:\n    name, uuid = 'A Big GPU', 'abc'\n"
        "class cuda:\n    device_count = staticmethod(lambda: 2)\n"
        "    get_device_properties = staticmethod(lambda number: Known)\n"
        "    mem_get_info = staticmethod(lambda number: ((24 - 8 * number) * 2**30 - 400 * 2**20, 24 * 2**30))\n"
    )
    monkeypatch.setattr("oelm.experiments.gpu_queries.QUERY_SECONDS", 4.0)
    said, began = [], time.monotonic()
    assert [gpu.name for gpu in gpus_to_use(None, say=said.append)] == ["0"]
    assert time.monotonic() - began < 50  # the tool would have taken a minute
    assert said[0] == "gpu 0: used, free according to torch"
    assert said[1].startswith("gpu 1: skipped, busy: 7.7 of 24.0 GiB")


def test_a_torch_that_hangs_is_given_up_too(torch_sees_two, monkeypatch):
    (torch_sees_two / "modules" / "torch" / "__init__.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr("oelm.experiments.gpu_queries.TORCH_SECONDS", 0.5)
    with pytest.raises(UserError, match=r"torch did not say within 0.5 s whether it sees a GPU, .*device: cpu"):
        gpus_here()
